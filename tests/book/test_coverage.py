"""The coverage table on the built book, and on a small site with one fault at a time."""

import re

import pytest

from tests.book import coverage_check as check
from tests.book.pages import ROOT, toc_docnames

PLAIN_PAGES = {"index": 0, "gpu_box": 14}  # their numbers in the syllabus; those of chapters stand in their names

# --- the real book ---------------------------------------------------------------------------------------


def test_every_item_of_the_chapters_is_covered_and_proven(site):
    stems = {docname.split("/")[-1] for docname in toc_docnames()}
    complaints = check.coverage_complaints(site, check.read_syllabus(), stems)
    assert not complaints, "\n".join(complaints)


def test_the_syllabus_knows_every_chapter_of_the_book():
    stems = [chapter["stem"] for chapter in check.read_syllabus()]
    assert len(stems) == len(set(stems))
    chapters = [docname.split("/")[-1] for docname in toc_docnames() if re.match(r"book/\d\d_", docname)]
    assert chapters
    missing = [chapter for chapter in chapters if chapter not in stems]
    assert not missing, f"book/syllabus.yml has no chapter {', '.join(missing)}: add its stem with its items"


def test_the_syllabus_numbers_its_items_by_chapter():
    for chapter in check.read_syllabus():
        number = re.match(r"\d\d", chapter["stem"])
        prefix = int(number[0]) if number else PLAIN_PAGES[chapter["stem"]]
        expected = [f"{prefix}.{item}" for item in range(1, len(chapter["items"]) + 1)]
        assert list(chapter["items"]) == expected
        assert all(chapter["items"].values())


def test_every_chapter_with_a_page_is_in_the_table_of_contents():
    stems = {chapter["stem"] for chapter in check.read_syllabus()}
    pages = {path.stem for path in (ROOT / "book").glob("*.ipynb")} & stems
    assert pages <= {docname.split("/")[-1] for docname in toc_docnames()}


# --- seeded faults ---------------------------------------------------------------------------------------

SYLLABUS = [{"stem": "02_tensors", "items": {"2.1": "storage", "2.2": "strides"}}]
CHAPTER = """<article><section id="tensors-one"><h2>One</h2>
<div class="cell"><div class="cell_input"><pre>%pip install x
assert x.stride() == (4, 1), "as drawn"
for row in x:
    assert row.size(0)  ==  16</pre></div></div></section></article>"""
ROWS = """<article><table><thead><tr><th>Item</th></tr></thead><tbody>
<tr><td>2.1</td><td>Strides</td><td><a href="02_tensors.html#tensors-one">One</a></td>
<td><code>assert x.stride() == (4, 1)</code></td></tr>
<tr><td>2.2</td><td>Rows</td><td><a href="02_tensors.html#tensors-one">One</a></td>
<td><code>assert row.size(0)== 16</code></td></tr></tbody></table></article>"""


def complaints(folder, rows: str = ROWS, stems: tuple[str, ...] = ("02_tensors",)) -> list[str]:
    (folder / "book").mkdir()
    (folder / "book/coverage.html").write_text(rows, encoding="utf-8")
    (folder / "book/02_tensors.html").write_text(CHAPTER, encoding="utf-8")
    return check.coverage_complaints(folder, SYLLABUS, set(stems))


def test_a_complete_table_is_accepted(tmp_path):
    assert complaints(tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("<td>2.2</td>", "<td>2.1</td>", "item 2.2 (strides) has no row"),
        ("<td>2.2</td>", "<td>2.9</td>", "the syllabus has no such item"),
        ("assert row.size(0)== 16", "assert row.size(0) == 1", "no code cell of 02_tensors.html has"),
        ("(4, 1)", "(1, 4)", "no code cell of 02_tensors.html has"),
        ("assert x.stride() == (4, 1)", "x.stride() == (4, 1)", "put one assert statement"),
        ("assert x.stride() == (4, 1)", "", "put one assert statement"),
        ("#tensors-one", "#tensors-two", "has no place named tensors-two"),
        ("#tensors-one", "", "link in its third column"),
        ("02_tensors.html", "03_dtypes.html", "there is no page 03_dtypes.html"),
        ("<td>Rows</td>", "<td> </td>", "say in its second column"),
    ],
)
def test_a_faulty_table(tmp_path, old, new, complaint):
    assert old in ROWS
    assert any(complaint in line for line in complaints(tmp_path, ROWS.replace(old, new)))


def test_chapters_that_are_not_in_the_book_need_no_row(tmp_path):
    assert complaints(tmp_path, ROWS.replace("<td>2.2</td>", "<td>2.1</td>"), stems=()) == []
