"""What numbers given to this package must be, and the error that says so.

True and False are no numbers here, though Python counts with them.
"""

import math
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real

__all__ = [
    "check",
    "check_count",
    "check_number",
    "check_positive",
    "check_size",
    "check_switch",
    "check_unicode",
    "is_nonnegative",
    "is_number",
    "is_share",
    "is_whole",
    "unknown_name",
]


def is_number(value: object) -> bool:
    """Whether a value is a finite number that a float can hold."""
    is_real = isinstance(value, Real) and not isinstance(value, bool)
    try:
        return is_real and math.isfinite(value)
    except OverflowError:  # an int beyond the range of floats
        return False


def is_nonnegative(value: object) -> bool:
    """Whether a value is a finite number from 0 on."""
    return is_number(value) and value >= 0


def is_share(value: object) -> bool:
    """Whether a value is a number from 0 to below 1."""
    return is_number(value) and 0 <= value < 1


def is_whole(value: object, least: int) -> bool:
    """Whether a value is an integer from ``least`` on."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    return is_integer and value >= least


def check(holds: bool, name: str, wanted: str, value: object) -> None:
    """ValueError that says what an option must be, unless it is."""
    if not holds:
        raise ValueError(f"{name} must be {wanted}, not {value!r}.")


def check_count(name: str, value: object) -> int:
    """``value`` as an int from 0 on; a whole float such as 70e9 will do.

    Raises ValueError for anything else.
    """
    holds = is_whole(value, 0) or (is_nonnegative(value) and value == int(value))
    check(holds, name, "a whole number from 0 on, such as 64 or 70e9", value)
    return int(value)


def check_number(name: str, value: object) -> float:
    """``value`` as a float; ValueError unless it is a finite number."""
    check(is_number(value), name, "a finite number", value)
    return float(value)


def check_positive(name: str, value: object) -> float:
    """``value`` as a float; ValueError unless it is a finite number above 0."""
    holds = is_number(value) and value > 0
    check(holds, name, "a finite number above 0", value)
    return float(value)


def check_size(name: str, value: object) -> int:
    """``value`` as an int; ValueError unless it is a whole number from 1 on."""
    wanted = "a whole number from 1 on, such as 64"
    check(is_whole(value, 1), name, wanted, value)
    return int(value)


def check_switch(name: str, value: object) -> None:
    """ValueError unless ``value`` is True or False."""
    check(isinstance(value, bool), name, "True or False", value)


def check_unicode(name: str, text: str) -> None:
    """ValueError for text that came from bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        check(False, name, "text in UTF-8", text)


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """What to say of a name that is none of those known, with the closest one."""
    known = list(known)
    close = get_close_matches(str(name).casefold(), known, n=1)
    hint = f"did you mean {close[0]!r}? It" if close else "it"
    return f"There is no {what} {name!r}; {hint} can be one of {', '.join(known)}."
