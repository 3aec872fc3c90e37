"""Execute the book's notebooks in place, and store them so that two executions give the same file.

    python tests/book/store_notebooks.py [--fresh] [NOTEBOOK …]

Without arguments, all of book/*.ipynb. A notebook that fails, or that is edited while it runs, keeps the file it
had; the error is shown and the exit code is 1. Ctrl-C and SIGTERM stop everything, with exit code 130 or 143.

Kept: sources, tags, execution counts, text outputs. Dropped: image bytes (the picture is drawn again by every
build) and whatever differs from one machine or run to the next.

The outputs of a cell tagged `nbval-ignore-output` (timings) differ in every run. Such a cell keeps the outputs it
had while its source is the one that gave them, which its metadata `outputs_of` records; `--fresh` stores the new
ones. Use it when a library or an earlier cell changes what the cell shows.
"""

import argparse
import asyncio
import copy
import hashlib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import BinaryIO

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat import NotebookNode

BOOK = Path(__file__).parents[2] / "book"
SECONDS_PER_CELL = 600

IMAGES = ("image/png", "image/jpeg", "image/svg+xml")
# Metadata that kernels and editors write: when a cell ran, and how it was last looked at.
VOLATILE_CELL_METADATA = ("ExecuteTime", "collapsed", "execution", "id", "outputId", "scrolled", "trusted")
VOLATILE_NOTEBOOK_METADATA = ("colab", "toc", "vscode", "widgets")
NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


# Environment variables that change what a notebook does: no figures, no asserts, somebody's own start-up code.
UNWANTED_ENVIRONMENT = ("MPLBACKEND", "PYTHONOPTIMIZE", "PYTHONSTARTUP")

VARYING = "nbval-ignore-output"  # the tag of cells whose outputs differ in every run
OUTPUTS_OF = "outputs_of"  # the metadata of such a cell: the fingerprint of the source that gave its outputs


class LeftAsItWas(Exception):
    """Why a notebook is not stored, as words that follow its name."""


class Stopped(Exception):
    """A signal asks to stop."""


# --- execution -------------------------------------------------------------------------------------------


async def execute(notebook: NotebookNode, folder: Path, stop: asyncio.Future) -> None:
    """Run all cells from top to bottom in a fresh kernel whose working folder is the notebook's."""
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.create_kernel_manager()
    with tempfile.TemporaryDirectory() as ipython, tempfile.TemporaryFile() as log:
        try:
            await unless_stopped(run_cells(client, clean_environment(ipython), log), stop)
        except RuntimeError as error:  # the kernel died, and only its log can say why
            raise LeftAsItWas(f"was left as it was: {error}\n{text_of(log)}") from error
        finally:
            await end_kernel(client, stop)
        if stop.done():  # while the kernel ended
            raise Stopped
        if "json_packer" in text_of(log):  # the kernel could not send a message, and went on as if nothing had been
            raise LeftAsItWas("was left as it was: it prints half a character (a lone surrogate)")


def text_of(log: BinaryIO) -> str:
    """Return what a process has written so far."""
    log.seek(0)
    return log.read().decode(errors="replace")


async def run_cells(client: NotebookClient, environment: dict[str, str], log: BinaryIO) -> None:
    """Start the kernel and run all cells.

    `client.async_execute` would do the same, but its signal handlers replace ours: they kill the kernel, which
    then counts as a cell that failed, and the next notebook starts.
    """
    await client.async_start_new_kernel(env=environment, stderr=log)
    await client.async_start_new_kernel_client()
    for index, cell in enumerate(client.nb.cells):
        await client.async_execute_cell(cell, index, execution_count=client.code_cells_executed + 1)


def clean_environment(ipython: str) -> dict[str, str]:
    """Return the environment without what changes notebooks, and with an empty folder for IPython's settings."""
    kept = {name: value for name, value in os.environ.items() if name not in UNWANTED_ENVIRONMENT}
    return kept | {"IPYTHONDIR": ipython}


async def unless_stopped(work: Coroutine, stop: asyncio.Future) -> None:
    """Do the work; where a signal comes first, give it up."""
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
    if stop.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)  # how it ends no longer matters
        raise Stopped
    await task


async def end_kernel(client: NotebookClient, stop: asyncio.Future) -> None:
    """End the kernel, politely unless a signal came; nothing interrupts this."""
    manager = client.km
    if client.kc is not None:
        client.kc.stop_channels()
    if manager.has_kernel:
        if stop.done():  # kill before anything else: an interrupted kernel would print a traceback
            await manager.signal_kernel(signal.SIGKILL)
        await manager.shutdown_kernel(now=stop.done())
    await manager.cleanup_resources()


