"""GB is 10⁹ bytes and GiB is 2³⁰: no line of code divides by the one and calls the result by the other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.book.number_check import python_source
from tests.book.pages import ROOT, read_book

# What a statement divides by: a power of ten or a power of two, however it is written.
DIVISOR = re.compile(
    r"""
    //?\s*\(?\s*(?:
        (?P<decimal>1e\+?(?:3|6|9|12)\b | 10\s*\*\*\s*(?:3|6|9|12)\b | 1000\b | 1_?000(?:_?000){1,3}\b)
      | (?P<binary>1024\b | 1048576\b | 1073741824\b | (?:2(?:\.0)?\s*\*\*|1\s*<<)\s*(?:10|20|30|40)\b)
    )
    """,
    re.VERBOSE,
)
# Units in text and in names such as `size_gib`.
LABEL = re.compile(r"(?<![A-Za-z])[KkMmGgTt](?P<binary>i)?[Bb](?![A-Za-z])")


def unit_complaints(source: str, where: str) -> list[str]:
    """Say which statements divide by 10⁹ and say GiB, or by 2³⁰ and say GB."""
    complaints = []
    for line, statement in statements(source):
        for divisor in DIVISOR.finditer(statement):
            label = label_of(statement, divisor)
            if label and bool(label["binary"]) != bool(divisor["binary"]):
                complaints.append(
                    f"{where}, line {line}: it divides by {divisor[0].lstrip('/ (')} but says {label[0]}: "
                    "GB is 10**9 bytes, GiB is 2**30; change one of them."
                )
    return complaints


def label_of(statement: str, divisor: re.Match) -> re.Match | None:
    """Return the unit that a quotient is called by: the next one after it, else the first before it."""
    before = [label for label in LABEL.finditer(statement) if label.start() < divisor.start()]
    after = [label for label in LABEL.finditer(statement) if label.start() > divisor.end()]
    return (after + before or [None])[0]


def statements(source: str) -> Iterator[tuple[int, str]]:
    """Yield each simple statement with its first line's number, and the comment behind it."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            yield node.lineno, "\n".join(lines[node.lineno - 1 : node.end_lineno])


def library_files() -> list[Path]:
    return sorted((ROOT / "lmlib").rglob("*.py"))


def test_units_in_the_library():
    assert library_files()
    complaints = []
    for path in library_files():
        complaints += unit_complaints(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    assert not complaints, "\n".join(complaints)


def test_units_in_the_book():
    complaints = []
    for page in read_book():
        for cell in page.code_cells:
            complaints += unit_complaints(python_source(cell.source), f"{page.docname}, {cell.where}")
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(
    "source",
    [
        'print(f"{size / 1e9:.2f} GiB")',
        'print(f"{size / 10**6:.2f} MiB")',
        'print(f"{size / 2**30:.2f} GB")',
        'print(size / 1024**3, "GB")',
        'print("GB:", size / (1 << 30))',
        'print(f"{size / 1_000_000_000} GiB")',
        "size_gib = size / 1e9",
        "size_gb = size // 2**30",
        "size = size / 1024  # kB",
        'print(\n    size / 1e9,\n    "GiB",\n)',
        'if size:\n    print(f"{size / 1e9} GiB")',
        'print(f"{size / 2**30:.2f} GiB = {size / 2**30:.3f} GB")',
        'print(f"{size / 1e9:.2f} GiB = {size / 1e9:.3f} GB")',
    ],
)
def test_a_mixed_up_unit_is_reported(source):
    assert len(unit_complaints(source, "here")) == 1


@pytest.mark.parametrize(
    "source",
    [
        'print(f"{size / 2**30:.2f} GiB = {size / 1e9:.3f} GB")',
        'print(f"{size / 1024**2:.2f} MiB")',
        'print(f"{size / 10**9:.2f} GB")',
        "gb = gib * 2**30 / 1e9",
        "gib = gb * 10**9 / 2**30",
        'print(f"{seconds / 1e9} ns")',
        'print(f"{count / 1024} rows of 4 B")',
    ],
)
def test_units_that_are_not_mixed_up(source):
    assert unit_complaints(source, "here") == []
