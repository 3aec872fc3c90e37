"""The API reference names everything public once, and code in the chapters leads to it.

What is public is asked of the imported library, not of the extension that writes the pages.
"""

import importlib
import inspect
import pkgutil
import re
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup, Tag
from docutils import nodes
from docutils.utils import new_document

import lmlib
from tests.book import page_check
from tests.book.conftest import ROOT, report
from tests.book.pages import toc_docnames

sys.path.insert(0, str(ROOT / "book" / "_ext"))

import api_links
import api_pages
from api_links import names_of_page, target_of
from public_names import Library

REFERENCE = "book/api/"
AS_COMMANDS = ("lmlib.cli", "lmlib.__main__")  # shown as what a shell runs
ONE_SENTENCE = re.compile(r"[^a-z](?:(?![.?!] [A-Z]).)*[.?]")


# --- what must be on the pages -----------------------------------------------------------------------------


def public_objects() -> dict[str, object]:
    """Every public object by the shortest path that exports it."""
    found = {}
    names = [module.name for module in pkgutil.walk_packages(lmlib.__path__, "lmlib.")]
    for name in sorted((n for n in names if not n.startswith(AS_COMMANDS)), key=lambda n: (n.count("."), n)):
        module = importlib.import_module(name)
        for exported in exports(module):
            value = getattr(module, exported)
            others = (path for path in found if path.rpartition(".")[2] == exported and found[path] is value)
            if not any(is_same(path, name, value) for path in others):
                found[f"{name}.{exported}"] = value
    return found


def exports(module) -> list[str]:
    """What a module exports: its ``__all__``; where a room has none, what it defines itself."""
    if hasattr(module, "__all__"):
        return module.__all__
    if module.__name__.count(".") > 1:
        return []
    mine = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
    return [name for name in mine if not name.startswith("_")]


def is_same(path: str, module: str, value: object) -> bool:
    """Whether an equal object at a path is this one: constants of two rooms may be equal by chance."""
    return callable(value) or path.split(".")[:2] == module.split(".")[:2]


def entries(site: Path) -> list[Tag]:
    """The entries of the reference, members of classes among them."""
    pages = [page for page in page_check.pages(site) if page.startswith(REFERENCE)]
    return [entry for page in pages for entry in page_check.article(site, page).select("dl.py > dt[id]")]


def anchor_complaints(public: list[str], anchors: list[str]) -> list[str]:
    """Say which names have no entry or several, and which entries belong to nothing public."""
    number = Counter(anchors)
    complaints = [f"{name} is public and has no entry in the API reference." for name in public if not number[name]]
    complaints += [f"{name} has {count} entries: describe it once." for name, count in number.items() if count > 1]
    known = set(public)
    complaints += [
        f"{name} has an entry, but nobody exports it."
        for name in number
        if name not in known and name.rpartition(".")[0] not in known
    ]
    return complaints


def docstring_complaints(public: dict[str, object]) -> list[str]:
    """Say which functions and classes do not begin with one sentence."""
    complaints = []
    for path, value in public.items():
        if inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "__wrapped__"):
            first = (inspect.getdoc(value) or "").partition("\n")[0]
            if not ONE_SENTENCE.fullmatch(first):
                complaints.append(f"{path}: let its docstring begin with one line that is one sentence, not {first!r}.")
    return complaints


def content_complaints(public: dict[str, object], site: Path) -> list[str]:
    """Say which entry shows another docstring than the object has."""
    shown = {entry["id"]: entry.find_next_sibling("dd") for entry in entries(site)}
    complaints = []
    for path, value in public.items():
        if path in shown and inspect.isfunction(value):
            said = plain(inspect.getdoc(value).partition("\n\n")[0])
            if said not in plain(shown[path].get_text()):
                complaints.append(f"{path}: its entry does not say {said!r}.")
    return complaints


def plain(text: str) -> str:
    """Words, without marks, quotes of a kind and line breaks."""
    return " ".join(re.sub(r"[`'\"‘’“”*\\_–—.…-]", "", text).split())


@pytest.fixture(scope="module")
def public() -> dict[str, object]:
    return public_objects()


def test_every_public_name_has_one_entry(site, public):
    complaints = anchor_complaints(list(public), [entry["id"] for entry in entries(site)])
    assert not complaints, report(complaints)


