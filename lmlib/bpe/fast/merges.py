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

What the last merge does comes after all of these. So of 31,743 merges on 50 MB, 28
are made at once on average.

**How words are kept.** All different words are in one array of tokens, with links
between neighbours. For each pair, there is a list of the places where it started
when it was made. A place whose pair is another one by now is passed over: it cannot
become the same one again, for what is made later holds a token that is new.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from math import inf
from typing import NamedTuple

import numpy as np

from lmlib.bpe.fast.arrays import group_begins, groups, ranges, with_room
from lmlib.bpe.fast.counting import WordCounts
from lmlib.bpe.merges import Corpus, iter_more_merges
from lmlib.bpe.pair_queue import PairQueue

__all__ = ["MOST_LETTERS", "iter_merges"]

MOST_LETTERS = 2**30  # of different words: a place is an integer of 32 bits
_MOST_AT_ONCE = 2048
_FEW_PLACES = 400
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
        pairs = np.array(candidates, np.int32)
        found = corpus.find(pairs)
        overlapping = corpus.greatest_overlapping(found)
        size = _size_of_batch(corpus.count[pairs], overlapping)
        frequent.push(candidates[size:])
        for pair in candidates[:size]:
            left, right = frequent.bytes_of(pair)
            yield left, right
            tokens.append(left + right)
        batch = found.only(slice(0, np.searchsorted(found.which, size)))
        frequent.add(corpus.merge(pairs[:size], batch, len(tokens) - size))
        num_merges -= size
        mean_places = len(found.places) / len(pairs)
        num_candidates = _size_of_next(size, mean_places)
        if pace.is_too_slow(len(batch.places)):
            more = iter_more_merges(corpus.in_python(), tokens)
            yield from islice(more, num_merges)
            return


