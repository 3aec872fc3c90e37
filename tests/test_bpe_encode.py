"""lmlib.bpe.encode: the ids of the reference, whatever the bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlib.bpe import encode, reference
from lmlib.bpe.encode import encode_pretoken, merge_tokens, single_bytes
from lmlib.bpe.merges import learn_merges
from lmlib.bpe.reference import pretokenize
from lmlib.corpora import load_corpus
from tests.bpe_peers import PATTERNS, adversarial_texts, ranks

MOBY_DICK = load_corpus("moby_dick")
LANGUAGES = load_corpus("udhr")
SINGLES = {bytes([i]): i for i in range(256)}

METHODS = {"scan": encode._merge_by_scan, "heap": encode._merge_by_heap}


def check(piece, ranks):
    """The ids are the reference's, and both methods agree, whatever the length."""
    assert encode_pretoken(piece, ranks) == reference.encode_pretoken(piece, ranks), piece
    if piece not in ranks:
        scan, heap = (method(single_bytes(piece), ranks) for method in METHODS.values())
        assert scan == heap, piece


@pytest.mark.parametrize("name", PATTERNS)
def test_ids_are_the_references_for_every_word_of_moby_dick(name):
    for word in set(pretokenize(MOBY_DICK, PATTERNS[name])):
        check(word.encode(), ranks(name))


@pytest.mark.parametrize("name", PATTERNS)
def test_ids_are_the_references_in_every_language(name):
    for text in LANGUAGES.values():
        for word in set(pretokenize(text.text[:2000], PATTERNS[name])):
            check(word.encode(), ranks(name))


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("start", range(0, len(MOBY_DICK), 300_000))
def test_ids_are_the_references_for_long_pretokens(name, start):
    for length in range(encode._LONG - 3, encode._LONG + 4):
        check(MOBY_DICK[start : start + length].encode(), ranks(name))
    check(MOBY_DICK[start : start + 300].encode(), ranks(name))


@pytest.mark.parametrize("name", PATTERNS)
@given(st.one_of(st.binary(max_size=100), st.text("ab ", max_size=99).map(str.encode)))
@settings(max_examples=300, deadline=None)
def test_ids_are_the_references_for_any_bytes(name, piece):
    check(piece, ranks(name))


@pytest.mark.parametrize("name", PATTERNS)
@given(adversarial_texts)
@settings(max_examples=200, deadline=None)
def test_ids_are_the_references_for_adversarial_text(name, text):
    for pretoken in pretokenize(text, PATTERNS[name]):
        check(pretoken.encode(), ranks(name))


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("unit", ["a", " ", "\n", "ab", "1", "é", "あ", "🌍"])
def test_ids_are_the_references_for_runs(name, unit):
    for length in [*range(1, 50), 200]:
        check((unit * length).encode()[:300], ranks(name))


@given(st.dictionaries(st.text("abc", max_size=9).map(str.encode), st.integers(1, 3)), st.text("abcd", max_size=80))
@settings(max_examples=500, deadline=None)
def test_ids_are_the_references_with_a_vocabulary_trained_here(counts, text):
    merges = learn_merges(counts, 20)
    check(text.encode(), SINGLES | {left + right: 256 + i for i, (left, right) in enumerate(merges)})


tokens = st.dictionaries(st.text("ab", min_size=2, max_size=5).map(str.encode), st.integers(-3, 300))


@given(tokens, st.text("abc", max_size=80).map(str.encode))
@settings(max_examples=500, deadline=None)
def test_ids_are_the_references_with_ranks_that_no_training_gives(tokens, piece):
    """Tokens that no merge leads to, and ranks that several tokens share."""
    check(piece, SINGLES | tokens)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("length", [20, 200])
def test_what_the_first_merges_have_made_merges_on(name, length):
    known = ranks(name)
    first = {token: rank for token, rank in known.items() if rank < 1000}
    for start in range(0, 300_000, 3000):
        piece = MOBY_DICK[start : start + length].encode()
        tokens = METHODS["scan"](single_bytes(piece), first)
        assert len(tokens) < len(piece)
        assert merge_tokens(tokens, known) == merge_tokens(single_bytes(piece), known)


def test_a_pretoken_that_is_a_token_is_that_token():
    for size in [3, 3 * encode._LONG]:
        piece = b"abc" * (size // 3)
        assert encode_pretoken(piece, SINGLES | {piece: 256}) == [256]
        assert encode_pretoken(piece + b"d", SINGLES | {piece: 256}) == [*piece, ord("d")]


def test_nothing_has_no_ids():
    assert encode_pretoken(b"", SINGLES) == []


@pytest.mark.parametrize("length", [1, 100])
def test_a_byte_without_rank_is_named(length):
    with pytest.raises(KeyError, match="b'c'"):
        encode_pretoken(b"ab" * length + b"c", {b"a": 0, b"b": 1})
