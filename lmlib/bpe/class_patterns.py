r"""The three patterns for Python's ``re``, with one letter for each class.

``regex`` takes 50 to 330 ms to compile a pattern with all the ranges of its
classes, and tries them one by one. Here, a character beyond ASCII is replaced by
one that stands for its class, and the pattern knows those: it is compiled in a
millisecond, and cuts words two to four times as fast. ASCII stays as it is.
"""

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from operator import itemgetter

from lmlib.bpe.unicode_table import class_ranges

__all__ = ["compile_by_class", "find_all_by_class", "replace_by_class"]

# The three patterns do not tell Lt from Lu, or Lm from Lo.
_STANDS_FOR = {
    "Lu": "Á",
    "Lt": "Á",
    "Ll": "á",
    "Lm": "ª",
    "Lo": "ª",
    "M": "\u0301",
    "N": "²",
    "White_Space": "\u00a0",
}
_OTHER = "§"
_LONG_S = "ſ"  # under (?i) it is an s, so it stands for itself
_MEMBERS = {
    "Lu": "A-ZÁ",
    "Lt": "",
    "Ll": f"a-zá{_LONG_S}",
    "Lm": "",
    "Lo": "ª",
    "L": f"A-ZÁa-zá{_LONG_S}ª",
    "M": "\u0301",
    "N": "0-9²",
    "s": "\\t-\\r \u00a0",
}
_CLASS = re.compile(r"\\p\{(\w+)\}|\\(s)")
_STEP = re.compile(r"(\[[^\]]*\])|\\S|" + _CLASS.pattern)


def find_all_by_class(pattern: str) -> Callable[[str], list[str]]:
    """Return a function that finds all matches of one of the three patterns."""
    compiled = compile_by_class(pattern)

    def find_all(text: str) -> list[str]:
        if text.isascii():
            return compiled.findall(text)
        matches = compiled.finditer(replace_by_class(text))
        return [text[match.start() : match.end()] for match in matches]

    return find_all


def compile_by_class(pattern: str) -> re.Pattern:
    """Compile a pattern for text in which classes are replaced.

    Raises KeyError for a class that is not one of the three patterns'.
    """
    return re.compile(_STEP.sub(_explicit, pattern))


def replace_by_class(text: str) -> str:
    """Return a text of the same length, each character standing for its class."""
    return text.translate(_REPLACED)


def _explicit(step: re.Match) -> str:
    """Write out a set, or a class outside of one."""
    if step[1]:
        return _CLASS.sub(lambda name: _MEMBERS[name[1] or name[2]], step[1])
    if step[0] == r"\S":
        return f"[^{_MEMBERS['s']}]"
    return f"[{_MEMBERS[step[2] or step[3]]}]"


class _Replaced(dict):
    """What each character is replaced by; filled as characters are met."""

    def __missing__(self, code: int) -> str:
        self[code] = character = _replacement(code)
        return character


def _replacement(code: int) -> str:
    if code < 128 or chr(code) == _LONG_S:
        return chr(code)
    ranges = _ranges()
    _, last, stands_for = ranges[bisect_right(ranges, code, key=itemgetter(0)) - 1]
    return stands_for if code <= last else _OTHER


@cache
def _ranges() -> list[tuple[int, int, str]]:
    return sorted(
        (first, last, stands_for)
        for name, stands_for in _STANDS_FOR.items()
        for first, last in class_ranges(name)
    )


_REPLACED = _Replaced()
