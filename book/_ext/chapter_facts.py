"""Completes the goal box of a chapter with what only its build knows: the time to read it and the time its cells took.

The box is an admonition of class ``goal``. Nothing stands for the facts in the notebook, so it reads well without us.
"""

from __future__ import annotations

from math import ceil

from docutils import nodes

WORDS_PER_MINUTE = 200  # of technical prose; code, outputs and formulas are not counted


def reading_minutes(doctree: nodes.document) -> int:
    """Minutes to read the page's prose, rounded up."""
    not_prose = (nodes.literal_block, nodes.literal, nodes.raw, nodes.math, nodes.math_block)
    texts = (text for text in doctree.findall(nodes.Text) if not isinstance(text.parent, not_prose))
    return ceil(sum(len(text.astext().split()) for text in texts) / WORDS_PER_MINUTE)


def complete_goal_box(app, doctree: nodes.document, docname: str) -> None:
    """Append the chapter's facts to its goal box."""
    goals = [box for box in doctree.findall(nodes.Admonition) if "goal" in box.get("classes", [])]
    for box in goals:
        run = app.env.nb_metadata[docname].get("exec_data")
        if run is None or run["runtime"] is None:
            raise ValueError(f"{docname} has a goal box, but its cells were not executed in this build")
        facts = (
            f"About {reading_minutes(doctree)} minutes to read. "
            f"Its cells took {ceil(run['runtime'])} seconds on the CPU that built this page."
        )
        box += nodes.paragraph("", facts, classes=["chapter-facts"])


def setup(app):
    """Connect the step; Sphinx calls this."""
    app.connect("doctree-resolved", complete_goal_box)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
