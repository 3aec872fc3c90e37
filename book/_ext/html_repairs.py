"""Repairs of the pages that the pinned theme writes: accessibility, clutter, the size of figures.

Each repair is one function with the fault it mends; the checks of the site say when one is no longer needed.
The pages are repaired when the build is finished, and a script that goes into each of them does the one repair
that depends on the window.
"""

from __future__ import annotations

import struct
from pathlib import Path
from urllib.parse import unquote

from bs4 import BeautifulSoup, Doctype
from sphinx.application import Sphinx

# What the theme puts on a page that is of no use on this one.
CLUTTER = (
    ".bd-sidenav__home-link",  # repeats the title of the book, which stands above it and links home as well
    ".sidebar-primary-items__end:has(#ethical-ad-placement)",  # a place for advertisements
    ".btn-fullscreen-button",  # the browser has this key already
    "script[src*='fontawesome.js']",  # 1.5 MB that draw the icons which the style sheet draws already
    ".bd-sidebar-secondary:not(:has(a))",  # contents of a page without sections
    ".bd-sidebar-secondary:not(:has(a)) ~ .secondary-toggle",
)

# The visible name of a control must be part of its accessible name, which the theme overrides.
MISNAMED = "summary[aria-label], button.search-button-field[aria-label], button.theme-switch-button[aria-label]"

FOLD_TITLES = {
    "Show code cell source": "Show the code",
    "Hide code cell source": "Hide the code",
    "Show code cell content": "Show the code and its output",
    "Hide code cell content": "Hide the code and its output",
    "Show code cell output": "Show the output",
    "Hide code cell output": "Hide the output",
}

PIXELS_PER_POINT = 2  # figures are drawn for dense screens

# Whatever scrolls must be reachable with the keyboard; what does not scroll should not be a stop on the way.
# The theme marks code once, when the page has loaded: too early for code that is still folded.
# A formula within a line that is wider than the text gets a class with which it scrolls; the others must not
# have it, because a box that scrolls does not stand on the line.
MARK_SCROLLABLE = """
document.addEventListener("DOMContentLoaded", () => {
  const article = document.querySelector("article.bd-article");
  if (!article) return;
  const mark = () => {
    for (const box of article.querySelectorAll("pre, .pst-scrollable-table-container, .figure-frame, .output")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
    for (const formula of article.querySelectorAll("span.math mjx-container")) {
      const inside = formula.closest("p, li, td, th, dd, figcaption") ?? article;
      const width = formula.firstElementChild.getBoundingClientRect().width;
      formula.classList.toggle("wider-than-text", width > inside.clientWidth);
    }
  };
  new ResizeObserver(mark).observe(article); // it grows when a formula is set and when a fold is opened
});
"""

REDIRECT = """\
<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta http-equiv="refresh" content="0; url={address}">
    <title>{title}</title>
  </head>
  <body><main><h1><a href="{address}">{title}</a></h1></main></body>
</html>
"""


def remove_clutter(page: BeautifulSoup) -> None:
    """Remove what the theme offers and this book does not use."""
    for selector in CLUTTER:
        for element in page.select(selector):
            element.decompose()


def name_controls_by_their_text(page: BeautifulSoup) -> None:
    """Drop accessible names that contradict the visible ones (axe: label-content-name-mismatch)."""
    for control in page.select(MISNAMED):
        del control["aria-label"]


def name_folds(page: BeautifulSoup) -> None:
    """Say what is folded in a reader's words."""
    for title in page.select("details.hide > summary > p"):
        text = title.get_text(strip=True)
        title.string = FOLD_TITLES.get(text, text)


def open_solutions_by_their_title(page: BeautifulSoup) -> None:
    """Unlink the title of a folded solution, on which a reader clicks to open it, not to go to the exercise."""
    for link in page.select(".solution.dropdown > .admonition-title a"):
        link.unwrap()


def make_sidebar_a_landmark(page: BeautifulSoup) -> None:
    """Put title and search of the sidebar into a landmark (axe: region)."""
    for items in page.select(".bd-sidebar-primary .sidebar-primary-items__start"):
        items["role"] = "navigation"
        items["aria-label"] = "Book"


