"""The number check on the real book, and on small cases that it must accept or refuse."""

from fractions import Fraction

import pytest

from tests.book import number_check as check
from tests.book.coverage_check import read_syllabus
from tests.book.pages import Page, Text, read_book
from tests.book.samples import code, figure, markdown_page, page, printed, shown, text

# --- the real book ---------------------------------------------------------------------------------------


def names_on(book_page: Page) -> list[str]:
    """Return the names on a page; in the coverage table the items' numbers, such as 12.3, are names too."""
    items = [item for chapter in read_syllabus() for item in chapter["items"]]
    return check.read_names() + (items if book_page.docname == "book/coverage" else [])


def test_every_number_of_the_book_is_computed_or_has_a_source():
    facts = check.read_facts()
    complaints = check.fact_complaints(facts)
    for book_page in read_book():
        complaints += check.number_complaints(book_page, facts, names_on(book_page))
    assert not complaints, "\n".join(complaints)


def test_a_wrong_digit_in_any_number_of_the_book_is_noticed():
    facts = check.read_facts()
    complaints = []
    for book_page in read_book():
        complaints += check.unnoticed_mutations(book_page, facts, names_on(book_page))
    assert not complaints, "\n".join(complaints)


# --- finding numbers -------------------------------------------------------------------------------------


def written(line: str) -> list[str]:
    return [number.written for number in check.find_numbers(line)]


def checked(source: str, names: tuple[str, ...] = (), *, is_formula: bool = False) -> list[str]:
    prose = Text(source, "line 1", is_formula)
    return [number.written for number in check.checked_numbers(prose, list(names))]


@pytest.mark.parametrize(
    "line",
    [
        "fp32",
        "GPT-2",
        "02_tensors",
        "two H100s",
        "torch 2.13.0",
        "a 512-byte block",
        "the 100th",
        "at 0x7f12",
        "640x480",
    ],
)
def test_digits_that_belong_to_a_word_are_no_number(line):
    assert written(line) == []


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("4,608", 4608),
        ("1_000_000", 10**6),
        ("4\u2009608", 4608),
        ("2 × 10⁹", 2 * 10**9),
        ("4.788 × 10²¹", 4788 * 10**18),
        ("4.788e21", 4788 * 10**18),
        ("3e-8", Fraction(3, 10**8)),
        ("2⁻²⁴", Fraction(1, 2**24)),
        ("2^-24", Fraction(1, 2**24)),
        ("2**30", 2**30),
        ("124M parameters", 124 * 10**6),
        ("15T tokens", 15 * 10**12),
        ("40B parameters", 40 * 10**9),
        ("15 trillion tokens", 15 * 10**12),
        ("50k merges", 50_000),
        ("−5", -5),
        ("a value of -5", -5),
        ("tensor([0.5000])", Fraction(1, 2)),
    ],
)
def test_value(line, value):
    assert [number.value for number in check.find_numbers(line)] == [value]


@pytest.mark.parametrize(
    ("line", "kind", "size"),
    [
        ("2.25 GB", "bytes", Fraction(225 * 10**7)),
        ("2.25 GiB", "bytes", Fraction(9, 4) * 2**30),
        ("16 B", "bytes", 16),
        ("40GB", "bytes", 40 * 10**9),
        ("20 bytes/parameter", "bytes", 20),
        ("3.35 TB/s", "bytes/s", 335 * 10**10),
        ("989.5 TFLOP/s", "FLOP/s", 9895 * 10**11),
        ("312e12 FLOPs", "FLOPs", 312 * 10**12),
        ("5 µs", "time", Fraction(5, 10**6)),
        ("2 weeks", "time", 14 * 86400),
        ("31 %", "ratio", Fraction(31, 100)),
        ("3.2× faster", "ratio", Fraction(32, 10)),
        ("3 times", "ratio", 3),
        ("12 tokens", "count", 12),
        ("16 bits", "bits", 16),
    ],
)
def test_unit(line, kind, size):
    (number,) = check.find_numbers(line)
    assert (number.kind, number.value * number.scale) == (kind, size)


@pytest.mark.parametrize("line", ["4×8", "16 × 16", "2 x 3"])
def test_a_product_is_no_ratio(line):
    assert [number.kind for number in check.find_numbers(line)] == ["", ""]


