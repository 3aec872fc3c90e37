r"""The patterns that cut text into pre-tokens, and how they are compiled.

A pattern is written for the ``regex`` module. Its classes are replaced by those
of ``unicode_table`` before it is compiled, because the module's own classes follow
its own version of Unicode. Replaced are ``\s``, ``\d``, ``\w``, ``\p{…}`` for a
class in the table, and their opposites. The rest keeps the meaning that it has in
``regex``: other properties like ``\p{P}``, ``\b``, ``[[:alpha:]]``, what is equal
under ``(?i)``, and ``$``, which also matches before a last newline.

Of the rest, the three patterns below hold only ``(?i:…)``, around letters of ASCII
other than i, and ``$``, where all white space is consumed. There, ``regex`` and
tiktoken agree.

The three patterns come from ``tiktoken_ext/openai_public.py`` in tiktoken 0.14.0.
"""

from collections.abc import Iterator
from functools import cache

import regex

from lmlib.bpe.unicode_table import CLASS_NAMES, class_ranges

__all__ = [
    "CL100K_PATTERN",
    "GPT2_PATTERN",
    "O200K_PATTERN",
    "check_never_empty",
    "compile_pattern",
]

GPT2_PATTERN = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++"
    r"|\s++$|\s+(?!\S)|\s"
)
"""Of GPT-2 and GPT-3, and the default."""

CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
"""Of GPT-3.5 and GPT-4."""

O200K_PATTERN = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
"""Of GPT-4o."""


@cache
def compile_pattern(pattern: str) -> regex.Pattern:
    """Compile a pattern whose classes come from ``unicode_table``.

    Raises ValueError, which says where, if the pattern is invalid, if it sets a
    flag for all of it elsewhere than at its start, or if a set in it would be
    another one in version 1 of ``regex``, such as ``[a[]`` or ``[a||b]``.
    """
    try:
        flags = regex.compile(pattern).flags
        if flags & regex.ASCII:  # its classes are those of ASCII: they never change
            return regex.compile(pattern)
        return regex.compile("".join(_rewrite(pattern, flags)))
    except regex.error as error:
        raise _invalid(pattern, error.pos, error.msg) from None


def check_never_empty(pattern: str) -> None:
    """Raise ValueError if a pattern is seen to match no character at all.

    ``regex``, tiktoken and Hugging Face's engine go on differently there. It is
    tried between all pairs of characters that stand in the pattern, and some more.
    """
    characters = dict.fromkeys(pattern + "a1 \n!é")
    text = "".join(left + right for left in characters for right in characters)
    if any(not match[0] for match in compile_pattern(pattern).finditer(text)):
        raise ValueError(
            f"Pattern {pattern!r} matches nothing at all as well: Hugging Face and "
            "tiktoken cut differently there, so let it match one character or more."
        )


def _invalid(pattern: str, position: int | None, reason: str) -> ValueError:
    return ValueError(
        f"Pattern {pattern!r} is invalid at position {position}: {reason}."
    )


# What to step over as a whole, so that no bracket in it is taken for a set.
_CLASS = r"(?P<class>\\[pP]\{[^{}]+\}|\\[pP][A-Za-z]|\\[sSdDwW])"
_FLAGS = r"\(\?(?:[abefiLmprsuwx]|V[01])*(?:-[fimsuwx]+)?[:)]"
_OUTSIDE_SETS = rf"{_CLASS}|(?P<flags>{_FLAGS})|\(\?#[^)]*\)|(?P<open>\[\^?\]?)"
_INSIDE_SETS = (
    rf"{_CLASS}|\[:\^?[^\[\]:]+:\]|(?P<open>\[\^?)|(?P<close>\])"
    r"|(?P<operation>--|\|\||&&|~~)"
)
_OTHER = r"|\\.|."


@cache
def _tokens(inside_set: bool, verbose: bool) -> regex.Pattern:
    source = _INSIDE_SETS if inside_set else _OUTSIDE_SETS
    comment = r"|#[^\n]*" if verbose and not inside_set else ""
    return regex.compile(source + comment + _OTHER, regex.DOTALL)


