"""lmlib.bpe.formats: GPT-2's merges are read as GPT-2 reads them."""

import json

import pytest
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from lmlib.bpe.formats import gpt2_byte_alphabet, read_vocab_bpe
from lmlib.corpora import load_corpus


def test_alphabet_has_a_printable_character_for_every_byte():
    alphabet = gpt2_byte_alphabet()
    assert sorted(alphabet) == list(range(256))
    assert len(set(alphabet.values())) == 256
    assert all(character.isprintable() and not character.isspace() for character in alphabet.values())
    assert (alphabet[0x20], alphabet[0x0A], alphabet[ord("a")]) == ("Ġ", "Ċ", "a")


def test_gpt2_vocabulary():
    vocab, merges = read_vocab_bpe(load_corpus("gpt2_merges"))
    assert len(merges) == 50_000
    assert list(vocab) == list(range(50_256))
    assert (merges[0], merges[-1]) == ((b" ", b"t"), (b" g", b"azed"))
    assert (vocab[0], vocab[220], vocab[256], vocab[31373], vocab[995]) == (b"!", b" ", b" t", b"hello", b" world")


def test_gpt2_vocabulary_is_what_tiktoken_reads(tmp_path):
    text = load_corpus("gpt2_merges")
    vocab, _ = read_vocab_bpe(text)
    (tmp_path / "vocab.bpe").write_text(text, "utf-8")
    alphabet = gpt2_byte_alphabet()
    spelled = {"".join(alphabet[byte] for byte in token): i for i, token in vocab.items()}
    (tmp_path / "encoder.json").write_text(json.dumps(spelled), "utf-8")
    ranks = data_gym_to_mergeable_bpe_ranks(str(tmp_path / "vocab.bpe"), str(tmp_path / "encoder.json"))
    assert ranks == {token: i for i, token in vocab.items()}


def test_version_line_may_be_missing():
    assert read_vocab_bpe("Ġ t\nh e\n")[1] == [(b" ", b"t"), (b"h", b"e")]
    assert read_vocab_bpe("")[1] == []


def test_a_merge_may_look_like_a_comment():
    assert read_vocab_bpe("#version: 0.2\n# #\n")[1] == [(b"#", b"#")]


@pytest.mark.parametrize("line", ["ab", "a b c", "a  b", "é 世", "", " a"])
def test_broken_line_is_named(line):
    with pytest.raises(ValueError, match=r"Line 3 is .*, not two tokens"):
        read_vocab_bpe(f"#version: 0.2\nh e\n{line}\nt h\n")
