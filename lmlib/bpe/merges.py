"""Training that looks only at the words that a merge changes.

A word is a string with one character per token: the one whose code point is the
token's id. So ``str.replace`` merges a pair, in C, and from left to right as the
rule asks. A pair is a string of two characters.
"""

import sys
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import islice
from operator import add

__all__ = ["iter_merges", "learn_merges"]

_MAX_TOKENS = sys.maxunicode + 1  # surrogates too: nothing here encodes the strings


def learn_merges(
    counts: Mapping[bytes, int], num_merges: int
) -> list[tuple[bytes, bytes]]:
    """Return the merges, in order, that pre-tokens with these counts lead to.

    There are fewer than asked for if no pair is left. Raises as ``iter_merges``.
    """
    return list(islice(iter_merges(counts), num_merges))


def iter_merges(counts: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield merges, in order, until no pair is left.

    The pair merged is the most frequent one; of several, the greater as
    ``(bytes, bytes)``.

    Raises ValueError if there are more than 1,113,856 merges to make.
    """
    tokens = [bytes([i]) for i in range(256)]
    corpus = _Corpus(counts)
    queue = _Queue(corpus.pair_counts, tokens)
    while pair := queue.pop():
        if len(tokens) == _MAX_TOKENS:
            raise ValueError(f"{_MAX_TOKENS} tokens are made: no more fit.")
        left, right = (tokens[ord(character)] for character in pair)
        yield left, right
        new = chr(len(tokens))
        tokens.append(left + right)
        queue.push(corpus.merge(pair, new))


class _Corpus:
    """Words, and for each pair how often and in which words it occurs."""

    def __init__(self, counts: Mapping[bytes, int]) -> None:
        self.words = [piece.decode("latin-1") for piece in counts]
        self.word_counts = list(counts.values())
        self.pair_counts: dict[str, int] = {}
        self.places: dict[str, list[int]] = {}  # a word once per occurrence
        places = defaultdict(list)
        for i, word in enumerate(self.words):
            for pair in map(add, word, word[1:]):
                places[pair].append(i)
        self._add(places)

    def merge(self, pair: str, new: str) -> Iterable[str]:
        """Write a new token for a pair; return the pairs that it is part of.

        Words that lost the pair to an earlier merge are visited in vain.
        """
        words, places = self.words, defaultdict(list)
        for i in dict.fromkeys(self.places.pop(pair)):
            parts = words[i].split(pair)
            if len(parts) == 2:
                before, after = parts
                words[i] = before + new + after
                if before:
                    places[before[-1] + new].append(i)
                if after:
                    places[new + after[0]].append(i)
            elif len(parts) > 2:
                words[i] = word = new.join(parts)
                for gained in _pairs_with(new, word):
                    places[gained].append(i)
        self._add(places)
        self._subtract_lost(pair, new, places)
        return places

    def _add(self, places: Mapping[str, list[int]]) -> None:
        for pair, words in places.items():
            self.pair_counts[pair] = sum(map(self.word_counts.__getitem__, words))
        self.places.update(places)

    def _subtract_lost(self, pair: str, new: str, gained: Iterable[str]) -> None:
        """Count no longer the merged pair, nor those in whose place others stand.

        Around ``ab``, the pair ``x(ab)`` stands in place of ``xa``, ``(ab)x`` of
        ``bx``, and ``(ab)(ab)`` of ``ba``.
        """
        before_left, before_right = {new: pair[1]}, {new: pair[0]}
        for left, right in gained:
            replaced = before_left.get(left, left) + before_right.get(right, right)
            self.pair_counts[replaced] -= self.pair_counts[left + right]
        del self.pair_counts[pair]


def _pairs_with(token: str, word: str) -> Iterator[str]:
    at = word.find(token)
    while at >= 0:
        if at:
            yield word[at - 1 : at + 1]
        follower = word[at + 1 : at + 2]
        if follower and follower != token:  # else the next turn yields the pair
            yield token + follower
        at = word.find(token, at + 1)


class _Queue:
    """Pairs, the most frequent first; of several, the greater as bytes.

    Pairs lie in lists by count, which are sorted when their turn comes: most never
    come to it. Once a merge has added its pairs, with at most its own count, counts
    only fall. So a pair may stay in a list of a greater count; when it is found
    there, it moves to its own. A heap of all pairs takes half as long again: 0.61 s
    against 0.41 for Moby-Dick to 10,000 merges.
    """

    def __init__(self, pair_counts: Mapping[str, int], tokens: list[bytes]) -> None:
        self.pair_counts = pair_counts
        self.tokens = tokens
        self.lists: defaultdict[int, list[str]] = defaultdict(list)
        self.negative_counts: list[int] = []  # a heap of those that have a list
        self.count = 0  # of the pairs that are sorted
        self.sorted: list[tuple[bytes, bytes, str]] = []
        self.push(pair_counts)

    def push(self, pairs: Iterable[str]) -> None:
        """Add pairs, which are counted by now."""
        for pair in pairs:
            count = self.pair_counts[pair]
            if count == self.count:
                insort(self.sorted, self._as_bytes(pair))
            else:
                self._put(pair, count)

    def pop(self) -> str | None:
        """Remove and return the first pair, or None if no pair is left."""
        while True:
            while self.sorted:
                pair = self.sorted.pop()[-1]
                if self._is_current(pair):
                    return pair
            if not self.negative_counts:
                return None
            self.count = -heappop(self.negative_counts)
            pairs = filter(self._is_current, self.lists.pop(self.count))
            self.sorted = sorted(map(self._as_bytes, pairs))

    def _is_current(self, pair: str) -> bool:
        """Whether the count of a pair is the one at work; if not, put it back."""
        count = self.pair_counts.get(pair)
        if count and count != self.count:
            self._put(pair, count)
        return count == self.count

    def _put(self, pair: str, count: int) -> None:
        if count not in self.lists:
            heappush(self.negative_counts, -count)
        self.lists[count].append(pair)

    def _as_bytes(self, pair: str) -> tuple[bytes, bytes, str]:
        left, right = pair
        return self.tokens[ord(left)], self.tokens[ord(right)], pair
