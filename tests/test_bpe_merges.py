"""lmlib.bpe.merges: the merges of the reference, found by looking only at what changes."""

import random
import string
import time
from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlib.bpe import merges as module
from lmlib.bpe import reference
from lmlib.bpe.merges import learn_merges
from lmlib.bpe.patterns import GPT2_PATTERN
from lmlib.corpora import load_corpus
from tests.bpe_peers import outputs_under_hash_seeds

MOBY_DICK = load_corpus("moby_dick")
END = "<|endoftext|>"


def pretoken_counts(documents, special_tokens=(), pattern=GPT2_PATTERN):
    counts = reference.count_pretokens(documents, special_tokens, pattern)
    return {b"".join(word): count for word, count in counts.items()}


def check(documents, num_merges, special_tokens=(), pattern=GPT2_PATTERN):
    vocab_size = 256 + num_merges + len(special_tokens)
    _, merges = reference.train(documents, vocab_size, special_tokens, pattern)
    counts = pretoken_counts(documents, special_tokens, pattern)
    assert learn_merges(counts, num_merges) == merges, documents
    return merges


def reference_merges(counts, num_merges):
    """The reference's loop, from counts that no corpus of a test could have."""
    words = {tuple(bytes([byte]) for byte in piece): count for piece, count in counts.items()}
    merges = []
    while len(merges) < num_merges and (pairs := reference.count_pairs(words)):
        merges.append(max(pairs, key=lambda pair: (pairs[pair], pair)))
        words = {reference.merge(word, merges[-1]): count for word, count in words.items()}
    return merges


def random_documents(rng, letters):
    for _ in range(rng.randrange(5)):
        yield "".join(rng.choice(letters) * rng.choice([1, 1, 1, 2, 3, 7]) for _ in range(rng.randrange(14)))


@pytest.mark.parametrize("letters", ["ab", "ab ", "abc '1", "aé\n", ["a", END, "b"]])
@pytest.mark.parametrize("pattern", [None, GPT2_PATTERN, r"\S+"])
def test_merges_are_the_references_for_random_corpora_full_of_ties(letters, pattern):
    rng = random.Random(str((letters, pattern)))
    for _ in range(400):
        check(list(random_documents(rng, letters)), 40, [END], pattern)


@given(
    st.lists(st.text(st.one_of(st.sampled_from("ab '"), st.characters()), max_size=30), max_size=5),
    st.sampled_from([None, GPT2_PATTERN]),
    st.sampled_from([0, 1, 5, 1000]),
)
@settings(max_examples=300, deadline=None)
def test_merges_are_the_references_for_any_corpus(documents, pattern, num_merges):
    check(documents, num_merges, pattern=pattern)


words = st.one_of(st.binary(max_size=12), st.text("ab", max_size=24).map(str.encode))
large_counts = st.integers(1, 3) | st.integers(2**31 - 2, 2**31 + 2) | st.integers(2**63 - 2, 2**64 + 2)


@given(st.dictionaries(words, large_counts, max_size=8))
@settings(max_examples=500, deadline=None)
def test_merges_are_the_references_for_any_bytes_and_counts(counts):
    assert learn_merges(counts, 30) == reference_merges(counts, 30)


@pytest.mark.parametrize("length", [*range(2, 40), 255, 256, 257])
def test_runs(length):
    check(["a" * length], 20, pattern=None)
    check(["a" * length, "ba" * length, "b" + "a" * length + "b"], 30, pattern=None)


def test_overlapping_pairs():
    assert learn_merges({b"aaa": 1, b"ab": 1}, 9) == [(b"a", b"a"), (b"aa", b"a"), (b"a", b"b")]
    assert learn_merges({b"abab": 2, b"ba": 1}, 9) == [(b"a", b"b"), (b"ab", b"ab"), (b"b", b"a")]


def test_a_greater_token_beats_what_it_starts_with():
    """``abc`` is greater than ``ab``, though shorter keys sort first."""
    counts = {b"abcabc": 9, b"abx": 5, b"abcx": 5}
    merges = learn_merges(counts, 5)
    assert merges == reference_merges(counts, 5)
    assert merges.index((b"abc", b"x")) < merges.index((b"ab", b"x"))


def test_counts_do_not_overflow():
    counts = {b"ab": 2**31, b"zz": 2**31 - 1, b"yz": 2**64}
    assert learn_merges(counts, 3) == [(b"y", b"z"), (b"a", b"b"), (b"z", b"z")]


