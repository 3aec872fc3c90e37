"""Completes the goal box of a chapter with what stands outside of it, or what only its build knows.

These are the chapters it builds on, the time to read it and the time its cells took. The box is an admonition of class
``goal``. Nothing stands for the facts in the notebook, so it reads well without us.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from pathlib import Path

import yaml
from docutils import nodes

WORDS_PER_MINUTE = 200  # of technical prose; code, outputs and formulas are not counted
SYLLABUS = "book/syllabus.yml"


def reading_minutes(doctree: nodes.document) -> int:
    """Minutes to read the page's prose, rounded up."""
    not_prose = (nodes.literal_block, nodes.literal, nodes.raw, nodes.math, nodes.math_block)
    texts = (text for text in doctree.findall(nodes.Text) if not isinstance(text.parent, not_prose))
    return ceil(sum(len(text.astext().split()) for text in texts) / WORDS_PER_MINUTE)


def prerequisites(source: Path, docname: str) -> list[str]:
    """The pages of the chapters that one builds on, as its syllabus has them."""
    folder, _, stem = docname.rpartition("/")
    chapters = yaml.safe_load((source / SYLLABUS).read_text(encoding="utf-8"))
    found = {chapter["stem"]: chapter.get("builds_on", []) for chapter in chapters}
    return [f"{folder}/{earlier}" for earlier in found.get(stem, [])]


def sentence_of_links(links: list[nodes.Node]) -> Iterator[nodes.Node]:
    """“Builds on A, B and C. ”, or nothing where there is nothing to build on."""
    for place, link in enumerate(links):
        before = "Builds on " if place == 0 else " and " if place == len(links) - 1 else ", "
        yield nodes.Text(before)
        yield link
    if links:
        yield nodes.Text(". ")


def link(app, docname: str, target: str) -> nodes.reference:
    """A link to a chapter under its name, which is its title up to the colon."""
    name = app.env.titles[target].astext().partition(":")[0]
    return nodes.reference("", name, internal=True, refuri=app.builder.get_relative_uri(docname, target))


def complete_goal_box(app, doctree: nodes.document, docname: str) -> None:
    """Append the chapter's facts to its goal box."""
    goals = [box for box in doctree.findall(nodes.Admonition) if "goal" in box.get("classes", [])]
    for box in goals:
        run = app.env.nb_metadata[docname].get("exec_data")
        if run is None or run["runtime"] is None:
            raise ValueError(f"{docname} has a goal box, but its cells were not executed in this build")
        earlier = [page for page in prerequisites(Path(app.srcdir), docname) if page in app.env.titles]
        links = [link(app, docname, page) for page in earlier]
        times = (
            f"About {reading_minutes(doctree)} minutes to read. "
            f"Its cells took {ceil(run['runtime'])} seconds on the CPU that built this page."
        )
        box += nodes.paragraph("", "", *sentence_of_links(links), nodes.Text(times), classes=["chapter-facts"])


def setup(app):
    """Connect the step; Sphinx calls this."""
    app.connect("doctree-resolved", complete_goal_box)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
