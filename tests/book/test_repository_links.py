"""The buttons and the published notebooks of a build that knows its repository's address."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).parents[2]
EXTENSIONS = ROOT / "book" / "_ext"
sys.path.insert(0, str(EXTENSIONS))

import repository_links  # noqa: E402
from repository_links import INSTALL_LINE  # noqa: E402

BUTTONS = re.compile(r"github\.com|colab")


def write_notebook(path, *cells):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# A chapter"),
            *[nbformat.v4.new_code_cell(source) for source in cells],
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def mini_book(tmp_path_factory):
    """The book's own configuration around two pages that are not executed."""
    root = tmp_path_factory.mktemp("mini_book")
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    others = set(config["sphinx"]["local_extensions"]) - {"repository_links"}
    for name in others:  # they speak about the real pages
        del config["sphinx"]["local_extensions"][name]
    enabled = config["sphinx"]["config"]["extensions"]
    config["sphinx"]["config"]["extensions"] = [name for name in enabled if name not in others]
    config["execute"]["execute_notebooks"] = "off"
    (root / "_config.yml").write_text(yaml.safe_dump(config), "utf-8")

    pages = {"format": "jb-book", "root": "book/index", "chapters": [{"file": "book/01_chapter"}]}
    (root / "_toc.yml").write_text(yaml.safe_dump(pages), "utf-8")
    shutil.copytree(ROOT / "book" / "_static", root / "book" / "_static")
    shutil.copytree(EXTENSIONS, root / "book" / "_ext", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "book" / "references.bib").write_text("")
    front_matter = "---\nfile_format: mystnb\nkernelspec: {name: python3, display_name: Python 3}\n---\n"
    (root / "book" / "index.md").write_text(f"{front_matter}# A page with a kernel\n")
    write_notebook(root / "book" / "01_chapter.ipynb", f"{INSTALL_LINE}\nimport lmlib", "LMLIB")
    return root


def run_build(root, repository):
    environment = {name: value for name, value in os.environ.items() if name != "GITHUB_REPOSITORY"}
    if repository is not None:
        environment["GITHUB_REPOSITORY"] = repository
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ".", "--all", "-W", "-n", "--keep-going"]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def build(root, repository):
    done = run_build(root, repository)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "_build" / "html"


def button_links(page):
    links = BeautifulSoup(page.read_text("utf-8"), "html.parser").select(".article-header-buttons a")
    return {link["href"] for link in links if BUTTONS.search(link["href"])}


def code_cells(notebook):
    return [c.source for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "code"]


def test_a_build_that_knows_its_repository(mini_book):
    site = build(mini_book, "some-one/some.book")
    repository = "https://github.com/some-one/some.book"
    copy = "_sources/book/01_chapter.ipynb"
    issue = f"{repository}/issues/new?title=Issue%20on%20page%20%2Fbook/{{}}.html&body=Your%20issue%20content%20here."
    assert button_links(site / "book" / "01_chapter.html") == {
        repository,
        issue.format("01_chapter"),
        f"https://colab.research.google.com/github/some-one/some.book/blob/gh-pages/{copy}",
    }
    # Colab cannot open the other page: it is Markdown, though it names a kernel
    assert button_links(site / "book" / "index.html") == {repository, issue.format("index")}
    assert code_cells(site / copy) == [
        f'LMLIB = "lmlib[notebooks] @ git+{repository}"\nimport lmlib',
        "LMLIB",
    ]
    assert code_cells(mini_book / "book" / "01_chapter.ipynb")[0] == f"{INSTALL_LINE}\nimport lmlib"


def test_a_build_that_does_not_know_its_repository(mini_book):
    site = build(mini_book, None)
    assert button_links(site / "book" / "01_chapter.html") == set()
    assert code_cells(site / "_sources" / "book" / "01_chapter.ipynb")[0] == f"{INSTALL_LINE}\nimport lmlib"


def test_a_malformed_repository_stops_the_build(mini_book):
    done = run_build(mini_book, "https://github.com/some-one/book")
    assert done.returncode != 0
    assert "GITHUB_REPOSITORY is 'https://github.com/some-one/book': set it to owner/name" in done.stderr


@pytest.mark.parametrize("name", ["owner", "owner/", "/name", "owner/a/b", "owner/na me", 'owner/"; import os'])
def test_malformed_repository_names(monkeypatch, name):
    monkeypatch.setenv("GITHUB_REPOSITORY", name)
    with pytest.raises(repository_links.ExtensionError, match="set it to owner/name, or unset it"):
        repository_links.repository()


@pytest.mark.parametrize("cells", [[], ["import lmlib"], ["1 + 1", INSTALL_LINE], [INSTALL_LINE.replace("..", ".")]])
def test_a_notebook_without_the_install_line(tmp_path, cells):
    path = tmp_path / "05_flops.ipynb"
    write_notebook(path, *cells)
    with pytest.raises(repository_links.ExtensionError, match=r"05_flops\.ipynb: make this the first line"):
        repository_links.point_at_repository(path, "owner/name")


def test_every_notebook_of_the_book_can_be_published(tmp_path):
    notebooks = sorted((ROOT / "book").glob("*.ipynb"))
    assert notebooks
    for notebook in notebooks:
        copy = shutil.copy(notebook, tmp_path)
        repository_links.point_at_repository(Path(copy), "owner/name")
