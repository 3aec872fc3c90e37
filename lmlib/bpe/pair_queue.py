"""The order of merges: pairs by count, and of several by their bytes."""

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Generic, TypeVar

__all__ = ["PairQueue"]

P = TypeVar("P")


class PairQueue(Generic[P]):
    """Pairs, the most frequent first; of several, the greater as bytes.

    Pairs lie in lists by count, which are sorted when their turn comes: most never
    come to it. Once a pair is in the queue, its count only falls. So it may stay in
    a list of a greater count; when it is found there, it moves to its own. A heap
    of all pairs takes half as long again: 0.61 s against 0.41 for Moby-Dick to
    10,000 merges.

    ``count_of`` returns the count of a pair as it is now, 0 or None for a pair that
    is gone; ``bytes_of`` returns its two tokens. ``count`` is that of the last pair
    popped.
    """

    def __init__(
        self,
        count_of: Callable[[P], int | None],
        bytes_of: Callable[[P], tuple[bytes, bytes]],
    ) -> None:
        self._count_of = count_of
        self._bytes_of = bytes_of
        self._lists: defaultdict[int, list[P]] = defaultdict(list)
        self._negative_counts: list[int] = []  # a heap of those that have a list
        self.count = 0  # of the pairs that are sorted
        self._sorted: list[tuple[bytes, bytes, P]] = []

    def push(self, pairs: Iterable[P]) -> None:
        """Add pairs, which are counted by now."""
        for pair in pairs:
            count = self._count_of(pair)
            if count == self.count:
                insort(self._sorted, self._as_bytes(pair))
            else:
                self._put(pair, count)

    def pop(self) -> P | None:
        """Remove and return the first pair, or None if no pair is left."""
        while True:
            if self._negative_counts and -self._negative_counts[0] > self.count:
                self._open_next_list()
            while self._sorted:
                pair = self._sorted.pop()[-1]
                if self._is_current(pair):
                    return pair
            if not self._negative_counts:
                return None
            self.count = 0

    def _open_next_list(self) -> None:
        if self._sorted:  # what was pushed since is more frequent
            rest = [pair for *_, pair in self._sorted]
            self._lists[self.count] = rest
            heappush(self._negative_counts, -self.count)
        self.count = -heappop(self._negative_counts)
        pairs = filter(self._is_current, self._lists.pop(self.count))
        self._sorted = sorted(map(self._as_bytes, pairs))

    def _is_current(self, pair: P) -> bool:
        """Whether the count of a pair is the one at work; if not, put it back."""
        count = self._count_of(pair)
        if count and count != self.count:
            self._put(pair, count)
        return count == self.count

    def _put(self, pair: P, count: int) -> None:
        if count not in self._lists:
            heappush(self._negative_counts, -count)
        self._lists[count].append(pair)

    def _as_bytes(self, pair: P) -> tuple[bytes, bytes, P]:
        left, right = self._bytes_of(pair)
        return left, right, pair
