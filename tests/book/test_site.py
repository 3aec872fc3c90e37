"""The built site, and each check of a page on a page with a fault made on purpose.

Every page is looked at by test_pages.py.
"""

import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.book import browser_check, page_check
from tests.book.browser_check import DESKTOP, PHONE, View
from tests.book.conftest import report, serve, site_complaint

START = "book/index.html"


# The real book


@cache
def complaints_of(check: Callable, site: Path) -> list[str]:
    """What a check says about the real book."""
    return check(site)


def test_links(site):
    complaints = complaints_of(page_check.link_complaints, site)
    assert not complaints, report(complaints)


def test_alt_texts(site):
    complaints = complaints_of(page_check.image_complaints, site)
    assert not complaints, report(complaints)


def test_root_leads_to_the_first_page(server, browser):
    with browser.new_context() as context:
        tab = context.new_page()
        tab.goto(server)
        tab.wait_for_url(server + START)


def test_search_finds_words_of_notebooks(site, server, browser):
    words = {page: browser_check.word_only_in_code(site, page) for page in notebooks(site)}
    pages_of = {word: page for page, word in words.items() if word}
    assert pages_of, "no notebook has a word in its code that no other page has"
    with browser.new_context() as context:
        complaints = browser_check.search_complaints(context, server, pages_of)
    assert not complaints, report(complaints)


def test_copy_button(site, server, browser):
    with browser.new_context() as context:
        complaints = browser_check.copy_complaints(context, server, notebooks(site)[0])
    assert not complaints, report(complaints)


def test_pages_work_without_a_server(site, browser):
    """A page opened as a file: its formulas are set and nothing is missing."""
    page = notebooks(site)[0]
    with browser.new_context() as context:
        complaints = browser_check.page_complaints(context, f"{site.resolve().as_uri()}/", page, DESKTOP)
    assert not complaints, report(complaints)


def notebooks(site: Path) -> list[str]:
    """The pages that are notebooks, whose sources are published beside them."""
    found = sorted(path.relative_to(site / "_sources") for path in (site / "_sources").rglob("*.ipynb"))
    assert found, "the site has no notebook: run `make book` first"
    return [path.with_suffix(".html").as_posix() for path in found]


# Seeded faults: (name, what is added to the end of an article, what a complaint must say)

BROWSER_FAULTS = {
    "unfinished formula": (
        r'<p><span class="math notranslate nohighlight">\(\frac{1\)</span></p>',
        "a formula is not typeset",
        DESKTOP,
    ),
    "broken formula": (
        r'<p><span class="math notranslate nohighlight">\(\frac{1}\)</span></p>',
        "a formula is broken .Missing argument",
        DESKTOP,
    ),
    "unknown command": (
        r'<p><span class="math notranslate nohighlight">\(\undefinedmacro{x}\)</span></p>',
        r"unknown command \\undefinedmacro",
        DESKTOP,
    ),
    "formula nobody reads": (r'<p class="mathjax_ignore">so \(x\) is free</p>', "a formula is not typeset", DESKTOP),
    "script error": ("<script>console.error('the sky fell')</script>", "the sky fell", DESKTOP),
    "script exception": ("<script>nowhere.to.go()</script>", "a script failed", DESKTOP),
    "missing image": (
        '<img alt="A figure that somebody deleted" src="gone.png">',
        "request failed.*gone.png answered 404",
        DESKTOP,
    ),
    "external image": (
        '<img alt="A figure on another server" src="http://figures.invalid/figure.png">',
        "external request to http://figures.invalid",
        DESKTOP,
    ),
    "wide element": ('<div style="width: 2000px">wide</div>', "at 1280 px: the page is .* px wide", DESKTOP),
    "wide element on a phone": ('<div style="width: 500px">wide</div>', "at 390 px: sticks out of the column", PHONE),
    "code that is too wide": (
        f'<div class="highlight"><pre tabindex="0">{"x = 1; " * 20}</pre></div>',
        "a line of code is wider than the page",
        DESKTOP,
    ),
    "cut off": (
        '<div style="overflow: hidden"><div style="width: 900px">cut</div></div>',
        "cuts its content off",
        PHONE,
    ),
    "pale text": ('<p style="color: #ddd">hardly there</p>', "at 1280 px: in light mode axe color-contrast", DESKTOP),
    "dim text in the dark": ('<p style="color: #333">hardly there</p>', "in dark mode axe color-contrast", DESKTOP),
    "pale text in a fold": (
        '<details><summary>Hint</summary><p style="color: #ddd; background: #fff">pale</p></details>',
        "axe color-contrast",
        DESKTOP,
    ),
    "one pale word": (
        '<p>As <span>legible</span> as <span style="opacity: 0.2">others</span></p>',
        "in light mode axe color-contrast.*, 1 times",
        DESKTOP,
    ),
    "unreachable scroller": (
        '<div style="overflow-x: auto; width: 200px"><div style="width: 600px; height: 20px">x</div></div>',
        "axe scrollable-region-focusable",
        DESKTOP,
    ),
    "unreachable scroller on a phone": (
        '<div style="overflow-x: auto"><div style="width: 600px; height: 20px">x</div></div>',
        "axe scrollable-region-focusable",
        PHONE,
    ),
    "heading without words": ("<h2></h2>", "axe empty-heading", DESKTOP),
}

