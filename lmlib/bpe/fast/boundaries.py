r"""Where pre-tokens start, decided from the classes of two neighbours.

A pre-token of the three patterns is a run of one class, with little around it. So
one starts where the class changes, and a table of all pairs of classes says what
else holds at a pair. The table is looked up for a whole block at once. What needs a
longer look is rare, and is looked at where it is:

- contractions, such as ``'s``;
- digits, which cl100k and o200k cut in threes;
- line breaks after punctuation, which belong to it (``TAIL`` below), and the blanks
  after line breaks, for which it matters what follows them;
- in o200k, marks after punctuation, and capitals after letters without case.

At 6 (GPT-2) to 13 ns (o200k) a byte it takes a tenth of the time of ``re``.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from lmlib.bpe.class_patterns import find_all_by_class
from lmlib.bpe.fast.arrays import ranges
from lmlib.bpe.fast.classes import (
    BLANK,
    DOCUMENT_END,
    END,
    LETTER,
    LONG_S_VALUE,
    LOWER,
    MARK,
    NEWLINE,
    NUM_CLASSES,
    NUMBER,
    OTHER,
    SPACE,
    TAIL,
    UPPER,
    Characters,
    classify,
)
from lmlib.bpe.patterns import CL100K_PATTERN, GPT2_PATTERN, O200K_PATTERN

__all__ = ["pretoken_starts"]

# What is true of a pair of neighbours, as bits:
STARTS = 1  # a pre-token starts at the right one
LEFT_STARTS = 2  # a pre-token starts at the left one
JOINS = 4  # the right one goes on a pre-token that starts at the left one
LOOK = 8  # more than two characters decide


def pretoken_starts(block: bytes, pattern: str) -> np.ndarray:
    """Return the bytes at which pre-tokens start, for one of the three patterns.

    The block is UTF-8, and each ``DOCUMENT_END`` in it is a pre-token of its own,
    which ends the text before it.
    """
    if not block:
        return np.empty(0, np.int64)
    characters = classify(block)
    starts = _STARTS[pattern](characters)
    if starts is None:
        return _starts_by_expression(block, pattern)
    if characters.is_first is None:
        return np.flatnonzero(starts)
    at_bytes = np.zeros(len(block), bool)
    at_bytes[characters.is_first] = starts
    return np.flatnonzero(at_bytes)


def _starts_by_expression(block: bytes, pattern: str) -> np.ndarray:
    find_all = find_all_by_class(pattern)
    pretokens: list[str | bytes] = []
    for document in block.split(DOCUMENT_END):
        pretokens += filter(None, find_all(document.decode()))
        pretokens.append(DOCUMENT_END)
    sizes = [len(p if p is DOCUMENT_END else p.encode()) for p in pretokens[:-1]]
    return np.cumsum([0, *sizes])[:-1]


# --- GPT-2 ------------------------------------------------------------------------

_LETTERS = (UPPER, LOWER, LETTER)
_BLANKS = (SPACE, BLANK)
_WHITE = (SPACE, BLANK, NEWLINE)


def _gpt2_pair(left: int, right: int) -> int:
    """Say what is true of a pair for GPT-2, where marks are like punctuation."""
    left, right = _coarse(left), _coarse(right)
    if END in (left, right):
        return STARTS
    if right in _WHITE:
        return 0 if left in _WHITE else STARTS
    if left == SPACE:
        return LEFT_STARTS  # a space belongs to what follows it
    if left in _WHITE:
        return LEFT_STARTS | STARTS
    return 0 if left == right else STARTS


def _coarse(number: int) -> int:
    return {UPPER: LETTER, LOWER: LETTER, MARK: OTHER}.get(number, number)


def _gpt2_starts(characters: Characters) -> np.ndarray:
    _, starts = _look_up(characters.classes, _gpt2_pair)
    _cut_contractions(characters.values, starts, any_case=False)
    return starts[:-3]


# --- cl100k -----------------------------------------------------------------------


def _cl100k_pair(left: int, right: int) -> int:
    """Say what is true of a pair for cl100k."""
    left, right = _coarse(left), _coarse(right)
    if END in (left, right):
        return STARTS
    if right == TAIL:
        return 0
    if right == NEWLINE:
        return 0 if left in _WHITE else STARTS
    if right in _BLANKS:
        if left == NEWLINE:
            return LOOK
        return 0 if left in _BLANKS else STARTS
    left_starts = LEFT_STARTS if left in _BLANKS else 0  # the last of a run
    if right == LETTER and left in (*_BLANKS, LETTER):
        return left_starts
    if right == LETTER and left == OTHER:
        return STARTS | JOINS
    if right == OTHER and left in (SPACE, OTHER):
        return left_starts
    if right == NUMBER and left == NUMBER:
        return 0
    return left_starts | STARTS


def _cl100k_starts(characters: Characters) -> np.ndarray:
    values, classes = characters.values, characters.classes
    classes[classes == MARK] = OTHER
    _mark_tails(classes, classes == NEWLINE)
    pairs, starts = _look_up(classes, _cl100k_pair)
    _look_after_newlines(classes, pairs, starts, joins_before=(NEWLINE, END))
    _cut_numbers(classes, starts)
    _cut_contractions(values, starts, any_case=True)
    return starts[:-3]


# --- o200k ------------------------------------------------------------------------


def _o200k_pair(left: int, right: int) -> int:
    """Say what is true of a pair for o200k, where marks are resolved before."""
    if right == UPPER and left == LOWER:
        return STARTS
    if right == UPPER and left == LETTER:
        return LOOK
    return _cl100k_pair(left, right)


def _o200k_starts(characters: Characters) -> np.ndarray | None:
    values, classes = characters.values, characters.classes
    is_tail = classes == NEWLINE
    is_tail[1:-1] |= values[:-3] == ord("/")
    _mark_tails(classes, is_tail)
    if (classes == MARK).any():
        _resolve_marks(classes)
        if _mark_tails(classes, is_tail):
            return None  # a slash in it may have been taken for what it is not
    pairs, starts = _look_up(classes, _o200k_pair)
    _look_after_newlines(classes, pairs, starts, joins_before=(NEWLINE,))
    _cut_numbers(classes, starts)
    _join_contractions(values, classes, starts)
    _look_at_capitals(classes, pairs, starts)
    return starts[:-3]


def _resolve_marks(classes: np.ndarray) -> None:
    r"""Tell the marks that belong to words from those that belong to punctuation.

    A mark is like a letter without case, except in ``[^\s\p{L}\p{N}]+``. A match of
    that begins at punctuation which the alternatives before it cannot take as the
    one character before a word: because punctuation follows it, or because a space
    before it is part of the match already. It goes on to the end of the run of
    marks and punctuation. Before that place in a run, each mark is in a word.
    """
    is_mark, is_other = classes == MARK, classes == OTHER
    marks = np.flatnonzero(is_mark)
    begins = is_other[1:-1] & (is_other[2:] | (classes[:-2] == SPACE))
    last_begin = _last_before(np.flatnonzero(begins) + 1, marks)
    in_run = is_mark | is_other
    run_begin = _last_before(
        np.flatnonzero(in_run[1:] & ~in_run[:-1]) + 1, marks + 1
    )
    in_punctuation = last_begin >= run_begin
    classes[marks] = np.where(in_punctuation, OTHER, LETTER)


def _look_at_capitals(
    classes: np.ndarray, pairs: np.ndarray, starts: np.ndarray
) -> None:
    """Cut before capitals that follow letters without case.

    Such letters are in both sets of ``[Lu…]*[Ll…]+``. After a small letter they are
    in the second, so a capital starts a pre-token. Else they are in the first with
    the capital, if a small letter comes after all of those. If the word ends
    instead, the second set gets the last letter that it can have: the one before
    the last capitals.
    """
    capitals = np.flatnonzero(pairs[:-1] == LOOK)
    capitals = capitals[classes[1:-1][capitals] == UPPER]
    if not capitals.size:
        return
    without_case = classes == LETTER
    is_first = without_case[1:-1] & ~without_case[:-2]
    first_without_case = _last_before(np.flatnonzero(is_first), capitals)
    before = first_without_case - 1
    follows_small = (classes[1:-1][before] == LOWER) & (before >= 0)
    follows_small &= ~starts[first_without_case]  # else a contraction ends there
    upper_ends = np.flatnonzero((classes[1:-1] == UPPER) & (classes[2:] != UPPER))
    end = upper_ends[np.searchsorted(upper_ends, capitals)]
    word_ends = ~_is_one_of(classes[end + 2], _LETTERS)
    starts[capitals] = follows_small | word_ends


# --- what they share --------------------------------------------------------------


def _look_up(
    classes: np.ndarray, pair: Callable[[int, int], int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return what is true of all pairs, and from that, where pre-tokens start.

    Pair i is of character i and the one before it. Three more starts are there to
    write to, beyond the last character.
    """
    codes = classes[:-1] * NUM_CLASSES + classes[1:]
    pairs = np.frombuffer(codes.tobytes().translate(_pair_table(pair)), np.uint8)
    num_characters = len(pairs) - 1
    starts = np.zeros(num_characters + 3, np.uint8)
    starts[:-3] = pairs[:-1] & STARTS | (pairs[1:] & LEFT_STARTS) >> 1
    starts[1:-3] &= ~((pairs[1:-1] & JOINS) >> 2 & starts[:-4])
    return pairs, starts.view(bool)