def test_a_wrong_number_of_entries_is_seen():
    assert anchor_complaints(["a.f", "a.C"], ["a.f", "a.C", "a.C.method"]) == []
    [missing] = anchor_complaints(["a.f", "a.g"], ["a.f"])
    assert missing == "a.g is public and has no entry in the API reference."
    [twice] = anchor_complaints(["a.f"], ["a.f", "a.f"])
    assert "a.f has 2 entries" in twice
    [stale] = anchor_complaints(["a.f"], ["a.f", "a.gone"])
    assert "a.gone has an entry" in stale


def test_a_name_that_is_missing_on_the_pages_is_seen(site, public):
    anchors = [entry["id"] for entry in entries(site) if entry["id"] != "lmlib.bpe.Tokenizer"]
    complaints = anchor_complaints(list(public), anchors)
    assert "lmlib.bpe.Tokenizer is public and has no entry in the API reference." in complaints


def test_docstrings(public):
    complaints = docstring_complaints(public)
    assert not complaints, report(complaints)


@pytest.mark.parametrize("docstring", [None, "no capital.", "No stop", "Two. Sentences.", "Over\ntwo lines."])
def test_a_bad_docstring_is_seen(docstring):
    def function():
        pass

    function.__doc__ = docstring
    [complaint] = docstring_complaints({"a.function": function, "a.CONSTANT": 3})
    assert complaint.startswith("a.function: ")


def test_entries_say_what_docstrings_say(site, public):
    complaints = content_complaints(public, site)
    assert not complaints, report(complaints)


def test_another_docstring_is_seen(site):
    def get_batch():
        """Return what no page says."""

    [complaint] = content_complaints({"lmlib.data.get_batch": get_batch}, site)
    assert "Return what no page says" in complaint


def test_every_command_is_there(site):
    from lmlib.cli import app

    titles = {
        title.get_text().rstrip("#") for title in page_check.article(site, f"{REFERENCE}commands.html").select("h2")
    }
    top = {title.split()[1] for title in titles}
    assert top == {name for name in app if not name.startswith("-")}
    assert "lmlib data prepare" in titles


def test_pages_name_nothing_public(public):
    """No page of the reference is written by hand."""
    names = {path.rpartition(".")[2] for path in public}
    for docname in toc_docnames():
        if docname.startswith(REFERENCE):
            written = re.findall(r"`([^`]+)`", (ROOT / f"{docname}.md").read_text("utf-8"))
            assert not names & set(written), docname


# --- links -------------------------------------------------------------------------------------------------


def chapters(site: Path) -> list[str]:
    return [page for page in page_check.pages(site) if re.match(r"book/\d\d_", page)]


def reference_links(page: Tag) -> list[Tag]:
    return [link for link in page.select('a[href^="api/"]') if link.select_one("code")]


def link_complaints(page: Tag) -> list[str]:
    """Say which code of a chapter leads to another name than it says, or has no business to be a link."""
    complaints, seen = [], set()
    for link in reference_links(page):
        said, target = link.get_text(), link["href"].partition("#")[2]
        if target.startswith("lmlib-"):  # a module or a command
            agrees = re.sub(r"[. ]", "-", said).startswith(target)
        else:
            agrees = re.sub(r"\(.*", "", said).rpartition(".")[2] == target.rpartition(".")[2]
        if not agrees:
            complaints.append(f"{said} leads to {target}.")
        if link.find_parent(["h1", "h2", "h3", "h4", "figcaption", "pre", "summary"]) or link.find_parent(
            class_="admonition-title"
        ):
            complaints.append(f"{said} is a link in a title, a caption or code.")
        if link.find_parent(class_="lecture") and not said.startswith("lmlib"):
            complaints.append(f"{said} is a link in the box on the lecture, where it is not ours.")
        place = id(link.find_parent("section")), target
        if place in seen:
            complaints.append(f"{said} is a second link to {target} in its section.")
        seen.add(place)
    return complaints


def test_chapters_lead_to_the_reference(site):
    for page in chapters(site):
        article = page_check.article(site, page)
        assert reference_links(article), f"{page}: nothing leads to the API reference"
        complaints = link_complaints(article)
        assert not complaints, report([f"{page}: {complaint}" for complaint in complaints])


