"""What only a browser can tell about the built site: scripts, formulas, contrast, width, search.

Each check returns complaints: sentences that say which page, in which view, what is wrong and what to do.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import BrowserContext, Page, ViewportSize, expect

from tests.book.page_check import article, content_pages

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # an external request is a complaint; it must not also be a wait for somebody's server
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
PATIENCE = 15_000  # milliseconds


@dataclass(frozen=True)
class View:
    """A window to look at pages through."""

    width: int
    height: int
    modes: tuple[str, ...]  # in which contrast is looked at

    def __str__(self) -> str:
        return f"{self.width} px"

    @property
    def size(self) -> ViewportSize:
        return {"width": self.width, "height": self.height}


DESKTOP = View(1280, 900, modes=("light", "dark"))
PHONE = View(390, 844, modes=())  # its colors are those of the desktop


class Witness:
    """Writes down what a page logs and asks for while it loads."""

    def __init__(self, page: Page, home: str):
        self.home = home
        self.complaints: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._note(f"a script failed: {error}"))
        page.on("request", self._on_request)
        page.on("requestfailed", self._on_failure)
        page.on("response", self._on_response)

    def _note(self, complaint: str) -> None:
        if complaint not in self.complaints:
            self.complaints.append(complaint)

    def _is_external(self, address: str) -> bool:
        return not address.startswith((self.home, "data:", "blob:"))

    def _on_console(self, message) -> None:
        # the browser's own line about a missing file repeats what _on_response says better
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self._note(f"the console shows: {message.text}")

    def _on_request(self, request) -> None:
        if self._is_external(request.url):
            self._note(f"external request to {request.url}: put the file into the site")

    def _on_failure(self, request) -> None:
        if not self._is_external(request.url):
            self._note(f"request failed: {request.url} ({request.failure})")

    def _on_response(self, response) -> None:
        if response.status >= 400:
            self._note(f"request failed: {response.url} answered {response.status}")


def page_complaints(
    context: BrowserContext, home: str, page: str, *views: View, seen: set[str] | None = None
) -> list[str]:
    """Load one page once and look at it through windows, one after the other.

    The contrast of kinds of text in `seen` is known.
    """
    seen = set() if seen is None else seen
    found = []
    tab = context.new_page()
    try:
        witness = Witness(tab, home)
        tab.set_viewport_size(views[0].size)
        tab.goto(home + page, wait_until="load")
        wait_until_set(tab)
        found += [*formula_complaints(tab), *loading_complaints(tab)]
        found += witness.complaints  # before axe, which makes a request of its own
        unfold(tab)
        tab.evaluate(AXE_SCRIPT)
        for view in views:
            tab.set_viewport_size(view.size)
            found += [f"at {view}: {complaint}" for complaint in view_complaints(tab, view, seen)]
    finally:
        tab.close()
    return [f"{page}: {complaint}" for complaint in found]


def view_complaints(tab: Page, view: View, seen: set[str]) -> list[str]:
    """Make every check that depends on the window."""
    wait_for_frames(tab)
    found = [*width_complaints(tab), *clipping_complaints(tab)]
    found += code_complaints(tab) if view.width >= 1280 else []  # on a phone code scrolls
    found += structure_complaints(tab, view)
    for mode in view.modes:
        found += contrast_complaints(tab, mode, seen)
    return found


def wait_until_set(tab: Page) -> None:
    """Wait until MathJax, where the page has it, is done."""
    tab.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")


def unfold(tab: Page) -> None:
    """Open whatever is folded, so that hidden solutions and code are checked as well."""
    tab.evaluate(
        """() => {
            document.querySelectorAll("article details").forEach(fold => { fold.open = true; });
            document.querySelectorAll("article .toggle-hidden button.toggle-button").forEach(b => b.click());
        }"""
    )


def wait_for_frames(tab: Page) -> None:
    """Wait until the page's own script has marked what scrolls now, in the frame after this one."""
    tab.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")