@cache
def _pair_table(pair: Callable[[int, int], int]) -> bytes:
    table = np.zeros(256, np.uint8)
    for left in range(NUM_CLASSES):
        for right in range(NUM_CLASSES):
            table[left * NUM_CLASSES + right] = pair(left, right)
    return table.tobytes()


def _mark_tails(classes: np.ndarray, is_tail: np.ndarray) -> int:
    """Mark line breaks that belong to the punctuation before them.

    All of a run of ``is_tail`` belongs to it from the first line break on that
    follows punctuation. Returns how many of the marked characters were punctuation
    themselves.
    """
    first = (classes[1:] == NEWLINE) & (classes[:-1] == OTHER)
    begin = np.flatnonzero(first) + 1
    if not begin.size:
        return 0
    last = np.flatnonzero(is_tail[:-1] & ~is_tail[1:])
    which = np.searchsorted(last, begin)
    in_new_run = np.append(True, which[1:] != which[:-1])
    first = begin[in_new_run]
    tails = ranges(first, last[which[in_new_run]] + 1 - first)
    num_others = np.count_nonzero(classes[tails] == OTHER)
    classes[tails] = TAIL
    return num_others


def _look_after_newlines(
    classes: np.ndarray,
    pairs: np.ndarray,
    starts: np.ndarray,
    joins_before: tuple[int, ...],
) -> None:
    """Start a pre-token at blanks after a line break, unless they join it.

    They do if such a class follows them: white space up to a line break is one
    pre-token, and in cl100k so is white space up to the end.
    """
    after_newline = np.flatnonzero(pairs[:-1] == LOOK)
    after_newline = after_newline[classes[after_newline] == NEWLINE]
    if not after_newline.size:
        return
    is_blank = (classes == SPACE) | (classes == BLANK)
    # Ends of runs: all but those of single blanks between words, which are most.
    is_end = is_blank[1:-1] & ~is_blank[2:]
    is_end &= is_blank[:-2] | (classes[:-2] == NEWLINE)
    ends = np.flatnonzero(is_end)
    end = ends[np.searchsorted(ends, after_newline)]
    joined = _is_one_of(classes[end + 2], joins_before)
    starts[after_newline[~joined]] = True


