"""lmlib.bpe.baselines: characters, bytes and words as tokens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlib.bpe.baselines import (
    UNKNOWN,
    ByteTokenizer,
    CharacterTokenizer,
    WordTokenizer,
    compression_ratio,
)
from lmlib.bpe.reference import pretokenize
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.corpora import load_corpus
from tests.bpe_peers import adversarial_texts

HELLO = "Hello, 🌍! 你好!"
LONG_WORD = "I'll say supercalifragilisticexpialidocious!"
LANGUAGES = load_corpus("udhr")

any_text = st.one_of(adversarial_texts, st.text())


# --- characters -----------------------------------------------------------------------------------------------


def test_characters_are_code_points():
    tokenizer = CharacterTokenizer()
    assert tokenizer.encode("a🌍") == [97, 127757]
    assert len(tokenizer.encode(HELLO)) == 13
    assert max(tokenizer.encode(HELLO)) + 1 == 127_758
    assert tokenizer.vocab_size == 0x110000


@given(any_text)
@settings(deadline=None)
def test_characters_restore_every_text(text):
    assert CharacterTokenizer().decode(CharacterTokenizer().encode(text)) == text


# --- bytes ----------------------------------------------------------------------------------------------------


def test_bytes_are_utf8():
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("a🌍") == [97, 0xF0, 0x9F, 0x8C, 0x8D]
    assert len(tokenizer.encode(HELLO)) == 20
    assert tokenizer.vocab_size == 256
    assert tokenizer.decode([0xF0, 0x9F]) == "\ufffd"


@given(any_text)
@settings(deadline=None)
def test_bytes_restore_every_text_but_surrogates(text):
    assert ByteTokenizer().decode(ByteTokenizer().encode(text)) == replace_surrogates(text)


# --- words ----------------------------------------------------------------------------------------------------


def test_the_lecture_example_has_8_words_and_5_pretokens():
    tokenizer = WordTokenizer.train([LONG_WORD])
    assert len(tokenizer.encode(LONG_WORD)) == 8
    assert len(pretokenize(LONG_WORD)) == 5


def test_unknown_words_share_an_id():
    tokenizer = WordTokenizer.train(["the cat sat"])
    ids = tokenizer.encode("the dog sat\n")
    assert ids[2] == ids[5] == 0
    assert tokenizer.decode(ids) == f"the {UNKNOWN} sat{UNKNOWN}"


def test_words_are_the_most_frequent_ones():
    tokenizer = WordTokenizer.train(["b b a c", "a c b"], vocab_size=4)
    assert tokenizer.words == (" ", "b", "a")
    assert tokenizer.vocab_size == 4
    assert WordTokenizer.train(["a"], vocab_size=1).encode("a a") == [0, 0, 0]


def test_order_of_documents_does_not_matter():
    assert WordTokenizer.train(["a b", "c"]) == WordTokenizer.train(["c", "a b"])


@given(any_text)
@settings(deadline=None)
def test_known_words_restore_the_text(text):
    tokenizer = WordTokenizer.train([text])
    assert tokenizer.decode(tokenizer.encode(text)) == replace_surrogates(text)
    assert 0 not in tokenizer.encode(text)


def test_words_by_another_pattern():
    tokenizer = WordTokenizer.train(["don't stop"], pattern=r"\S+|\s+")
    assert tokenizer.words == (" ", "don't", "stop")
    assert tokenizer.encode("don't don't") == [2, 1, 2]


def test_words_refuse():
    with pytest.raises(ValueError, match="vocab_size is 0"):
        WordTokenizer.train(["a"], vocab_size=0)
    with pytest.raises(ValueError, match="invalid at position 1"):
        WordTokenizer.train(["a"], pattern="(")
    with pytest.raises(TypeError, match="Pass a list of texts"):
        WordTokenizer.train("a text")


# --- all three ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", [CharacterTokenizer(), ByteTokenizer(), WordTokenizer(("a", "b"))])
def test_unknown_id_is_named(tokenizer):
    for unknown in [-1, tokenizer.vocab_size]:
        with pytest.raises(KeyError, match=str(unknown)):
            tokenizer.decode([0, unknown])
    assert tokenizer.decode(iter([])) == ""


def test_compression_ratio_is_bytes_per_token():
    assert compression_ratio(ByteTokenizer(), HELLO) == 1.0
    assert compression_ratio(CharacterTokenizer(), HELLO) == 20 / 13
    assert compression_ratio(WordTokenizer(()), "two words") == 9 / 3


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_compression_ratios_of_languages(language):
    assert compression_ratio(ByteTokenizer(), language.text) == 1.0
    characters = compression_ratio(CharacterTokenizer(), language.text)
    assert characters == len(language.text.encode()) / len(language.text)
    assert 1 <= characters < 3.1


def test_no_tokens_have_no_compression_ratio():
    with pytest.raises(ValueError, match="without tokens"):
        compression_ratio(ByteTokenizer(), "")
