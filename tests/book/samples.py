"""Small notebooks made in memory, for trying the checks on faults."""

from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.book.pages import Page, read_markdown, read_notebook


def text(source: str) -> NotebookNode:
    return new_markdown_cell(source)


def code(source: str, *outputs: NotebookNode, tags: tuple[str, ...] = (), **metadata) -> NotebookNode:
    if tags:
        metadata["tags"] = list(tags)
    return new_code_cell(source, outputs=list(outputs), metadata=metadata, execution_count=1)


def printed(words: str) -> NotebookNode:
    return new_output("stream", name="stdout", text=words)


def shown(**data: str) -> NotebookNode:
    """Make an output from text_plain=… or text_html=…."""
    return new_output("display_data", {kind.replace("_", "/"): value for kind, value in data.items()})


def drawn() -> NotebookNode:
    return shown(text_plain="<Figure size 640x480 with 1 Axes>")


def figure(source: str, *, alt: str = "", caption: str = "A caption.", **metadata) -> NotebookNode:
    mystnb = {"image": {"alt": alt}, "figure": {"caption": caption, "name": "fig-sample"}}
    return code(source, drawn(), mystnb=mystnb, **metadata)


def notebook(*cells: NotebookNode) -> NotebookNode:
    """Number the code cells as an execution from top to bottom does, and give every cell a fixed id."""
    count = 0
    for number, cell in enumerate(cells, start=1):
        cell["id"] = f"cell-{number}"
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
    return new_notebook(cells=list(cells))


def page(*cells: NotebookNode, docname: str = "book/02_tensors") -> Page:
    source = nbformat.writes(notebook(*cells))
    return Page(docname, Path(f"{docname}.ipynb"), read_notebook(source))


def markdown_page(source: str, docname: str = "book/index") -> Page:
    return Page(docname, Path(f"{docname}.md"), read_markdown(source))
