"""lmlib.bpe.reference: it trains by the rule, and encodes as tiktoken does, whatever the string."""

import json
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lmlib.bpe.patterns import CL100K_PATTERN, GPT2_PATTERN
from lmlib.bpe.reference import (
    count_pairs,
    decode,
    encode,
    encode_pretoken,
    merge,
    mergeable_ranks,
    pretokenize,
    split_at_special_tokens,
    train,
)
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.corpora import load_corpus
from tests.bpe_peers import (
    PATTERNS,
    adversarial_texts,
    encoding,
    make_encoding,
    outputs_under_hash_seeds,
    random_texts,
    ranks,
)

MOBY_DICK = load_corpus("moby_dick")
LANGUAGES = load_corpus("udhr")
END = "<|endoftext|>"


# --- training -------------------------------------------------------------------------------------------------


def test_training_without_pretokens():
    vocab, merges = train(["the cat in the hat"], 259, pattern=None)
    assert merges == [(b"t", b"h"), (b"th", b"e"), (b"the", b" ")]
    assert [vocab[i] for i in range(256, 259)] == [b"th", b"the", b"the "]


def test_the_quick_brown_fox_takes_16_tokens():
    vocab, merges = train(["the cat in the hat"], 259, pattern=None)
    ids = encode("the quick brown fox", mergeable_ranks(vocab, merges), pattern=None)
    assert (len(ids), ids[0]) == (16, 258)
    assert decode(ids, vocab) == "the quick brown fox"


def test_with_pretokens_no_merge_crosses_them():
    _, merges = train(["the cat in the hat"] * 3, 400)
    assert (b"the", b" ") not in merges
    assert all(b" " not in (left + right)[1:] for left, right in merges)


def test_course_example_breaks_ties_by_the_greater_pair():
    """The example of CS336, assignment 1: st, est, ow, low, west, ne."""
    text = " ".join(["low"] * 5 + ["lower"] * 2 + ["widest"] * 3 + ["newest"] * 6)
    _, merges = train([text], 262, pattern=r"\S+")
    assert [left + right for left, right in merges] == [b"st", b"est", b"ow", b"low", b"west", b"ne"]


def test_ties_compare_bytes_not_ids():
    _, merges = train(["ab cd", "xyz xyz"], 260, pattern=r"\S+")
    assert merges == [(b"y", b"z"), (b"x", b"yz"), (b"c", b"d"), (b"a", b"b")]
    _, merges = train(["aab b", "zzb b"], 258, pattern=r"\S+")
    assert merges[0] == (b"z", b"z")


def test_ids_are_bytes_then_merges_then_special_tokens():
    vocab, merges = train(["abab abab"], 260, [END, "<|pad|>"])
    assert [vocab[i] for i in range(256)] == [bytes([i]) for i in range(256)]
    assert [vocab[256 + i] for i in range(len(merges))] == [left + right for left, right in merges]
    assert [vocab[258], vocab[259]] == [END.encode(), b"<|pad|>"]
    assert len(vocab) == 260


@pytest.mark.parametrize("documents", [[], [""], ["a"], ["a b", "c"], [END], iter(())])
def test_training_stops_when_no_pair_is_left(documents):
    vocab, merges = train(documents, 1000, [END], pattern=r"\w")
    assert merges == []
    assert list(vocab.values()) == [*(bytes([i]) for i in range(256)), END.encode()]


def test_training_stops_when_every_pretoken_is_one_token():
    vocab, merges = train(["abcd"], 1000)
    assert len(merges) == 3
    assert len(vocab) == 259


def test_special_tokens_are_not_trained_on():
    with_it, without = f"abc{END}abc{END}", ["abc", "abc"]
    assert train([with_it], 300, [END])[1] == train(without, 300)[1]
    assert train([with_it], 300)[1] != train(without, 300)[1]


def test_counts_do_not_overflow():
    words = {(b"a", b"b"): 2**31, (b"z", b"z"): 2**31 - 1}
    assert count_pairs(words) == {(b"a", b"b"): 2**31, (b"z", b"z"): 2**31 - 1}


def test_merge_goes_from_left_to_right():
    assert merge((b"a", b"a", b"a"), (b"a", b"a")) == (b"aa", b"a")
    assert merge((b"a", b"b", b"a", b"b"), (b"a", b"b")) == (b"ab", b"ab")
    assert merge((b"a",), (b"a", b"a")) == (b"a",)


