"""What commands read and write: text, bytes, reports, and progress meanwhile."""

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from cyclopts import Parameter
from tqdm import tqdm

from lmlib.bpe import text_files
from lmlib.bpe.text_files import STANDARD_INPUT
from lmlib.files import atomic_write, name_what_is_full

__all__ = [
    "STANDARD_INPUT_ALONE",
    "Json",
    "NoProgress",
    "Quiet",
    "TextFile",
    "check_can_be_made",
    "check_readable",
    "check_spared",
    "check_writable",
    "name_of",
    "open_output",
    "print_json",
    "progress_bar",
    "read_blocks",
    "read_texts",
]

STANDARD_INPUT_ALONE = (Path(STANDARD_INPUT),)

TextFile = Annotated[
    Path,
    Parameter(help="Text in UTF-8: plain, .gz or .xz; - is standard input."),
]
Json = Annotated[bool, Parameter(help="Print the report as JSON.")]
Quiet = Annotated[bool, Parameter(help="Show no progress and no report.")]
NoProgress = Annotated[bool, Parameter(help="Show no progress.")]


def name_of(path: Path) -> str:
    """Return what to call a file in a message."""
    return "standard input" if _is_standard_input(path) else str(path)


def _is_standard_input(path: Path) -> bool:
    return str(path) == STANDARD_INPUT


# --- reading ------------------------------------------------------------------


def check_readable(files: Iterable[Path]) -> None:
    """Raise OSError for a file that is not there, or not to be opened.

    A pipe is left alone: what opens it and closes it again ends its writer.
    """
    for path in files:
        is_pipe = path.exists() and not path.is_file() and not path.is_dir()
        if not is_pipe and not _is_standard_input(path):
            open(path, "rb").close()


def read_texts(path: Path, bar: tqdm) -> Iterator[str]:
    """Yield the text of a file in blocks, and show on a bar how far it is read."""
    return text_files.read_text(path, progress=bar.update)


def read_blocks(path: Path, bar: tqdm) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked, in blocks; the same for a bar."""
    return text_files.read_blocks(path, progress=bar.update)


def progress_bar(files: Iterable[Path], quiet: bool) -> tqdm:
    """Return a bar of bytes as stored, shown where standard error is a terminal."""
    sizes = [path.stat().st_size if path.is_file() else None for path in files]
    return tqdm(
        total=None if None in sizes else sum(sizes),
        unit="B",
        unit_scale=True,
        disable=True if quiet else None,  # None: unless there is a terminal
        leave=False,
    )


# --- writing ------------------------------------------------------------------


@contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Open a file that appears when it is whole, or standard output for None."""
    if path is None:
        with name_what_is_full("standard output"):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
    else:
        with atomic_write(path) as file:
            yield file


def check_writable(path: Path) -> None:
    """Raise OSError if a file could not be written there, before work is done."""
    if str(path) == "-":
        raise OSError("'-' is no file to write: name one, or leave --out out.")
    if path.is_dir():
        raise OSError(f"{path} is a folder: name a file in it.")
    folder = path.parent
    if not folder.is_dir():
        raise OSError(
            f"{folder} is not a folder: create it, or name another place."
        )
    if path.is_file() and not os.access(path, os.W_OK):
        raise OSError(f"{path} is read-only: name another file.")
    if not path.exists():
        _check_takes_files(folder)


def check_can_be_made(path: Path) -> None:
    """Raise OSError if a folder could not be made there, with those around it."""
    around = next(folder for folder in path.absolute().parents if folder.exists())
    if not around.is_dir():
        raise OSError(f"{around} is not a folder: name another place.")
    _check_takes_files(around)


def _check_takes_files(folder: Path) -> None:
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        reason = os.strerror(error.errno)
        raise OSError(f"No file can be made in {folder}: {reason}.") from None


def check_spared(out: Path | None, files: Iterable[Path]) -> None:
    """Raise ValueError if the file to write is one of those to be read.

    Devices and pipes are spared: nothing of them is lost.
    """
    if out is None or not out.is_file():
        return
    if any(path.exists() and path.samefile(out) for path in files):
        raise ValueError(f"{out} is to be read: name another file to write.")


def print_json(report: Any) -> None:
    """Print a report for programs."""
    with name_what_is_full("standard output"):
        print(json.dumps(report, indent=2))
