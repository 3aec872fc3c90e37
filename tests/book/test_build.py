"""The build: it fails where it should, and what it makes is small."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.book import page_check
from tests.book.conftest import ROOT

INSTALL_CELL = 'LMLIB = "..[notebooks]"  # this repository; a published copy names its address here'
INDEX = "# A book of one chapter\n\nSee [the chapter](#chapter-first) and {cite}`source`.\n"
REFERENCE = "@misc{source, author={Somebody}, title={Something}, year={2025}}\n"


def test_pages_and_site_are_small(site):
    complaints = page_check.weight_complaints(site)
    assert not complaints, "\n".join(["", *complaints])


def test_too_heavy_is_seen(site):
    heaviest = max(page_check.pages(site), key=lambda page: page_check.page_weight(site, page))
    weight = page_check.page_weight(site, heaviest)
    [complaint] = page_check.weight_complaints(site, page_limit=weight - 1)
    assert complaint.startswith(heaviest)
    [complaint] = page_check.weight_complaints(site, site_limit=1_000_000)
    assert "the site weighs" in complaint


def test_image_counts_towards_its_page(tmp_path):
    (tmp_path / "_images").mkdir()
    (tmp_path / "_images" / "figure.png").write_bytes(b"0" * 5000)
    html = '<article class="bd-article"><img src="_images/figure.png"><img src="_images/figure.png"></article>'
    (tmp_path / "page.html").write_text(html)
    assert page_check.page_weight(tmp_path, "page.html") == len(html) + 5000


# Builds of a small book with this book's configuration


def make_flags() -> list[str]:
    """The arguments that the Makefile gives to jupyter-book."""
    [line] = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("BUILD := ")]
    return shlex.split(line.removeprefix("BUILD := "))


def small_book(folder: Path, prose: str, code: str) -> Path:
    """This book's configuration with two pages: an index, and a notebook with one cell beside the install cell."""
    shutil.copy(ROOT / "_config.yml", folder)
    book = folder / "book"
    for name in ("_ext", "_static"):
        shutil.copytree(ROOT / "book" / name, book / name, ignore=shutil.ignore_patterns("__pycache__"))
    (book / "references.bib").write_text(REFERENCE)
    (book / "index.md").write_text(INDEX)
    (book / "bibliography.md").write_text("# Bibliography\n\n```{bibliography}\n```\n")
    (folder / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nchapters:\n- file: book/chapter\n- file: book/bibliography\n"
    )
    cells = [
        new_markdown_cell(f"(chapter-first)=\n# A chapter\n\n{prose}"),
        new_code_cell(INSTALL_CELL),
        new_code_cell(code),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), book / "chapter.ipynb")
    return folder


def build(folder: Path) -> subprocess.CompletedProcess:
    program = Path(sys.executable).with_name("jupyter-book")
    surroundings = {name: value for name, value in os.environ.items() if name != "GITHUB_REPOSITORY"}
    surroundings |= {"JUPYTER_PATH": "", "JUPYTER_PREFER_ENV_PATH": "1"}
    return subprocess.run(
        [program, *make_flags()], cwd=folder, env=surroundings, capture_output=True, text=True, timeout=120
    )


def test_good_book_builds(tmp_path):
    result = build(small_book(tmp_path, "Six times seven:", "print(6 * 7)"))
    site = tmp_path / "_build" / "html"
    assert result.returncode == 0, result.stderr
    assert "42" in page_check.article(site, "book/chapter.html").get_text()
    assert page_check.link_complaints(site) == []
    assert (site / "_static" / "mathjax" / "tex-chtml.js").is_file()
    assert 'url=book/index.html"' in (site / "index.html").read_text()


@pytest.mark.parametrize(
    ("prose", "code", "message"),
    [
        ("A false claim:", "assert 6 * 7 == 43, 'not forty-three'", "not forty-three"),
        ("See [nothing](#chapter-nowhere).", "print(6 * 7)", "chapter-nowhere"),
        ("After {cite}`nobody`.", "print(6 * 7)", "nobody"),
    ],
    ids=["failing cell", "dangling reference", "unknown source"],
)
def test_bad_book_fails(tmp_path, prose, code, message):
    result = build(small_book(tmp_path, prose, code))
    assert result.returncode != 0, "the build passed"
    assert message in result.stdout + result.stderr


def test_missing_mathjax_names_the_package(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_ext"))
    import offline_mathjax
    from sphinx.errors import ExtensionError

    monkeypatch.setattr(offline_mathjax.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ExtensionError, match="pip install sphinx-mathjax-offline"):
        offline_mathjax.find_mathjax()
