"""lmlib.bpe.class_patterns: the pre-tokens of the reference, with Python's `re`."""

from functools import cache

import pytest
from hypothesis import given, settings

from lmlib.bpe.class_patterns import compile_by_class, find_all_by_class, replace_by_class
from lmlib.bpe.reference import pretokenize
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.bpe.unicode_table import class_ranges
from lmlib.corpora import load_corpus
from tests.bpe_peers import PATTERNS, adversarial_texts, random_texts

SCALARS = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
CONTEXTS = [" {0}'s{0}1", "A{0}b!{0}\n", "'{0}x\n{0}"]


def check(pattern, text):
    text = replace_surrogates(text)
    assert [found for found in find_all_by_class(pattern)(text) if found] == pretokenize(text, pattern), text


@pytest.mark.parametrize(
    ("pattern", "names"),
    {
        r"\p{L}": ["L"],
        r"\p{N}": ["N"],
        r"\p{M}": ["M"],
        r"\p{Ll}": ["Ll"],
        r"[\p{Lu}\p{Lt}]": ["Lu", "Lt"],
        r"[\p{Lm}\p{Lo}]": ["Lm", "Lo"],
        r"\s": ["White_Space"],
    }.items(),
)
def test_every_scalar_value_stands_for_its_class(pattern, names):
    found = [SCALARS[match.start()] for match in compile_by_class(pattern).finditer(replaced())]
    assert found == [c for c in SCALARS if any(c in members(name) for name in names)]


@cache
def replaced():
    return replace_by_class("".join(SCALARS))


@cache
def members(name):
    return {chr(i) for first, last in class_ranges(name) for i in range(first, last + 1)}


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_characters_are_cut_as_in_the_reference(pattern):
    """A thousand are in one text; those further on are letters, marks or nothing."""
    find_all = find_all_by_class(pattern)
    for start in range(0, 0x10000 - 0x800, 1000):
        for context in CONTEXTS:
            text = "".join(map(context.format, SCALARS[start : start + 1000]))
            assert [found for found in find_all(text) if found] == pretokenize(text, pattern), hex(start)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@given(text=adversarial_texts)
@settings(max_examples=100)
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