@pytest.mark.parametrize("counts", [{}, {b"": 3}, {b"a": 5, b"b": 1}])
def test_it_stops_when_no_pair_is_left(counts):
    assert learn_merges(counts, 1000) == []


def test_it_stops_when_every_pretoken_is_one_token():
    assert len(learn_merges({b"abcd": 1}, 1000)) == 3
    assert learn_merges({b"abcd": 1}, 0) == []


def test_special_tokens_are_apart():
    merges = check([f"abc{END}abc{END}"], 30, [END])
    assert merges == [(b"b", b"c"), (b"a", b"bc")]


def test_it_counts_tokens_up_to_the_last_character(monkeypatch):
    monkeypatch.setattr(module, "_MAX_TOKENS", 257)
    assert len(learn_merges({b"ab": 1}, 9)) == 1
    with pytest.raises(ValueError, match="257 tokens"):
        learn_merges({b"abc": 1}, 9)


def test_more_tokens_than_there_are_characters_before_the_surrogates():
    """Ids in the range of the surrogates, and those beyond it, are tokens like any other."""
    letters = string.ascii_letters[:39].encode()
    counts = {bytes(word): 1 for word in product(letters, repeat=3)}  # each becomes a token
    merges = learn_merges(counts, 100_000)
    assert len(merges) > 0xE000
    assert len({left + right for left, right in merges}) == len(merges)
    assert counts.keys() <= {left + right for left, right in merges}


# --- a real corpus ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moby_dick_counts():
    return pretoken_counts([MOBY_DICK])


def test_merges_are_the_references_for_moby_dick(moby_dick_counts):
    merges = learn_merges(moby_dick_counts, 2000)
    assert len(merges) == 2000
    assert merges[:60] == reference_merges(moby_dick_counts, 60)


@pytest.mark.slow
def test_300_merges_are_the_references_for_moby_dick(moby_dick_counts):
    assert learn_merges(moby_dick_counts, 300) == reference_merges(moby_dick_counts, 300)


def test_all_merges_are_the_references_for_the_start_of_moby_dick():
    merges = check([MOBY_DICK[:12_000]], 10_000)
    assert 600 < len(merges) < 10_000  # to the last pair


def test_order_of_words_does_not_matter(moby_dick_counts):
    merges = learn_merges(moby_dick_counts, 1000)
    shuffled = list(moby_dick_counts.items())
    for seed in range(3):
        random.Random(seed).shuffle(shuffled)
        assert learn_merges(dict(shuffled), 1000) == merges


def test_order_of_documents_does_not_matter():
    documents = MOBY_DICK[:60_000].split("\n\n")
    expected = learn_merges(pretoken_counts(documents), 500)
    for seed in range(3):
        random.Random(seed).shuffle(documents)
        assert learn_merges(pretoken_counts(documents), 500) == expected


def test_hash_seed_does_not_matter():
    code = (
        "from collections import Counter\n"
        "from lmlib.bpe.merges import learn_merges\n"
        "from lmlib.corpora import load_corpus\n"
        "words = load_corpus('moby_dick')[:50_000].encode().split()\n"
        "print(learn_merges({word: words.count(word) for word in set(words)}, 1000))\n"
    )
    outputs = outputs_under_hash_seeds(code)
    assert len(outputs) == 1


# --- only a method that looks at everything, at every merge, takes longer ------------------------------------------


def test_many_merges_over_many_words_take_seconds():
    """40,000 words and 8,000 merges: looking at each word at each merge would take half an hour."""
    rng = random.Random(0)
    words = Counter(bytes(rng.choices(b"etaoinshrdlu", k=rng.randrange(3, 12))) for _ in range(40_000))
    start = time.process_time()
    assert len(learn_merges(words, 8000)) == 8000
    assert time.process_time() - start < 60


def test_a_long_word_takes_seconds():
    """As without a pattern: each merge looks at its own places in it, not at each letter in Python."""
    rng = random.Random(0)
    word = bytes(rng.choices(b"etaoinshrdlu ", k=300_000))
    start = time.process_time()
    assert len(learn_merges({word: 1}, 2000)) == 2000
    assert len(learn_merges({b"a" * 1_000_000: 1}, 50)) == 25  # 19 halvings, and what is left over
    assert time.process_time() - start < 60