@pytest.mark.parametrize(
    "html",
    [
        '<a href="api/text.html#lmlib.bpe.train_bpe"><code>Tokenizer</code></a>',
        '<a href="api/text.html#lmlib-bpe"><code>lmlib.data</code></a>',
        '<h2><a href="api/text.html#lmlib-bpe"><code>lmlib.bpe</code></a></h2>',
        '<p class="admonition-title"><a href="api/text.html#lmlib-bpe"><code>lmlib.bpe</code></a></p>',
        '<div class="lecture"><a href="api/text.html#lmlib.data.get_batch"><code>get_batch</code></a></div>',
        '<a href="api/text.html#lmlib-bpe"><code>lmlib.bpe</code></a>' * 2,
    ],
)
def test_a_bad_link_is_seen(html):
    assert len(link_complaints(BeautifulSoup(f"<section>{html}</section>", "html.parser"))) == 1


def document(*blocks: str) -> nodes.document:
    """A page with blocks of code."""
    page = new_document("page")
    page += [nodes.literal_block("", block) for block in blocks]
    return page


def test_a_page_gives_names_a_meaning_by_importing_them():
    page = document(
        "from lmlib.data import (\n    BatchLoader,  # resumable\n    get_batch as draw,\n)\nfrom lmlib import plan",
        "from lmlib.bpe import Tokenizer, train_bpe\nfrom torch.optim import AdamW",
        "def train_bpe(text):\n    Tokenizer = 3\n",
    )
    assert names_of_page(page) == {
        "BatchLoader": "lmlib.data.BatchLoader",
        "draw": "lmlib.data.get_batch",
        "plan": "lmlib.plan",
        "Tokenizer": "lmlib.bpe.Tokenizer",
    }


def test_a_page_gives_names_a_meaning_by_showing_their_module():
    page = document("def encode_pretoken(): ...")
    page[0]["source"] = str(ROOT / "lmlib" / "bpe" / "reference.py")
    meanings = names_of_page(page)
    assert meanings["encode_pretoken"] == "lmlib.bpe.reference.encode_pretoken"
    assert "encode" not in meanings  # a word that may mean what any tokenizer does


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("lmlib.bpe.tokenizer.Tokenizer", "lmlib.bpe.Tokenizer"),
        ("lmlib.bpe.Tokenizer.encode", "lmlib.bpe.Tokenizer.encode"),
        ("lmlib.train", "lmlib.train"),
        ("lmlib.train.Trainer", "lmlib.train.Trainer"),  # loaded when it is asked for
        ("lmlib.bpe.nothing", None),
        ("lmlib.bpe.Tokenizer.nothing", None),
        ("AdamW", "lmlib.optim.AdamW"),
        ("AdamW.update", "lmlib.optim.AdamW.update"),
        ("AdamW(…, lr=0.1)", "lmlib.optim.AdamW"),
        ("AdamW + SGD", None),
        ("plan.TrainingPlan", "lmlib.plan.TrainingPlan"),
        ("get_batch", None),
        ("0.5", None),
    ],
)
def test_what_code_in_a_text_means(text, target):
    assert target_of(text, {"AdamW": "lmlib.optim.AdamW", "plan": "lmlib.plan"}) == target


# --- from source to entry ----------------------------------------------------------------------------------

SOURCES = {
    "__init__.py": "",
    "__main__.py": "raise SystemExit",
    "cli/__init__.py": "__all__ = ['main']\ndef main(): ...",
    "room/__init__.py": '''
"""A room."""
from pkg.room.inner import Shape, area as surface
__all__ = ["Later", "Shape", "surface"]
''',
    "room/inner.py": '''
from dataclasses import dataclass
from typing import overload

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["LIMIT", "Shape", "area", "describe"]

# --- parts ---
# The most
# there can be.
LIMIT = 3


@dataclass(frozen=True)
class Shape:
    """A shape."""

    width: int
    """From side to side."""
    height: int = 2  # from top to bottom
    _area: int = 0

    @property
    def corners(self) -> int:
        """Always four."""

    @corners.setter
    def corners(self, number: int) -> None:
        """Never."""

    @classmethod
    def read(cls, path: str) -> "Shape":
        """From a file."""


@overload
def area(shape: int) -> int: ...
@overload
def area(shape: str) -> str: ...
@torch.no_grad()
def area(shape: Float[Tensor, "batch seq d_model"], /, *others: Shape, scale: float = 1.0) -> Float[Tensor, "batch"]:
    """Its area."""


def describe(first_parameter: dict[str, int], second_parameter: dict[str, int], third: int | None = None) -> str:
    """In words."""
''',
    "room/later.py": 'class Later(Exception):\n    """Not yet."""\n',
    "bare.py": "from math import pi\n\ndef seen(): ...\n\ndef _hidden(): ...\n",
}


