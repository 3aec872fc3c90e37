"""Corrections, confusions, glossary and prerequisites: of the real book, and with one fault at a time."""

import re
import sys

import pytest
from docutils import nodes

from tests.book import back_matter as check
from tests.book.coverage_check import read_syllabus
from tests.book.pages import ROOT, Page, Text, read_book, walk
from tests.book.samples import page, text

sys.path.insert(0, str(ROOT / "book/_ext"))

from chapter_facts import sentence_of_links

# --- the real book ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    return read_book()


@pytest.fixture(scope="module")
def chapters(pages) -> list[Page]:
    return [each for each in pages if each.is_chapter]


def source(name: str) -> str:
    return (ROOT / "book" / f"{name}.md").read_text(encoding="utf-8")


def prose(chapters: list[Page]) -> str:
    return "\n".join(block.source for each in chapters for block in walk(each.blocks) if isinstance(block, Text))


def test_every_confusion_leads_to_a_section(pages):
    computed = [each for each in pages if each.code_cells]
    complaints = check.confusion_complaints(source("confusions"), check.labels_of(computed))
    assert not complaints, "\n".join(complaints)


def test_every_term_is_used_and_explained(chapters):
    complaints = check.glossary_complaints(source("glossary"), check.labels_of(chapters), prose(chapters))
    assert not complaints, "\n".join(complaints)


def test_every_correction_has_its_proof(chapters):
    complaints = check.correction_complaints(source("corrections"), chapters)
    assert not complaints, "\n".join(complaints)


def test_chapters_build_on_earlier_ones(chapters):
    complaints = check.prerequisite_complaints(read_syllabus(), chapters)
    assert not complaints, "\n".join(complaints)


def test_goal_boxes_link_to_what_their_chapters_build_on(site, chapters):
    syllabus = {chapter["stem"]: chapter for chapter in read_syllabus()}
    for chapter in chapters:
        built = (site / f"{chapter.docname}.html").read_text(encoding="utf-8")
        [facts] = re.findall(r'<p class="chapter-facts">(.*?)</p>', built, re.DOTALL)
        linked = re.findall(r'href="([^"]*)"', facts)
        assert linked == [f"{stem}.html" for stem in syllabus[chapter.stem]["builds_on"]], chapter.docname


def test_readers_do_not_miss_a_question_or_a_term_that_is_written(chapters):
    """What the checks read is all that the pages hold: nothing passes because it was not seen."""
    confusions, glossary = source("confusions"), source("glossary")
    assert len(check.read_confusions(confusions)) == sum(line.startswith(": ") for line in confusions.splitlines())
    assert len(check.read_glossary(glossary)) == sum(line.startswith("    ") for line in glossary.splitlines())
    assert len(check.read_rows(source("corrections"))) == source("corrections").count("\n|") - 2


# --- confusions with a fault -----------------------------------------------------------------------------

LABELS = {"tensors-views", "tensors-walk"}
QUESTION = "Does a view cost anything?\n: A few integers. [Views](#tensors-views)\n\n"


def confusions(number: int = check.FEWEST_CONFUSIONS, added: str = "") -> str:
    questions = "".join(QUESTION.replace("anything", f"thing {place}") for place in range(number))
    return f"# Confusions\n\nWhere to look.\n\n## Tensors\n\n{questions}{added}"


def test_good_confusions_are_accepted():
    assert check.confusion_complaints(confusions(), LABELS) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("#tensors-views", "#tensors-nowhere", "no chapter has the label tensors-nowhere"),
        ("[Views](#tensors-views)", "Views.", "link to the section"),
        ("[Views](#tensors-views)", "[Views](02_tensors.ipynb)", "link to the section"),
        ("anything?", "something.", "it asks nothing"),
        ("A few integers.", "A few integers. " * 20, "words, 45 are the most"),
    ],
)
def test_a_faulty_confusion(old, new, complaint):
    assert old in QUESTION
    [found] = check.confusion_complaints(confusions(added=QUESTION.replace(old, new)), LABELS)
    assert complaint in found


def test_a_question_asked_twice():
    [found] = check.confusion_complaints(confusions(added=2 * QUESTION), LABELS)
    assert "it is there twice" in found


def test_too_few_confusions():
    [found] = check.confusion_complaints(confusions(check.FEWEST_CONFUSIONS - 1), LABELS)
    assert "24 questions" in found


# --- a glossary with a fault -----------------------------------------------------------------------------