class _Pace:
    """Tells when it pays to go on one by one in Python.

    A batch costs a third of a millisecond, however small it is: as much as some
    hundred places in Python. To go on there costs as much as a place for each token
    that is left. That is done once small batches have lost as much, so the loss is
    at most twice the least. With this, 32,000 merges of Moby-Dick take a third of
    the time, for late in a small corpus counts are small, and so are most batches.
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


def _size_of_next(size: int, mean_places: float) -> int:
    """Return how many candidates to look at after a batch of a size.

    Those beyond the batch are looked at in vain: at all of their places, which are
    thousands at first and a handful later. But with too few, there are more batches
    than need be. On 50 MB there are a fifth fewer batches, and places looked at,
    than with always eight more.
    """
    few = min(32, int(1000 / mean_places))
    return min(size + size // 2 + 1 + few, _MOST_AT_ONCE)


class _Found(NamedTuple):
    """Places of some pairs, pair by pair, and what is beside each.

    ``which`` is the index of the pair. ``previous`` and ``next`` are the places of
    the token before and of the second token; ``before`` and ``after`` are the pairs
    that start there, which overlap this one.
    """

    places: np.ndarray
    which: np.ndarray
    previous: np.ndarray
    next: np.ndarray
    before: np.ndarray
    after: np.ndarray

    def only(self, some: slice | np.ndarray) -> "_Found":
        """Return some of them."""
        return _Found(*(values[some] for values in self))


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
        is_letter = np.ones(num_places, bool)
        is_letter[0] = is_letter[np.cumsum(sizes + 1)] = False  # but an end
        self.token = np.full(num_places, _END, np.int32)
        self.token[is_letter] = letters
        self._next = np.arange(1, num_places + 1, dtype=np.int32)
        self._previous = np.arange(-1, num_places - 1, dtype=np.int32)
        self._weight = np.zeros(num_places, _smallest_type(word_counts))
        self._weight[is_letter] = np.repeat(word_counts, sizes)
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
        self._add_pairs(np.flatnonzero(is_letter[:-1] & is_letter[1:]))

    def find(self, pairs: np.ndarray) -> _Found:
        """Return all places of the pairs."""
        lengths = self._length_of_list[pairs]
        listed = self._lists[ranges(self._first_in_list[pairs], lengths)]
        is_there = self._pair_at[listed] == np.repeat(pairs, lengths)
        there = np.flatnonzero(is_there)
        places = listed[there].astype(np.int64)
        previous, following = self._previous[places], self._next[places]
        return _Found(
            places,
            np.repeat(np.arange(len(pairs)), lengths)[there],
            previous,
            following,
            self._pair_at[previous],
            self._pair_at[following],
        )

    def greatest_overlapping(self, found: _Found) -> np.ndarray:
        """Return, for each pair, the greatest count of one that overlaps it."""
        greatest = np.maximum(self.count[found.before], self.count[found.after])
        return np.maximum.reduceat(greatest, group_begins(found.which))

    def merge(self, pairs: np.ndarray, found: _Found, new: int) -> np.ndarray:
        """Write new tokens, from ``new`` on, for pairs; return the new pairs."""
        if self.left[pairs[-1]] == self.right[pairs[-1]]:
            found = found.only(self._every_other(found, len(pairs) - 1))
        places, middle = found.places, found.next
        following = self._next[middle]
        self.token[places] = new + found.which
        with_left = np.flatnonzero(found.before != _NO_PAIR)
        # Where another merge follows at once, that one has this one on its left.
        follows_old = self.token[following] < new
        with_right = np.flatnonzero((found.after != _NO_PAIR) & follows_old)
        weight = self._weight[places].astype(np.int64)
        np.subtract.at(self.count, found.before[with_left], weight[with_left])
        np.subtract.at(self.count, found.after[with_right], weight[with_right])
        self.count[pairs] = 0
        self._pair_at[places] = _NO_PAIR  # until a new one starts there
        self._pair_at[middle] = _NO_PAIR
        self.token[middle] = _GONE
        self._next[places] = following
        self._previous[following] = places
        left = self._previous[places[with_left]]
        return self._add_pairs(np.concatenate((left, places[with_right])))

    def in_python(self) -> Corpus:
        """Return the same in Python's strings and lists."""
        is_end = self.token == _END
        words = _strings(self.token[self.token != _GONE])
        word_counts = self._weight[np.flatnonzero(is_end)[:-1] + 1]
        places = np.flatnonzero(self._pair_at != _NO_PAIR)
        pairs = self._pair_at[places]
        order = np.argsort(pairs, kind="stable")
        first, _ = groups(pairs[order])
        which = pairs[order[first]]
        letters = np.stack((self.left[which], self.right[which]), 1)
        of_pairs = _text(letters.ravel())
        words_of_places = (np.cumsum(is_end) - 1)[places[order]].tolist()
        bounds = [*first.tolist(), len(places)]
        return Corpus(
            words,
            word_counts.tolist(),
            {
                of_pairs[2 * i : 2 * i + 2]: words_of_places[begin:end]
                for i, (begin, end) in enumerate(pairwise(bounds))
            },
        )

    def _every_other(self, found: _Found, last: int) -> np.ndarray:
        """Return which to keep: of the last pair's runs, such as ``aaaa``, half."""
        first = np.searchsorted(found.which, last)
        order = first + np.argsort(found.places[first:])
        in_last = found.places[order]
        goes_on = self._next[in_last[:-1]] == in_last[1:]
        number = np.arange(len(in_last))
        begin = np.maximum.accumulate(number * np.append(True, ~goes_on))
        kept = order[(number - begin) % 2 == 0]
        return np.concatenate((np.arange(first), kept))

    def _add_pairs(self, places: np.ndarray) -> np.ndarray:
        """Enter the pairs that start at places, which are all new; return them."""
        code = self.token[places].astype(np.int64)
        code <<= self._token_bits
        code |= self.token[self._next[places]]
        code, places = self._sorted(code, places)
        first, lengths = groups(code)
        code = code[first]
        new = slice(self.num_pairs, self.num_pairs + len(first))
        pairs = np.arange(new.start, new.stop, dtype=np.int32)
        self._make_room(new.stop)
        self.num_pairs = new.stop
        self.left[new] = code >> self._token_bits
        self.right[new] = code & (1 << self._token_bits) - 1
        self.count[new] = _sums(self._weight[places], first)
        self._first_in_list[new] = self._num_listed + first
        self._length_of_list[new] = lengths
        self._pair_at[places] = np.repeat(pairs, lengths)
        self._lists[self._num_listed : self._num_listed + len(places)] = places
        self._num_listed += len(places)
        return pairs

    def _make_room(self, num_pairs: int) -> None:
        self.left = with_room(self.left, num_pairs)
        self.right = with_room(self.right, num_pairs)
        self.count = with_room(self.count, num_pairs)
        self._first_in_list = with_room(self._first_in_list, num_pairs)
        self._length_of_list = with_room(self._length_of_list, num_pairs)

    def _sorted(
        self, code: np.ndarray, places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sort places by code: as one integer if there is room, which is faster."""
        if self._place_bits + 2 * self._token_bits > 63:
            order = np.argsort(code)
            return code[order], places[order]
        code <<= self._place_bits
        code |= places
        code.sort()
        places = code & (1 << self._place_bits) - 1
        code >>= self._place_bits
        return code, places


class _FrequentPairs:
    """The queue of pairs, of which only those from some count on are in it.

    Most pairs are rare and never get a turn, so most are never looked at in Python.
    When the queue is used up, a thirtieth of the others come into it: with fewer at
    once, fewer new pairs do, too, but all pairs are looked through more often.
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
        number = min(len(waiting), max(200, len(waiting) // 30))
        nth = len(waiting) - number
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


def _strings(tokens: np.ndarray) -> list[str]:
    """Return words, between whose tokens there are ends, as strings of these."""
    text = _text(np.maximum(tokens, 0))
    ends = np.flatnonzero(tokens == _END).tolist()
    return [text[end + 1 : next_end] for end, next_end in pairwise(ends)]


def _text(tokens: np.ndarray) -> str:
    return tokens.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


def _smallest_type(counts: np.ndarray) -> type:
    return np.int32 if counts.max(initial=0) < 2**31 else np.int64