@pytest.mark.parametrize(
    ("latex", "numbers"),
    [
        (r"4{,}608", ["4,608"]),
        (r"T = 6D = 4{,}608", ["4,608"]),
        (r"2^{-24}", ["2⁻²⁴"]),
        (r"2^{1-15}", ["2⁻¹⁴"]),
        (r"2.5 \cdot 10^{9}\,\text{bytes}", ["2.5 · 10⁹\u2009bytes"]),
        (r"2 \cdot 32\cdot32 \cdot 4 = 8192", ["8192"]),
        (r"\frac{1}{1024}", ["1024"]),
        (r"31\%", ["31%"]),
        (r"1024D", ["1024"]),
        (r"16 B T", []),
        (r"1024^{n}", []),
        (r"x_{100}", []),
        (r"10^{9}", []),
    ],
)
def test_formula(latex, numbers):
    assert checked(latex, is_formula=True) == numbers
    assert checked(f"${latex}$") == numbers


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("about 7 or 42 of them", []),
        ("exactly 143 of them, 3.14 and 0.02", ["143", "3.14"]),
        ("with `x = 1234` and {cite}`gage1994`", []),
        ("see [the 144 days](https://example.org/12345)", ["144 days"]),
        ("see {ref}`the 144 days <days-1234>` and {ref}`days-1234`", ["144 days"]),
        ("at <https://example.org/12345> or https://example.org/12345", []),
        ("Vaswani et al., arXiv: 1706.03762", []),
        ("in 2017, 1994 and 2099", []),
        ("2048 bytes, 2,048 and 1899", ["2048 bytes", "2,048", "1899"]),
        ("**128** bytes, $2^{10}$ bytes", ["128 bytes", "2¹⁰ bytes"]),
        ("10–20 ms and 300–400", ["20 ms", "300", "400"]),
        ("a 7B model", ["7B"]),
        ("![the 512 elements](x123.png)", ["512 elements"]),
        ("tensors[^note]", []),
    ],
)
def test_prose(source, numbers):
    assert checked(source) == numbers


def test_names_are_no_numbers():
    assert checked("CC BY 4.001, GPT-3 175B, not 175B", ("CC BY 4.001", "GPT-3 175B")) == ["175B"]


def test_prose_is_found_wherever_a_reader_sees_it():
    source = """
# Title of 101

:::::{admonition} Box of 102
:class: goal-998
Text of 103

::::{exercise} Build 104
:label: label-997
- item of 105

:::{dropdown} Hint at 106
| head 107 |
| --- |
| cell 108 |
:::
::::
:::::

:::{figure} picture-996.png
:alt: A picture of 109
Caption of 110
:::

<!-- comment 995 -->
% comment 994

```python
x = 993
```

:::{literalinclude} file.py
:lines: 1-992
:caption: Listing 111
:::

$$ 112 $$

term 113
: definition 114
"""
    numbers = [check_.number.written for check_ in check.check_page(markdown_page(source), [], [])]
    assert numbers == [str(number) for number in range(101, 115)]


# --- comparing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prose", "value"),
    [
        ("2.25", "2.2548"),
        ("2.25", "2.25"),
        ("144", "143.97"),
        ("40 GB", "40200000000"),
        ("40 GB", "40.2e9 bytes"),
        ("2.42 GB", "2.416"),
        ("2.42 GB", "2.25 GiB"),  # both are 2.416 billion bytes
        ("2.25 GiB", "2304 MiB"),
        ("124M parameters", "124,439,808"),
        ("31 %", "0.3102"),
        ("31 %", "31.02"),
        ("31 %", "31.0%"),
        ("7 days", "1 week"),
        ("989.5 TFLOP/s", "9.895e14"),
        ("2⁻²⁴", "5.960464477539063e-08"),
        ("5.96e-8", "5.960464477539063e-08"),
        ("4.79 × 10²¹ FLOPs", "4.788e21"),
        ("40,000", "40000"),
        ("128 elements", "128 parameters"),
        ("-0.125", "-0.125"),
    ],
)
def test_match(prose, value):
    assert check.matches(check.find_numbers(prose)[0], check.find_numbers(value)[0])


@pytest.mark.parametrize(
    ("prose", "value"),
    [
        ("2.25", "2.26"),
        ("2.25", "2.2"),
        ("143.97", "144"),
        ("40,000", "40200"),
        ("2.25 GB", "2.25 GiB"),
        ("2.3 GB", "2.25 GiB"),
        ("144 bytes", "144 elements"),
        ("312 TFLOP/s", "312 TFLOPs"),
        ("80 GB", "80 GB/s"),
        ("16 bytes", "16 bits"),
        ("124M parameters", "124"),
        ("124M parameters", "125000001"),
        ("15T tokens", "15"),
        ("2⁻²⁴", "5.96e-08"),
        ("31 %", "0.318"),
        ("125", "-125"),
        ("7 days", "2 weeks"),
    ],
)
def test_no_match(prose, value):
    assert not check.matches(check.find_numbers(prose)[0], check.find_numbers(value)[0])


# --- where values come from ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("assert size == 8192", 8192),
        ("assert size == 2 * 32 * 32 * 4", 8192),
        ("assert size == 4 * n", 4),
        ("assert step == 2**-24", Fraction(repr(2**-24))),
        ("assert step == 1 << 10", 1024),
        ("assert (rows, columns) == (128, 256)", 256),
        ("assert abs(x - 1.5e-3) < 1e-9", Fraction(15, 10**4)),
        ("%pip install x\nassert x == 123", 123),
    ],
)
def test_asserted_value(statement, value):
    (cell,) = page(code(statement)).code_cells
    assert value in [number.value for number in check.asserted_values(cell)]


