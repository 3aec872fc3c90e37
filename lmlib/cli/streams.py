"""Standard input, output and error, whoever is at the other end of them."""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import TextIO

__all__ = ["complain", "drop_unwritten", "prepare_streams"]


def prepare_streams() -> None:
    """Write UTF-8 whatever the locale; take a stream that is closed for empty.

    A file name that is not UTF-8 is written as the bytes that it is.
    """
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # and not a notebook's
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def complain(*words: object) -> None:
    """Write a line to standard error, if it can be written: there is no other."""
    with suppress(OSError):
        print(*words, file=sys.stderr)
    drop_unwritten(sys.stderr)


def drop_unwritten(stream: TextIO) -> None:
    """Keep Python from complaining, when it exits, of output that nobody takes."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
