"""Warnings and errors for people who did not write the code that raises them."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from lmlib.cli.streams import complain
from lmlib.hardware.process import is_out_of_memory

__all__ = ["out_of_memory_explained", "warnings_in_a_line"]


@contextmanager
def out_of_memory_explained(advice: str) -> Iterator[None]:
    """Raise a ValueError with advice where there is not enough memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise ValueError(f"There is not enough memory: {advice}") from error


@contextmanager
def warnings_in_a_line() -> Iterator[None]:
    """Show what a warning says, and not the line of code that it came from."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        complain("warning:", message)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