def _rewrite(pattern: str, flags: int) -> Iterator[str]:
    """Yield the pieces of an equal pattern for version 1 of ``regex``.

    Version 1 knows sets inside sets, which the classes are made of. Where the
    pattern is for version 0, ``(?-f)`` keeps version 0's way to ignore case.
    """
    verbose, version_1 = bool(flags & regex.VERBOSE), bool(flags & regex.VERSION1)
    if not version_1:
        yield "(?V1)(?-f)"
    start = regex.match(rf"(?:{_FLAGS}(?<=\)))*", pattern).end()
    yield pattern[:start]
    yield _BEFORE_ANY
    depth, position = 0, start
    while position < len(pattern):
        match = _tokens(depth > 0, verbose).match(pattern, position)
        kind, text = match.lastgroup, match[0]
        if kind == "flags" and _are_global(text):
            raise _invalid(pattern, position, f"{text!r} belongs to the start")
        if depth and kind in ("open", "operation") and not version_1:
            raise _invalid(pattern, position, rf"in a set, write '\{text[0]}'")
        yield _explicit(text) if kind == "class" else text
        depth += (kind == "open") - (kind == "close")
        position = match.end()
    yield "\n)" if verbose else ")"


# `regex` skips to where a match may begin. Under (?i) it skips too far: it does not
# see that [^\p{L}] may match a character whose other case is a letter.
_BEFORE_ANY = r"(?=(?s:.)|\Z)(?:"


def _are_global(flags: str) -> bool:
    # (?x:…) is not, but what is a comment must be known for all of the pattern
    return flags.endswith(")") or "x" in flags


# --- from a class to a set of ranges -----------------------------------------

_LONG_NAMES = {
    "letter": "L",
    "uppercaseletter": "Lu",
    "titlecaseletter": "Lt",
    "lowercaseletter": "Ll",
    "modifierletter": "Lm",
    "otherletter": "Lo",
    "mark": "M",
    "number": "N",
    "decimalnumber": "Nd",
    "letternumber": "Nl",
    "othernumber": "No",
    "space": "White_Space",
}
_NAMES = _LONG_NAMES | {
    name.lower().replace("_", ""): name for name in CLASS_NAMES if name != "Word"
}
_SHORTHANDS = {"s": "White_Space", "d": "Nd", "w": "Word"}
_KINDS = regex.compile(r"^(?:gc|generalcategory|category)[=:]")


def _explicit(escape: str) -> str:
    r"""Return the set that ``\p{…}``, ``\s``, … stands for, if the table has it."""
    letter, name = escape[1], escape[2:].strip("{}")
    negated = letter.isupper()
    if name.startswith("^"):
        negated, name = not negated, name[1:]
    plain = regex.sub(r"[\s_-]", "", name.lower())
    known = _SHORTHANDS.get(letter.lower()) or _NAMES.get(_KINDS.sub("", plain))
    return _set(known, negated) if known else escape


@cache
def _set(name: str, negated: bool) -> str:
    ranges = class_ranges(name)
    ascii_only = [pair for pair in ranges if pair[1] < 128]
    others = [pair for pair in ranges if pair[1] >= 128]
    return f"[{'^' * negated}{_flat(ascii_only)}{_nested(others)}]"


def _nested(ranges: list[tuple[int, int]]) -> str:
    """Write ranges as a tree of sets.

    ``regex`` tries the members of a set one by one, and a class has hundreds. A
    half that is intersected with the range it lies in is left after one trial.
    """
    if len(ranges) <= 32:
        return _flat(ranges)
    middle = len(ranges) // 2
    return "".join(
        f"[{_flat([(half[0][0], half[-1][1])])}&&[{_nested(half)}]]"
        for half in (ranges[:middle], ranges[middle:])
    )


def _flat(ranges: list[tuple[int, int]]) -> str:
    return "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in ranges)