def make_references_a_list(page: BeautifulSoup) -> None:
    """Replace a role that browsers no longer know (axe: aria-deprecated-role, aria-required-children)."""
    for entry in page.select('[role="doc-biblioentry"]'):
        entry["role"] = "listitem"


def keep_one_viewport(page: BeautifulSoup) -> None:
    """Keep one of the three equal viewport settings that Sphinx, the theme and MyST write."""
    for surplus in page.select('meta[name="viewport"]')[1:]:
        surplus.decompose()


def unmark_plain_code(page: BeautifulSoup) -> None:
    """Unmark names, punctuation and spaces, which look as all code does: a quarter of a page with much of it.

    The dot before an attribute, an operator to Pygments, is punctuation to a reader.
    """
    for code in page.select(".highlight pre"):
        for plain in code.find_all("span", class_=("n", "nn", "p", "w", "o")):
            is_plain = plain["class"] in (["n"], ["nn"], ["p"], ["w"])
            if is_plain or (plain["class"] == ["o"] and plain.string == "."):
                plain.unwrap()
        code.smooth()


def frame_figures(page: BeautifulSoup, folder: Path) -> None:
    """Give every drawn figure its size, so that text does not jump, and a frame to scroll in where it is narrow."""
    for image in page.select(".cell_output img[src$='.png']"):
        size = png_size(folder / unquote(image["src"]))
        if size:
            image["width"], image["height"] = (round(pixels / PIXELS_PER_POINT) for pixels in size)
        if not image.find_parent(class_="figure-frame"):  # repaired before
            image.wrap(page.new_tag("div", attrs={"class": "figure-frame"}))


def drop_surplus_blanks(page: BeautifulSoup) -> None:
    """Drop blanks that the parser would not read back: those left by what was removed, and after the doctype.

    The writer adds a line break to the doctype itself, so each repair of a page would add one.
    """
    for blank in page.find_all(string=lambda text: text is not None and text.isspace()):
        before = blank.previous_sibling
        if isinstance(before, Doctype) or (isinstance(before, str) and before.isspace()):
            blank.extract()


def png_size(path: Path) -> tuple[int, int] | None:
    """Return width and height in pixels of a PNG file, None if it is not one."""
    head = path.read_bytes()[:24] if path.is_file() else b""
    if not head.startswith(b"\x89PNG\r\n\x1a\n") or len(head) < 24:
        return None
    return struct.unpack(">II", head[16:24])


def repaired(html: str, folder: Path) -> str:
    """Return a page of the theme with all repairs made; `folder` is where its relative addresses start.

    A page that is repaired already comes back as it is, because a build may leave pages of the one before.
    """
    page = BeautifulSoup(html, "html.parser")
    remove_clutter(page)
    name_controls_by_their_text(page)
    name_folds(page)
    open_solutions_by_their_title(page)
    make_sidebar_a_landmark(page)
    make_references_a_list(page)
    keep_one_viewport(page)
    unmark_plain_code(page)
    frame_figures(page, folder)
    drop_surplus_blanks(page)
    return str(page)


def repair_site(app: Sphinx, failure: Exception | None) -> None:
    """Repair every page, once all are written."""
    if failure is not None or app.builder.format != "html":
        return
    site = Path(app.outdir)
    for path in site.rglob("*.html"):
        if path.relative_to(site).parts[0] not in ("_static", "_sources"):
            html = path.read_text("utf-8")
            if "<html" in html:
                path.write_text(repaired(html, path.parent), "utf-8")
    # the redirect from the root of the site comes without title and language
    start = app.config.root_doc
    if "/" in start:
        page = REDIRECT.format(address=f"{start}.html", title=app.config.html_title or app.config.project)
        (site / "index.html").write_text(page, "utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the extension with Sphinx."""
    app.add_js_file(None, body=MARK_SCROLLABLE)
    app.connect("build-finished", repair_site)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
