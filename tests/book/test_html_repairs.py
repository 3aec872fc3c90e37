"""The repairs of the theme's pages: each is made, and made only once."""

import struct
import sys

import pytest
from bs4 import BeautifulSoup

from tests.book.pages import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))

from html_repairs import CLUTTER, repaired

# Everything that is repaired, as the theme writes it.
PAGE = """

<!DOCTYPE html>

<html>
<head>
<meta name="viewport" content="width=device-width">
<meta name="viewport" content="width=device-width">
<meta name="viewport" content="width=device-width">
<script defer="" src="../_static/scripts/fontawesome.js?digest=55c2"></script>
</head>
<body>
<div class="bd-sidebar-primary">
  <div class="sidebar-primary-items__start">
    <a class="bd-sidenav__home-link" href="#">Book</a>
    <button class="search-button-field" aria-label="Search field">Search</button>
    <button class="theme-switch-button" aria-label="Colours">Mode</button>
  </div>
  <div class="sidebar-primary-items__end"><div id="ethical-ad-placement"></div></div>
</div>
<button class="btn-fullscreen-button">Full</button>
<div class="bd-sidebar-secondary"> </div>
<button class="secondary-toggle">Contents</button>
<details class="hide"><summary aria-label="Toggle">
<p class="collapsed">Show code cell source</p><p class="expanded">Hide code cell source</p>
</summary></details>
<details class="hide"><summary><p>Another &amp; longer title</p></summary></details>
<div class="cell_output"><img src="one%20figure.png"></div>
<div class="cell_output"><a href="missing.png"><img src="missing.png"></a></div>
<div role="list"><div role="doc-biblioentry">Shannon, 1948</div></div>
<pre>
  a &lt; b

</pre>
<div class="highlight"><pre><span class="k">if</span> <span class="n">a</span><span class="p">:</span>
    <span class="nn">b</span><span class="w"> </span><span class="o">+</span> <span class="n x">c</span>
    <span class="nn">b</span><span class="o">.</span><span class="n">d</span></pre></div>
</body>
</html>
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with a figure of 300 × 200 pixels."""
    (tmp_path / "one figure.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 300, 200))
    return tmp_path


@pytest.fixture
def page(folder):
    return BeautifulSoup(repaired(PAGE, folder), "html.parser")


@pytest.mark.parametrize("html", [PAGE, PAGE.replace("\n", ""), "<!DOCTYPE html><html></html>"])
def test_a_second_repair_changes_nothing(folder, html):
    once = repaired(html, folder)
    assert once != html
    assert repaired(once, folder) == once


@pytest.mark.parametrize(
    "selector", [*CLUTTER, "summary[aria-label]", "button[aria-label]", '[role="doc-biblioentry"]']
)
def test_what_is_removed(page, selector):
    assert BeautifulSoup(PAGE, "html.parser").select(selector)
    assert not page.select(selector)


def test_what_is_renamed(page):
    titles = [title.text for title in page.select("summary p")]
    assert titles == ["Show the code", "Hide the code", "Another & longer title"]
    assert page.select_one('[role="navigation"]')["aria-label"] == "Book"
    assert len(page.select('[role="list"] > [role="listitem"]')) == 1
    assert len(page.select('meta[name="viewport"]')) == 1


def test_every_figure_gets_one_frame_and_its_size(page):
    images = page.select("img")
    assert page.select(".figure-frame > img") == images
    assert [(image.get("width"), image.get("height")) for image in images] == [("150", "100"), (None, None)]


def test_code_keeps_its_blanks(page):
    assert page.pre.text == "\n  a < b\n\n"


def test_code_keeps_its_text_and_the_colours_that_differ(page):
    code = page.select_one(".highlight pre")
    assert code.text == "if a:\n    b + c\n    b.d"
    assert [span["class"] for span in code.select("span")] == [["k"], ["o"], ["n", "x"]]
