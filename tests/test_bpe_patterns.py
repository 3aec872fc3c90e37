"""lmlib.bpe.patterns: pre-tokens are tiktoken's for every string, whatever Unicode `regex` knows."""

import unicodedata

import pytest
import regex
from hypothesis import given, settings
from tiktoken_ext import openai_public

from lmlib.bpe.patterns import CL100K_PATTERN, GPT2_PATTERN, O200K_PATTERN, compile_pattern
from lmlib.bpe.reference import pretokenize
from lmlib.bpe.unicode_table import CLASS_NAMES, class_ranges
from lmlib.corpora import load_corpus
from tests.bpe_peers import (
    ALPHABET,
    DISPUTED,
    PATTERNS,
    adversarial_texts,
    make_encoding,
    random_texts,
    tiktoken_cuts_alike,
)
from tests.make_unicode_table import EVERY_CHARACTER, tiktoken_matches

LANGUAGES = load_corpus("udhr")


# Both sides of every place where a class begins or ends: where a range could be wrong.
EDGES = sorted(
    {
        point
        for name in CLASS_NAMES
        for first, last in class_ranges(name)
        for point in (first - 1, first, last, last + 1)
        if not 0xD800 <= point < 0xE000
    }
)
EDGE_CHARACTERS = "".join(map(chr, EDGES)) + "".join(DISPUTED)


def matches(pattern, characters=EDGE_CHARACTERS):
    return set(map(ord, compile_pattern(pattern).findall(characters)))


def disagreements(pattern, for_tiktoken, characters=EDGE_CHARACTERS):
    return names(matches(pattern, characters) ^ tiktoken_matches(for_tiktoken, characters))


def names(points):
    return sorted(f"U+{point:04X}" for point in points)


# --- the three patterns ---------------------------------------------------------------------------------------


def test_patterns_are_tiktokens(monkeypatch):
    monkeypatch.setattr(openai_public, "data_gym_to_mergeable_bpe_ranks", lambda **_: {})
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
    assert openai_public.gpt2()["pat_str"] == GPT2_PATTERN
    assert openai_public.cl100k_base()["pat_str"] == CL100K_PATTERN
    assert openai_public.o200k_base()["pat_str"] == O200K_PATTERN


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@given(text=adversarial_texts)
@settings(max_examples=400, deadline=None)
def test_pretokens_are_tiktokens_for_adversarial_text(pattern, text):
    assert tiktoken_cuts_alike(text, pretokenize(text, pattern), pattern)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_pretokens_are_tiktokens_for_much_adversarial_text(pattern):
    for text in random_texts(seed=0, number=30_000):
        assert tiktoken_cuts_alike(text, pretokenize(text, pattern), pattern), ascii(text)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_pretokens_are_tiktokens_around_every_troublemaker(pattern):
    for piece in ALPHABET:
        text = f"a{piece}b {piece} {piece}{piece}\n{piece}'{piece}s"
        assert tiktoken_cuts_alike(text, pretokenize(text, pattern), pattern), ascii(text)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize(
    "unit", ["a", "A", " ", "\n", "\t ", "\r\n", "1", "!", "'", "\u0301", "あ", "ǅ", "\x00", "\x1c"]
)
def test_pretokens_are_tiktokens_for_long_runs(pattern, unit):
    for text in [unit * 150, f"x{unit * 150} y"]:
        assert tiktoken_cuts_alike(text, pretokenize(text, pattern), pattern)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("code", LANGUAGES)
def test_pretokens_are_tiktokens_in_every_language(pattern, code):
    for article in LANGUAGES[code].articles[:2]:
        assert tiktoken_cuts_alike(article[:400], pretokenize(article[:400], pattern), pattern)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@given(text=adversarial_texts)
