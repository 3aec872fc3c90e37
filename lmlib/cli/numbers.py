"""Numbers as people write them on a command line: 32000, 15e12, 0.5."""

from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Annotated

from cyclopts import Parameter, Token

__all__ = ["Number", "WholeNumber", "number"]


def number(type_: object, words: Sequence[Token]) -> float:
    """Return what is written; whole numbers as int, 15e12 among them.

    What else is wrong with a number is said where it is used.
    """
    text = words[0].value
    with suppress(ValueError):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no number: write one, such as 0.5 or 15e12."
        ) from None
    if not value.is_integer():
        return value
    return round(Decimal(text))  # 1e23, to which no float is equal


def _whole_number(type_: object, words: Sequence[Token]) -> int:
    """Return a whole number; cyclopts itself would cut 6.5 down to 6."""
    value = number(type_, words)
    if not isinstance(value, int):
        raise ValueError(f"{words[0].value!r} is no whole number.")
    return value


Number = Annotated[float, Parameter(converter=number)]
WholeNumber = Annotated[int, Parameter(converter=_whole_number)]
