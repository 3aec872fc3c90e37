"""Training that looks only at the words that a merge changes.

A word is a string with one character per token: the one whose code point is the
token's id. So ``str.replace`` merges a pair, in C, and from left to right as the
rule asks. A pair is a string of two characters.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from operator import add

__all__ = ["learn_merges"]

_MAX_TOKENS = sys.maxunicode + 1  # surrogates too: nothing here encodes the strings


def learn_merges(
    counts: Mapping[bytes, int], num_merges: int
) -> list[tuple[bytes, bytes]]:
    """Return the merges, in order, that pre-tokens with these counts lead to.

    The pair merged is the most frequent one; of several, the greater as
    ``(bytes, bytes)``. There are fewer merges than asked for if no pair is left.

    Raises ValueError if there are more than 1,113,856 merges to make.
    """
    corpus = _Corpus(counts)
    queue = _Queue(corpus.pair_counts)
    tokens = [bytes([i]) for i in range(256)]
    merges: list[tuple[bytes, bytes]] = []
    while len(merges) < num_merges and (pair := queue.pop()):
        if len(tokens) == _MAX_TOKENS:
            raise ValueError(f"{_MAX_TOKENS} tokens are made: no more fit.")
        left, right = (tokens[ord(character)] for character in pair)
        merges.append((left, right))
        new = chr(len(tokens))
        tokens.append(left + right)
        queue.push(corpus.merge(pair, new), left + right)
    return merges


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
            words[i] = word = words[i].replace(pair, new)
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

    Once a merge has added its pairs, their counts only fall. So a pair stays in the
    heap with its old count until that comes up, and is put back with the new one.
    Lists by count, sorted when their turn comes, take as long (0.55 s against 0.56
    for Moby-Dick to 10,000 merges) and more code.
    """

    def __init__(self, pair_counts: Mapping[str, int]) -> None:
        self.pair_counts = pair_counts
        self.order = [_descending(bytes([i])) for i in range(256)]
        self.heap = [self._entry(pair) for pair in pair_counts]
        heapify(self.heap)

    def push(self, pairs: Iterable[str], new_token: bytes) -> None:
        """Add the pairs that a new token is part of."""
        self.order.append(_descending(new_token))
        for pair in pairs:
            heappush(self.heap, self._entry(pair))

    def pop(self) -> str | None:
        """Remove and return the first pair, or None if no pair is left."""
        while self.heap:
            negative_count, _, pair = heappop(self.heap)
            count = self.pair_counts.get(pair)
            if count == -negative_count:
                return pair
            if count:
                heappush(self.heap, self._entry(pair))
        return None

    def _entry(self, pair: str) -> tuple[int, str, str]:
        left, right = map(ord, pair)
        return -self.pair_counts[pair], self.order[left] + self.order[right], pair


_COMPLEMENT = bytes(range(255, -1, -1))


def _descending(token: bytes) -> str:
    """Return a key that sorts tokens from the greatest to the least.

    It ends with a character greater than any byte: ``b"ab"`` comes before ``b"a"``.
    So no key starts another one, and two keys in a row sort as the pair does.
    """
    return token.translate(_COMPLEMENT).decode("latin-1") + "\u0100"