@settings(max_examples=200, deadline=None)
def test_patterns_cover_every_text(pattern, text):
    restored = "".join(pretokenize(text, pattern))
    assert restored == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_the_comparison_notices_a_wrong_cut():
    text = "I'll say a b"
    right = pretokenize(text)
    assert tiktoken_cuts_alike(text, right, GPT2_PATTERN)
    glued = [right[0] + right[1], *right[2:]]
    cut = [right[0], right[1][:1], right[1][1:], *right[2:]]
    moved = [*right[:-2], right[-2] + right[-1][:1], right[-1][1:]]
    for wrong in [glued, cut, moved, right[:-1], [*text]]:
        assert not tiktoken_cuts_alike(text, wrong, GPT2_PATTERN)


def test_lecture_example_has_five_segments():
    text = "I'll say supercalifragilisticexpialidocious!"
    assert pretokenize(text) == ["I", "'ll", " say", " supercalifragilisticexpialidocious", "!"]


def test_a_letter_that_only_a_newer_unicode_knows_is_none():
    letters = tiktoken_matches(r"\p{L}")
    for letter in DISPUTED:
        if ord(letter) in letters or not regex.match(r"\p{L}", letter):
            continue
        assert compile_pattern(r"\p{L}+").findall(f"a{letter}b") == ["a", "b"]
        assert pretokenize(f"a{letter}b") == ["a", letter, "b"]


# --- classes, wherever they stand ----------------------------------------------------------------------------

CLASSES = [
    *[rf"\{case}{{{name}}}" for name in ["L", "N", "Lu", "Lt", "Ll", "Lm", "Lo", "M"] for case in "pP"],
    *[r"\s", r"\S", r"\d", r"\D", r"\w", r"\W"],
    *[r"\pL", r"\PN", r"\p{Letter}", r"\p{Uppercase_Letter}", r"\p{gc=Lu}", r"\p{White_Space}"],
    *[r"[\p{L}]", r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{N}]", r"[\P{L}\p{Lu}]", r"[^\S\n]", r"[\w.-]"],
    *[r"[\]\p{Lu}]", r"[^]\p{Lu}]", r"[]\p{Lu}]", r"\[|\p{Lu}", r"\\|\p{Lu}", r"(?:\p{Lu})"],
]


@pytest.mark.parametrize("pattern", CLASSES)
def test_class_matches_what_it_matches_in_tiktoken(pattern):
    for_rust = pattern.replace("^]", r"^\]").replace("[]", r"[\]")
    assert disagreements(pattern, for_rust) == []


@pytest.mark.parametrize("pattern", [r"\p{L}", r"\P{N}", r"[^\s\p{L}\p{N}]", r"\w"])
def test_class_matches_what_it_matches_in_tiktoken_for_every_scalar_value(pattern):
    assert disagreements(pattern, pattern, EVERY_CHARACTER) == []


@pytest.mark.parametrize(
    ("pattern", "equal"),
    [
        (r"\p{^L}", r"\P{L}"),
        (r"\P{^L}", r"\p{L}"),
        (r"\p{lowercase letter}", r"\p{Ll}"),
        (r"(?V1)[\p{L}--\p{Lu}]", r"[\p{L}--\p{Lu}]"),
        (r"(?V1)[\w&&[^\p{L}]]", r"[\w&&[^\p{L}]]"),
        (r"(?x) \p{L} # a letter [", r"\p{L}"),
        (r"(?#[)\p{L}", r"\p{L}"),
        (r"[!-\s]", r"[!\-\s]"),
        (r"[\s-!]", r"[!\-\s]"),
        (r"(?V1)(?x) [ \p{L} # ]", r"[\p{L}\x23 ]"),
    ],
)
def test_class_in_the_syntax_of_regex(pattern, equal):
    assert disagreements(pattern, equal) == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?i)straße|ß",
        r"(?if)ß",
        r"(?V1)(?i)ß",
        r"a(?P<n>b)\g<n>(?#c)",
        r"[[:upper:]\d]+",
        r"\p{Greek}+|\p{P}",
        r"(?<=a)b|(?<!a)c",
        r"(a)|(?1)b",
        r"(?s-i:a.)",
        r"\N{LATIN SMALL LETTER A}\x62\u0063",
        r"^a|b$|\bc",
        r"[a|b~c&d-]",
        r"(?a)\w+\s",
        r"a#b",
        r"",
    ],
)
def test_the_rest_of_the_syntax_keeps_its_meaning(pattern):
    text = "ss ß ẞ STRASSE straße aabbc abc a#b a.b\nAbCd αβγ 123 A\u00e9 |~&-"
    spans = [match.span() for match in compile_pattern(pattern).finditer(text)]
    assert spans == [match.span() for match in regex.finditer(pattern, text)]