FILE_FAULTS = {
    "missing alt": ('<img src="../_static/favicon.svg">', page_check.image_complaints, "has no alt text"),
    "short alt": (
        '<img alt="a plot" src="../_static/favicon.svg">',
        page_check.image_complaints,
        "alt text of 6 characters",
    ),
    "file name as alt": (
        '<img alt="../_images/5d3f.png" src="../_static/favicon.svg">',
        page_check.image_complaints,
        "a file name as alt text",
    ),
    "dead link": ('<a href="99_nowhere.html">x</a>', page_check.link_complaints, "leads to no file"),
    "dead anchor": (f'<a href="{Path(START).name}#nowhere">x</a>', page_check.link_complaints, "leads to no anchor"),
    "dead anchor of this page": ('<a href="#nowhere">x</a>', page_check.link_complaints, "leads to no anchor"),
}


def with_addition(site: Path, folder: Path, addition: str) -> Path:
    """A copy of the site in which the end of the first page's article was added to."""
    copy = folder / "site"
    copy.mkdir()
    for entry in site.iterdir():
        if entry.name != "book":
            (copy / entry.name).symlink_to(entry)
    (copy / "book").mkdir()
    for entry in (site / "book").iterdir():
        (copy / "book" / entry.name).symlink_to(entry)
    html = (site / START).read_text("utf-8")
    assert html.count("</article>") == 1
    (copy / START).unlink()
    (copy / START).write_text(html.replace("</article>", f"{addition}</article>"), "utf-8")
    return copy


@pytest.fixture(scope="module")
def seen(server, browser):
    """The kinds of text whose contrast is known from the first page as it is."""
    seen = set()
    with browser.new_context() as context:
        browser_check.page_complaints(context, server, START, DESKTOP, seen=seen)
    return frozenset(seen)


@pytest.fixture
def look(site, browser, tmp_path, seen):
    """What the browser says about the first page with something added to it."""

    def look(addition: str, view: View) -> list[str]:
        copy = with_addition(site, tmp_path, addition)
        servers = serve(copy)
        with browser.new_context() as context:
            complaints = browser_check.page_complaints(context, next(servers), START, view, seen=set(seen))
        servers.close()
        return complaints

    return look


def test_harmless_addition(look):
    assert look("<p>A paragraph more.</p>", PHONE) == []


@pytest.mark.parametrize("fault", BROWSER_FAULTS)
def test_browser_sees(fault, look):
    addition, complaint, view = BROWSER_FAULTS[fault]
    complaints = look(addition, view)
    assert any(re.search(complaint, text) for text in complaints), report(complaints)
    assert all(text.startswith(f"{START}: ") for text in complaints)


@pytest.mark.parametrize("fault", FILE_FAULTS)
def test_files_show(fault, site, tmp_path):
    addition, check, complaint = FILE_FAULTS[fault]
    before = complaints_of(check, site)  # a fault of the book itself has a test of its own
    complaints = [text for text in check(with_addition(site, tmp_path, addition)) if text not in before]
    assert len(complaints) == 1, report(complaints)
    assert complaint in complaints[0]
    assert complaints[0].startswith(START)


def test_search_misses_a_word_that_is_nowhere(server, browser):
    with browser.new_context() as context:
        [complaint] = browser_check.search_complaints(context, server, {"zyzzogeton": START})
    assert "zyzzogeton" in complaint


def test_copy_button_that_is_missing(site, server, browser):
    with browser.new_context() as context:
        context.add_init_script(
            "document.addEventListener('DOMContentLoaded', () => {"
            "  const style = document.createElement('style'); document.head.append(style);"
            "  new MutationObserver(() => document.querySelectorAll('button.copybtn').forEach(b => b.remove()))"
            "    .observe(document.body, { childList: true, subtree: true }); });"
        )
        [complaint] = browser_check.copy_complaints(context, server, notebooks(site)[0])
    assert "no copy button" in complaint


@pytest.fixture
def small_repository(tmp_path) -> Path:
    """A repository with one source and a site built from it, as far as dates go."""
    for name, date in (("book/index.md", 1000), ("_build/html/searchindex.js", 2000)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (date, date))
    return tmp_path


def test_built_site_is_accepted(small_repository):
    assert site_complaint(small_repository) is None


def test_missing_site_is_refused(small_repository):
    (small_repository / "_build/html/searchindex.js").unlink()
    assert "run `make book` first" in site_complaint(small_repository)


def test_stale_site_is_refused(small_repository):
    os.utime(small_repository / "book/index.md", (3000, 3000))
    assert "book/index.md is newer than the built book: run `make book`" in site_complaint(small_repository)


def test_caches_do_not_make_a_site_stale(small_repository):
    cache = small_repository / "book" / "__pycache__"
    cache.mkdir()
    (cache / "module.pyc").touch()
    assert site_complaint(small_repository) is None
