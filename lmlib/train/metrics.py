"""What is measured on the way: one line of JSON each, without gap or repetition.

A run that resumes takes back what was written after its checkpoint, and writes it
again: the file looks as if nothing had happened.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lmlib.files import write_atomically

__all__ = ["MetricsFile", "TensorBoardLog", "read_metrics"]

Record = Mapping[str, Any]


class MetricsFile:
    """A file of records, each with its ``"step"``, that grows at the end.

    What it holds of steps after ``last_step`` is removed when it is opened, and so
    is a line that a killed process left unfinished. None keeps everything.

    What the disk has no room for waits in memory, and is written next time.
    """

    def __init__(
        self, path: str | os.PathLike, last_step: int | None = None
    ) -> None:
        path = Path(path)
        if path.exists():
            kept = [
                record
                for record in read_metrics(path)
                if last_step is None or record["step"] <= last_step
            ]
            write_atomically(path, "".join(map(_line, kept)))
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._waiting = b""

    def write(self, record: Record) -> None:
        """Add a record; a number that is not finite becomes null."""
        self._waiting += _line(record).encode()
        self._write()

    def _write(self) -> None:
        while self._waiting:  # a disk that fills up takes a part of a line
            self._waiting = self._waiting[self._file.write(self._waiting) :]

    def sync(self) -> None:
        """Return once all records are on disk, as before a checkpoint is saved."""
        self._write()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardLog:
    """The same records for TensorBoard: each number becomes a curve over steps.

    Raises ModuleNotFoundError, which says what to do, if tensorboard is missing.
    """

    def __init__(
        self, folder: str | os.PathLike, last_step: int | None = None
    ) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "tensorboard is not installed: install lmlib[train], or turn "
                "tensorboard off."
            ) from None
        # What an earlier process wrote after its checkpoint is not shown.
        purge = None if last_step is None else last_step + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge)

    def write(self, record: Record) -> None:
        """Add each number of a record but the step as a point of its curve."""
        for name, value in record.items():
            if name != "step" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, record["step"])

    def sync(self) -> None:
        """Hand all points to the operating system."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def read_metrics(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Return the records of a ``metrics.jsonl``, without an unfinished last line.

    Raises ValueError, which names the line, for any other that is no record.
    """
    return list(_records(Path(path)))


def _records(path: Path) -> Iterator[dict[str, Any]]:
    lines = path.read_text("utf-8", errors="replace").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            whole = isinstance(record["step"], int)
        except (ValueError, TypeError, KeyError, RecursionError):
            whole = False
        if whole and line.endswith("\n"):
            yield record
        elif number < len(lines):
            raise ValueError(f"{path}, line {number}, is no record of a step.")


def _line(record: Record) -> str:
    finite = {
        name: None
        if isinstance(value, float) and not math.isfinite(value)
        else value
        for name, value in record.items()
    }
    return json.dumps(finite, allow_nan=False) + "\n"
