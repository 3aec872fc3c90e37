"""lmlib.bpe.formats: the two files of GPT-2, here and in tiktoken and transformers."""

import json

import pytest
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from lmlib.bpe.formats import (
    gpt2_byte_alphabet,
    gpt2_files,
    read_gpt2,
    read_tokenizer_json,
    read_vocab_bpe,
)
from lmlib.bpe.spec import TokenizerSpec
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.corpora import load_corpus
from tests.bpe_specs import ALL_PATTERNS, SPECIAL, ids_of, small, texts_with_special_tokens, written_as_gpt2


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
    vocab, merges = read_vocab_bpe(text)
    vocab_json, merges_txt = gpt2_files(TokenizerSpec(vocab, merges, {}))
    (tmp_path / "vocab.bpe").write_text(merges_txt, "utf-8")
    (tmp_path / "encoder.json").write_text(vocab_json, "utf-8")
    read = data_gym_to_mergeable_bpe_ranks(str(tmp_path / "vocab.bpe"), str(tmp_path / "encoder.json"))
    assert read == {token: i for i, token in vocab.items()}
    assert merges_txt == text


def test_version_line_may_be_missing():
    assert read_vocab_bpe("Ġ t\nh e\n")[1] == [(b" ", b"t"), (b"h", b"e")]
    assert read_vocab_bpe("")[1] == []


def test_a_merge_may_look_like_a_comment():
    assert read_vocab_bpe("#version: 0.2\n# #\n")[1] == [(b"#", b"#")]


@pytest.mark.parametrize("line", ["ab", "a b c", "a  b", "é 世", "", " a"])
def test_broken_line_is_named(line):
    with pytest.raises(ValueError, match=r"Line 3 is .*, not two tokens"):
        read_vocab_bpe(f"#version: 0.2\nh e\n{line}\nt h\n")


@pytest.mark.parametrize("pattern", ALL_PATTERNS.values(), ids=ALL_PATTERNS)
def test_gpt2_files_come_back(tmp_path, pattern):
    spec = small(pattern)
    paths = written_as_gpt2(tmp_path, spec)
    assert read_gpt2(*paths, iter(SPECIAL), pattern) == spec
    assert read_gpt2(*paths, SPECIAL, pattern) == spec


def test_special_tokens_that_the_vocabulary_lacks_are_numbered_on(tmp_path):
    paths = written_as_gpt2(tmp_path, small(special_tokens=(("<|end|>", 3000),)))
    assert read_gpt2(*paths, ["<|b|>", "<|end|>", "<|a|>"]).special_tokens == {
        "<|b|>": 3001,
        "<|end|>": 3000,
        "<|a|>": 3002,
    }
    assert read_gpt2(*paths, {"<|b|>": 5000}).special_tokens == {"<|b|>": 5000}


def test_a_token_that_is_not_named_special_is_only_decoded(tmp_path):
    spec = read_gpt2(*written_as_gpt2(tmp_path, small(special_tokens=(("<|end|>", 3000),))))
    assert spec.special_tokens == {}
    assert spec.unreachable == {3000: b"<|end|>"}


BROKEN_GPT2 = {
    "not JSON": ("{", "", "vocab.json is not JSON: "),
    "nested too deeply": ("[" * 100_000, "", "vocab.json is nested too deeply"),
    "no object": ("[]", "", "vocab.json holds list, not a JSON object"),
    "a token twice": ('{"a": 1, "a": 2}', "", "vocab.json: 'a' stands twice"),
    "an id twice": ('{"a": 1, "b": 1}', "", "vocab.json: Id 1 is given twice, the second time to 'b'"),
    "an id that is text": ('{"a": "1"}', "", "vocab.json: The id of 'a' is '1'"),
    "a missing byte": ('{"a": 1}', "", "vocab.json: No ordinary token .* is b'.x00'"),
    "another alphabet": ('{"▁the": 1}', "", "vocab.json: '▁the' holds '▁', which is not in the alphabet"),
    "a merge of one token": ("{}", "#version: 0.2\na b\nab\n", "merges.txt: Line 3 is 'ab', not two tokens"),
    "a merge too early": ("{}", "ab c\n", "merges.txt: The merge .* is not what earlier merges lead to"),
    "a foreign special token": (json.dumps({"<|ü é|>": 0}), "", r"vocab.json: '<\|ü é\|>' holds ' '"),
}


@pytest.mark.parametrize(("vocab", "merges", "message"), BROKEN_GPT2.values(), ids=BROKEN_GPT2)
def test_broken_gpt2_files_are_named(tmp_path, vocab, merges, message):
    (tmp_path / "vocab.json").write_text(vocab, "utf-8")
    (tmp_path / "merges.txt").write_text(merges, "utf-8")
    with pytest.raises(ValueError, match=message):
        read_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt")


def test_gpt2_files_that_are_not_utf8(tmp_path):
    for broken in ["vocab.json", "merges.txt"]:
        (tmp_path / "vocab.json").write_text("{}")
        (tmp_path / "merges.txt").write_text("")
        (tmp_path / broken).write_bytes(b"{}\xff")
        with pytest.raises(ValueError, match=f"{broken} is not UTF-8 at byte 2"):
            read_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt")
    with pytest.raises(FileNotFoundError):
        read_gpt2(tmp_path / "vocab.json", tmp_path / "nowhere")


def test_transformers_gpt2_opens_our_files_and_we_its(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import GPT2Tokenizer

    spec = small(special_tokens=(("<|endoftext|>", 2256),))
    written_as_gpt2(tmp_path, spec)
    theirs = GPT2Tokenizer.from_pretrained(tmp_path)
    for text in texts_with_special_tokens(1, 300, ["<|endoftext|>"]):
        text = replace_surrogates(text)
        assert theirs(text)["input_ids"] == ids_of(spec, text), ascii(text)
    theirs.save_pretrained(tmp_path / "saved")
    assert read_tokenizer_json(tmp_path / "saved" / "tokenizer.json") == spec
