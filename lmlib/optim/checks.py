"""What the options of this package must be, and the error that says so."""

import math
from numbers import Integral, Real

__all__ = ["check", "is_number", "is_share", "is_whole"]


def is_number(value: object) -> bool:
    """Whether a value is a finite number from 0 on."""
    return isinstance(value, Real) and 0 <= value < math.inf


def is_share(value: object) -> bool:
    """Whether a value is a number from 0 to below 1."""
    return isinstance(value, Real) and 0 <= value < 1


def is_whole(value: object, least: int) -> bool:
    """Whether a value is a whole number from ``least`` on."""
    return isinstance(value, Integral) and value >= least


def check(holds: bool, name: str, wanted: str, value: object) -> None:
    """ValueError that says what an option must be, unless it is."""
    if not holds:
        raise ValueError(f"{name} must be {wanted}, not {value!r}.")
