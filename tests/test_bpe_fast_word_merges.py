"""lmlib.bpe.fast.vocabulary and word_merges: what merging one by one gives, whatever the vocabulary and the words."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlib.bpe import train_bpe
from lmlib.bpe.encode import merge_tokens, single_bytes
from lmlib.bpe.fast import word_merges
from lmlib.bpe.fast.vocabulary import NO_RANK, Vocabulary, side_by_side
from lmlib.bpe.fast.word_merges import merge_words
from lmlib.bpe.fast.word_table import as_block
from lmlib.bpe.reference import pretokenize
from lmlib.corpora import load_corpus
from tests.bpe_peers import PATTERNS, ranks

MOBY_DICK = load_corpus("moby_dick")
SINGLES = [bytes([i]) for i in range(256)]
each_name = pytest.mark.parametrize("name", PATTERNS)


def known_tokens(name):
    known = ranks(name)
    return sorted(known, key=known.get)


def merged(words, vocabulary):
    sizes = np.array([len(word) for word in words], np.int64)
    done, found, lengths, left = merge_words(as_block(b"".join(words)), sizes, vocabulary)
    ends = np.cumsum(lengths)
    return done, [found[end - size : end].tolist() for end, size in zip(ends, lengths, strict=True)], left


def check(words, tokens, vocabulary=None):
    """Compare with merging in Python: all words, and none of them left; then with some that are left."""
    rank = {token: i for i, token in enumerate(tokens)}
    vocabulary = vocabulary or Vocabulary(tokens)
    expected = [merge_tokens(single_bytes(word), rank) for word in words]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_merges, "_FEW", 0)
        done, found, left = merged(words, vocabulary)
        assert done.all()
        assert found == expected
        assert left == []
        patch.setattr(word_merges, "_FEW", len(words) // 3)
        done, found, left = merged(words, vocabulary)
    assert found == [ids for ids, is_done in zip(expected, done, strict=True) if is_done]
    finished = [merge_tokens(tokens, rank) for tokens in left]
    assert finished == [ids for ids, is_done in zip(expected, done, strict=True) if not is_done]


# --- the vocabulary -----------------------------------------------------------------------------------------------


@each_name
def test_tables_of_two_bytes_are_what_the_tokens_say(name):
    tokens = known_tokens(name)
    vocabulary = Vocabulary(tokens)
    two, across = {}, {}
    for rank, token in enumerate(tokens):
        if len(token) == 2:
            two[token] = rank
        for pair in pairwise(token):
            across.setdefault(bytes(pair), rank)
    for left in SINGLES:
        codes = side_by_side(np.frombuffer(b"".join(left + right for right in SINGLES), np.uint8))[::2]
        for table, expected in [(vocabulary.rank_of_two, two), (vocabulary.least_across, across)]:
            assert table[codes].tolist() == [expected.get(left + right, NO_RANK) for right in SINGLES]


@each_name
def test_ranks_of_tokens_and_of_other_bytes(name):
    tokens = known_tokens(name)
    possible = [token for token in tokens if b"\xff" not in token]
    other = [token + b"\0z" for token in possible[::50]]
    words = [*possible, *other]
    sizes = np.array([len(word) for word in words], np.int64)
    found = Vocabulary(tokens).ranks(as_block(b"".join(words)), np.cumsum(sizes) - sizes, sizes)
    rank = {token: i for i, token in enumerate(tokens)}
    assert found.tolist() == [rank.get(word, NO_RANK) for word in words]


# --- merging ------------------------------------------------------------------------------------------------------

few_letters = st.text("abc", min_size=1, max_size=14).map(str.encode)


@given(
    st.lists(st.text("abc", min_size=2, max_size=5).map(str.encode), unique=True, max_size=25),
    st.lists(few_letters, min_size=1, max_size=20),
)
@settings(max_examples=150)
def test_any_tokens_in_any_order(tokens, words):
    """Tokens that no merge makes, and that come before what they are made of: all that a proof may overlook."""
    check(words, [*SINGLES, *tokens])


@given(st.text("ab c", min_size=2, max_size=80), st.lists(few_letters, min_size=1, max_size=20))
@settings(max_examples=100)
def test_tokens_that_were_trained(text, words):
    vocab, _ = train_bpe([text], 290)
    check(words, [*vocab.values()])


def test_many_random_vocabularies():
    rng = random.Random(0)
    for _ in range(150):
        letters = rng.choice([b"a", b"ab", b"abc", b"abcdef"])
        tokens = {bytes(rng.choices(letters, k=rng.randrange(2, 7))) for _ in range(rng.randrange(60))}
        words = [bytes(rng.choices(letters, k=rng.randrange(1, 40))) for _ in range(60)]
        check(words, [*SINGLES, *rng.sample(sorted(tokens), len(tokens))])


@each_name
def test_published_vocabularies(name):
    tokens = known_tokens(name)
    vocabulary = Vocabulary(tokens)
    words = [word.encode() for word in {*pretokenize(MOBY_DICK[:200_000], PATTERNS[name])}]
    texts = "".join(language.text[:1000] for language in load_corpus("udhr").values()).encode()
    words += [texts[i : i + 37] for i in range(0, len(texts), 37)]
    check(words, tokens, vocabulary)
    check([b"=" * size for size in range(1, 130)] + [b"a" * size for size in range(1, 130)], tokens, vocabulary)


def test_much_is_merged_at_once(monkeypatch):
    """Else it would be slow, and no other test would notice."""
    rounds = []
    merge = word_merges._Words.merge
    monkeypatch.setattr(word_merges._Words, "merge", lambda self, *pairs: rounds.append(1) or merge(self, *pairs))
    tokens = known_tokens("gpt2")
    words = [word.encode() for word in {*MOBY_DICK[:300_000].split()}]
    monkeypatch.setattr(word_merges, "_FEW", 0)
    merged(words, Vocabulary(tokens))
    rank = {token: i for i, token in enumerate(tokens)}
    most = max(len(word) - len(merge_tokens(single_bytes(word), rank)) for word in words)
    assert len(rounds) < 0.7 * most


def test_few_words_are_left_to_python():
    """The few that need most rounds, and with what they have come to, not from the start."""
    words = [b"understandable", *[b"ab"] * word_merges._FEW, b"misunderstanding" * 9]
    done, _, [short, long] = merged(words, Vocabulary(known_tokens("gpt2")))
    assert np.flatnonzero(~done).tolist() == [0, len(words) - 1]
    assert (b"".join(short), b"".join(long)) == (words[0], words[-1])
    assert len(short) < len(words[0])
    assert len(long) < len(words[-1])
