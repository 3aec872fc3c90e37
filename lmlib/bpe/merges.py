"""Training that looks only at the words that a merge changes.

A word is a string with one character per token: the one whose code point is the
token's id. So ``str.replace`` merges a pair, in C, and from left to right as the
rule asks. A pair is a string of two characters.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from operator import add

from lmlib.bpe.pair_queue import PairQueue

__all__ = ["Corpus", "iter_merges", "iter_more_merges", "learn_merges"]

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
    words = [piece.decode("latin-1") for piece in counts]
    places = defaultdict(list)
    for i, word in enumerate(words):
        for pair in map(add, word, word[1:]):
            places[pair].append(i)
    corpus = Corpus(words, [*counts.values()], places)
    return iter_more_merges(corpus, [bytes([i]) for i in range(256)])


def iter_more_merges(
    corpus: "Corpus", tokens: list[bytes]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield merges for words made of any tokens; ``corpus`` is changed by each.

    ``tokens`` are the bytes of each token so far; new ones are added to it.

    Raises as ``iter_merges`` does.
    """

    def bytes_of(pair: str) -> tuple[bytes, bytes]:
        return tokens[ord(pair[0])], tokens[ord(pair[1])]

    queue = PairQueue(corpus.pair_counts.get, bytes_of)
    queue.push(corpus.pair_counts)
    while pair := queue.pop():
        if len(tokens) == _MAX_TOKENS:
            raise ValueError(f"{_MAX_TOKENS} tokens are made: no more fit.")
        left, right = bytes_of(pair)
        yield left, right
        new = chr(len(tokens))
        tokens.append(left + right)
        queue.push(corpus.merge(pair, new))


class Corpus:
    """Words, and for each pair how often and in which words it occurs.

    ``places`` has, for each pair, the indices of the words that it occurs in, each
    once per occurrence.
    """

    def __init__(
        self,
        words: list[str],
        word_counts: list[int],
        places: Mapping[str, list[int]],
    ) -> None:
        self.words = words
        self.word_counts = word_counts
        self.pair_counts: dict[str, int] = {}
        self.places: dict[str, list[int]] = {}
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