def test_compiling_twice_gives_the_same_object():
    assert compile_pattern(GPT2_PATTERN) is compile_pattern(GPT2_PATTERN)


# --- what ignoring case does ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["[sdmt]", "s", "t", "re", "ve", "m", "ll", "d"])
def test_contractions_ignore_case_as_tiktoken_does(ending):
    pattern = f"(?i:{ending})"
    splitter = make_encoding({bytes([i]): i for i in range(256)}, pattern)
    others = [c for c in EVERY_CHARACTER if unicodedata.category(c)[0] in "LMNS"]
    text = " ".join(f"{c} {c}l l{c} {c}e v{c}" for c in others)
    assert "".join(compile_pattern(pattern).findall(text)).encode() == bytes(splitter.encode_ordinary(text))


def test_long_s_and_kelvin_sign_have_another_case_in_ascii():
    assert names(matches("(?i:s)", EVERY_CHARACTER)) == ["U+0053", "U+0073", "U+017F"]
    assert names(matches("(?i:k)", EVERY_CHARACTER)) == ["U+004B", "U+006B", "U+212A"]
    assert pretokenize("it'ſ", CL100K_PATTERN) == ["it", "'ſ"]
    assert pretokenize("it'S") == ["it", "'", "S"]


def test_dotted_i_is_where_ignoring_case_differs():
    """A limit we know: `regex` takes İ for an i, tiktoken does not. No known pattern has (?i) and an i."""
    assert disagreements("(?i:[a-z])", "(?i:[a-z])", EVERY_CHARACTER) == ["U+0130"]


# --- invalid patterns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "position", "reason"),
    [
        ("ab(", 3, "missing"),
        ("[a", 2, "unterminated"),
        (r"x\p{Klingon}", 12, "unknown property"),
        ("a{2,1}", 2, "min repeat"),
        ("a(?i)b", 1, "belongs to the start"),
        ("a(?x: b)", 1, "belongs to the start"),
        (r"\s[a[b]", 4, r"write '\\\["),
        (r"\s[a||b]", 4, r"write '\\\|"),
        (r"\s[*--]", 4, r"write '\\-"),
    ],
)
def test_invalid_pattern_says_where(pattern, position, reason):
    with pytest.raises(ValueError, match=rf"invalid at position {position}: .*{reason}") as caught:
        compile_pattern(pattern)
    assert repr(pattern) in str(caught.value)


def test_no_class_of_the_installed_regex_is_left():
    for pattern in PATTERNS.values():
        assert not regex.search(r"\\[pPsSdDwW]", compile_pattern(pattern).pattern)


@pytest.mark.parametrize("pattern", [r"(?i:s)|[^\p{L}]", r"(?i:\w\b)|\P{L}"])
def test_ignoring_case_hides_no_character(pattern):
    """Some that are no letters have another case that is one; `regex` may look past them."""
    found = compile_pattern(pattern).findall
    letters = {i for first, last in class_ranges("L") for i in range(first, last + 1)}
    for i in range(0x11000):
        if not 0xD800 <= i < 0xE000 and i not in letters:
            assert found(chr(i) + "'") == [chr(i), "'"], hex(i)
