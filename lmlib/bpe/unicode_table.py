"""The character classes that patterns are made of, the same on every machine.

Every release of Unicode adds characters, and the ``regex`` module and tiktoken
follow at different times. Where they disagree on what a letter is, they cut text
differently. So the classes come from a table beside this file: tiktoken's answers.
"""

from functools import cache
from importlib import resources

__all__ = ["CLASS_NAMES", "class_ranges"]

_TABLE = resources.files(__package__).joinpath("unicode_table.txt")

_LETTERS = ("Lu", "Lt", "Ll", "Lm", "Lo")
_UNIONS = {
    "L": _LETTERS,
    "N": ("Nd", "Nl", "No"),
    "Word": (*_LETTERS, "M", "Nd", "Nl", "Other_Word"),
}

CLASS_NAMES = ("L", *_LETTERS, "M", "N", "Nd", "Nl", "No", "White_Space", "Word")


@cache
def class_ranges(name: str) -> tuple[tuple[int, int], ...]:
    r"""Return the code points of a class as sorted ranges ``(first, last)``.

    Names are Unicode's, and ``"Word"`` for what ``\w`` matches. No two ranges
    touch.

    Raises ValueError for a name that is not in ``CLASS_NAMES``.
    """
    if name not in CLASS_NAMES:
        known = ", ".join(CLASS_NAMES)
        raise ValueError(f"There is no class {name!r}: choose one of {known}.")
    members = _UNIONS.get(name, (name,))
    merged: list[tuple[int, int]] = []
    for first, last, member in _rows():
        if member not in members:
            continue
        if merged and merged[-1][1] + 1 == first:
            first, _ = merged.pop()
        merged.append((first, last))
    return tuple(merged)


@cache
def _rows() -> tuple[tuple[int, int, str], ...]:
    return tuple(
        _parse(line)
        for line in _TABLE.read_text("utf-8").splitlines()
        if not line.startswith("#")
    )


def _parse(line: str) -> tuple[int, int, str]:
    points, name = line.split(" ")
    first, last = points.split("..")
    return int(first, 16), int(last, 16), name