def signal_to_stop() -> asyncio.Future:
    """Return a future that the first SIGINT or SIGTERM fulfils with its number.

    As the event loop handles the signals, they interrupt nothing but what waits for this future.
    """
    loop = asyncio.get_running_loop()
    stop = loop.create_future()

    def note(number: int) -> None:
        if not stop.done():
            stop.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, note, number)
    return stop


# --- what is stored --------------------------------------------------------------------------------------


def notebook_in(content: bytes) -> NotebookNode:
    """Return the notebook that a file holds."""
    try:
        document = json.loads(content)
    except ValueError as error:
        raise LeftAsItWas(f"is not JSON: {error}") from error
    try:
        nbformat.validate(document)
    except Exception as error:  # besides ValidationError, it stumbles over JSON that is not even like a notebook
        raise LeftAsItWas(f"is not a notebook: {str(error).splitlines()[0]}") from error
    return nbformat.reads(json.dumps(document), as_version=4)


def keep_varying_outputs(notebook: NotebookNode, before: NotebookNode, fresh: bool) -> None:
    """Give cells whose outputs differ in every run those of the run before, where their source is the same."""
    for cell, old in zip(notebook.cells, before.cells, strict=True):
        recorded = cell.metadata.pop(OUTPUTS_OF, None)
        if cell.cell_type != "code" or VARYING not in cell.metadata.get("tags", []):
            continue
        cell.metadata[OUTPUTS_OF] = fingerprint(cell.source)
        failed = any(output.output_type == "error" for output in old.outputs)
        if old.outputs and not failed and not fresh and recorded == fingerprint(cell.source):
            cell.outputs = old.outputs
            for output in cell.outputs:
                if "execution_count" in output:  # the cell may have another place now
                    output.execution_count = cell.execution_count


def fingerprint(text: str) -> str:
    """Return eight characters that differ from one text to another."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


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
    cell.setdefault("id", fingerprint(f"{number}\n{cell.source}"))
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


# --- files -----------------------------------------------------------------------------------------------


async def store(path: Path, fresh: bool, stop: asyncio.Future) -> None:
    """Execute one notebook and replace its file; where anything fails, leave the file and raise the error."""
    content = path.read_bytes()
    notebook = notebook_in(content)
    if not os.access(path.parent, os.W_OK | os.X_OK):  # said before minutes of execution, not after
        raise LeftAsItWas("was left as it was: its folder is read-only")
    before = copy.deepcopy(notebook)
    await execute(notebook, path.parent, stop)
    keep_varying_outputs(notebook, before, fresh)
    new = stored_text(notebook).encode()
    if path.read_bytes() != content:
        raise LeftAsItWas("was edited while it ran and was left as it was: run this again")
    if new != content:
        replace_file(path, new)
        print(f"stored {path.name}")
    else:
        print(f"{path.name} is unchanged")


def complaint(name: str, error: LeftAsItWas | CellExecutionError | OSError | UnicodeEncodeError) -> str:
    """Say why a notebook is not stored."""
    match error:
        case LeftAsItWas():
            return f"{name} {error}"
        case CellExecutionError() | CellTimeoutError():
            return f"{name} was left as it was, because a cell failed:\n{without_colours(str(error))}"
        case UnicodeEncodeError():
            return f"{name} was left as it was: {error.object[error.start]!a} is half a character"
        case _:
            return f"{name} was left as it was: {error.strerror or error}"


def without_colours(text: str) -> str:
    """Return the text without a terminal's colour codes."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, path.stat().st_mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


async def store_all(paths: list[Path], fresh: bool) -> int:
    """Store one notebook after the other, whether or not others fail; return the exit code."""
    stop = signal_to_stop()
    code = 0
    for path in paths:
        print(f"executing {path.name} …", flush=True)
        try:
            await store(path, fresh, stop)
        except Stopped:
            print(f"stopped; {path.name} was left as it was", file=sys.stderr)
            return 128 + stop.result()  # as shells do
        except (LeftAsItWas, CellExecutionError, OSError, UnicodeEncodeError) as error:
            print(complaint(path.name, error), file=sys.stderr)
            code = 1
    return code


def main(arguments: list[str]) -> int:
    """Store the notebooks named, or all of the book; return the exit code."""
    parser = argparse.ArgumentParser(description="Execute notebooks in place and store them.")
    parser.add_argument("--fresh", action="store_true", help=f"store new outputs of cells tagged {VARYING}, too")
    parser.add_argument("notebooks", nargs="*", type=Path, help="without any: all of the book")
    options = parser.parse_args(arguments)
    paths = [path.resolve() for path in options.notebooks] or sorted(BOOK.glob("*.ipynb"))
    return asyncio.run(store_all(paths, options.fresh))


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack the dots, as it does with LC_ALL=C
    sys.exit(main(sys.argv[1:]))