def formula_complaints(tab: Page) -> list[str]:
    """Every formula is typeset, and none shows an error."""
    unset, broken = tab.evaluate(
        r"""() => {
            const formulas = [...document.querySelectorAll(".math")];
            const unset = formulas.filter(f => !f.querySelector("mjx-container")).map(f => f.textContent.trim());
            // delimiters that nothing has read
            const texts = document.createTreeWalker(
                document.querySelector("article") ?? document.body, NodeFilter.SHOW_TEXT);
            while (texts.nextNode()) {
                const text = texts.currentNode;
                const isFormulaOrCode = text.parentElement.closest(".math, mjx-container, pre, code, script, style");
                if (!isFormulaOrCode && /\$\$|\\\[|\\\(/.test(text.data)) unset.push(text.data.trim());
            }
            const errors = [...document.querySelectorAll("[data-mjx-error]")]
                .map(e => e.getAttribute("data-mjx-error"));
            // MathJax writes a command that it does not know in red; its text is in the copy for screen readers
            const unknown = [...document.querySelectorAll("mjx-assistive-mml [mathcolor=red]")]
                .filter(e => e.textContent.trim().startsWith("\\"))
                .map(e => "unknown command " + e.textContent.trim());
            return [unset, [...new Set([...errors, ...unknown])]];
        }"""
    )
    return [f"a formula is not typeset: {text[:80]}" for text in unset] + [
        f"a formula is broken ({text[:80]}): mend its TeX" for text in broken
    ]


def loading_complaints(tab: Page) -> list[str]:
    """Every image arrived."""
    missing = tab.evaluate(
        """() => [...document.images].filter(i => !(i.complete && i.naturalWidth > 0)).map(i => i.src)"""
    )
    return [f"the image {address} did not load" for address in missing]


def width_complaints(tab: Page) -> list[str]:
    """The page is no wider than the window."""
    wide, window = tab.evaluate("() => [document.scrollingElement.scrollWidth, window.innerWidth]")
    if wide <= window:
        return []
    return [f"the page is {wide} px wide in a window of {window} px"]


def code_complaints(tab: Page) -> list[str]:
    """No line of code has to be scrolled on a wide window; outputs may be as long as they are."""
    lines = tab.evaluate(
        """() => {
            const blocks = [...document.querySelectorAll("article .highlight pre")];
            const wide = blocks.filter(e => !e.closest(".cell_output") && e.scrollWidth > e.clientWidth + 1);
            const longest = e => e.textContent.split("\\n").reduce((a, b) => b.length > a.length ? b : a, "");
            return wide.map(e => longest(e).trim());
        }"""
    )
    return [f"a line of code is wider than the page: break {line[:80]!r}" for line in lines]


def clipping_complaints(tab: Page) -> list[str]:
    """In the article nothing is cut off: what does not fit scrolls inside itself."""
    found = tab.evaluate(
        """() => {
            const article = document.querySelector("article.bd-article");
            if (!article) return [];
            const column = article.getBoundingClientRect();
            const flow = e => getComputedStyle(e).overflowX;
            const isInsideScroller = e => {
                for (let up = e.parentElement; up !== article; up = up.parentElement)
                    if (["auto", "scroll"].includes(flow(up))) return true;
                return false;
            };
            const sticksOut = e => {
                const box = e.getBoundingClientRect();
                const isVisible = box.width > 0 && box.height > 0;
                const isOutside = box.right > column.right + 1 || box.left < column.left - 1;
                return isVisible && isOutside && !isInsideScroller(e);
            };
            const cutsOff = e => ["hidden", "clip"].includes(flow(e)) && e.clientWidth > 0
                && e.scrollWidth > e.clientWidth + 1;
            const name = e => [e.tagName.toLowerCase(), ...e.classList].join(".")
                + ` "${e.textContent.trim().slice(0, 40)}"`;
            const complaints = [];
            for (const e of article.querySelectorAll("*:not(mjx-container *, svg *, .visually-hidden)")) {
                if (sticksOut(e)) complaints.push("sticks out of the column: " + name(e));
                else if (cutsOff(e)) complaints.push("cuts its content off: " + name(e));
            }
            return complaints.slice(0, 5);
        }"""
    )
    return [f"{text}: let it wrap, or scroll inside itself" for text in found]


def structure_complaints(tab: Page, view: View) -> list[str]:
    """No violation of the accessibility rules of axe-core, that of contrast apart.

    A narrow page is the same page; what scrolls there may be more.
    """
    contrast, scrolling = "color-contrast", "scrollable-region-focusable"
    which = {"runOnly": [scrolling]} if view == PHONE else {"rules": {contrast: {"enabled": False}}}
    return axe_complaints(tab.evaluate("options => axe.run(options)", {"resultTypes": ["violations"], **which}))