@pytest.fixture
def small(tmp_path, monkeypatch) -> Library:
    """A library of a few lines."""
    for name, source in SOURCES.items():
        path = tmp_path / "pkg" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, "utf-8")
    library = Library(tmp_path / "pkg")
    monkeypatch.setattr(api_pages, "library", lambda: library)
    return library


def line(library: Library, path: str, member: str = "") -> str:
    entry = library.entries[path]
    return api_pages.text(api_pages.signature(entry.members[member] if member else entry))


def test_a_name_is_shown_under_its_shortest_path(small):
    assert list(small.entries) == [
        "pkg.room.Later",
        "pkg.room.Shape",
        "pkg.room.surface",
        "pkg.room.inner.LIMIT",
        "pkg.room.inner.describe",
    ]
    assert [entry.name for entry in small.entries_of("pkg.room.inner")] == ["LIMIT", "describe"]
    assert small.find("pkg.room.inner.area") == "pkg.room.surface"


def test_a_name_added_to_all_appears(small):
    path = small.modules["pkg.room.inner"].path
    path.write_text(path.read_text("utf-8").replace('["LIMIT"', '["overloads", "LIMIT"') + "overloads = 2", "utf-8")
    assert "pkg.room.inner.overloads" in Library(path.parents[1]).entries


def test_an_export_that_nothing_defines_stops_the_build(small):
    path = small.modules["pkg.room.inner"].path
    path.write_text(path.read_text("utf-8").replace('["LIMIT"', '["nowhere", "LIMIT"'), "utf-8")
    with pytest.raises(LookupError, match=r"pkg\.room\.inner exports nowhere"):
        _ = Library(path.parents[1]).entries


def test_what_is_said_of_a_name(small):
    shape = small.entries["pkg.room.Shape"]
    said = {name: member.docstring for name, member in shape.members.items()}
    assert said == {
        "width": "From side to side.",
        "height": "From top to bottom.",
        "corners": "Always four.",
        "read": "From a file.",
    }
    assert small.entries["pkg.room.inner.LIMIT"].docstring == "The most there can be."
    assert small.entries["pkg.room.surface"].docstring == "Its area."


def test_signatures(small):
    assert line(small, "pkg.room.Shape") == "@dataclass(frozen=True)\nclass Shape"
    assert line(small, "pkg.room.Shape", "height") == "height: int = 2"
    assert line(small, "pkg.room.Shape", "corners") == "property corners: int"
    assert line(small, "pkg.room.Shape", "read") == 'classmethod read(path: str) -> "Shape"'
    assert line(small, "pkg.room.Later") == "class Later extends Exception"
    assert line(small, "pkg.room.inner.LIMIT") == "LIMIT = 3"
    assert line(small, "pkg.room.surface") == (
        "@torch.no_grad()\nsurface(\n"
        '    shape: Float[Tensor, "batch seq d_model"],\n    /,\n    *others: Shape,\n    scale: float = 1.0,\n'
        ') -> Float[Tensor, "batch"]'
    )
    assert line(small, "pkg.room.inner.describe").splitlines()[1] == "    first_parameter: dict[str, int],"


def test_types_of_the_library_are_links(small):
    parts = nodes.paragraph("", "", *api_pages.signature(small.entries["pkg.room.surface"]))
    targets = [part["api_target"] for part in parts.findall(nodes.inline) if "api_target" in part]
    assert targets == ["pkg.room.Shape"]


def test_a_line_of_a_shell_leads_to_its_command():
    place = ("book/api/commands", "lmlib-data-prepare")
    domain = SimpleNamespace(objects={}, anonlabels={"lmlib data prepare": place})
    environment = SimpleNamespace(get_domain=lambda _name: domain)
    assert api_links.place_of(environment, "lmlib data prepare FILE --out x.bin") == place
    assert api_links.place_of(environment, "lmlib data FILE") is None
