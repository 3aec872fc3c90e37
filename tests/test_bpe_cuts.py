"""lmlib.bpe.pretokens and lmlib.bpe.cuts: text may be cut where they say, and nothing changes."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlib.bpe.cuts import Cutter
from lmlib.bpe.pretokens import Pretokenizer
from lmlib.bpe.reference import pretokenize, split_at_special_tokens
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.corpora import load_corpus
from tests.bpe_peers import PATTERNS, adversarial_texts, random_texts

MOBY_DICK = load_corpus("moby_dick")
LANGUAGES = "\n".join(language.text for language in load_corpus("udhr").values())
OTHER_PATTERNS = [None, r"\w+|\W", r"(?s)(.)(..)?", r"(?<=a)b|[\s\S]"]
# they overlap, hold one another, and what patterns care about: spaces, line breaks, letters, apostrophes
SPECIAL_TOKENS = ["<|a|>", "<|a|><|b|>", "ab", "bc", "| x", "aa", "aaa", "\n\n", " the", "'s", "1"]


def with_special_tokens(text, rng):
    """The text with special tokens, whole or broken off, put into it."""
    for _ in range(rng.randrange(4)):
        at, token = rng.randrange(len(text) + 1), rng.choice(SPECIAL_TOKENS)
        text = text[:at] + token[: rng.choice([1, len(token), len(token)])] + text[at:]
    return text


def pretokens(text, pattern, special_tokens):
    """What the reference encodes, one after the other."""
    found = []
    for i, piece in enumerate(split_at_special_tokens(text, special_tokens)):
        found += [("special", piece)] if i % 2 else pretokenize(piece, pattern)
    return found


def all_cuts(cutter, text):
    """Every cut, each found as the last one of a text that ends soon after it."""
    cuts = {cutter.last_cut(text[:end]) for end in range(len(text) + 1)}
    return cuts | {cutter.first_cut(text, start) for start in range(len(text))}


def check_cuts(text, pattern, special_tokens):
    cuts = all_cuts(Cutter(pattern, special_tokens), text) - {None}
    whole = pretokens(text, pattern, special_tokens) if cuts else None
    for cut in cuts:
        parts = [pretokens(part, pattern, special_tokens) for part in (text[:cut], text[cut:])]
        assert parts[0] + parts[1] == whole, (text, cut)
    return len(cuts)


@pytest.mark.parametrize("pattern", [*PATTERNS.values(), *OTHER_PATTERNS])
def test_a_cut_changes_no_pretoken(pattern):
    rng = random.Random(0)
    number = 0
    for text in random_texts(seed=1, number=250):
        text = with_special_tokens(replace_surrogates(text), rng)
        number += check_cuts(text, pattern, rng.sample(SPECIAL_TOKENS, rng.randrange(4)))
    assert number > 50


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@given(text=adversarial_texts)
@settings(max_examples=100)
def test_a_cut_changes_no_pretoken_of_adversarial_text(pattern, text):
    check_cuts(replace_surrogates(text), pattern, [])


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [*PATTERNS.values(), *OTHER_PATTERNS])
@pytest.mark.parametrize("seed", range(8))
def test_a_cut_changes_no_pretoken_of_much_text(pattern, seed):
    rng = random.Random(seed)
    for text in random_texts(seed, number=4000):
        text = with_special_tokens(replace_surrogates(text), rng)
        check_cuts(text, pattern, rng.sample(SPECIAL_TOKENS, rng.randrange(4)))


@pytest.mark.parametrize("pattern", [*PATTERNS.values(), *OTHER_PATTERNS])
def test_pieces_have_the_pretokens_of_the_text(pattern):
    pretokenizer = Pretokenizer(pattern)
    for text in [*random_texts(seed=2, number=3000), LANGUAGES, MOBY_DICK[:200_000]]:
        text = replace_surrogates(text)
        found = [pretoken for piece in pretokenizer.pieces(text) for pretoken in pretokenizer.pretokens(piece)]
        assert found == pretokenize(text, pattern)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_known_patterns_have_small_pieces_and_many_cuts(pattern):
    """Else they would be of no use, and no other test would notice."""
    pieces = Pretokenizer(pattern).pieces(MOBY_DICK)
    assert max(map(len, pieces)) < 60
    assert max(map(len, Cutter(pattern).parts([MOBY_DICK], size=1000))) < 1100
    assert max(map(len, Cutter(pattern).parts([LANGUAGES], size=1000))) < 1100


# --- parts ------------------------------------------------------------------------------------------------------


@given(text=adversarial_texts, seed=st.integers(0, 10**6), size=st.integers(1, 20))
@settings(max_examples=150)
def test_parts_make_up_the_text_however_it_comes(text, seed, size):
    rng = random.Random(seed)
    text = with_special_tokens(text, rng)
    special_tokens = rng.sample(SPECIAL_TOKENS, rng.randrange(4))
    pattern = rng.choice([*PATTERNS.values(), *OTHER_PATTERNS])
    bounds = sorted([0, len(text), *(rng.randrange(len(text) + 1) for _ in range(rng.randrange(8)))])
    pieces = [text[start:stop] for start, stop in pairwise(bounds)]
    parts = list(Cutter(pattern, special_tokens).parts(pieces, size))
    assert "".join(parts) == replace_surrogates(text)
    found = [pretoken for part in parts for pretoken in pretokens(part, pattern, special_tokens)]
    assert found == pretokens(text, pattern, special_tokens)


@pytest.mark.parametrize("other", ["a", "\U0001f30d"])
def test_halves_of_a_character_meet(other):
    pieces = ["\ud83c", "\udf0d", "\ud83c", other, "\ud83c"]
    assert "".join(Cutter(None).parts(pieces, size=1)) == f"🌍\ufffd{other}\ufffd"


@pytest.mark.parametrize("pattern", [*PATTERNS.values(), None])
def test_near_the_end_of_a_text_nothing_is_sure(pattern):
    """More text could make a special token of what stands there."""
    cutter = Cutter(pattern, ["| x", "<|a longer one|>"])
    assert all_cuts(cutter, "| x' y a b") == {None}


def test_other_special_tokens_are_not_cut():
    text = "xx <|a b|> yyyyyyyyyy"
    cutter = Cutter(PATTERNS["gpt2"], (), ["<|a b|>"])
    assert all_cuts(cutter, text) - {None} == {2, 10}


def test_without_a_place_to_cut_there_is_one_part():
    assert list(Cutter(None).parts(["a b"] * 1000, size=10)) == ["a b" * 1000]
    assert list(Cutter(PATTERNS["gpt2"]).parts(["a"] * 1000, size=10)) == ["a" * 1000]
