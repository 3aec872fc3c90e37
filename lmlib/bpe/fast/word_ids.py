"""A memory for the ids of words: numbers for words, and for each number its ids."""

import numpy as np

from lmlib.bpe.fast.arrays import begins, ranges, with_room
from lmlib.bpe.fast.word_table import WordTable

__all__ = ["WordIds"]


class WordIds:
    """The ids of the words of a table, which are kept one after the other.

    ``lengths`` has the number of ids for each number of a word.
    """

    def __init__(self, table: WordTable) -> None:
        self.table = table
        self.lengths = np.empty(0, np.int32)
        self._begin = np.empty(0, np.int64)
        self._first_two = np.empty(0, np.uint64)
        self._ids = np.empty(0, np.uint32)
        self._num_ids = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory, about."""
        arrays = (self.lengths, self._begin, self._first_two, self._ids)
        return self.table.nbytes + sum(array.nbytes for array in arrays)

    def keep(self, words: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Note the ids of words, which lie one after the other."""
        known = len(self.table)
        self.lengths = with_room(self.lengths, known)
        self._begin = with_room(self._begin, known)
        self._first_two = with_room(self._first_two, known)
        self._ids = with_room(self._ids, self._num_ids + len(ids) + 1)
        begin = self._num_ids + begins(lengths)
        self._ids[self._num_ids : self._num_ids + len(ids)] = ids
        self._num_ids += len(ids)
        self.lengths[words] = lengths
        self._begin[words] = begin
        first_two = np.stack((self._ids[begin], self._ids[begin + 1]), 1)
        self._first_two[words] = first_two.view(np.uint64)[:, 0]

    def of(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of words one after the other, and where each word's begin.

        Most words have one id, and most others two. So both are written for each
        word: where there is no second one, the next word's first covers it. They
        are kept side by side as one integer: what takes time here is to look up at
        random, and so it is done once less, which saves a fifth.
        """
        lengths = self.lengths[words]
        at = begins(lengths)
        ids = np.empty(at[-1] + lengths[-1] + 1, np.uint32)
        first_two = self._first_two[words].view(np.uint32)
        ids[1:][at] = first_two[1::2]
        ids[at] = first_two[::2]
        longer = np.flatnonzero(lengths > 2)
        rest = lengths[longer] - 2
        source = ranges(self._begin[words[longer]] + 2, rest)
        ids[ranges(at[longer] + 2, rest)] = self._ids[source]
        return ids[:-1], at