GLOSSARY = """# Glossary

:::{glossary}
view
    A tensor that shares a storage. [Views](#tensors-views)

walk
    The order of its elements. [Walks](#tensors-walk)
:::
"""
PROSE = "Every view has a walk through its storage."


def test_a_good_glossary_is_accepted():
    assert check.glossary_complaints(GLOSSARY, LABELS, PROSE) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("walk\n", "a walk\n", "“a walk” must come after “view”"),
        ("walk\n", "View\n", "“View” must come after “view”"),
        ("walk\n", "walking\n", "no chapter uses this word"),
        ("view\n", "ew\n", "no chapter uses this word"),
        (" [Walks](#tensors-walk)", "", "link to the section"),
        ("#tensors-walk", "#tensors-run", "no chapter has the label tensors-run"),
        ("The order", "The order " * 25, "words, 45 are the most"),
        (":::{glossary}", ":::{note}", "has no terms"),
    ],
)
def test_a_faulty_glossary(old, new, complaint):
    assert old in GLOSSARY
    assert any(complaint in line for line in check.glossary_complaints(GLOSSARY.replace(old, new), LABELS, PROSE))


# --- corrections with a fault ----------------------------------------------------------------------------

CORRECTIONS = """# Corrections

| said | by | in truth | proof |
|---|---|---|---|
| A view copies | a common reading | It shares \\| its storage | [pointers](#tensors-proof-view) |
"""
PROVING = page(text("# Tensors\n\n(tensors-proof-view)=\nThey share.\n\n(tensors-walk)=\nThey walk."))


def test_good_corrections_are_accepted():
    assert check.correction_complaints(CORRECTIONS, [PROVING]) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("#tensors-proof-view", "#tensors-proof-nothing", "no chapter has the label tensors-proof-nothing"),
        ("#tensors-proof-view", "#tensors-walk", "no row links to tensors-proof-view"),
        ("[pointers](#tensors-proof-view)", "pointers", "link to the section"),
        ("a common reading", "", "in four cells"),
        ("a common reading | ", "", "in four cells"),
    ],
)
def test_a_faulty_correction(old, new, complaint):
    assert old in CORRECTIONS
    found = check.correction_complaints(CORRECTIONS.replace(old, new), [PROVING])
    assert any(complaint in line for line in found)


# --- prerequisites with a fault --------------------------------------------------------------------------

GOAL = ":::{admonition} After this chapter you can\n:class: goal\nYou need %s.\n:::"
BOOK = [
    page(text("(tensors-walk)=\n# Tensors\n\n" + GOAL % "Python"), docname="book/02_tensors"),
    page(text("(dtypes-range)=\n# Dtypes\n\n" + GOAL % "Python"), docname="book/03_dtypes"),
    page(text("# einops\n\n" + GOAL % "[walks](#tensors-walk)"), docname="book/04_einops"),
]
BUILT_ON = {"index": None, "02_tensors": [], "03_dtypes": [], "04_einops": ["02_tensors"]}


def built_on(changes: dict) -> list[str]:
    syllabus = [{"stem": stem, "builds_on": stems} for stem, stems in (BUILT_ON | changes).items()]
    return check.prerequisite_complaints(syllabus, BOOK)


def test_good_prerequisites_are_accepted():
    assert built_on({}) == []
    assert built_on({"04_einops": ["02_tensors", "03_dtypes"]}) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"03_dtypes": ["04_einops"]}, "it builds on 04_einops, which is no earlier chapter"),
        ({"03_dtypes": ["03_dtypes"]}, "it builds on 03_dtypes, which is no earlier chapter"),
        ({"03_dtypes": ["tensors"]}, "it builds on tensors, which is no earlier chapter"),
        ({"03_dtypes": None}, "say what it builds on"),
        ({"04_einops": ["03_dtypes", "02_tensors"]}, "in the order of the book"),
        ({"04_einops": ["02_tensors", "02_tensors"]}, "each chapter that it builds on once"),
        ({"04_einops": ["03_dtypes"]}, "its goal box sends the reader to 02_tensors"),
    ],
)
def test_faulty_prerequisites(changes, complaint):
    [found] = built_on(changes)
    assert complaint in found


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ("", ""),
        ("A", "Builds on A. "),
        ("AB", "Builds on A and B. "),
        ("ABC", "Builds on A, B and C. "),
    ],
)
def test_the_sentence_about_what_a_chapter_builds_on(names, sentence):
    links = [nodes.reference("", name, refuri=f"{name}.html") for name in names]
    assert "".join(node.astext() for node in sentence_of_links(links)) == sentence
