"""Write lmlib/bpe/unicode_table.txt: ask tiktoken which class each character has.

It stands beside the tests because it needs tiktoken, which only tests depend on, and because
test_bpe_unicode_table.py asks the same question again. Run it after an upgrade of tiktoken:

    python tests/make_unicode_table.py
"""

from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import tiktoken

TABLE = Path(__file__).parents[1] / "lmlib" / "bpe" / "unicode_table.txt"
SCALARS = [*range(0xD800), *range(0xE000, 0x110000)]  # every code point that UTF-8 can write
EVERY_CHARACTER = "".join(map(chr, SCALARS))

# No character is in two of them.
PATTERNS = {
    "Lu": r"\p{Lu}",
    "Lt": r"\p{Lt}",
    "Ll": r"\p{Ll}",
    "Lm": r"\p{Lm}",
    "Lo": r"\p{Lo}",
    "M": r"\p{M}",
    "Nd": r"\p{Nd}",
    "Nl": r"\p{Nl}",
    "No": r"\p{No}",
    "White_Space": r"\s",
    "Other_Word": r"[\w&&[^\p{L}\p{M}\p{Nd}\p{Nl}]]",
}

HEADER = """\
# Which class a character has: a range of code points, then the class of all in it.
# A code point in no range is in none of these classes. Other_Word is what \\w
# matches besides letters, marks, decimal digits and letter numbers.
# The answers of tiktoken {version}, written by tests/make_unicode_table.py.
"""


def tiktoken_matches(pattern, characters=EVERY_CHARACTER):
    """Return the set of code points that the pattern matches in tiktoken."""
    splitter = tiktoken.Encoding(
        "bytes", pat_str=pattern, mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={}
    )
    # What no match covers is left out, so what is left are the matches.
    matches = bytes(splitter.encode_ordinary(characters)).decode()
    return set(map(ord, matches))


def classes():
    """Return the class of every code point that has one."""
    found = {}
    for name, pattern in PATTERNS.items():
        members = dict.fromkeys(tiktoken_matches(pattern), name)
        assert not members.keys() & found.keys()
        found |= members
    return dict(sorted(found.items()))


def table():
    """Return the text of the table."""
    lines = [HEADER.format(version=version("tiktoken"))]
    # In a run of neighbours of one class, code point minus position does not change.
    runs = groupby(enumerate(classes().items()), key=lambda entry: (entry[1][0] - entry[0], entry[1][1]))
    for (_, name), run in runs:
        points = [point for _, (point, _) in run]
        lines.append(f"{points[0]:04X}..{points[-1]:04X} {name}\n")
    return "".join(lines)


if __name__ == "__main__":
    TABLE.write_text(table(), "utf-8")
