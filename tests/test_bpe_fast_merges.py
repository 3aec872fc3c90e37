"""lmlib.bpe.fast.merges: the merges of the reference, many at once."""

import random
import string
import time
from collections import Counter
from itertools import islice, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlib.bpe import reference, train, train_bpe
from lmlib.bpe.fast import merges as module
from lmlib.bpe.fast.counting import WordCounter, WordCounts
from lmlib.bpe.merges import learn_merges
from lmlib.bpe.patterns import GPT2_PATTERN
from lmlib.corpora import load_corpus
from tests.bpe_peers import PATTERNS, random_texts
from tests.test_bpe_merges import reference_merges

MOBY_DICK = load_corpus("moby_dick")
ALWAYS, NEVER = 10**9, -1


def word_counts(counts):
    return WordCounts(
        np.frombuffer(b"".join(counts), np.uint8),
        np.array([len(word) for word in counts], np.int64),
        np.array([*counts.values()], np.int64),
    )


def merges_at_once(counts, num_merges):
    return list(module.iter_merges(word_counts(counts), num_merges))


@pytest.fixture(params=["batches only", "ends in Python"])
def few_places(request, monkeypatch):
    """What is left to Python depends on the size of batches: try all of it, and none."""
    if request.param == "batches only":
        monkeypatch.setattr(module._Pace, "is_too_slow", lambda self, num_places: False)
    else:
        rng = random.Random(0)
        monkeypatch.setattr(module._Pace, "is_too_slow", lambda self, num_places: rng.random() < 0.2)


def random_counts(rng):
    letters = rng.choice([b"a", b"ab", b"abc", b"abcdefgh"])
    for _ in range(rng.randrange(14)):
        runs = (bytes([rng.choice(letters)]) * rng.choice([1, 1, 1, 2, 3, 7]) for _ in range(rng.randrange(10)))
        yield b"".join(runs), rng.choice([1, 1, 2, 3, rng.randrange(1, 40)])


def test_merges_are_those_one_by_one_for_random_corpora_full_of_ties(few_places):
    rng = random.Random(0)
    for _ in range(600):
        counts = dict(random_counts(rng))
        num_merges = rng.choice([0, 1, 3, 10, 1000])
        assert merges_at_once(counts, num_merges) == learn_merges(counts, num_merges), counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_merges_are_those_one_by_one_for_many_random_corpora(seed, few_places):
    rng = random.Random(seed)
    for _ in range(10_000):
        counts = dict(random_counts(rng))
        assert merges_at_once(counts, 1000) == learn_merges(counts, 1000), counts


words = st.one_of(st.binary(max_size=12), st.text("ab", max_size=24).map(str.encode))
large_counts = st.integers(1, 3) | st.integers(2**31 - 2, 2**31 + 2) | st.integers(2**55 - 2, 2**55 + 2)


@given(st.dictionaries(words, large_counts, max_size=8))
@settings(max_examples=200)
def test_merges_are_the_references_for_any_bytes_and_counts(counts):
    assert merges_at_once(counts, 30) == reference_merges(counts, 30)


@pytest.mark.parametrize("length", [*range(2, 20), 255, 256, 257])
def test_runs(length, few_places):
    for counts in [{b"a" * length: 1}, {b"a" * length: 2, b"ba" * length: 1, b"b" + b"a" * length + b"b": 1}]:
        assert merges_at_once(counts, 40) == reference_merges(counts, 40)


@pytest.mark.parametrize("counts", [{}, {b"": 3}, {b"a": 5, b"b": 1}])
def test_it_stops_when_no_pair_is_left(counts):
    assert merges_at_once(counts, 1000) == []


def test_it_stops_when_every_word_is_one_token(few_places):
    assert len(merges_at_once({b"abcd": 1, b"xyz": 4}, 1000)) == 5


def test_new_pairs_that_are_as_frequent_as_what_follows():
    """``(ab, c)`` ties with ``(a, b)``, but comes later: only pairs without such a neighbour go together."""
    counts = {b"abc": 5, b"xyz": 5, b"mn": 5, b"op": 4}
    assert merges_at_once(counts, 9) == reference_merges(counts, 9)


@pytest.fixture(scope="module")
def moby_dick_counts():
    counter = WordCounter(GPT2_PATTERN)
    counter.add(MOBY_DICK.encode())
    return counter.counts()


@pytest.fixture(scope="module")
def moby_dick_merges(moby_dick_counts):
    return learn_merges(dict(moby_dick_counts.items()), 6000)


def test_merges_are_those_one_by_one_for_moby_dick(moby_dick_counts, moby_dick_merges, few_places):
    assert list(module.iter_merges(moby_dick_counts, 6000)) == moby_dick_merges


