"""The back matter: corrections, confusions and glossary lead into the chapters, and each chapter names what it needs.

The checks read the sources and return complaints. That every label is a place on a page, the build and the check of
links see to.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

from tests.book.pages import Directive, Page, Target, walk

FEWEST_CONFUSIONS = 25
LONGEST_ANSWER = 45  # words: more belongs into the chapter
LONGEST_DEFINITION = 45
LINK = re.compile(r"\[[^\]\n]+\]\(#([\w-]+)\)")


@dataclass(frozen=True)
class Entry:
    """A question with its answer, or a term with its definition."""

    name: str
    text: str

    @property
    def labels(self) -> list[str]:
        """The labels that its links lead to."""
        return LINK.findall(self.text)

    @property
    def words(self) -> int:
        """The words of its text, links left out."""
        return len(LINK.sub("", self.text).split())


def labels_of(pages: list[Page]) -> set[str]:
    """Every label of some pages, `(name)=`."""
    return {block.name for page in pages for block in walk(page.blocks) if isinstance(block, Target)}


def link_faults(entry: Entry, labels: set[str]) -> list[str]:
    """Say where an entry does not lead into a chapter."""
    if not entry.labels:
        return ["link to the section that shows it, `[title](#label)`"]
    return [f"no chapter has the label {label}: correct it" for label in entry.labels if label not in labels]


# --- confusions ------------------------------------------------------------------------------------------


def read_confusions(source: str) -> list[Entry]:
    """Return each question with its answer: a line, and one after it that begins with a colon."""
    found = re.findall(r"^(?![#:])(\S[^\n]*)\n: ([^\n]+(?:\n[^\n]+)*)", source, re.MULTILINE)
    return [Entry(question.strip(), answer.strip()) for question, answer in found]


def confusion_complaints(source: str, labels: set[str]) -> list[str]:
    """Say what is wrong with the page of confusions."""
    entries = read_confusions(source)
    complaints = []
    if len(entries) < FEWEST_CONFUSIONS:
        complaints.append(
            f"book/confusions.md has {len(entries)} questions, {FEWEST_CONFUSIONS} are the fewest: add some."
        )
    seen = set()
    for entry in entries:
        faults = link_faults(entry, labels)
        if "?" not in entry.name:
            faults.append("it asks nothing: make it a question")
        if entry.name in seen:
            faults.append("it is there twice: remove one")
        if entry.words > LONGEST_ANSWER:
            faults.append(f"its answer has {entry.words} words, {LONGEST_ANSWER} are the most: leave it to the section")
        seen.add(entry.name)
        complaints += [f"book/confusions.md, “{entry.name}”: {fault}." for fault in faults]
    return complaints


# --- glossary --------------------------------------------------------------------------------------------


def read_glossary(source: str) -> list[Entry]:
    """Return each term with its definition: a line, and indented ones after it."""
    body = re.search(r"^:::\{glossary\}\n(.*?)^:::$", source, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^(\S[^\n]*)\n((?:[ ]+\S[^\n]*\n?)+)", body[1] if body else "", re.MULTILINE)
    return [Entry(term, " ".join(text.split())) for term, text in found]


def glossary_complaints(source: str, labels: set[str], prose: str) -> list[str]:
    """Say what is wrong with the glossary; `prose` is all that the chapters say."""
    entries = read_glossary(source)
    complaints = [] if entries else ["book/glossary.md has no terms: put them into a `:::{glossary}`."]
    complaints += [
        f"book/glossary.md: “{term.name}” must come after “{earlier.name}”, each once and in order: move it."
        for earlier, term in pairwise(entries)
        if not earlier.name.casefold() < term.name.casefold()
    ]
    spoken = prose.casefold()
    for entry in entries:
        faults = link_faults(entry, labels)
        if not re.search(rf"(?<!\w){re.escape(entry.name.casefold())}", spoken):
            faults.append("no chapter uses this word: remove it, or take the word that they use")
        if entry.words > LONGEST_DEFINITION:
            faults.append(f"it takes {entry.words} words, {LONGEST_DEFINITION} are the most: shorten it")
        complaints += [f"book/glossary.md, “{entry.name}”: {fault}." for fault in faults]
    return complaints


# --- corrections -----------------------------------------------------------------------------------------


def read_rows(source: str) -> list[list[str]]:
    """Return the cells of the rows of a page's table, its head left out."""
    lines = [line for line in source.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def correction_complaints(source: str, chapters: list[Page]) -> list[str]:
    """Say which corrections lack a part or a proof, and which proofs of the chapters are no correction's."""
    labels = labels_of(chapters)
    complaints, linked = [], set()
    for cells in read_rows(source):
        said = cells[0] if cells else ""
        if len(cells) != 4 or not all(cells):
            complaints.append(
                f"book/corrections.md, “{said}”: say in four cells what, who, what is true and the proof."
            )
            continue
        proof = Entry(said, cells[3])
        linked |= set(proof.labels)
        complaints += [f"book/corrections.md, “{said}”: {fault}." for fault in link_faults(proof, labels)]
    proofs = sorted(label for label in labels if "-proof-" in label)
    complaints += [
        f"book/corrections.md: no row links to {label}, which a chapter calls a proof: add the correction."
        for label in proofs
        if label not in linked
    ]
    return complaints


# --- prerequisites ---------------------------------------------------------------------------------------


def prerequisite_complaints(syllabus: list[dict], chapters: list[Page]) -> list[str]:
    """Say which chapters build on something that does not come before them, or need what they do not build on."""
    complaints, earlier = [], []
    homes = {label: page.stem for page in chapters for label in labels_of([page])}
    pages = {page.stem: page for page in chapters}
    for chapter in syllabus:
        stem = chapter["stem"]
        if stem not in pages:
            continue
        where = f"book/syllabus.yml, {stem}"
        built_on = chapter.get("builds_on")
        if built_on is None:
            complaints.append(f"{where}: say what it builds on, `builds_on: []` if on nothing.")
            built_on = []
        if built_on != sorted(set(built_on)):
            complaints.append(f"{where}: name each chapter that it builds on once, in the order of the book.")
        complaints += [
            f"{where}: it builds on {other}, which is no earlier chapter: correct the stem or leave it out."
            for other in built_on
            if other not in earlier
        ]
        complaints += [
            f"{where}: its goal box sends the reader to {home}: add it to `builds_on`."
            for home in sorted(needed(pages[stem], homes))
            if home in earlier and home not in built_on
        ]
        earlier.append(stem)
    return complaints


def needed(page: Page, homes: dict[str, str]) -> set[str]:
    """The chapters to which the goal box of one links."""
    boxes = (block for block in walk(page.blocks) if isinstance(block, Directive) and "goal" in block.classes)
    texts = (text.source for box in boxes for text in walk(box.children) if hasattr(text, "source"))
    return {homes[label] for text in texts for label in LINK.findall(text) if label in homes}
