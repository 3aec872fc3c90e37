"""lmlib.bpe.cache: results that are looked up, in bounded memory."""

import random
import string
import sys
import tracemalloc

import pytest

from lmlib.bpe.cache import BoundedCache
from lmlib.bpe.encode import encode_pretoken
from lmlib.bpe.reference import pretokenize
from lmlib.corpora import load_corpus
from tests.bpe_peers import ranks

MOBY_DICK = load_corpus("moby_dick")


def letters(word):
    return tuple(word)


@pytest.mark.parametrize("max_bytes", [0, 300, 3000, 2**26])
def test_it_returns_what_the_function_does(max_bytes):
    cache = BoundedCache(lambda piece: tuple(encode_pretoken(piece, ranks("gpt2"))), max_bytes)
    for word in pretokenize(MOBY_DICK[:50_000]):
        piece = word.encode()
        assert list(cache[piece]) == encode_pretoken(piece, ranks("gpt2"))


def test_what_is_known_is_not_computed_again():
    calls = []
    cache = BoundedCache(lambda word: (calls.append(word),), 10_000)
    assert cache["abc"] is cache["abc"]
    assert calls == ["abc"]


@pytest.mark.parametrize("length", [3, 30, 3000])
def test_it_is_bounded_by_bytes(length):
    """Whatever the length of the words, it stays below its bound, and uses some of it."""
    rng = random.Random(0)
    max_bytes = 400_000
    cache = BoundedCache(letters, max_bytes)
    words = ("".join(rng.choices(string.ascii_letters, k=length)) for _ in range(1_500_000 // (length + 200)))
    tracemalloc.start()
    before, peak = tracemalloc.get_traced_memory()[0], 0
    for word in words:
        cache[word]
        peak = max(peak, tracemalloc.get_traced_memory()[0] - before)
    tracemalloc.stop()
    assert max_bytes / 4 < peak < max_bytes + 10 * (length + sys.getsizeof(b"")) + 8192


def test_what_does_not_fit_is_not_kept():
    cache = BoundedCache(letters, 1000)
    kept = cache["abc"]
    cache["x" * 1000]
    assert cache["abc"] is kept


def test_what_the_function_raises_is_passed_on():
    cache = BoundedCache({}.__getitem__)
    with pytest.raises(KeyError, match="b'c'"):
        cache[b"c"]
    assert len(cache) == 0