@pytest.mark.parametrize(
    ("documents", "vocab_size", "special_tokens", "error", "message"),
    [
        (["a"], 255, [], ValueError, "vocab_size is 255, .* need 256"),
        (["a"], 257, [END, "x"], ValueError, "vocab_size is 257, .*2 special tokens need 258"),
        (["a"], 300, [""], ValueError, "is empty"),
        (["a"], 300, [END, END], ValueError, "named twice"),
        ("a text", 300, [], TypeError, "Pass a list of texts"),
        (["a"], 300, END, TypeError, "Pass a list of special tokens"),
    ],
)
def test_training_refuses(documents, vocab_size, special_tokens, error, message):
    with pytest.raises(error, match=message):
        train(documents, vocab_size, special_tokens)


def test_training_refuses_an_invalid_pattern():
    with pytest.raises(ValueError, match="invalid at position 1"):
        train(["a"], 300, pattern="(")


small_documents = st.lists(st.text("ab' 1é\n", max_size=12), max_size=4)


@given(small_documents)
@settings(deadline=None)
def test_order_of_documents_does_not_matter(documents):
    results = [train(list(order), 280) for order in permutations(documents)]
    assert all(result == results[0] for result in results)


@given(small_documents, st.sampled_from([None, GPT2_PATTERN]))
@settings(deadline=None)
def test_every_merge_is_the_most_frequent_pair(documents, pattern):
    """The rule, replayed: at each merge, no pair is more frequent, or as frequent and greater."""
    _, merges = train(documents, 270, pattern=pattern)
    words = Counter(p.encode() for document in documents for p in pretokenize(document, pattern))
    words = {tuple(bytes([i]) for i in word): count for word, count in words.items()}
    for pair in merges:
        counts = count_pairs(words)
        assert (counts[pair], pair) == max((count, pair) for pair, count in counts.items())
        words = {merge(word, pair): count for word, count in words.items()}
    tokens = [left + right for left, right in merges]
    assert len(set(tokens)) == len(tokens)  # no token is made twice


def test_hash_seed_does_not_matter():
    code = (
        "import json\n"
        "from lmlib.bpe.reference import train\n"
        "from lmlib.corpora import load_corpus\n"
        "_, merges = train([load_corpus('moby_dick')[:5000], 'ab ba'], 400)\n"
        "print(json.dumps([[left.hex(), right.hex()] for left, right in merges]))\n"
    )
    outputs = outputs_under_hash_seeds(code)
    assert len(outputs) == 1
    assert len(json.loads(outputs.pop())) == 144


# --- encoding -------------------------------------------------------------------------------------------------


def check(text, name):
    """Our ids are tiktoken's, and decoding restores the text."""
    ids = encode(text, ranks(name), pattern=PATTERNS[name])
    assert ids == encoding(name).encode_ordinary(text), ascii(text)
    vocab = vocabulary(name)
    assert decode(ids, vocab) == replace_surrogates(text)


def vocabulary(name):
    if name not in _VOCABULARIES:
        _VOCABULARIES[name] = {i: token for token, i in ranks(name).items()}
    return _VOCABULARIES[name]


_VOCABULARIES = {}


