"""Which errors of reading and writing are the disk's, and which prove damage."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from lmlib.hardware.process import is_out_of_memory

__all__ = [
    "NOT_THERE",
    "NO_JSON",
    "CorruptCheckpoint",
    "damage_named",
    "errors_of_the_disk",
]

NOT_THERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
NO_JSON = (ValueError, RecursionError)  # the second where it is nested too deeply

# "(os error 28)" in safetensors, "Cannot allocate memory (12)" in torch
_NUMBER = re.compile(r"\((?:os error )?(\d+)\)$", re.MULTILINE)


class CorruptCheckpoint(ValueError):
    """A checkpoint is not what was saved; the message says what differs."""


@contextmanager
def errors_of_the_disk(path: Path) -> Iterator[None]:
    """Raise an OSError where a library raises its own because of one."""
    before = sys.exception()  # is the context of all that is raised meanwhile
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        context = error.__context__
        if isinstance(context, OSError) and context is not before:
            number = context.errno
        else:
            number = _number(str(error))
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Raise CorruptCheckpoint for whatever libraries make of a damaged file.

    An error of the disk proves no damage, nor does a lack of memory: whoever went
    on from an older checkpoint would discard this one for it.
    """
    try:
        with errors_of_the_disk(path):
            yield
    except (OSError, CorruptCheckpoint):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise CorruptCheckpoint(
            f"{path.name} cannot be read: {error!r:.200}"
        ) from error


def _number(message: str) -> int | None:
    """The number of an error of the system that a message ends in, by its name."""
    match = _NUMBER.search(message)
    number = int(match[1]) if match else 0
    return number if number and os.strerror(number) in message else None
