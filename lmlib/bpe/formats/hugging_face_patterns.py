r"""Patterns for the engine of Hugging Face's ``tokenizers``, which is Oniguruma.

It does not know a possessive ``{1,3}+``: there, that is a ``+`` around ``{1,3}``.
At the end of an alternative ``{1,3}`` does the same, and this is how cl100k's
pattern is written. The other two patterns mean the same to it as they stand.

Its character classes follow its own version of Unicode. Those of tokenizers 0.23.3
are equal to tiktoken 0.14's, and so to ours, for every character in ``\p{L}``,
``\p{N}``, ``\p{M}``, their parts, and ``\s``. In other versions of it, characters
that are new in Unicode may be cut elsewhere.

A pattern of your own is written as it stands, unless it holds what is known to mean
something else there.
"""

from collections.abc import Mapping

import regex

from lmlib.bpe.patterns import (
    CL100K_PATTERN,
    GPT2_PATTERN,
    O200K_PATTERN,
    check_never_empty,
)
from lmlib.bpe.unicode_table import CLASS_NAMES

__all__ = ["pre_tokenizer", "read_pre_tokenizer"]

_TO_HUGGING_FACE = {
    GPT2_PATTERN: GPT2_PATTERN,
    CL100K_PATTERN: CL100K_PATTERN.replace("{1,3}+", "{1,3}"),
    O200K_PATTERN: O200K_PATTERN,
}

_ENGLISH = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_FIRST_GPT2 = (  # of GPT-2's release: it cuts alike
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)
# Known to cover every text. cl100k's first one (Llama 3 has it) and today's differ
# on white space that ends a text with a newline in it; Qwen's takes digits singly.
_COVERING = {
    rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{_SPACES}"
    for digits in ("{1,3}", "")
}
_FROM_HUGGING_FACE = (
    {theirs: ours for ours, theirs in _TO_HUGGING_FACE.items()}
    | {pattern: pattern for pattern in _COVERING}
    | {_FIRST_GPT2: GPT2_PATTERN}
)

_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}


def pre_tokenizer(pattern: str | None) -> dict:
    """Return the entry ``pre_tokenizer`` that cuts as the pattern does.

    Raises ValueError for a pattern that Oniguruma would read otherwise.
    """
    if pattern is None:
        return _BYTE_LEVEL
    return {
        "type": "Sequence",
        "pretokenizers": [_split(pattern), _BYTE_LEVEL],
    }


def read_pre_tokenizer(entry: object) -> str | None:
    """Return the pattern that cuts as the entry does.

    Raises ValueError, which names the field, if none is known to.
    """
    if not isinstance(entry, Mapping):
        raise ValueError("pre_tokenizer is missing: it should be ByteLevel.")
    parts = [entry]
    if entry.get("type") == "Sequence":
        parts = entry.get("pretokenizers")
    if not isinstance(parts, list) or not all(
        isinstance(p, Mapping) for p in parts
    ):
        raise ValueError("pre_tokenizer.pretokenizers is not a list of objects.")
    types = [part.get("type") for part in parts]
    if types not in (["ByteLevel"], ["Split", "ByteLevel"]):
        raise ValueError(
            f"pre_tokenizer is {' + '.join(map(str, types)) or 'empty'}: only "
            "ByteLevel, or one Split and then ByteLevel, is byte-level BPE."
        )
    if parts[-1].get("add_prefix_space", True) is not False:
        raise ValueError(
            "pre_tokenizer.add_prefix_space is true: it puts a space before a "
            "text, so save the tokenizer with add_prefix_space=False."
        )
    use_regex = parts[-1].get("use_regex", True)
    if not isinstance(use_regex, bool):
        raise ValueError("pre_tokenizer.use_regex is neither true nor false.")
    if len(parts) == 1:
        return GPT2_PATTERN if use_regex else None
    if use_regex:
        raise ValueError(
            "pre_tokenizer.use_regex is true after a Split, so a text is cut by "
            "two patterns: only use_regex=False can be read."
        )
    return _read_split(parts[0])


# --- Split ------------------------------------------------------------------------

