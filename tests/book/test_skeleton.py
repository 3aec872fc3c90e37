"""The skeleton of chapters, on the real book and on a sample chapter with one fault at a time."""

import pytest

from lmlib import exercises
from tests.book import skeleton
from tests.book.pages import CodeCell, Page, read_book
from tests.book.samples import code, drawn, figure, markdown_page, page, printed, text

# --- the real book ---------------------------------------------------------------------------------------


def test_chapters_have_all_parts():
    chapters = [book_page for book_page in read_book() if book_page.is_chapter]
    assert chapters
    complaints = []
    for chapter in chapters:
        complaints += skeleton.part_complaints(chapter)
        complaints += skeleton.exercise_complaints(chapter, exercises.names(chapter.chapter))
    assert not complaints, "\n".join(complaints)


def test_cells_are_short_and_figures_described():
    complaints = []
    for book_page in read_book():
        complaints += skeleton.cell_complaints(book_page) + skeleton.figure_complaints(book_page)
    assert not complaints, "\n".join(complaints)


# --- a sample chapter ------------------------------------------------------------------------------------

ALT = "Sixteen boxes in a row, every fourth of them coloured, with arrows between."
REGISTERED = ["tensors.half_a_view"]
SAMPLE = {
    "top": text("# Tensors\n\n:::{admonition} After this chapter you can\n:class: goal\nCount.\n:::"),
    "install": code("import lmlib"),
    "imports": code("import torch"),
    "predict": text(":::{admonition} Predict\n:class: predict\nHow many?\n:::"),
    "section": text("(tensors-one)=\n## A view costs nothing\n\nProse."),
    "figure": figure("draw()", alt=ALT),
    "lecture": text(":::{admonition} In the lecture: views\n:class: lecture\nSaid.\n:::"),
    "library": text("## In lmlib\n\n:::{literalinclude} ../lmlib/tensors.py\n:pyobject: f\n:::"),
    "exercise": text(
        "## Exercises\n\n::::{exercise} Half a view\n:label: tensors-half-a-view\n\nHow?\n\n"
        ":::{dropdown} Hint\nThink.\n:::\n::::"
    ),
    "check": code('answer = ...\ncheck("tensors.half_a_view", answer)', printed("Not answered yet")),
    "start": text(":::{solution-start} tensors-half-a-view\n:class: dropdown\n:::"),
    "solution": code('answer = 8\ncheck("tensors.half_a_view", answer)', printed("Right.\n")),
    "end": text(":::{solution-end}\n:::"),
    "summary": text("## Summary\n\nFive lines."),
    "sources": text("## Sources\n\nThe lecture."),
}


def sample(**changes) -> Page:
    """Return the sample chapter with some cells replaced, and those replaced by None left out."""
    return page(*[cell for cell in (SAMPLE | changes).values() if cell is not None])


def reordered(*names: str) -> Page:
    """Return the sample chapter with these cells at its end."""
    return page(*[SAMPLE[name] for name in SAMPLE if name not in names], *[SAMPLE[name] for name in names])


def all_complaints(chapter: Page, registered: list[str] = REGISTERED) -> list[str]:
    return [
        *skeleton.part_complaints(chapter),
        *skeleton.exercise_complaints(chapter, registered),
        *skeleton.cell_complaints(chapter),
        *skeleton.figure_complaints(chapter),
    ]


def test_the_sample_chapter_is_complete():
    assert all_complaints(sample()) == []


@pytest.mark.parametrize(
    ("part", "complaint"),
    [
        ("predict", "no prediction"),
        ("section", "no section"),
        ("figure", "no cell draws a figure"),
        ("lecture", "no lecture box"),
        ("library", "no section “In lmlib”"),
        ("exercise", "no section “Exercises”"),
        ("summary", "no section “Summary”"),
        ("sources", "no section “Sources”"),
        ("check", 'must end in `check("tensors.half_a_view", …)`'),
        ("start", "has no solution"),
        ("solution", "last cell of its solution must end in the same check"),
        ("end", "its solution is not closed"),
    ],
)
def test_a_missing_cell(part, complaint):
    assert any(complaint in line for line in all_complaints(sample(**{part: None})))