@pytest.mark.parametrize("name", PATTERNS)
@given(text=adversarial_texts)
@example("a\u0cdcb")
@example("it's IT'S it'ſ we'LL")
@example("a\x1cb \x1d\x1e\x1f\x85\u180e\u200b")
@example("\ud83c\udf0d \ud800")
@settings(max_examples=700, deadline=None)
def test_ids_are_tiktokens_for_adversarial_text(name, text):
    check(text, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("seed", range(4))
def test_ids_are_tiktokens_for_a_million_adversarial_texts(name, seed):
    for text in random_texts(seed, 84_000):
        check(text, name)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("code", LANGUAGES)
def test_ids_are_tiktokens_in_every_language(name, code):
    check("\n".join(LANGUAGES[code].articles[:6]), name)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("start", range(0, len(MOBY_DICK), 200_000))
def test_ids_are_tiktokens_for_moby_dick(name, start):
    check(MOBY_DICK[start : start + 20_000], name)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("unit", ["a", " ", "\n", "ab", "1", "'", "é", "あ", "🌍", "\u0301", " a"])
def test_ids_are_tiktokens_for_runs(name, unit):
    check(unit * 300, name)


@pytest.mark.parametrize("name", PATTERNS)
def test_ids_are_tiktokens_for_code(name):
    check(Path(__file__).read_text("utf-8")[:20_000], name)


def test_hello_world():
    assert encode("hello world", ranks("gpt2")) == [31373, 995]
    assert len(encode("Hello, 🌍! 你好!", ranks("gpt2"))) == 12


@pytest.mark.parametrize("pattern", [GPT2_PATTERN, CL100K_PATTERN, None])
def test_vocabulary_trained_here(pattern):
    vocab, merges = train([MOBY_DICK[:20_000]], 500, pattern=pattern)
    ours = mergeable_ranks(vocab, merges)
    theirs = make_encoding(ours, pattern if pattern else r"(?s:.+)")
    for text in [MOBY_DICK[400_000:402_000], LANGUAGES["rus"].text[:1000], "\ud800 'ſ\x1c"]:
        ids = encode(text, ours, pattern=pattern)
        assert ids == theirs.encode_ordinary(text)
        assert decode(ids, vocab) == replace_surrogates(text)


@given(small_documents, st.text("ab' 1é\n", max_size=20))
@settings(deadline=None)
def test_a_small_vocabulary_encodes_as_tiktoken_does(documents, text):
    vocab, merges = train(documents, 300)
    ours = mergeable_ranks(vocab, merges)
    assert encode(text, ours) == make_encoding(ours, GPT2_PATTERN).encode_ordinary(text)


def test_rank_decides_not_length_and_not_the_left():
    singles = {bytes([i]): i for i in range(256)}
    by_rank = singles | {b"bc": 256, b"ab": 257, b"cde": 258, b"cd": 259}
    assert encode_pretoken(b"abcd", by_rank) == [97, 256, 100]
    assert make_encoding(by_rank, "(?s:.+)").encode_ordinary("abcd") == [97, 256, 100]


def test_a_pretoken_that_is_a_token_is_that_token():
    unreachable = {bytes([i]): i for i in range(256)} | {b"abc": 256}
    assert encode_pretoken(b"abc", unreachable) == [256]
    assert encode_pretoken(b"abcd", unreachable) == [97, 98, 99, 100]
    theirs = make_encoding(unreachable, "(?s:.+)")
    assert [theirs.encode_ordinary(text) for text in ["abc", "abcd"]] == [[256], [97, 98, 99, 100]]


def test_a_byte_without_rank_is_named():
    with pytest.raises(KeyError, match="b'c'"):
        encode("abc", {b"a": 0, b"b": 1})


# --- special tokens -------------------------------------------------------------------------------------------


@given(
    st.lists(st.one_of(st.sampled_from([END, "<|pad|>", "<|", " ", "\n", "'s", "\ud800"]), adversarial_texts)).map(
        "".join
    )
)
@settings(deadline=None)
def test_special_tokens_are_tiktokens(text):
    special_tokens = {END: 50256, "<|pad|>": 50257}
    theirs = WITH_SPECIAL_TOKENS.encode(text, allowed_special="all")
    assert encode(text, ranks("gpt2"), special_tokens) == theirs


WITH_SPECIAL_TOKENS = make_encoding(ranks("gpt2"), GPT2_PATTERN, {END: 50256, "<|pad|>": 50257})


def test_special_token_not_asked_for_is_ordinary_text():
    assert encode(END, ranks("gpt2")) == encoding("gpt2").encode(END, disallowed_special=())


def test_longest_special_token_wins():
    assert split_at_special_tokens("xabcab", ["ab", "abc"]) == ["x", "abc", "", "ab", ""]
    assert split_at_special_tokens("a.b", ["."]) == ["a", ".", "b"]
    assert split_at_special_tokens("abc", []) == ["abc"]


def test_special_token_may_have_the_bytes_of_another_token():
    vocab, merges = train(["th th"], 257, pattern=r"\w+")
    ours = mergeable_ranks(vocab | {257: b"th"}, merges)
    assert ours[b"th"] == 256
    assert encode("th e", ours, {"th": 257}) == [257, 32, 101]
    assert encode("th e", ours) == [256, 32, 101]


def test_special_token_in_text_is_not_a_token_by_accident():
    vocab, merges = train(["a"], 257, [END], pattern=None)
    assert encode(END, mergeable_ranks(vocab, merges), pattern=None) == list(END.encode())


# --- decoding -------------------------------------------------------------------------------------------------


def test_half_a_character_is_replaced():
    vocab = {i: bytes([i]) for i in range(256)}
    assert decode([0xF0, 0x9F, 0x8C], vocab) == "\ufffd"
    assert decode([0xF0, 0x9F, 0x8C, 0x8D], vocab) == "🌍"
    assert decode([], vocab) == ""


def test_unknown_id_is_named():
    with pytest.raises(KeyError, match="999"):
        decode([97, 999], {97: b"a"})


# --- pre-tokens -----------------------------------------------------------------------------------------------


def test_without_a_pattern_the_text_is_one_pretoken():
    assert pretokenize("a b\n", None) == ["a b\n"]
    assert pretokenize("", None) == []


def test_what_no_match_covers_is_left_out_as_in_tiktoken():
    assert pretokenize("a1b", r"\d*") == ["1"]
    bytes_only = make_encoding({bytes([i]): i for i in range(256)}, r"\d+")
    assert bytes_only.encode_ordinary("a1b") == [ord("1")]
