"""A memory for the ids of words: numbers for words, and for each number its ids."""

import numpy as np

from lmlib.bpe.fast.arrays import begins, ranges, with_room
from lmlib.bpe.fast.word_table import WordTable

__all__ = ["WordIds"]


class WordIds:
    """The ids of the words of a table, which are kept one after the other.

    Only words that have their number from the table have ids here, not those that
    were entered with one.
    """

    def __init__(self, table: WordTable) -> None:
        self.table = table
        self._lengths = np.empty(0, np.int32)
        self._begin = np.empty(0, np.int64)
        self._ids = np.empty(0, np.uint32)
        self._num_ids = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory, about."""
        arrays = (self._lengths, self._begin, self._ids)
        return self.table.nbytes + sum(array.nbytes for array in arrays)

    def keep(self, words: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Note the ids of words, which lie one after the other."""
        places = words - self.table.empty
        num_places = self.table.next_number - self.table.empty
        self._lengths = with_room(self._lengths, num_places)
        self._begin = with_room(self._begin, num_places)
        self._ids = with_room(self._ids, self._num_ids + len(ids))
        self._lengths[places] = lengths
        self._begin[places] = self._num_ids + begins(lengths)
        self._ids[self._num_ids : self._num_ids + len(ids)] = ids
        self._num_ids += len(ids)

    def of(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of words one after the other, and how many each has."""
        places = words - self.table.empty
        lengths = self._lengths[places]
        return self._ids[ranges(self._begin[places], lengths)], lengths
