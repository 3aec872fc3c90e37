"""The coverage table: every syllabus item has a row whose link leads to a page that proves it.

All is read from the built pages, so that what is checked is what a reader sees.
"""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urldefrag

import yaml
from bs4 import BeautifulSoup, Tag

from tests.book.number_check import python_source
from tests.book.pages import ROOT

COVERAGE = "book/coverage.html"


@dataclass(frozen=True)
class Row:
    """A row of the table: syllabus item, what is shown, the link to where, and the assert that proves it."""

    item: str
    what: str
    link: str
    proof: str


def read_syllabus(path: Path = ROOT / "book/syllabus.yml") -> list[dict]:
    """Return the chapters with their items."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def coverage_rows(site: Path) -> list[Row]:
    """Return the rows of the built coverage page; a row without four cells has empty ones."""
    page = BeautifulSoup((site / COVERAGE).read_text(encoding="utf-8"), "html.parser")
    rows = []
    for line in page.select("article table tbody tr"):
        cells = [*line.find_all("td"), *[None] * 4][:4]
        link = cells[2].find("a", href=True) if cells[2] else None
        proof = cells[3].find("code") if cells[3] else None
        rows.append(Row(words(cells[0]), words(cells[1]), link["href"] if link else "", words(proof)))
    return rows


def words(cell: Tag | None) -> str:
    """Return the text of a cell on one line."""
    return " ".join(cell.get_text().split()) if cell else ""


def coverage_complaints(site: Path, syllabus: list[dict], stems: set[str]) -> list[str]:
    """Say what the coverage table lacks for the chapters with these stems, and which rows prove nothing."""
    rows = coverage_rows(site)
    complaints = []
    known = {item for chapter in syllabus for item in chapter["items"]}
    covered = {row.item for row in rows}
    for chapter in syllabus:
        if chapter["stem"] in stems:
            complaints += [
                f"book/coverage.md: {chapter['stem']} is in the book, but item {item} ({title}) has no row: add one."
                for item, title in chapter["items"].items()
                if item not in covered
            ]
    for row in rows:
        faults = row_faults(site, row)
        if row.item not in known:
            faults.append("the syllabus has no such item; correct its number")
        complaints += [f"book/coverage.md, row {row.item} “{row.what}”: {fault}." for fault in faults]
    return complaints


def row_faults(site: Path, row: Row) -> list[str]:
    """Say what is wrong with one row."""
    faults = [] if row.what else ["say in its second column what is shown"]
    address, anchor = urldefrag(row.link)
    page = ((site / COVERAGE).parent / unquote(address)).resolve()
    if not row.link or not anchor:
        return [*faults, "link in its third column to a label in the book, `[title](#label)`"]
    if not page.is_file():
        return [*faults, f"there is no page {address}; correct the link"]
    if not parsed(page).find(id=unquote(anchor)):
        faults.append(f"the page {address} has no place named {anchor}; correct the link")
    if not (proof := assertion(row.proof)):
        faults.append("put one assert statement, as code, into its fourth column")
    elif proof not in assertions(page):
        faults.append(f"no code cell of {address} has `{row.proof}`; copy the assert from there")
    return faults


@cache
def parsed(page: Path) -> BeautifulSoup:
    """Return a built page."""
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


@cache
def assertions(page: Path) -> set[str]:
    """Return what the code cells of a built page assert, written in one way."""
    found = set()
    for cell in parsed(page).select(".cell_input pre"):
        try:
            tree = ast.parse(python_source(cell.get_text()))
        except SyntaxError:
            continue
        found |= {ast.unparse(node.test) for node in ast.walk(tree) if isinstance(node, ast.Assert)}
    return found


def assertion(source: str) -> str:
    """Return what one assert statement asserts, written in one way; empty where the source is no such statement."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return ""
    return ast.unparse(body[0].test) if len(body) == 1 and isinstance(body[0], ast.Assert) else ""
