"""Encoding by looking up: words have numbers, and for each number ids are kept.

A block of text is cut into pre-tokens, their numbers are looked up, and the ids of
all of them are put together, all with a few operations on arrays. Only words that
were never seen are merged, and many of these together.

A new word is cut first, wherever no token has the two bytes side by side: no merge
reaches across such a place. The parts have numbers and ids as words have, so only
new ones are merged. In 34 languages, the words that GPT-2 has no token for are
187,000 bytes, and their different parts 38,000: beyond Latin, most letters are
parts by themselves.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise
from threading import Lock

import numpy as np

from lmlib.bpe.encode import WordEncoder, single_bytes
from lmlib.bpe.fast.arrays import begins, group_begins, ranges
from lmlib.bpe.fast.boundaries import pretoken_starts
from lmlib.bpe.fast.classes import DOCUMENT_END
from lmlib.bpe.fast.vocabulary import NO_RANK, Vocabulary, side_by_side
from lmlib.bpe.fast.word_ids import WordIds
from lmlib.bpe.fast.word_merges import merge_words
from lmlib.bpe.fast.word_table import WordTable, as_block, pieces

__all__ = ["BlockEncoder"]

# New words: as few are merged one by one. For 50, that takes half of the time that
# all which is done for many of them does; for 200, as much, and for 400, twice.
_FEW = 128
# Words to merge for each token, before which tokens are not put into a table. That
# takes as long as merging 1,000 words one by one for GPT-2, and 2,000 for o200k.
_SET_UP = 1 / 100
_LONG = 512  # bytes: parts that may take many rounds are merged one by one
_AT_ONCE = 2**16  # bytes of parts, so that what merging needs stays in the cache
_MOST_BYTES = 2**26  # of memory for words and their ids
# Words of the first block, of which about one is new. A table that need not grow
# for them saves a sixth of the time of the first megabyte.
_NEW = 16
_END_WORD = 0  # the number of what ends a document


class BlockEncoder:
    """Encodes blocks of text with one vocabulary and one of the three patterns.

    ``ids`` are those of the tokens in order of their ranks. ``words`` encodes words
    one by one, where that is faster.
    """

    def __init__(
        self, ids: Mapping[bytes, int], pattern: str, words: WordEncoder
    ) -> None:
        self._pattern = pattern
        self._ids_of_tokens = ids
        self._one_by_one = words
        self._num_merged = 0
        self._lock = Lock()
        self._forget(())

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
            if self._is_full or len(self._words.table) == 1:
                self._forget(sizes[::_NEW])
            words = self._number_words(as_block(block), starts, sizes)
            ids, at = self._words.of(words)
        if len(documents) == 1:
            return ids, at[:0]
        return ids, at[words == _END_WORD]

    # --- the words that are known -------------------------------------------------

    def _forget(self, sizes: Sequence[int] | np.ndarray) -> None:
        """Know no words, and no parts of words; words of some sizes are expected.

        This is due when they take much memory. The end of a document is a word
        without bytes, and no other word holds it.
        """
        self._words = WordIds(WordTable(sizes))
        self._parts = WordIds(WordTable())
        end = as_block(DOCUMENT_END), np.zeros(1, np.int64), np.ones(1, np.int64)
        numbers, _ = self._words.table.number(*end)
        self._words.keep(numbers, np.zeros(1), np.ones(1, np.int64))
        self._is_full = False

    def _number_words(
        self, block: np.ndarray, starts: np.ndarray, sizes: np.ndarray
    ) -> np.ndarray:
        """Return the numbers of words, of which the new ones are encoded."""
        known = len(self._words.table)
        numbers, new = self._words.table.number(block, starts, sizes)
        if new.size:
            new_numbers = known + np.arange(len(new))
            self._learn(block, starts[new], sizes[new], new_numbers)
            self._is_full = self._nbytes() > _MOST_BYTES
        return numbers

    def _nbytes(self) -> int:
        return self._words.nbytes + self._parts.nbytes

    def _learn(
        self,
        block: np.ndarray,
        starts: np.ndarray,
        sizes: np.ndarray,
        words: np.ndarray,
    ) -> None:
        """Encode new words."""
        if len(words) > _FEW and self._set_up_pays(len(words)):
            ranks = self._vocabulary.ranks(block, starts, sizes)
            is_token = ranks != NO_RANK
            ids = self._ids[ranks[is_token]]
            self._words.keep(words[is_token], ids, np.ones(len(ids), np.int64))
            others = np.flatnonzero(~is_token)
            words, starts, sizes = words[others], starts[others], sizes[others]
        if len(words) > _FEW and self._set_up_pays(len(words)):
            letters = _joined(block, starts, sizes)
            self._learn_parts(letters, sizes, words)
        else:
            encoded = map(self._one_by_one.encode, pieces(block, starts, sizes))
            ids, lengths = _joined_ids(encoded)
            self._words.keep(words, ids, lengths)
            self._num_merged += np.count_nonzero(lengths > 1)

    def _set_up_pays(self, num_words: int) -> bool:
        """Whether to put all tokens into a table, with these words to be merged."""
        if "_vocabulary" in vars(self):
            return True
        num_merged = self._num_merged + num_words
        return num_merged >= _SET_UP * len(self._ids_of_tokens)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary([*self._ids_of_tokens])

    @cached_property
    def _ids(self) -> np.ndarray:
        return np.array([*self._ids_of_tokens.values()], np.uint32)

    def _learn_parts(
        self, block: np.ndarray, sizes: np.ndarray, words: np.ndarray
    ) -> None:
        """Encode new words, which lie one after the other and are no tokens.

        A token need not be what merging makes of its bytes; then it is the word,
        but not a part of another word.
        """
        starts = self._starts_of_parts(block, sizes)
        part_sizes = np.diff(starts, append=sizes.sum())
        first_part = np.searchsorted(starts, begins(sizes))
        num_parts = np.diff(first_part, append=len(starts))
        is_cut = num_parts > 1
        in_cut = np.repeat(is_cut, num_parts)
        known = len(self._parts.table)
        parts, new = self._parts.table.number(
            block, starts[in_cut], part_sizes[in_cut]
        )
        merged = np.concatenate((first_part[~is_cut], np.flatnonzero(in_cut)[new]))
        ids, lengths = self._merge(block, starts[merged], part_sizes[merged])
        num_whole = len(merged) - len(new)
        num_ids = lengths[:num_whole].sum()
        self._words.keep(words[~is_cut], ids[:num_ids], lengths[:num_whole])
        if parts.size:
            new_parts = known + np.arange(len(new))
            self._parts.keep(new_parts, ids[num_ids:], lengths[num_whole:])
            ids, _ = self._parts.of(parts)
            lengths = self._parts.lengths[parts]
            lengths = np.add.reduceat(lengths, begins(num_parts[is_cut]))
            self._words.keep(words[is_cut], ids, lengths)

    def _starts_of_parts(self, block: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        is_start = np.ones(sizes.sum(), bool)
        codes = side_by_side(block[: len(is_start)])
        is_start[1:] = self._vocabulary.least_across[codes] == NO_RANK
        is_start[begins(sizes)] = True
        return np.flatnonzero(is_start)

    def _merge(
        self, block: np.ndarray, starts: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids that merging makes of words, and how many of each."""
        is_long = sizes > _LONG
        short, long = np.flatnonzero(~is_long), np.flatnonzero(is_long)
        if len(short) <= _FEW:
            short, long = short[:0], np.arange(len(sizes))
        alone = map(single_bytes, pieces(block, starts[long], sizes[long]))
        results = [(long, *_joined_ids(map(self._one_by_one.merge, alone)))]
        slices = group_begins(np.cumsum(sizes[short]) // _AT_ONCE).tolist()
        for begin, end in pairwise([*slices, len(short)]):
            some = short[begin:end]
            letters = _joined(block, starts[some], sizes[some])
            is_done, ranks, lengths, left = merge_words(
                letters, sizes[some], self._vocabulary
            )
            results.append((some[is_done], self._ids[ranks], lengths))
            ids = _joined_ids(map(self._one_by_one.merge, left))
            results.append((some[~is_done], *ids))
        return _in_order(results)


def _joined_ids(
    encoded: Iterable[Sequence[int]],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of words, one after the other, and how many each has."""
    encoded = [*encoded]
    ids = np.array([*chain.from_iterable(encoded)], np.uint32)
    return ids, np.array([*map(len, encoded)], np.int64)


def _joined(block: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return a block of some words, one after the other."""
    return as_block(block[ranges(starts, sizes)].tobytes())


def _in_order(
    results: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Put in order which words have which ids, and how many each."""
    which, ids, lengths = map(np.concatenate, zip(*results, strict=True))
    all_lengths = np.empty_like(lengths)
    all_lengths[which] = lengths
    all_ids = np.empty_like(ids)
    all_ids[ranges(begins(all_lengths)[which], lengths)] = ids
    return all_ids, all_lengths
