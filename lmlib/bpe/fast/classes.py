"""What each character of a block is: one small integer instead of sets of ranges.

The classes are the finest that the three patterns tell apart. ASCII is looked up
by ``bytes.translate``, at a byte per nanosecond; only what is beyond ASCII is
decoded. The three patterns do not tell Lt from Lu, or Lm from Lo.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from lmlib.bpe.unicode_table import class_ranges

__all__ = ["DOCUMENT_END", "Characters", "classify"]

END = 0  # what ends a document; before and after a block too
UPPER, LOWER, LETTER, MARK, NUMBER, OTHER = 1, 2, 3, 4, 5, 6
SPACE, BLANK, NEWLINE = 7, 8, 9  # U+0020; other white space; CR and LF
TAIL = 10  # what was OTHER or NEWLINE, but belongs to the punctuation before it
NUM_CLASSES = 11

DOCUMENT_END = b"\xff"  # between documents of a block: UTF-8 never uses it
LONG_S = "ſ"  # where case is ignored, it is an s,
LONG_S_VALUE = 0xC0  # and this, which starts no character, stands for it

_CLASS_OF_NAME = {
    "Lu": UPPER,
    "Lt": UPPER,
    "Ll": LOWER,
    "Lm": LETTER,
    "Lo": LETTER,
    "M": MARK,
    "N": NUMBER,
    "White_Space": BLANK,
}


@dataclass(frozen=True)
class Characters:
    """The characters of a block, in order.

    ``values`` is the byte of a character of ASCII, and else the first of its bytes;
    three zeros follow. ``classes`` has ``END`` before and after the block, so the
    class of character i is ``classes[i + 1]``. ``is_first`` tells which bytes start
    a character; it is None if all do.
    """

    values: np.ndarray
    classes: np.ndarray
    is_first: np.ndarray | None


def classify(block: bytes) -> Characters:
    """Return the characters of UTF-8, in which ``DOCUMENT_END`` may stand."""
    classes = np.empty(len(block) + 2, np.uint8)
    classes[0] = classes[-1] = END
    classes[1:-1] = np.frombuffer(block.translate(_ascii_table()), np.uint8)
    values = np.frombuffer(block + b"\0\0\0", np.uint8)
    if block.isascii():
        return Characters(values, classes, None)
    values = values.copy()
    _classify_beyond_ascii(values, classes[1:-1])
    is_first = values.view(np.int8) >= -0x40  # the others are 0x80 to 0xBF
    with_ends = np.concatenate(([True], is_first[:-3], [True]))
    return Characters(values[is_first], classes[with_ends], is_first[:-3])


def _classify_beyond_ascii(values: np.ndarray, classes: np.ndarray) -> None:
    first = np.flatnonzero((values >= 0xC0) & (values != DOCUMENT_END[0]))
    bytes_in_character = 2 + (values[first] >= 0xE0) + (values[first] >= 0xF0)
    for size in (2, 3, 4):
        at = first[bytes_in_character == size]
        code = values[at].astype(np.int32) & 0xFF >> size + 1
        for offset in range(1, size):
            code = code << 6 | values[at + offset] & 0x3F
        classes[at] = class_of_code_point()[code]
        values[at[code == ord(LONG_S)]] = LONG_S_VALUE


@cache
def class_of_code_point() -> np.ndarray:
    """Return the class of every code point (a megabyte)."""
    table = np.full(0x110000, OTHER, np.uint8)
    for name, number in _CLASS_OF_NAME.items():
        for first, last in class_ranges(name):
            table[first : last + 1] = number
    table[ord(" ")] = SPACE
    table[[ord("\r"), ord("\n")]] = NEWLINE
    return table


@cache
def _ascii_table() -> bytes:
    table = np.full(256, OTHER, np.uint8)
    table[:128] = class_of_code_point()[:128]
    table[DOCUMENT_END[0]] = END
    return table.tobytes()