def test_most_merges_are_not_alone(moby_dick_counts, monkeypatch):
    """Else it would be slow, and no other test would notice."""
    batches = []
    size_of_batch = module._size_of_batch
    monkeypatch.setattr(
        module, "_size_of_batch", lambda *arguments: batches.append(size_of_batch(*arguments)) or batches[-1]
    )
    assert len(list(module.iter_merges(moby_dick_counts, 3000))) == 3000
    assert sum(batches) == 3000
    assert len(batches) < 600


def test_places_and_codes_that_do_not_fit_in_one_integer(moby_dick_counts, moby_dick_merges, monkeypatch):
    init = module._Corpus.__init__

    def with_many_bits(self, *arguments):
        self._add_pairs = lambda places: np.empty(0, np.int64)  # not yet
        init(self, *arguments)
        del self._add_pairs
        self._place_bits, self._token_bits = 31, 21
        at = np.flatnonzero((self.token[:-1] >= 0) & (self.token[1:] >= 0))
        self._add_pairs(at)

    monkeypatch.setattr(module._Corpus, "__init__", with_many_bits)
    assert list(module.iter_merges(moby_dick_counts, 1000)) == moby_dick_merges[:1000]


def test_order_of_words_does_not_matter(moby_dick_counts, moby_dick_merges):
    shuffled = list(moby_dick_counts.items())
    random.Random(0).shuffle(shuffled)
    assert merges_at_once(dict(shuffled), 1000) == moby_dick_merges[:1000]


def test_merges_come_one_by_one(moby_dick_counts, moby_dick_merges):
    """So that a bar moves, and nothing is computed that nobody asks for."""
    assert list(islice(module.iter_merges(moby_dick_counts, 6000), 10)) == moby_dick_merges[:10]


def test_ids_in_the_range_of_the_surrogates(monkeypatch):
    """Words go over to Python as strings, with one character per token."""
    letters = string.ascii_letters[:39].encode()
    counts = {bytes(word): 1 for word in product(letters, repeat=3)}
    calls = []

    def once_many_are_made(self, num_places):
        calls.append(num_places)
        return sum(calls) > 0xDA00

    monkeypatch.setattr(module._Pace, "is_too_slow", once_many_are_made)
    merges = merges_at_once(counts, 56_500)
    assert len(merges) == 56_500
    assert merges == learn_merges(counts, 56_500)


# --- as train_bpe uses it ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_train_bpe_learns_what_the_reference_does(pattern, monkeypatch):
    monkeypatch.setattr(train, "_FEW_LETTERS", 0)
    texts = [*random_texts(seed=3, number=60), "ab ab ab abbb", MOBY_DICK[:3000]]
    expected = reference.train(texts, 330, ["<|endoftext|>"], pattern)
    assert train_bpe(texts, 330, ["<|endoftext|>"], pattern) == expected


def test_large_texts_are_trained_on_at_once(monkeypatch):
    asked = []
    iter_merges = module.iter_merges
    monkeypatch.setattr(module, "iter_merges", lambda *arguments: asked.append(1) or iter_merges(*arguments))
    train_bpe([MOBY_DICK[:10_000]], 300)
    train_bpe([MOBY_DICK], 300, pattern=r"\w+|\W")
    assert not asked
    train_bpe([MOBY_DICK], 300)
    assert asked


# --- only a method that looks at everything, at every merge, takes longer ------------------------------------------


def test_many_merges_over_many_words_take_seconds():
    rng = random.Random(0)
    counts = Counter(bytes(rng.choices(b"etaoinshrdlu", k=rng.randrange(3, 12))) for _ in range(40_000))
    start = time.process_time()
    assert len(merges_at_once(counts, 8000)) == 8000
    assert time.process_time() - start < 60


def test_hundreds_of_thousands_of_ties_take_seconds():
    """To look at all pairs with a count, whenever one of them is merged, would take days."""
    rng = random.Random(0)
    counts = {bytes(rng.choices(range(256), k=8)): 1 for _ in range(20_000)}
    start = time.process_time()
    assert len(merges_at_once(counts, 30_000)) == 30_000
    assert time.process_time() - start < 60


def test_a_long_word_takes_seconds():
    rng = random.Random(0)
    word = bytes(rng.choices(b"etaoinshrdlu ", k=300_000))
    start = time.process_time()
    assert len(merges_at_once({word: 1}, 2000)) == 2000
    assert len(merges_at_once({b"a" * 1_000_000: 1}, 50)) == 25  # 19 halvings, and what is left over
    assert time.process_time() - start < 60