def _cut_numbers(classes: np.ndarray, starts: np.ndarray) -> None:
    """Cut runs of digits in threes."""
    is_number = classes == NUMBER
    are_four = is_number[:-3] & is_number[1:-2] & is_number[2:-1] & is_number[3:]
    begin = np.flatnonzero(are_four[1:] & ~are_four[:-1])
    if not begin.size:
        return
    end = np.flatnonzero(are_four[:-1] & ~are_four[1:]) + 3
    inside = ranges(begin, end - begin)
    place = inside - np.repeat(begin, end - begin)
    starts[inside[place % 3 == 0]] = True


def _cut_contractions(
    values: np.ndarray, starts: np.ndarray, any_case: bool
) -> None:
    """Make one pre-token of each contraction whose apostrophe starts one."""
    apostrophes = np.flatnonzero(values == ord("'"))
    apostrophes = apostrophes[starts[apostrophes]]
    apostrophes, size = _contractions(values, apostrophes, any_case)
    _cut_after(starts, apostrophes, size)


def _join_contractions(
    values: np.ndarray, classes: np.ndarray, starts: np.ndarray
) -> None:
    """Join contractions to the words before them.

    No contraction joins a contraction: it is a word with an apostrophe before it,
    and what comes next may join that.
    """
    apostrophes = np.flatnonzero(values == ord("'"))
    follows_word = _is_one_of(classes[apostrophes], _LETTERS)
    apostrophes, size = _contractions(values, apostrophes[follows_word], True)
    in_chain = np.append(False, apostrophes[1:] == (apostrophes + size)[:-1])
    number = np.arange(len(apostrophes))
    first_of_chain = np.maximum.accumulate(np.where(in_chain, 0, number))
    joined = (number - first_of_chain) % 2 == 0
    starts[apostrophes[joined]] = False
    _cut_after(starts, apostrophes[joined], size[joined])


_ONE_LETTER = np.isin(np.arange(256), list(b"sdmt"))  # what ends 's, 'd, 'm and 't


def _contractions(
    values: np.ndarray, apostrophes: np.ndarray, any_case: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the apostrophes that begin a contraction, and the size of each."""
    first, second = values[apostrophes + 1], values[apostrophes + 2]
    if any_case:
        first, second = _small(first), _small(second)
    size = 2 * _ONE_LETTER[first]
    for letters in (b"ll", b"ve", b"re"):
        size[(first == letters[0]) & (second == letters[1])] = 3
    return apostrophes[size > 0], size[size > 0]


def _small(values: np.ndarray) -> np.ndarray:
    return np.where(values == LONG_S_VALUE, ord("s"), values | 0x20)


def _cut_after(starts: np.ndarray, begin: np.ndarray, size: np.ndarray) -> None:
    starts[begin + 1] = False
    starts[begin[size == 3] + 2] = False
    starts[begin + size] = True


def _is_one_of(classes: np.ndarray, some: tuple[int, ...]) -> np.ndarray:
    """Tell which are one of a few: ``np.isin`` takes ten times as long to begin."""
    return np.bitwise_or.reduce([classes == number for number in some])


def _last_before(positions: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return for each place the last of some sorted positions before it, or -1."""
    return np.append(-1, positions)[np.searchsorted(positions, at)]


_STARTS = {
    GPT2_PATTERN: _gpt2_starts,
    CL100K_PATTERN: _cl100k_starts,
    O200K_PATTERN: _o200k_starts,
}
