"""Encoding by looking up: words have numbers, and for each number ids are kept.

A block of text is cut into pre-tokens, their numbers are looked up, and the ids of
all of them are put together, all with a few operations on arrays. Most words are
tokens: the number of a token is its rank, so of these no more is looked up. Only
words that were never seen are merged, and many of these together.

A new word is cut first, wherever no token has the two bytes side by side: no merge
reaches across such a place. The parts have numbers and ids as words have, so only
new ones are merged. In 34 languages, the words that GPT-2 has no token for are
187,000 bytes, and their different parts 38,000: beyond Latin, most letters are
parts by themselves.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import chain, pairwise
from threading import Lock

import numpy as np

from lmlib.bpe.encode import WordEncoder, single_bytes
from lmlib.bpe.fast.arrays import begins, group_begins, ranges
from lmlib.bpe.fast.boundaries import pretoken_starts
from lmlib.bpe.fast.classes import DOCUMENT_END, class_of_code_point
from lmlib.bpe.fast.vocabulary import NO_RANK, Vocabulary, side_by_side
from lmlib.bpe.fast.word_ids import WordIds
from lmlib.bpe.fast.word_merges import merge_words
from lmlib.bpe.fast.word_table import WordTable, as_block, pieces

__all__ = ["BlockEncoder"]

# Up to so many new words are merged one by one. For 50, that takes half of the time
# that it takes to merge them together; for 200, as much; for 400, twice as much.
_FEW = 128
_BLOCK = 2**19  # bytes that are looked up together
_LONG = 512  # bytes: parts that may take many rounds are merged one by one
_AT_ONCE = 2**16  # bytes of parts, so that what merging needs stays in the cache
_MOST_BYTES = 2**26  # of memory for words that are no tokens, and their ids


class _Block:
    """A block of text and its pre-tokens."""

    def __init__(self, text: bytes, pattern: str) -> None:
        self.letters = as_block(text)
        self.starts = pretoken_starts(text, pattern)
        self.sizes = np.diff(self.starts, append=len(text))


def _in_blocks(documents: Sequence[bytes]) -> Iterator[bytes]:
    """Yield documents in blocks; the end of a document is between any two."""
    ends = np.cumsum([len(document) + 1 for document in documents])
    bounds = [*group_begins(ends // _BLOCK).tolist(), len(documents)]
    for begin, end in pairwise(bounds):
        last = [] if end == len(documents) else [b""]
        yield DOCUMENT_END.join([*documents[begin:end], *last])


class BlockEncoder:
    """Encodes blocks of text with one vocabulary and one of the three patterns.

    ``ids`` are those of the tokens in order of their ranks. ``words`` encodes words
    one by one, where that is faster.
    """

    def __init__(
        self, ids: Mapping[bytes, int], pattern: str, words: WordEncoder
    ) -> None:
        self._pattern = pattern
        self._one_by_one = words
        # All tables that no text decides are made here, so that the first text
        # takes no longer than the others.
        class_of_code_point()
        self._vocabulary = Vocabulary([*ids])
        self._ids = np.array([*ids.values()], np.uint32)
        self._lock = Lock()
        self._is_learning = False
        self._forget()

    def encode(self, documents: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of UTF-8 documents, with a free place between any two.

        The second array says where the free places are. Documents are looked up
        some at a time, as the cache holds, but what is new in them is learned
        together: for four times as many, that takes two thirds of the time.
        """
        blocks = [_Block(some, self._pattern) for some in _in_blocks(documents)]
        with self._lock:
            words = self._number_words(blocks)
            encoded = [self._ids_of(numbers) for numbers in words]
        begin = np.cumsum([0, *(len(ids) for ids, _ in encoded)])
        places = [
            at + start for (_, at), start in zip(encoded, begin, strict=False)
        ]
        ids = [ids for ids, _ in encoded]
        if len(encoded) == 1:
            return ids[0], places[0]
        return np.concatenate(ids), np.concatenate(places)

    def _ids_of(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of words, with a free place at each end of a document.

        Words with one id, which are most, are written in one go.
        """
        end_of_document = self._vocabulary.words.empty
        others = np.flatnonzero(words >= end_of_document)
        ids_of_others, lengths = self._words.of(words[others])
        all_lengths = np.ones(len(words), np.int64)
        all_lengths[others] = lengths
        ids = np.repeat(self._ids.take(words, mode="clip"), all_lengths)
        at = others + begins(lengths - 1)
        ids[ranges(at, lengths)] = ids_of_others
        return ids, at[words[others] == end_of_document]

    # --- the words that are known -------------------------------------------------

    def _forget(self) -> None:
        """Know the tokens alone.

        This is due when other words take much memory, or may lack their ids.
        """
        words = WordIds(deepcopy(self._vocabulary.words))
        end_of_document = np.array([self._vocabulary.words.empty])
        words.keep(end_of_document, np.zeros(1), np.ones(1, np.int64))
        self._words, self._parts = words, WordIds(WordTable())
        self._least_bytes = self._nbytes()

    def _nbytes(self) -> int:
        return self._words.nbytes + self._parts.nbytes

    def _number_words(self, blocks: Sequence["_Block"]) -> list[np.ndarray]:
        """Return the numbers of each block's words; the new ones are encoded."""
        if self._is_learning or self._nbytes() > self._least_bytes + _MOST_BYTES:
            self._forget()
        # An interrupt from here on leaves words with numbers but without ids.
        self._is_learning = True
        table = self._words.table
        known = table.next_number
        words, letters, sizes = [], [], []
        for block in blocks:
            numbers, new = table.number(block.letters, block.starts, block.sizes)
            words.append(numbers)
            sizes.append(block.sizes[new])
            letters.append(block.letters[ranges(block.starts[new], sizes[-1])])
        if table.next_number > known:
            new_words = np.arange(known, table.next_number)
            self._learn(_joined(letters), np.concatenate(sizes), new_words)
        self._is_learning = False
        return words

    def _learn(
        self, letters: np.ndarray, sizes: np.ndarray, words: np.ndarray
    ) -> None:
        """Encode new words, which are no tokens and lie one after the other."""
        if len(words) > _FEW:
            self._learn_parts(letters, sizes, words)
        else:
            ids, lengths = self._merge_alone(letters, begins(sizes), sizes)
            self._words.keep(words, ids, lengths)

    def _learn_parts(
        self, block: np.ndarray, sizes: np.ndarray, words: np.ndarray
    ) -> None:
        """Encode new words, which lie one after the other.

        A token need not be what merging makes of its bytes; then it is the word,
        but not a part of another word.
        """
        starts = self._starts_of_parts(block, sizes)
        part_sizes = np.diff(starts, append=sizes.sum())
        first_part = np.searchsorted(starts, begins(sizes))
        num_parts = np.diff(first_part, append=len(starts))
        is_cut = num_parts > 1
        in_cut = np.repeat(is_cut, num_parts)
        known = self._parts.table.next_number
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
            ids, lengths = self._parts.of(parts)
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
        alone = self._merge_alone(block, starts[long], sizes[long])
        results = [(long, *alone)]
        slices = group_begins(np.cumsum(sizes[short]) // _AT_ONCE).tolist()
        for begin, end in pairwise([*slices, len(short)]):
            some = short[begin:end]
            letters = _joined([block[ranges(starts[some], sizes[some])]])
            is_done, ranks, lengths, left = merge_words(
                letters, sizes[some], self._vocabulary
            )
            results.append((some[is_done], self._ids[ranks], lengths))
            ids = _joined_ids(map(self._one_by_one.merge, left))
            results.append((some[~is_done], *ids))
        return _in_order(results)

    def _merge_alone(
        self, block: np.ndarray, starts: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Do the same for words one by one."""
        words = map(single_bytes, pieces(block, starts, sizes))
        return _joined_ids(map(self._one_by_one.merge, words))


def _joined_ids(
    encoded: Iterable[Sequence[int]],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of words, one after the other, and how many each has."""
    encoded = [*encoded]
    ids = np.array([*chain.from_iterable(encoded)], np.uint32)
    return ids, np.array([*map(len, encoded)], np.int64)


def _joined(pieces: Sequence[np.ndarray]) -> np.ndarray:
    """Return a block of bytes, one after the other."""
    return as_block(np.concatenate(pieces).tobytes())


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
