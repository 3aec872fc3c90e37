"""lmlib.bpe.class_patterns: the pre-tokens of the reference, with Python's `re`."""

import pytest
from hypothesis import given, settings

from lmlib.bpe.class_patterns import find_all_by_class
from lmlib.bpe.reference import pretokenize
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.corpora import load_corpus
from tests.bpe_peers import PATTERNS, adversarial_texts, random_texts

CONTEXTS = ["{0}", "a{0}", "{0}b", " {0}", "'{0}x", "1{0}2", "A{0}b", "!{0}\n ", "\n{0}", "'{0}"]


def check(pattern, text):
    text = replace_surrogates(text)
    assert [found for found in find_all_by_class(pattern)(text) if found] == pretokenize(text, pattern), text


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_every_scalar_value_is_cut_as_in_the_reference(pattern):
    """Eight contexts are in one text, so that a million characters take seconds."""
    find_all = find_all_by_class(pattern)
    scalars = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    assert len(scalars) == 1_112_064
    for start in range(0, len(scalars), 1000):
        for context in CONTEXTS[:2] if start >= 0x20000 else CONTEXTS:
            text = "".join(map(context.format, scalars[start : start + 1000]))
            assert [found for found in find_all(text) if found] == pretokenize(text, pattern), hex(start)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@given(text=adversarial_texts)
@settings(max_examples=300)
def test_adversarial_text(pattern, text):
    check(pattern, text)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_random_texts_and_corpora(pattern):
    for text in random_texts(seed=9, number=3000):
        check(pattern, text)
    for language in load_corpus("udhr").values():
        check(pattern, language.text)
    check(pattern, load_corpus("moby_dick")[:300_000])


def test_another_pattern_is_not_guessed_at():
    with pytest.raises(KeyError, match="P"):
        find_all_by_class(r"\p{P}+")
