"""lmlib.bpe.fast.counting: the counts of the reference, block by block."""

import random
from collections import Counter
from itertools import chain

import pytest

from lmlib.bpe import counting, reference
from lmlib.bpe.counting import BlockCounter, PretokenCounter, make_counter
from lmlib.bpe.fast.counting import WordCounter
from lmlib.corpora import load_corpus
from tests.bpe_peers import PATTERNS, random_texts

MOBY_DICK = load_corpus("moby_dick")
END = "<|endoftext|>"
each_pattern = pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)


def expected(texts, special_tokens, pattern):
    counts = reference.count_pretokens(texts, special_tokens, pattern)
    return {b"".join(word): count for word, count in counts.items()}


def as_dict(counts):
    counted = dict(counts.items())
    assert len(counted) == len(counts)
    return counted


@each_pattern
def test_counts_are_the_references(pattern, monkeypatch):
    monkeypatch.setattr(counting, "_PART", 1000)
    texts = [*random_texts(seed=1, number=300), MOBY_DICK[:100_000], f"ab{END}ab{END}{END} ab"]
    for special_tokens in [[], [END], [END, " the", "\n\n"]]:
        counter = BlockCounter(pattern, special_tokens)
        for text in texts:
            counter.add([text])
        assert as_dict(counter.counts()) == expected(texts, special_tokens, pattern)


@each_pattern
def test_it_does_not_matter_how_a_text_comes(pattern, monkeypatch):
    monkeypatch.setattr(counting, "_PART", 500)
    rng = random.Random(0)
    text = MOBY_DICK[:20_000] + END + "".join(random_texts(seed=2, number=100))
    counter = BlockCounter(pattern, [END])
    cuts = sorted(rng.randrange(len(text)) for _ in range(200))
    counter.add(text[start:stop] for start, stop in zip([0, *cuts], [*cuts, None], strict=True))
    assert as_dict(counter.counts()) == expected([text], [END], pattern)


def test_what_was_counted_elsewhere_is_added():
    pattern = PATTERNS["gpt2"]
    parts = [list(random_texts(seed, number=100)) for seed in range(3)]
    total = BlockCounter(pattern)
    for part in parts:
        counter = BlockCounter(pattern)
        for text in part:
            counter.add([text])
        total.update(counter.counts())
    assert as_dict(total.counts()) == expected(chain.from_iterable(parts), [], pattern)


def test_counts_of_nothing():
    counter = WordCounter(PATTERNS["gpt2"])
    assert len(counter.counts()) == 0
    counter.add(b"")
    counter.add(b"\xff\xff")
    assert as_dict(counter.counts()) == {}
    counter.add(b"a")
    assert as_dict(counter.counts()) == {b"a": 1}


def test_each_pattern_has_its_counter():
    assert isinstance(make_counter(PATTERNS["o200k_base"], []), BlockCounter)
    for pattern in [None, r"\w+|\W"]:
        assert isinstance(make_counter(pattern, []), PretokenCounter)


@pytest.mark.parametrize("text", ["a" * 3_000_000, "0" * 1_000_000, "中" * 300_000, "ab" * 500_000, "\n" * 1_000_000])
def test_text_without_a_place_to_cut(text):
    """One endless pre-token is one word; it is not looked at again and again."""
    for pattern in PATTERNS.values():
        counter = BlockCounter(pattern)
        counter.add(text[i : i + 10_000] for i in range(0, len(text), 10_000))
        counts = as_dict(counter.counts())
        assert b"".join(word * count for word, count in counts.items()) == text.encode()


def test_counts_are_whole_numbers_of_64_bits():
    counter = WordCounter(PATTERNS["gpt2"])
    counter.add(b"a b")
    counts = counter.counts()
    counts.counts[:] = 2**61
    counter.update(counts)
    counter.update(counts)
    assert Counter(as_dict(counter.counts())) == {b"a": 2**62 + 1, b" b": 2**62 + 1}
