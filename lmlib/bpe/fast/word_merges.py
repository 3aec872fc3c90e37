"""Merging many words at once, and in each word all that can be merged at once.

**What can be merged at once.** One by one, the pair of the lowest rank comes first,
of several the leftmost. Take any other pair ``(a, b)``, of rank r, and the two
bytes on either side of its left end. If each token in which these two stand side by
side has a rank greater than r, and the same holds at the right end, then the pair
can be merged now, and the tokens that come out will be the same:

- As long as ``(a, b)`` is there, what is merged has at most the rank r. To merge
  ``a`` or ``b`` with another neighbour makes a token across one of the two ends, so
  its rank is greater. So both stay until they are merged with each other.
- Until then, it makes no difference to the others if they already are: to merge
  ``ab`` makes a token across one of the ends, too, and comes later.

No two such pairs share a token. Of ``(a, b)`` and ``(b, c)``, each would need a
rank lower than the other's: the token ``ab`` is across the left end of ``(b, c)``,
and ``bc`` across the right end of ``(a, b)``. In the same way, none shares a token
with the pair that comes first, which has the lowest rank.

The bytes at a place never change, so to look at them takes one table of all pairs
of bytes. With it, a word of nine bytes takes four rounds on average, not six.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from lmlib.bpe.fast.arrays import begins, group_begins
from lmlib.bpe.fast.vocabulary import NO_RANK, Vocabulary, side_by_side
from lmlib.bpe.fast.word_table import pieces

__all__ = ["merge_words"]

_FEW = 40  # words: to go on with as few one by one costs no more than a round


def merge_words(
    block: np.ndarray, sizes: np.ndarray, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[list[bytes]]]:
    """Merge the words of a block from ``as_block``, which lie one after the other.

    Returns which words are done, and of those the ranks of all tokens and how many
    each has. A few words that need many rounds are left; of each, the tokens that
    it has come to are returned.
    """
    words = _Words(block, sizes, vocabulary)
    while True:
        pairs = np.flatnonzero(words.rank_of_pair != NO_RANK)
        first = group_begins(words.word[pairs])
        if len(first) <= _FEW:
            break
        words.merge(pairs, first)
    is_done = np.ones(len(sizes), bool)
    is_done[words.word[pairs[first]]] = False
    is_token = words.rank >= 0
    lengths = np.add.reduceat(is_token, begins(sizes), dtype=np.int64)
    in_done = is_done[words.word]
    tokens = words.tokens(np.flatnonzero(is_token & ~in_done))
    left = [[*islice(tokens, length)] for length in lengths[~is_done].tolist()]
    return is_done, words.rank[is_token & in_done], lengths[is_done], left


class _Words:
    """The tokens of words, each known by the place of its first byte.

    ``rank`` is that of a token, and negative where none starts; ``rank_of_pair`` is
    that of a token and the one after it together. ``least_across`` is for the two
    bytes on either side of the left end of a place.
    """

    def __init__(
        self, block: np.ndarray, sizes: np.ndarray, vocabulary: Vocabulary
    ) -> None:
        self._block, self._vocabulary = block, vocabulary
        self.word = np.repeat(np.arange(len(sizes)), sizes)
        num_places = len(self.word)
        begin = begins(sizes)
        self._is_end = np.zeros(num_places + 1, bool)  # and the begin of the next
        self._is_end[begin] = self._is_end[-1] = True
        self._next = np.arange(1, num_places + 1)
        self._previous = np.arange(-1, num_places)
        codes = side_by_side(block[:num_places])
        self._least_across = np.full(num_places + 1, NO_RANK, np.int32)
        self._least_across[1:-1] = vocabulary.least_across[codes]
        self._least_across[begin] = NO_RANK
        self.rank = vocabulary.rank_of_byte[block[:num_places]]
        self.rank_of_pair = np.full(num_places, NO_RANK, np.int32)
        self.rank_of_pair[:-1] = vocabulary.rank_of_two[codes]
        self.rank_of_pair[self._is_end[1:]] = NO_RANK

    def tokens(self, places: np.ndarray) -> Iterator[bytes]:
        """Yield the tokens that start at places."""
        return pieces(self._block, places, self._next[places] - places)

    def merge(self, pairs: np.ndarray, first: np.ndarray) -> None:
        """Merge what can be merged; ``first`` is where each word's pairs begin."""
        rank, right = self.rank_of_pair[pairs], self._next[pairs]
        beyond = self._next[right]
        order = rank.astype(np.int64) << 32 | pairs
        lowest = np.minimum.reduceat(order, first)
        is_merged = order == np.repeat(lowest, np.diff(first, append=len(pairs)))
        is_merged |= rank < np.minimum(
            self._least_across[pairs], self._least_across[beyond]
        )
        left, right, beyond = pairs[is_merged], right[is_merged], beyond[is_merged]
        self.rank[left] = rank[is_merged]
        self.rank[right] = -1
        self._next[left] = beyond
        self._previous[beyond] = left
        self.rank_of_pair[left] = self.rank_of_pair[right] = NO_RANK
        self._look_up(
            np.concatenate(
                (
                    self._previous[left[~self._is_end[left]]],
                    left[~self._is_end[beyond]],
                )
            )
        )

    def _look_up(self, places: np.ndarray) -> None:
        sizes = self._next[self._next[places]] - places
        self.rank_of_pair[places] = self._vocabulary.ranks(
            self._block, places, sizes
        )