@pytest.mark.parametrize("source", ["x = 123", "assert x, 'message 123'", "assert flag is True", "print(123)", "1 +"])
def test_no_asserted_value(source):
    (cell,) = page(code(source)).code_cells
    assert list(check.asserted_values(cell)) == []


PROSE = "The matrix takes 8192 bytes."


def complaints(*cells, facts=(), names=()) -> list[str]:
    return check.number_complaints(page(*cells), list(facts), list(names))


@pytest.mark.parametrize(
    "cell",
    [
        code("print(size)", printed("size: 8192\n")),
        code("size", shown(text_plain="8192")),
        code("table", shown(text_html="<table><td>8,192 bytes</td></table>", text_plain="Table")),
        code("table", shown(text_markdown="| bytes |\n| --- |\n| 8192 |", text_plain="Markdown")),
        code("assert size == 2 * 32 * 32 * 4"),
    ],
)
def test_a_value_in_the_same_or_an_earlier_section_vouches(cell):
    assert complaints(text("# Title\n\n" + PROSE), cell) == []
    assert complaints(text("# Title"), cell, text("## Section\n\n" + PROSE)) == []
    assert complaints(text("# Title"), text("## One"), cell, text("### Two\n\n" + PROSE)) == []


def test_a_value_in_a_later_section_does_not_vouch():
    found = complaints(text("# Title\n\n" + PROSE), text("## Later"), code("assert size == 8192"))
    assert len(found) == 1
    assert "book/02_tensors, cell 1, line 3, section “Title”: “8192 bytes”" in found[0]
    assert "book/facts.yml" in found[0]


def test_figures_captions_and_alternative_texts_are_prose():
    alt = "A drawing of 16 boxes in a row of 8193 bytes"
    found = complaints(text("# Title"), figure("draw()", alt=alt, caption="All 8191 bytes"))
    assert len(found) == 2
    assert all("cell 2" in complaint for complaint in found)


def test_the_size_of_a_drawn_figure_is_no_value():
    assert complaints(text("# Title\n\nIt has 640 of them"), figure("draw()", caption=""))


def test_a_big_table_vouches_only_for_the_prose_beside_it():
    table = code("table", printed(" ".join(str(number) for number in range(8180, 8220))))
    small = code("table", printed(" ".join(str(number) for number in range(8180, 8200))))
    assert complaints(text("# Title"), table, text(PROSE)) == []
    assert len(complaints(text("# Title"), table, text("## Next\n\n" + PROSE))) == 1
    assert complaints(text("# Title"), small, text("## Next\n\n" + PROSE)) == []


def test_pieces_of_one_cells_output_are_one_table():
    rows = [printed(f"{8180 + row} {row}\n") for row in range(20)]
    assert len(complaints(text("# Title"), code("table", *rows), text("## Next\n\n" + PROSE))) == 1


def test_a_fact_vouches_in_any_unit_of_its_kind():
    fact = {"value": "3350", "unit": "GB/s", "what": "bandwidth", "source": "data sheet"}
    assert complaints(text("# Title\n\nAn H100 reads 3.35 TB/s."), facts=[fact]) == []
    assert len(complaints(text("# Title\n\nAn H100 reads 3.45 TB/s."), facts=[fact])) == 1
    assert len(complaints(text("# Title\n\nAn H100 holds 3.35 TB."), facts=[fact])) == 1


def test_facts_need_a_number_and_a_source():
    good = {"value": "3.14e23", "unit": "FLOPs", "what": "training GPT-3", "source": "Brown et al."}
    assert check.fact_complaints([good]) == []
    assert "lacks source" in check.fact_complaints([good | {"source": ""}])[0]
    assert "must be one number" in check.fact_complaints([good | {"value": "a lot"}])[0]


# --- mutation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prose", [PROSE, "It takes $8{,}192$ bytes.", "It takes $2^{13}$ bytes.", "8.19 kB"])
def test_a_wrong_digit_is_noticed(prose):
    sample = page(text("# Title"), code("assert size == 8192"), text(prose))
    assert check.number_complaints(sample, [], []) == []
    assert check.unnoticed_mutations(sample, [], []) == []
    wrong = prose.replace("9", "6").replace("13", "14")
    assert len(complaints(text("# Title"), code("assert size == 8192"), text(wrong))) == 1


def test_another_digit_is_tried_where_one_gives_another_value_of_the_page():
    values = code("assert sizes == [123, 223, 133, 124]")
    assert check.unnoticed_mutations(page(text("# Title\n\nThe 123 of them"), values), [], []) == []


def test_a_number_for_which_no_wrong_digit_is_noticed_is_reported():
    values = code("assert sizes == " + str(list(range(1000))))
    found = check.unnoticed_mutations(page(text("# Title\n\nThe 123 of them"), values), [], [])
    assert len(found) == 1
    assert "123" in found[0]