def contrast_complaints(tab: Page, mode: str, seen: set[str]) -> list[str]:
    """The text has enough contrast; of texts of one size and color on one background, one is looked at.

    axe needs milliseconds for each text of a page, and a chapter's code alone has thousands of words.
    """
    tab.emulate_media(color_scheme=mode)
    tab.wait_for_function("mode => document.documentElement.dataset.theme === mode", arg=mode)
    kinds = tab.evaluate(
        """() => {
            // no fades: a text that is still appearing has too little contrast
            document.getAnimations().forEach(fade => fade.finish());
            const behind = new Map([[null, ""]]);
            const describe = e => {
                if (!behind.has(e)) {
                    const { backgroundColor, backgroundImage, opacity } = getComputedStyle(e);
                    const layer = [backgroundColor, backgroundImage, opacity].join();
                    const isNothing = layer === "rgba(0, 0, 0, 0),none,1";
                    behind.set(e, describe(e.parentElement) + (isNothing ? "" : ` on ${layer}`));
                }
                return behind.get(e);
            };
            const hasText = e => e.matches("input, select, textarea")
                || [...e.childNodes].some(child => child.nodeType === Node.TEXT_NODE && child.data.trim());
            window.textsOfKind = {};
            for (const e of document.body.querySelectorAll("*")) {
                if (!hasText(e) || !e.checkVisibility({ visibilityProperty: true })) continue;
                const { color, fontSize, fontWeight } = getComputedStyle(e);
                window.textsOfKind[[color, fontSize, fontWeight, describe(e)].join(" ")] ??= e;
            }
            return Object.keys(window.textsOfKind);
        }"""
    )
    new = [kind for kind in kinds if kind not in seen]
    seen.update(new)
    if not new:
        return []
    result = tab.evaluate(
        """kinds => axe.run({ include: kinds.map(kind => window.textsOfKind[kind]) },
            { resultTypes: ["violations"], runOnly: ["color-contrast"] })""",
        new,
    )
    return [f"in {mode} mode {complaint}" for complaint in axe_complaints(result)]


def axe_complaints(result: dict) -> list[str]:
    """One complaint for each rule of axe-core that a page violates."""
    complaints = []
    for violation in result["violations"]:
        first = violation["nodes"][0]
        reason = (first.get("failureSummary") or "").replace("\n", " ")
        complaints.append(
            f"axe {violation['id']}: {violation['help']}, {len(violation['nodes'])} times, "
            f"first {first['html'][:160]} {reason[:240]}"
        )
    return complaints


# What a reader does with a page


def word_only_in_code(site: Path, page: str) -> str | None:
    """A word of this page's code cells that no other page has: long, plain, so that search must know it."""
    elsewhere = set()
    for other in content_pages(site):
        if other != page:
            elsewhere |= _words(article(site, other).get_text(" "))
    code = " ".join(cell.get_text() for cell in article(site, page).select(".cell_input"))
    return max(_words(code) - elsewhere, key=lambda word: (len(word), word), default=None)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\b[a-z]{6,}\b", text.lower()))


def search_complaints(context: BrowserContext, home: str, pages_of: dict[str, str]) -> list[str]:
    """Typing each word into the search page lists the page that `pages_of` gives for it."""
    complaints = []
    tab = context.new_page()
    tab.goto(home + "search.html", wait_until="load")
    for word, page in pages_of.items():
        field = tab.locator("main input[type=search]")
        field.fill(word)
        field.press("Enter")
        tab.wait_for_url(f"**/search.html?q={word}*")
        summary = tab.locator("#search-results .search-summary, #search-results p").first
        expect(summary).to_contain_text(re.compile("found|did not match", re.I), timeout=PATIENCE)
        found = tab.locator("#search-results ul.search a").evaluate_all("links => links.map(link => link.href)")
        if not any(address.split("?")[0].split("#")[0] == home + page for address in found):
            complaints.append(f'search.html: a search for "{word}" does not list {page}, where it stands')
    return complaints


def copy_complaints(context: BrowserContext, home: str, page: str) -> list[str]:
    """The copy button of the first code cell puts that cell's code on the clipboard."""
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=home.rstrip("/"))
    tab = context.new_page()
    try:
        tab.goto(home + page, wait_until="load")
        cell = tab.locator("div.cell > .cell_input div.highlight").first
        cell.hover()
        button = cell.locator("button.copybtn")
        if not button.count():
            return [f"{page}: the first code cell has no copy button"]
        button.click()
        expect(button).to_have_class(re.compile("success"), timeout=PATIENCE)
        copied = tab.evaluate("() => navigator.clipboard.readText()")
        shown = cell.locator("pre").inner_text()
    finally:
        tab.close()
    if copied.strip() == shown.strip():
        return []
    return [f"{page}: the copy button copies {copied[:60]!r} where the cell shows {shown[:60]!r}"]