@pytest.mark.parametrize(
    ("moved", "complaint"),
    [
        (("predict",), "section (`## …`) comes before prediction"),
        (("lecture",), "section “In lmlib” comes before lecture box"),
        (("exercise", "check", "start", "solution", "end"), "section “Summary” comes before section “Exercises”"),
        (("summary",), "section “Sources” comes before section “Summary”"),
    ],
)
def test_a_part_in_the_wrong_place(moved, complaint):
    assert any(complaint in line for line in all_complaints(reordered(*moved)))


@pytest.mark.parametrize(
    ("part", "old", "new", "complaint"),
    [
        ("top", "# Tensors", "Tensors", "no title"),
        ("top", "goal", "note", "no goal box"),
        ("top", ":::{admonition} After", "First words.\n\n:::{admonition} After", "must follow the title"),
        ("summary", "Five lines.", "", "section “Summary”: it is empty"),
        ("library", "literalinclude", "note", "show the library's source"),
        ("library", "tensors.py", "no_such_module.py", "there is no file"),
        ("exercise", ":::{dropdown} Hint\nThink.\n:::", "", "has no hint"),
        ("exercise", ":label: tensors-half-a-view", "", "give it a `:label:`"),
        ("exercise", "tensors-half-a-view", "tensors-other", "register “tensors.other”"),
        ("check", "tensors.half_a_view", "tensors.other", "code cell after it must end in"),
        ("check", 'check("tensors.half_a_view", answer)', "pass", "code cell after it must end in"),
        ("start", ":class: dropdown", "", "lacks `:class: dropdown`"),
        ("solution", "tensors.half_a_view", "tensors.other", "must end in the same check"),
        ("section", "Prose.", ":::{figure} x.png\n:alt: short\nCaption\n:::", "say in `:alt:`"),
    ],
)
def test_a_fault_in_a_cell(part, old, new, complaint):
    cell = SAMPLE[part]
    assert old in cell.source
    changed = cell | {"source": cell.source.replace(old, new)}
    assert any(complaint in line for line in all_complaints(sample(**{part: type(cell)(changed)})))


def test_a_solution_that_is_not_right():
    wrong = code(SAMPLE["solution"].source, printed("Not yet: think of the factor 2.\n"))
    assert any("does not say “Right”" in line for line in all_complaints(sample(solution=wrong)))


def test_a_registered_check_without_an_exercise():
    assert any("knows “tensors.other”" in line for line in all_complaints(sample(), [*REGISTERED, "tensors.other"]))


def test_a_solution_before_its_exercise():
    moved = reordered("exercise", "check")
    assert any("its solution stands before it" in line for line in all_complaints(moved))


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        (code("x = 1\n" * 16), "16 lines: split"),
        (code("x = 1\n" * 41, tags=("hide-input",)), "41 lines: move"),
        (code("import json\nfrom math import pi"), "it only imports"),
        (code("draw()", drawn()), "mystnb.image.alt"),
        (figure("draw()", alt="Sixteen boxes."), "40 characters or more"),
        (figure("draw()", alt=ALT, caption=ALT), "repeats the caption"),
        (figure("draw()", alt=ALT, caption=""), "mystnb.figure.caption"),
    ],
)
def test_a_faulty_cell(cell, complaint):
    found = all_complaints(sample(section=SAMPLE["section"], figure=SAMPLE["figure"], added=cell))
    assert any(complaint in line for line in found)


@pytest.mark.parametrize(
    "cell", [code("x = 1\n" * 15), code("x = 1\n" * 40, tags=("hide-input",)), code("import json\njson.dumps(1)")]
)
def test_an_allowed_cell(cell):
    assert all_complaints(sample(added=cell)) == []


def test_a_page_in_markdown_has_the_same_rules():
    found = markdown_page("# Index\n\n```{code-cell} ipython3\n:tags: [remove-output]\nplt.show()\n```\n")
    (cell,) = found.code_cells
    assert isinstance(cell, CodeCell)
    assert cell.tags == ["remove-output"]
    assert any("mystnb.image.alt" in line for line in skeleton.figure_complaints(found))