# What a text is made of that no match of a pattern covers. Ours, as tiktoken, leave
# it out. So does Split when it removes it; "Isolated" keeps it.
_GAPS = r"(?:(?!{0})[\s\S])+"
_WITH_GAPS = rf"(?:{{0}})|{_GAPS}"


def _split(pattern: str) -> dict:
    if pattern in _TO_HUGGING_FACE:
        return _split_entry(_TO_HUGGING_FACE[pattern], keep_gaps=True)
    if pattern in _COVERING:
        return _split_entry(pattern, keep_gaps=True)
    _check_meaning(pattern)
    inner = _without_gaps(pattern)
    return _split_entry(inner or pattern, keep_gaps=inner is not None)


def _split_entry(pattern: str, keep_gaps: bool) -> dict:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated" if keep_gaps else "Removed",
        "invert": not keep_gaps,
    }


def _read_split(entry: Mapping) -> str:
    source = entry.get("pattern")
    pattern = source.get("Regex") if isinstance(source, Mapping) else None
    if not isinstance(pattern, str):
        raise ValueError("pre_tokenizer: the pattern of Split is not a Regex.")
    how = entry.get("behavior"), entry.get("invert", False)
    keeps_gaps = how == ("Isolated", False)
    if not keeps_gaps and how != ("Removed", True):
        raise ValueError(
            f"pre_tokenizer: Split with behavior={how[0]!r} and invert={how[1]!r} "
            "cannot be read: only 'Isolated' and False, or 'Removed' and True."
        )
    if pattern in _FROM_HUGGING_FACE:
        return _FROM_HUGGING_FACE[pattern]
    _check_meaning(pattern)
    return _WITH_GAPS.format(pattern) if keeps_gaps else pattern


def _without_gaps(pattern: str) -> str | None:
    """Return the pattern that ``_WITH_GAPS`` was made of, None if none was."""
    frame = len(_WITH_GAPS.format(""))
    inner = pattern[3 : 3 + (len(pattern) - frame) // 2]
    return inner if _WITH_GAPS.format(inner) == pattern else None


# What Oniguruma reads otherwise than `regex` does, or may: ^ and $ at every line,
# {1,3}+ and {3}?, flags, \w with eight more characters, the edges of words, \Z
# before a newline, and letters that mean something in one of them only. In sets,
# too. To ignore case is safe with letters that no ligature stands for. A back
# reference has another number in _WITH_GAPS. Properties that are not in our table
# follow the Unicode of whoever reads them, and a class cannot end a range.
_CLASS = rf"\\(?:[pP]\{{\^?(?:{'|'.join(CLASS_NAMES)})\}}|[dDsS])"
_CHARACTER = r"\\(?:[rntfv]|[^a-zA-Z0-9]|x[0-7][\da-fA-F]|u[\da-fA-F]{4})"
_IN_SET = (
    rf"{_CLASS}(?!-[^\]])"
    rf"|(?!(?:{_CHARACTER}|.)-{_CLASS})(?:{_CHARACTER}|[^\]\[\\])"
)
_CONTRACTIONS = r"\(\?i:(?:'s\|'t\|'re\|'ve\|'m\|'ll\|'d|\[sdmt\]\|ll\|ve\|re)\)"
_STEP = regex.compile(
    rf"{_CLASS}|{_CHARACTER}|{_CONTRACTIONS}|\[\^?\]?(?:{_IN_SET})*\]"
    r"|(?P<other>\\.|\[\^?\]?[^\]]*\]?|[$^]|\{[\d,]*\}\+|\{\d*\}\?|\{,\}|\(\*"
    r"|\(\?(?!:|=|!|>|<=|<!)\S?)|.",
    regex.DOTALL,
)


def _check_meaning(pattern: str) -> None:
    """Raise ValueError for what the two engines may read differently."""
    for step in _STEP.finditer(pattern):
        if step["other"]:
            raise ValueError(
                f"Pattern {pattern!r} holds {step['other']!r} at position "
                f"{step.start()}, which `regex` and Hugging Face's engine read "
                "differently: write the pattern without it."
            )
    check_never_empty(pattern)
