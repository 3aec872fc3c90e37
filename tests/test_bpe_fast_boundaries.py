"""lmlib.bpe.fast.boundaries: the pre-tokens of the reference, without a regular expression."""

import random
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings

from lmlib.bpe.class_patterns import find_all_by_class
from lmlib.bpe.fast import boundaries, classes
from lmlib.bpe.fast.boundaries import pretoken_starts
from lmlib.bpe.fast.classes import DOCUMENT_END, classify
from lmlib.bpe.reference import pretokenize
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.bpe.unicode_table import class_ranges
from lmlib.corpora import load_corpus
from tests.bpe_peers import PATTERNS, adversarial_texts, random_texts

MOBY_DICK = load_corpus("moby_dick")
SCALARS = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
each_pattern = pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)

CLASSES = {"Lu": classes.UPPER, "Lt": classes.UPPER, "Ll": classes.LOWER, "Lm": classes.LETTER, "Lo": classes.LETTER}
CLASSES |= {"M": classes.MARK, "N": classes.NUMBER, "White_Space": classes.BLANK}

# One character or ending of every kind that some rule tells apart, and some that only look like one.
KINDS = [
    "a",
    "s",
    "t",
    "ll",
    "A",
    "S",
    "RE",
    "ǅ",
    "中",
    "ʰ",
    "\u0301",
    "\ufe0f",
    "1",
    "²",
    "٣",
    "!",
    "/",
    "'",
    "’",
    "ſ",
]
KINDS += ["\n", "\r", " ", "  ", "\t", "\u00a0", "\u2028", "\x1c", "é", "É", "🌍"]


def cut(block, pattern):
    starts = pretoken_starts(block, pattern).tolist()
    return [block[start:stop] for start, stop in pairwise([*starts, len(block)])]


def check(texts, pattern, find_all=None):
    """Compare all texts at once, as documents of one block; name the first that differs."""
    find_all = find_all or find_all_by_class(pattern)
    texts = [replace_surrogates(text) for text in texts]
    found = cut(DOCUMENT_END.join(map(str.encode, texts)), pattern)
    expected = []
    for text in texts:
        expected += [pretoken.encode() for pretoken in find_all(text) if pretoken]
        expected.append(DOCUMENT_END)
    if found != expected[:-1]:
        for text in texts:
            assert cut(text.encode(), pattern) == [p.encode() for p in find_all(text) if p], text
        assert found == expected[:-1]


def strings_of_kinds(seed, number, longest=12):
    rng = random.Random(seed)
    for _ in range(number):
        kinds = rng.sample(KINDS, rng.randrange(1, 6))
        yield "".join(rng.choices(kinds, k=rng.randrange(longest)))


@each_pattern
def test_it_is_the_reference_for_random_texts(pattern):
    """The regular expressions that other tests compare with are the reference's too; here it is asked itself."""
    check(random_texts(seed=1, number=2000), pattern, lambda text: pretokenize(text, pattern))


@each_pattern
@given(text=adversarial_texts)
@settings(max_examples=150)
def test_it_is_the_reference_for_adversarial_text(pattern, text):
    check([text], pattern, lambda text: pretokenize(text, pattern))


@each_pattern
def test_random_texts(pattern):
    check(random_texts(seed=2, number=10_000), pattern)


@each_pattern
def test_strings_of_every_kind_of_character(pattern):
    check(strings_of_kinds(seed=3, number=40_000), pattern)


@pytest.mark.slow
@each_pattern
@pytest.mark.parametrize("seed", range(20))
def test_a_million_strings_of_every_kind_of_character(pattern, seed):
    check(strings_of_kinds(seed, number=20_000, longest=[5, 8, 20, 60][seed % 4]), pattern)


@each_pattern
def test_all_short_strings(pattern):
    """Every string of three of the kinds, between what may change how they are cut."""
    strings = [a + b + c for a in KINDS for b in KINDS for c in KINDS]
    check([context.format(string) for string in strings for context in ["{}", "a{}", " {}a", "!!{}\n"]], pattern)


def test_every_scalar_value_has_its_class():
    characters = classify("".join(SCALARS).encode())
    expected = dict.fromkeys(range(0x110000), classes.OTHER)
    for name, number in CLASSES.items():
        expected |= {i: number for first, last in class_ranges(name) for i in range(first, last + 1)}
    expected |= {ord(" "): classes.SPACE, ord("\n"): classes.NEWLINE, ord("\r"): classes.NEWLINE}
    assert characters.classes[1:-1].tolist() == [expected[ord(scalar)] for scalar in SCALARS]


# Those further on are letters, marks or nothing, as the test above says.
@each_pattern
@pytest.mark.parametrize("kinds", [["a", "A", "中", "'s"], ["!", "\u0301", "\n", "/"], [" ", "\n", "!", "a"]])
def test_all_strings_of_what_depends_on_one_another(pattern, kinds):
    """Contractions and letters without case, marks and tails, white space: up to six in a row."""
    check(["".join(string) for size in range(7) for string in product(kinds, repeat=size)], pattern)


@each_pattern
@pytest.mark.parametrize("stop", [0x3200, pytest.param(len(SCALARS), marks=pytest.mark.slow)])
def test_every_scalar_value_is_cut_as_in_the_reference(pattern, stop):
    """A thousand to a text: between, before and after letters, digits, apostrophes and spaces."""
    for context in [" {0}'s{0}1", "A{0}b!{0}\n", "'{0}x\n{0}"]:
        texts = ["".join(map(context.format, SCALARS[i : i + 1000])) for i in range(0, stop, 1000)]
        for start in range(0, len(texts), 200):
            check(texts[start : start + 200], pattern)


@each_pattern
@pytest.mark.parametrize("name", ["moby_dick", "udhr"])
def test_corpora(pattern, name):
    texts = [MOBY_DICK] if name == "moby_dick" else [language.text for language in load_corpus("udhr").values()]
    check(texts, pattern)


@each_pattern
def test_nothing(pattern):
    assert pretoken_starts(b"", pattern).tolist() == []
    assert cut(b"\xff", pattern) == [b"\xff"]
    assert cut(b"\xff\xffa\xff", pattern) == [b"\xff", b"\xff", b"a", b"\xff"]


@each_pattern
@pytest.mark.parametrize(
    "unit", ["a", " ", "\n", "1", "!", "'", "\u0301", "中", "/\n", "!\u0301\n/", "中A", "'s", "\n "]
)
def test_runs_take_linear_time(pattern, unit):
    """A million of anything: a rule that looks along a run for each of its characters would take days."""
    text = unit * (1_000_000 // len(unit))
    for before, after in [("", ""), ("!", "x"), ("x", "!")]:
        block = (before + text + after).encode()
        sizes = np.diff(pretoken_starts(block, pattern), append=len(block))
        assert sizes.sum() == len(block)
    check([text[:5000], f"!{text[:5000]}x", f"x{text[:5000]}!"], pattern)


def test_what_is_left_to_the_expression_is_rare(monkeypatch):
    """A slash that follows a line break that follows a mark in punctuation; not emoji in ordinary text."""
    asked = []
    by_expression = cache(boundaries._starts_by_expression)
    monkeypatch.setattr(
        boundaries, "_starts_by_expression", lambda *arguments: asked.append(1) or by_expression(*arguments)
    )
    pattern = PATTERNS["o200k_base"]
    check(["✔️ done!\n// ❤️\n", "नमस्ते\n/a", " ❤️\n\n❤️", "✔️✔️\nx/"], pattern)
    assert not asked
    check(["!!\u0301\n/\u0301x"], pattern)
    assert asked
