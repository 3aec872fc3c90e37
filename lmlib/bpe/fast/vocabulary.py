"""The tokens of a vocabulary: which of them bytes are, and what none of them spans.

The rank of a pair of tokens is that of the bytes of both, so tokens are looked up
in the text itself, and no table of pairs is needed: for GPT-2, that has 300,000
entries, and takes ten times as long to make as all that is made here.
"""

from collections.abc import Sequence

import numpy as np

from lmlib.bpe.fast.arrays import begins
from lmlib.bpe.fast.classes import DOCUMENT_END
from lmlib.bpe.fast.word_table import WordTable, as_block

__all__ = ["NO_RANK", "Vocabulary", "side_by_side"]

NO_RANK = np.iinfo(np.int32).max  # of what is no token: greater than any rank


class Vocabulary:
    """Tokens in order of their ranks, all bytes among them.

    ``words`` is a table of the tokens that a text can hold, with their ranks as
    numbers. ``rank_of_byte`` has the rank of each byte, ``rank_of_two`` that of the
    token that two bytes are, and ``least_across`` the least rank of a token in
    which they stand side by side; the last two are indexed by ``side_by_side``.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        joined = b"".join(tokens)
        block, sizes = as_block(joined), np.fromiter(map(len, tokens), np.int64)
        begin = begins(sizes)
        is_end = block[: len(joined)] == DOCUMENT_END[0]
        possible = np.flatnonzero(~np.logical_or.reduceat(is_end, begin))
        begin_of_possible, sizes_of_possible = begin[possible], sizes[possible]
        self.words = WordTable(sizes_of_possible, empty=len(tokens))
        self.words.enter(block, begin_of_possible, sizes_of_possible, possible)

        self.rank_of_byte = np.full(256, NO_RANK, np.int32)
        single = np.flatnonzero(sizes == 1)
        self.rank_of_byte[block[begin[single]]] = single
        codes = side_by_side(block[: len(joined)])
        self.rank_of_two = np.full(2**16, NO_RANK, np.int32)
        double = np.flatnonzero(sizes == 2)
        self.rank_of_two[codes[begin[double]]] = double
        self.least_across = np.full(2**16, NO_RANK, np.int32)
        rank = np.repeat(np.arange(len(tokens), dtype=np.int32), sizes)
        inside = np.flatnonzero(rank[1:] == rank[:-1])[::-1]
        # Of several values for one place, the last is kept: here, the least rank.
        self.least_across[codes[inside]] = rank[inside]

    def ranks(
        self, block: np.ndarray, starts: np.ndarray, sizes: np.ndarray
    ) -> np.ndarray:
        """Return the ranks of some bytes of a block: ``NO_RANK`` if no token."""
        ranks = self.words.find(block, starts, sizes)
        ranks[ranks < 0] = NO_RANK
        return ranks


def side_by_side(letters: np.ndarray) -> np.ndarray:
    """Return one number for each two bytes that stand side by side."""
    return letters[:-1].astype(np.int32) << 8 | letters[1:]
