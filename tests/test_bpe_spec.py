"""lmlib.bpe.spec: what a tokenizer is made of is consistent, or refused with one clear error."""

import time
from dataclasses import FrozenInstanceError

import pytest

from lmlib.bpe.formats import read_vocab_bpe
from lmlib.bpe.patterns import GPT2_PATTERN
from lmlib.bpe.spec import TokenizerSpec, check_special_tokens, numbered
from lmlib.corpora import load_corpus

BYTES = {i: bytes([i]) for i in range(256)}
MERGES = [(b"a", b"b"), (b"ab", b"c")]
VOCAB = BYTES | {256: b"ab", 257: b"abc", 258: b"<|end|>"}
SPECIAL = {"<|end|>": 258}


def spec(vocab=VOCAB, merges=MERGES, special_tokens=SPECIAL, pattern=GPT2_PATTERN):
    return TokenizerSpec(vocab, merges, special_tokens, pattern)


def test_ids_are_those_of_bytes_and_merges_in_order():
    ids = spec().ids
    assert [*ids] == [*BYTES.values(), b"ab", b"abc"]
    assert [*ids.values()] == [*range(258)]
    assert spec().ranks == ids
    assert spec().ids_ascend
    assert spec().unreachable == {}


def test_ranks_follow_the_merges_whatever_the_ids():
    vocab = {i + 3: token for i, token in BYTES.items()} | {2: b"ab", 0: b"abc", 1: b"<|end|>"}
    unordered = spec(vocab, special_tokens={"<|end|>": 1})
    assert unordered.ids[b"a"] == ord("a") + 3
    assert (unordered.ids[b"ab"], unordered.ids[b"abc"]) == (2, 0)
    assert (unordered.ranks[b"ab"], unordered.ranks[b"abc"]) == (256, 257)
    assert not unordered.ids_ascend
    assert b"<|end|>" not in unordered.ids


def test_a_special_token_may_have_the_bytes_of_an_ordinary_one():
    twins = spec(VOCAB | {300: b"ab", 301: b" "}, special_tokens={"ab": 300, " ": 301, "<|end|>": 258})
    assert (twins.ids[b"ab"], twins.ids[b" "]) == (256, 32)


def test_a_token_that_no_merge_makes_is_never_encoded_to():
    unnamed = spec(special_tokens={})
    assert unnamed.unreachable == {258: b"<|end|>"}
    assert b"<|end|>" not in unnamed.ids


def test_what_it_is_made_of_cannot_be_changed_from_outside():
    vocab, merges, special_tokens = dict(VOCAB), [[b"a", b"b"]], dict(SPECIAL)
    kept = spec(vocab, merges, special_tokens)
    vocab.clear(), merges.clear(), special_tokens.clear()
    assert (kept.vocab, kept.merges, kept.special_tokens) == (VOCAB, [(b"a", b"b")], SPECIAL)
    with pytest.raises(FrozenInstanceError):
        kept.pattern = None


BROKEN = {
    "a byte is missing": ({"vocab": VOCAB | {97: b"zz"}}, r"is b'a': every byte"),
    "a merge has no id": ({"vocab": VOCAB | {257: b"zz"}}, r"is b'abc': every byte"),
    "a part is made later": ({"merges": MERGES[::-1]}, r"Merge 1, .* needs b'ab', which no earlier"),
    "a right part is never made": ({"merges": [(b"a", b"bc")]}, r"needs b'bc'"),
    "a token is made twice": ({"merges": [*MERGES, (b"a", b"b")]}, r"Merge 3 makes b'ab' a second time"),
    "a merge of nothing": ({"merges": [(b"", b"a")]}, r"needs b''"),
    "two ids, the same bytes": ({"vocab": VOCAB | {300: b"abc"}}, r"Ids 257 and 300 of the vocabulary are both b'abc'"),
    "an id below 0": ({"vocab": VOCAB | {-1: b"zz"}}, r"Id -1 is not an integer from 0"),
    "an id too large": ({"vocab": VOCAB | {2**32: b"zz"}}, r"Id 4294967296 is not"),
    "an id that is no number": (
        {"vocab": {i: t for i, t in VOCAB.items() if i != 1} | {True: b"1"}},
        r"Id True is not",
    ),
    "an id that is text": ({"vocab": VOCAB | {"7": b"zz"}}, r"Id '7' is not an integer"),
    "a token that is text": ({"vocab": VOCAB | {300: "zz"}}, r"Id 300 stands for 'zz', which is not bytes"),
    "no special token": ({"special_tokens": {"": 258}}, r"A special token is empty"),
    "a special token without id": ({"special_tokens": {"<|x|>": 400}}, r"'<\|x\|>' has id 400, .* 'no token'"),
    "a special token of other bytes": ({"special_tokens": {"<|x|>": 256}}, r"has id 256, which stands for b'ab'"),
    "an ordinary token called special": ({"special_tokens": SPECIAL | {"ab": 256}}, r"No ordinary token .* is b'ab'"),
    "a surrogate": ({"special_tokens": {"\ud800": 258}}, r"holds a surrogate"),
    "an invalid pattern": ({"pattern": "("}, r"Pattern '\(' is invalid"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_inconsistent_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        spec(**change)


def test_gpt2_takes_a_fraction_of_a_second():
    vocab, merges = read_vocab_bpe(load_corpus("gpt2_merges"))
    start = time.process_time()
    TokenizerSpec(vocab, merges, {})
    assert time.process_time() - start < 2  # 0.03 s; only a quadratic check would take longer


# --- numbering special tokens -----------------------------------------------------------------------------------


def test_special_tokens_keep_the_id_that_the_vocabulary_gives_them():
    assert numbered(["<|end|>"], VOCAB, MERGES) == SPECIAL
    assert numbered(["<|b|>", "<|end|>", "<|a|>"], VOCAB, MERGES) == {"<|b|>": 259, "<|end|>": 258, "<|a|>": 260}
    assert numbered({"<|b|>": 1000}, VOCAB, MERGES) == {"<|b|>": 1000}
    assert numbered((), VOCAB, MERGES) == {}


def test_a_special_token_with_the_bytes_of_a_merge_gets_an_id_of_its_own():
    assert numbered(["ab", " "], VOCAB, MERGES) == {"ab": 259, " ": 260}
    assert numbered(["ab"], VOCAB | {300: b"ab"}, MERGES) == {"ab": 300}


@pytest.mark.parametrize("names", ["<|end|>", b"<|end|>"])
def test_one_special_token_is_not_a_list(names):
    for check in [check_special_tokens, lambda names: numbered(names, VOCAB, MERGES)]:
        with pytest.raises(TypeError, match="Pass a list of special tokens"):
            check(names)


@pytest.mark.parametrize(
    ("names", "message"),
    [(["a", ""], "is empty"), (["a", "b", "a"], "'a' is named twice"), ([b"a"], "b'a' is not a str")],
)
def test_special_tokens_that_cannot_be(names, message):
    for check in [check_special_tokens, lambda names: numbered(iter(names), VOCAB, MERGES)]:
        with pytest.raises(ValueError, match=message):
            check(names)
