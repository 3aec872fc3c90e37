"""Merging many words at once, each in the order of its own ranks."""

from collections.abc import Sequence

import numpy as np

from lmlib.bpe.fast.arrays import begins, ranges
from lmlib.bpe.fast.word_table import KeyTable, WordTable, as_block

__all__ = ["PairRanks"]

_NONE = np.iinfo(np.int64).max  # greater than any rank with its place
_PLACE_BITS = 32
_TOKENS_AT_ONCE = 2**13  # so that little memory is needed
_PLACE = (1 << _PLACE_BITS) - 1


class PairRanks:
    """What two tokens side by side make: the rank of the token with their bytes.

    Several pairs may make one token, so every token is cut at every place, and both
    pieces are looked up. A token is known here by its rank.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        ranks: np.ndarray,
        table: WordTable,
        rank_of_word: np.ndarray,
    ) -> None:
        """Take tokens with their ranks, and a table of words that they all are in.

        ``rank_of_word`` has the rank for each number of the table, and -1 at its
        end and for words that are no tokens.
        """
        self._table = KeyTable()
        found = [np.empty(0, np.int64)]
        for start in range(0, len(tokens), _TOKENS_AT_ONCE):
            some = slice(start, start + _TOKENS_AT_ONCE)
            left, right, whole = _halves(
                tokens[some], ranks[some], table, rank_of_word
            )
            _, first = self._table.number([_key(left, right)], sum(map(len, found)))
            found.append(whole[first])
        self._rank = np.concatenate((*found, [-1]))

    def of(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the rank of each pair, -1 where it makes no token."""
        return self._rank[self._table.find([_key(left, right)])]

    def merge(
        self, tokens: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Merge words, which are given as ranks of bytes and as numbers of these.

        Returns the ranks of the tokens of all words, and how many each word has.

        In each round, every word that has something to merge makes one merge: its
        pair of the lowest rank, of several the leftmost. Words should be in order
        of size, for those that are done at the start are no longer looked at.
        """
        first = begins(sizes)
        end = first + sizes
        tokens = tokens.astype(np.int64)
        following = np.arange(1, len(tokens) + 1)
        previous = np.arange(-1, len(tokens))
        # A pair is known by where it starts, and lies there as rank and place.
        pairs = np.full(len(tokens), _NONE)
        inside = np.ones(len(tokens), bool)
        inside[end - 1] = False
        self._look_up(pairs, np.flatnonzero(inside), tokens, following)
        done = 0
        while done < len(first):
            at = first[done]
            lowest = np.minimum.reduceat(pairs[at:], first[done:] - at)
            busy = np.flatnonzero(lowest != _NONE)
            if not busy.size:
                break
            lowest, busy = lowest[busy], busy + done
            done = busy[0]
            left = lowest & _PLACE
            right = following[left]
            beyond = following[right]
            tokens[left] = lowest >> _PLACE_BITS
            tokens[right] = -1
            following[left] = beyond
            previous[beyond] = left
            pairs[left] = pairs[right] = _NONE
            with_next = left[beyond < end[busy]]
            with_previous = previous[left[left > first[busy]]]
            pairs[with_previous] = _NONE
            changed = np.concatenate((with_previous, with_next))
            self._look_up(pairs, changed, tokens, following)
        is_left = tokens >= 0
        return tokens[is_left], np.add.reduceat(is_left, first, dtype=np.int64)

    def _look_up(
        self,
        pairs: np.ndarray,
        places: np.ndarray,
        tokens: np.ndarray,
        following: np.ndarray,
    ) -> None:
        rank = self.of(tokens[places], tokens[following[places]])
        places, rank = places[rank >= 0], rank[rank >= 0]
        pairs[places] = rank << _PLACE_BITS | places


def _halves(
    tokens: Sequence[bytes],
    ranks: np.ndarray,
    table: WordTable,
    rank_of_word: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pairs of tokens that make a token: ranks of both, and of that."""
    sizes = np.array([*map(len, tokens)], np.int64)
    block = as_block(b"".join(tokens))
    which = np.repeat(np.arange(len(tokens)), sizes - 1)
    left_sizes = 1 + ranges(np.zeros(len(tokens), np.int64), sizes - 1)
    starts = begins(sizes)[which]
    left = rank_of_word[table.find(block, starts, left_sizes)]
    right_starts, right_sizes = starts + left_sizes, sizes[which] - left_sizes
    right = rank_of_word[table.find(block, right_starts, right_sizes)]
    exists = np.flatnonzero((left >= 0) & (right >= 0))
    return left[exists], right[exists], ranks[which[exists]]


def _key(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left.astype(np.uint64) << np.uint64(32) | right.astype(np.uint64)
