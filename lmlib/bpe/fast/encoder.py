"""Encoding by looking up: words have numbers, and for each number ids are kept.

A block of text is cut into pre-tokens, their numbers are looked up, and the ids of
all of them are put together, all with a few operations on arrays. Only words that
were never seen are merged, and these together.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from threading import Lock

import numpy as np

from lmlib.bpe.fast.arrays import begins, ranges, with_room
from lmlib.bpe.fast.boundaries import pretoken_starts
from lmlib.bpe.fast.classes import DOCUMENT_END
from lmlib.bpe.fast.pair_ranks import PairRanks
from lmlib.bpe.fast.word_table import WordTable, as_block, pieces

__all__ = ["BlockEncoder"]

_LONG = 128  # bytes: words that take many rounds are merged one by one
_FEW = 100  # words: as few are merged one by one
_MOST_BYTES = 2**26  # of memory for words and their ids


class BlockEncoder:
    """Encodes blocks of text with one vocabulary and one of the three patterns.

    ``tokens`` are in order of their ranks and have these ``ids``. ``encode_word``
    returns the ids of one word; it is asked where that is faster.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        ids: Sequence[int],
        pattern: str,
        encode_word: Callable[[bytes], Sequence[int]],
    ) -> None:
        self._encode_word = encode_word
        self._pattern = pattern
        self._ids = np.array(ids, np.uint32)
        self._rank_of_byte = np.zeros(256, np.int64)
        for rank, token in enumerate(tokens):
            if len(token) == 1:
                self._rank_of_byte[token[0]] = rank
        # The end of a document is a word without bytes, and no other word holds it.
        possible = [
            i for i, token in enumerate(tokens) if DOCUMENT_END not in token
        ]
        self._words = [DOCUMENT_END, *(tokens[i] for i in possible)]
        self._ranks = np.array(possible, np.int64)
        self._lock = Lock()
        self._forget()
        self._pair_ranks = self._make_pair_ranks()

    def encode(self, documents: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of UTF-8 documents, with a free place between any two.

        The second array says where the free places are.
        """
        block = DOCUMENT_END.join(documents)
        if not block:
            return np.empty(0, np.uint32), np.empty(0, np.int64)
        starts = pretoken_starts(block, self._pattern)
        sizes = np.diff(starts, append=len(block))
        with self._lock:
            if self._nbytes() > _MOST_BYTES:
                self._forget()
            words = self._number(as_block(block), starts, sizes)
            return self._put_together(words)

    def _put_together(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of words one after the other, and where the ends are.

        Most words have one id, and most others two. So both are written for each
        word: where there is no second one, the next word's first covers it.
        """
        lengths = self._length[words]
        at = begins(lengths)
        ids = np.empty(at[-1] + lengths[-1] + 1, np.uint32)
        ids[at + 1] = self._second[words]
        ids[at] = self._first[words]
        longer = np.flatnonzero(lengths > 2)
        rest = lengths[longer] - 2
        source = ranges(self._begin[words[longer]] + 2, rest)
        ids[ranges(at[longer] + 2, rest)] = self._kept_ids[source]
        return ids[:-1], at[words == self._end_word]

    # --- the words that are known -------------------------------------------------

    def _forget(self) -> None:
        """Know no other words than the tokens."""
        self._table = WordTable()
        self._kept_ids = np.empty(0, np.uint32)
        self._num_kept = 0
        self._first = self._second = np.empty(0, np.uint32)
        self._length = self._begin = np.empty(0, np.int64)
        sizes = np.array([*map(len, self._words)], np.int64)
        block = as_block(b"".join(self._words))
        numbers, _ = self._table.number(block, begins(sizes), sizes)
        ids = np.append(np.uint32(0), self._ids[self._ranks])
        self._keep(numbers, ids, np.ones(len(numbers), np.int64))
        self._end_word = numbers[0]
        self._numbers_of_tokens = numbers[1:]

    def _make_pair_ranks(self) -> PairRanks:
        rank_of_word = np.full(len(self._table) + 1, -1)
        rank_of_word[self._numbers_of_tokens] = self._ranks
        return PairRanks(self._words[1:], self._ranks, self._table, rank_of_word)

    def _nbytes(self) -> int:
        arrays = (
            self._first,
            self._second,
            self._length,
            self._begin,
            self._kept_ids,
        )
        return self._table.nbytes + sum(array.nbytes for array in arrays)

    def _number(
        self, block: np.ndarray, starts: np.ndarray, sizes: np.ndarray
    ) -> np.ndarray:
        """Return the numbers of words, of which the new ones are encoded."""
        known = len(self._table)
        numbers, new = self._table.number(block, starts, sizes)
        starts, sizes = starts[new], sizes[new]
        by_size = np.argsort(sizes, kind="stable")
        num_short = np.searchsorted(sizes[by_size], _LONG, side="right")
        if num_short < _FEW:
            num_short = 0
        together, alone = np.split(by_size, [num_short])
        if together.size:
            self._merge(block, starts[together], sizes[together], known + together)
        if alone.size:
            self._encode_alone(block, starts[alone], sizes[alone], known + alone)
        return numbers

    def _merge(
        self,
        block: np.ndarray,
        starts: np.ndarray,
        sizes: np.ndarray,
        numbers: np.ndarray,
    ) -> None:
        letters = self._rank_of_byte[block[ranges(starts, sizes)]]
        ranks, lengths = self._pair_ranks.merge(letters, sizes)
        self._keep(numbers, self._ids[ranks], lengths)

    def _encode_alone(
        self,
        block: np.ndarray,
        starts: np.ndarray,
        sizes: np.ndarray,
        numbers: np.ndarray,
    ) -> None:
        encoded = [*map(self._encode_word, pieces(block, starts, sizes))]
        ids = np.array([*chain.from_iterable(encoded)], np.uint32)
        self._keep(numbers, ids, np.array([*map(len, encoded)]))

    def _keep(
        self, words: np.ndarray, ids: np.ndarray, lengths: np.ndarray
    ) -> None:
        """Note the ids of words, which lie one after the other."""
        known = len(self._table)
        self._first = with_room(self._first, known)
        self._second = with_room(self._second, known)
        self._length = with_room(self._length, known)
        self._begin = with_room(self._begin, known)
        self._kept_ids = with_room(self._kept_ids, self._num_kept + len(ids) + 1)
        begin = self._num_kept + begins(lengths)
        self._kept_ids[self._num_kept : self._num_kept + len(ids)] = ids
        self._num_kept += len(ids)
        self._begin[words] = begin
        self._length[words] = lengths
        self._first[words] = self._kept_ids[begin]
        self._second[words] = self._kept_ids[begin + 1]
