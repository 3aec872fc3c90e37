"""Training that makes many merges at once, and the same ones as one by one.

**Which merges can be made at once.** Take the most frequent pairs in the order in
which they would be merged now: ``p[0], p[1], …`` with counts ``c[0] ≥ c[1] ≥ …``.
Two pairs overlap if somewhere in a word they share a token, as ``ab`` and ``bc``
do in ``abc``. A merge changes the counts of the pairs that overlap its own, and
makes new pairs. Let ``m[i]`` be the greatest count of a pair that overlaps
``p[i]``, itself included where it does in a run such as ``aaa``.

Merge ``p[0] … p[n-1]`` at once if ``m[i] < c[n-1]`` for all i but the last. One by
one, the same would be merged, in this order:

- None of these pairs overlaps another. One that overlaps ``p[i]``, for an i that is
  not the last, has at most the count ``m[i]``; these have ``c[n-1]`` or more. So
  until its turn comes, the count of none of them changes.
- Nothing new comes between. A new pair ``(ab, c)`` stands where ``(b, c)`` stood,
  which overlaps ``p[i] = (a, b)``. So its count is at most ``m[i]``, less than that
  of each of these pairs. The same holds on the left. If ``c`` is new too, then
  ``b`` and the first token of ``c`` stood there, which overlap both merges, and one
  of these is not the last.
- All other counts only fall.

What the last merge does comes after all of these. So of 31,744 merges on 50 MB, 23
are made at once on average.

**How words are kept.** All different words are in one array of tokens, with links
between neighbours. For each pair, there is a list of the places where it started
when it was made. A place whose pair is another one by now is passed over: it cannot
become the same one again, for what is made later holds a token that is new.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from math import inf

import numpy as np

from lmlib.bpe.fast.arrays import group_begins, ranges, with_room
from lmlib.bpe.fast.counting import WordCounts
from lmlib.bpe.merges import iter_more_merges
from lmlib.bpe.pair_queue import PairQueue

__all__ = ["MOST_LETTERS", "iter_merges"]

MOST_LETTERS = 2**30  # of different words: a place is an integer of 32 bits
_MOST_AT_ONCE = 2048
_PUSHED_AT_ONCE = 2000
_FEW_PLACES = 125
_NO_PAIR = 0  # its count is always 0
_END = -1  # of a word
_GONE = -2  # a token that is part of the one before it


def iter_merges(
    counts: WordCounts, num_merges: int
) -> Iterator[tuple[bytes, bytes]]:
    """Yield merges, in order, at most ``num_merges`` and until no pair is left.

    The pair merged is the most frequent one; of several, the greater as
    ``(bytes, bytes)``.
    """
    tokens = [bytes([i]) for i in range(256)]
    corpus = _Corpus(counts, 256 + num_merges)
    frequent = _FrequentPairs(corpus, tokens)
    num_candidates = 8
    pace = _Pace(len(counts.letters))
    while candidates := frequent.pop(min(num_candidates, num_merges)):
        pairs = np.array(candidates)
        places, which = corpus.places_of(pairs)
        overlapping = corpus.greatest_overlapping(places, which)
        size = _size_of_batch(corpus.count[pairs], overlapping)
        frequent.push(candidates[size:])
        for pair in candidates[:size]:
            left, right = frequent.bytes_of(pair)
            yield left, right
            tokens.append(left + right)
        in_batch = which < size
        new_pairs = corpus.merge(
            pairs[:size], places[in_batch], which[in_batch], len(tokens) - size
        )
        frequent.add(new_pairs)
        num_merges -= size
        num_candidates = min(size + size // 2 + 8, _MOST_AT_ONCE)
        if pace.is_too_slow(int(in_batch.sum())):
            more = iter_more_merges(corpus.words(), tokens)
            yield from islice(more, num_merges)
            return


class _Pace:
    """Tells when it pays to go on one by one in Python.

    A batch costs a quarter of a millisecond, however small it is: as much as some
    hundred places in Python. To go on there costs as much as a place for each token
    that is left. That is done once small batches have lost as much, so the loss is
    at most twice the least. With this, 32,000 merges of Moby-Dick take half as
    long, for late in a small corpus counts are small, and so are most batches.
    """

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self._lost = 0

    def is_too_slow(self, num_places: int) -> bool:
        """Take note of the places of a batch."""
        self._num_tokens -= num_places
        self._lost = max(0, self._lost + _FEW_PLACES - num_places)
        return self._lost > self._num_tokens


def _size_of_batch(counts: np.ndarray, greatest_overlapping: np.ndarray) -> int:
    """Return how many merges can be made at once: n above, for c and m."""
    so_far = np.maximum.accumulate(greatest_overlapping)
    may_follow = so_far[:-1] < counts[1:]
    return 1 + int(np.logical_and.accumulate(may_follow).sum())


class _Corpus:
    """The tokens of all words, and the pairs that they make.

    A place is an index of ``token``, where each word has an end before and after
    it. ``left``, ``right`` and ``count`` say what pairs are; pair 0 is none.
    """

    def __init__(self, counts: WordCounts, most_tokens: int) -> None:
        is_long = counts.sizes > 1
        letters = counts.letters[np.repeat(is_long, counts.sizes)]
        sizes, word_counts = counts.sizes[is_long], counts.counts[is_long]
        num_places = len(letters) + len(sizes) + 1
        word = np.repeat(np.arange(len(sizes)), sizes)
        at = np.arange(1, len(letters) + 1) + word  # an end before each word
        self.token = np.full(num_places, _END, np.int32)
        self.token[at] = letters
        self._weight = np.zeros(num_places, _smallest_type(word_counts))
        self._weight[at] = np.repeat(word_counts, sizes)
        self._next = np.arange(1, num_places + 1, dtype=np.int32)
        self._previous = np.arange(-1, num_places - 1, dtype=np.int32)
        self._token_bits = (most_tokens - 1).bit_length()
        self._place_bits = num_places.bit_length()

        self._pair_at = np.full(num_places, _NO_PAIR, np.int32)
        self.num_pairs = 1
        self.left = np.zeros(1, np.int32)
        self.right = np.zeros(1, np.int32)
        self.count = np.zeros(1, np.int64)
        self._first_in_list = np.zeros(1, np.int64)
        self._length_of_list = np.zeros(1, np.int64)
        # A pair for each place, and two more for each merge, which ends a place.
        # What is never written to takes no memory.
        self._lists = np.empty(3 * num_places, np.int32)
        self._num_listed = 0
        self._add_pairs(at[self.token[at + 1] != _END])

    def places_of(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of the pairs, and which of the pairs is at each."""
        lengths = self._length_of_list[pairs]
        places = self._lists[ranges(self._first_in_list[pairs], lengths)]
        which = np.repeat(np.arange(len(pairs)), lengths)
        is_there = self._pair_at[places] == pairs[which]
        return places[is_there].astype(np.int64), which[is_there]

    def greatest_overlapping(
        self, places: np.ndarray, which: np.ndarray
    ) -> np.ndarray:
        """Return, for each pair, the greatest count of one that overlaps it."""
        before = self.count[self._pair_at[self._previous[places]]]
        after = self.count[self._pair_at[self._next[places]]]
        return np.maximum.reduceat(np.maximum(before, after), group_begins(which))

    def merge(
        self, pairs: np.ndarray, places: np.ndarray, which: np.ndarray, new: int
    ) -> np.ndarray:
        """Write new tokens, from ``new`` on, for pairs; return the new pairs."""
        if self.left[pairs[-1]] == self.right[pairs[-1]]:
            places, which = self._every_other(places, which, len(pairs) - 1)
        previous, middle = self._previous[places], self._next[places]
        following = self._next[middle]
        self.token[places] = new + which
        pair_before, pair_after = self._pair_at[previous], self._pair_at[middle]
        has_left = pair_before != _NO_PAIR
        # Where another merge follows at once, that one has this one on its left.
        has_right = (pair_after != _NO_PAIR) & (self.token[following] < new)
        self._uncount(pair_before[has_left], places[has_left])
        self._uncount(pair_after[has_right], places[has_right])
        self.count[pairs] = 0
        for gone in (previous[has_left], places, middle):
            self._pair_at[gone] = _NO_PAIR
        self.token[middle] = _GONE
        self._next[places] = following
        self._previous[following] = places
        left = self._previous[places[has_left]]
        return self._add_pairs(np.concatenate((left, places[has_right])))

    def words(self) -> Iterator[tuple[str, int]]:
        """Yield the words of several tokens, as strings of these, with counts."""
        tokens = self.token[self.token != _GONE]
        ends = np.flatnonzero(tokens == _END)
        word_counts = self._weight[np.flatnonzero(self.token == _END)[:-1] + 1]
        text = np.maximum(tokens, 0).astype("<u4").tobytes()
        text = text.decode("utf-32-le", "surrogatepass")
        for (end, next_end), count in zip(
            pairwise(ends.tolist()), word_counts.tolist(), strict=True
        ):
            if next_end - end > 2:
                yield text[end + 1 : next_end], count

    def _every_other(
        self, places: np.ndarray, which: np.ndarray, last: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Keep of each run of the last pair, such as ``aaaa``, what is merged."""
        first = np.searchsorted(which, last)
        in_last = np.sort(places[first:])
        goes_on = self._next[in_last[:-1]] == in_last[1:]
        number = np.arange(len(in_last))
        begin = np.maximum.accumulate(number * np.append(True, ~goes_on))
        kept = in_last[(number - begin) % 2 == 0]
        places = np.concatenate((places[:first], kept))
        return places, which[: len(places)]

    def _uncount(self, pairs: np.ndarray, places: np.ndarray) -> None:
        np.subtract.at(self.count, pairs, self._weight[places].astype(np.int64))

    def _add_pairs(self, places: np.ndarray) -> np.ndarray:
        """Enter the pairs that start at places, which are all new; return them."""
        left, right = self.token[places], self.token[self._next[places]]
        code = left.astype(np.int64) << self._token_bits | right
        code, places = self._sorted(code, places)
        first = group_begins(code)
        lengths = np.diff(first, append=len(code))
        pairs = np.arange(self.num_pairs, self.num_pairs + len(first))
        self.num_pairs += len(first)
        for name, values in {
            "left": code[first] >> self._token_bits,
            "right": code[first] & (1 << self._token_bits) - 1,
            "count": _sums(self._weight[places], first),
            "_first_in_list": self._num_listed + first,
            "_length_of_list": lengths,
        }.items():
            array = with_room(getattr(self, name), self.num_pairs)
            array[pairs] = values
            setattr(self, name, array)
        self._pair_at[places] = np.repeat(pairs, lengths)
        self._lists[self._num_listed : self._num_listed + len(places)] = places
        self._num_listed += len(places)
        return pairs

    def _sorted(
        self, code: np.ndarray, places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sort places by code: as one integer if there is room, which is faster."""
        if self._place_bits + 2 * self._token_bits > 63:
            order = np.argsort(code)
            return code[order], places[order]
        both = np.sort(code << self._place_bits | places)
        return both >> self._place_bits, both & (1 << self._place_bits) - 1


class _FrequentPairs:
    """The queue of pairs, of which only those from some count on are in it.

    Most pairs are rare and never get a turn, so most are never looked at in Python.
    """

    def __init__(self, corpus: _Corpus, tokens: list[bytes]) -> None:
        self._corpus = corpus
        self._tokens = tokens
        self._queue = PairQueue(self._count_of, self.bytes_of)
        self._least: int | float = (
            inf  # pairs with this count or more are in the queue
        )
        self._was_pushed = np.zeros(1, bool)

    def bytes_of(self, pair: int) -> tuple[bytes, bytes]:
        """Return the two tokens of a pair."""
        left, right = self._corpus.left.item(pair), self._corpus.right.item(pair)
        return self._tokens[left], self._tokens[right]

    def pop(self, number: int) -> list[int]:
        """Remove and return the first pairs, or all that are left."""
        popped: list[int] = []
        while len(popped) < number:
            pair = self._queue.pop()
            if pair is not None and self._queue.count >= self._least:
                popped.append(pair)
                continue
            if pair is not None:
                self._queue.push([pair])
            if self._least <= 1:
                break
            self._push_more()
        return popped

    def push(self, pairs: Sequence[int]) -> None:
        """Put back pairs."""
        self._queue.push(pairs)

    def add(self, pairs: np.ndarray) -> None:
        """Add new pairs."""
        self._push_new(pairs[self._corpus.count[pairs] >= self._least])

    def _push_more(self) -> None:
        """Lower the count from which on pairs are in the queue."""
        self._make_room()
        count = np.where(self._was_pushed, 0, self._corpus.count)
        waiting = np.flatnonzero(count)
        if not waiting.size:
            self._least = 1
            return
        nth = max(0, len(waiting) - _PUSHED_AT_ONCE)
        self._least = int(np.partition(count[waiting], nth)[nth])
        self._push_new(waiting[count[waiting] >= self._least])

    def _push_new(self, pairs: np.ndarray) -> None:
        self._make_room()
        self._was_pushed[pairs] = True
        self._queue.push(pairs.tolist())

    def _make_room(self) -> None:
        self._was_pushed = with_room(self._was_pushed, len(self._corpus.count))

    def _count_of(self, pair: int) -> int:
        return self._corpus.count.item(pair)


def _sums(values: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the sum of each piece that begins at ``first``, in 64 bits."""
    if not first.size:
        return np.empty(0, np.int64)
    return np.add.reduceat(values, first, dtype=np.int64)


def _smallest_type(counts: np.ndarray) -> type:
    return np.int32 if counts.max(initial=0) < 2**31 else np.int64
