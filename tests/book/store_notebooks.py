"""Execute the book's notebooks in place, and store them so that two executions give the same file.

    python tests/book/store_notebooks.py [NOTEBOOK …]

Without arguments, all of book/*.ipynb. A notebook that fails keeps the file it had; the error is shown and
the exit code is 1. Kept: sources, tags, execution counts, text outputs. Dropped: image bytes (the picture is
drawn again by every build) and whatever differs from one machine or run to the next.
"""

import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

BOOK = Path(__file__).parents[2] / "book"
SECONDS_PER_CELL = 120

IMAGES = ("image/png", "image/jpeg", "image/svg+xml")
# Metadata that kernels and editors write: when a cell ran, and how it was last looked at.
VOLATILE_CELL_METADATA = ("ExecuteTime", "collapsed", "execution", "id", "outputId", "scrolled", "trusted")
VOLATILE_NOTEBOOK_METADATA = ("colab", "toc", "vscode", "widgets")
NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run all cells from top to bottom in a fresh kernel whose working folder is the notebook's."""
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()


def stored_text(notebook: NotebookNode) -> str:
    """Return the text of the file in which an executed notebook is stored; the notebook is left as it is."""
    notebook = nbformat.from_dict(notebook)
    notebook.nbformat, notebook.nbformat_minor = 4, 5  # the version that has cell ids
    kept = {key: value for key, value in notebook.metadata.items() if key not in VOLATILE_NOTEBOOK_METADATA}
    notebook.metadata = without_empty(kept | NOTEBOOK_METADATA)
    for number, cell in enumerate(notebook.cells):
        normalise_cell(cell, number)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def normalise_cell(cell: NotebookNode, number: int) -> None:
    """Drop from a cell what differs between runs, and give it an id where it has none."""
    cell.setdefault("id", hashlib.sha256(f"{number}\n{cell.source}".encode()).hexdigest()[:8])
    cell.metadata = without_empty({k: v for k, v in cell.metadata.items() if k not in VOLATILE_CELL_METADATA})
    if cell.cell_type == "code":
        cell.outputs = merge_streams(cell.outputs)
        for output in cell.outputs:
            normalise_output(output)


def without_empty(metadata: dict) -> NotebookNode:
    """Return the metadata less its empty entries."""
    return nbformat.from_dict({key: value for key, value in metadata.items() if value not in ({}, [], "", None)})


def merge_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join what was printed in pieces: where a kernel cuts its messages differs from run to run."""
    merged: list[NotebookNode] = []
    for output in outputs:
        before = merged[-1] if merged else None
        if before and output.output_type == before.output_type == "stream" and output.name == before.name:
            before.text += output.text
        else:
            merged.append(output)
    return merged


def normalise_output(output: NotebookNode) -> None:
    """Drop image bytes, widget state and display options; keep every form of text."""
    if output.output_type == "error":  # a traceback names this machine's folders
        output.traceback = [f"{output.ename}: {output.evalue}"]
    if "data" in output:
        for kind in [kind for kind in output.data if kind in IMAGES or "widget" in kind]:
            del output.data[kind]
    if "metadata" in output:
        output.metadata = nbformat.from_dict({})


def store(path: Path) -> str | None:
    """Execute one notebook and replace its file; where it fails, leave the file and return the error."""
    notebook = nbformat.read(path, as_version=4)
    try:
        execute(notebook, path.parent)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return f"{path.name} was left as it was, because a cell failed:\n{without_colours(str(error))}"
    replace_file(path, stored_text(notebook))
    return None


def without_colours(text: str) -> str:
    """Return the text without a terminal's colour codes."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, path.stat().st_mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main(arguments: list[str]) -> int:
    """Store the notebooks named, or all of the book; return the exit code."""
    paths = [Path(argument).resolve() for argument in arguments] or sorted(BOOK.glob("*.ipynb"))
    errors = []
    for path in paths:
        print(f"executing {path.name} …", flush=True)
        if error := store(path):
            errors.append(error)
            print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
