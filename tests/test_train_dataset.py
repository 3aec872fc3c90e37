"""lmlib.train.dataset: text or tokens become what a run trains on, once."""

from dataclasses import replace

import numpy as np
import pytest

from lmlib.bpe import Tokenizer
from lmlib.config import ModelConfig
from lmlib.corpora import load_corpus
from lmlib.data import prepare_tokens
from lmlib.train import TrainConfig, open_dataset
from lmlib.train.dataset import byte_tokenizer
from tests.training import CPU

MODEL = ModelConfig(300, 8, 16, 2, 2)
TEXT = "the whale, the white whale. " * 40


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """A function that opens data with settings, in a folder where a.txt, b.txt and c.bin are."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_text("Call me Ishmael. " * 20)
    np.arange(500, dtype="<u2").tofile(tmp_path / "c.bin")

    def opened(vocab_size=None, **settings):
        return open_dataset(TrainConfig(model=MODEL, **settings), tmp_path / "run", CPU, vocab_size=vocab_size)

    return opened


def test_text_becomes_tokens_and_a_tokenizer_in_the_folder(opened, tmp_path):
    data = opened(vocab_size=300, data="a.txt")
    assert data.tokenizer.vocab_size == data.vocab_size <= 300
    ids = [*data.train.ids.tolist(), *data.validation.ids.tolist()]
    assert data.tokenizer.decode(ids) == TEXT + "<|endoftext|>"
    assert len(data.validation) == pytest.approx(0.1 * len(ids), abs=1)
    assert sorted(path.name for path in (tmp_path / "run").rglob("*") if path.is_file()) == [
        "origin.json",
        "tokenizer.json",
        "train.bin",
        "train.bin.json",
    ]


def test_a_script_on_one_device_names_no_world(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    data = open_dataset(TrainConfig(model=MODEL, data=str(tmp_path / "a.txt"), tokenizer="bytes"), tmp_path / "run")
    assert len(data.train) + len(data.validation) == len(TEXT) + 1


def test_the_second_time_the_tokens_are_there(opened, tmp_path):
    first = opened(vocab_size=300, data="a.txt")
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).unlink()
    again = opened(data="a.txt")
    assert again.train.ids.tolist() == first.train.ids.tolist()
    assert again.tokenizer.merges == first.tokenizer.merges


@pytest.mark.parametrize(
    ("vocab_size", "changes", "message"),
    [
        (300, {"data": "b.txt"}, r"run were made with data = \['a.txt'\], not \['b.txt'\]: keep it, or name"),
        (300, {"validation_data": "a.txt"}, r"with validation_data = \['b.txt'\]"),
        (300, {"tokenizer": "bytes"}, "with tokenizer = 'train'"),
        (280, {}, "with vocab_size = 300, not 280"),
    ],
)
def test_tokens_of_something_else_are_not_taken(opened, vocab_size, changes, message):
    settings = {"data": "a.txt", "validation_data": "b.txt"}
    opened(vocab_size=300, **settings)
    with pytest.raises(ValueError, match=message):
        opened(vocab_size=vocab_size, **settings | changes)
    opened(vocab_size=300, **settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not JSON"), ("[]", "holds list, not a JSON object"), ("[" * 100_000, "is nested too deeply")],
    ids=lambda text: text[:9],
)
def test_a_file_of_origins_that_is_none_is_named(opened, tmp_path, text, message):
    opened(vocab_size=300, data="a.txt")
    (tmp_path / "run" / "origin.json").write_text(text)
    with pytest.raises(ValueError, match=rf"origin\.json {message}"):
        opened(data="a.txt")


def test_an_attempt_that_failed_is_in_nobodys_way(opened):
    with pytest.raises(FileNotFoundError):
        opened(data="none.txt", tokenizer="bytes")
    assert opened(data="a.txt", tokenizer="bytes").vocab_size == 257


def test_validation_text_of_its_own(opened):
    data = opened(data=["a.txt", "a.txt"], validation_data="b.txt", tokenizer="bytes")
    assert data.tokenizer.decode(data.train.ids.tolist()) == (TEXT + "<|endoftext|>") * 2
    assert data.tokenizer.decode(data.validation.ids.tolist()).startswith("Call me Ishmael.")
    assert data.vocab_size == 257


def test_the_embedded_corpus_needs_no_file(opened):
    data = opened(tokenizer="bytes")
    text = load_corpus("moby_dick").encode()
    assert bytes(data.train.ids[:1000].astype("u1")) == text[:1000]
    assert len(data.train) + len(data.validation) == len(text) + 1


def test_tokens_are_taken_as_they_are(opened, tmp_path):
    data = opened(data="c.bin")
    assert data.tokenizer is None
    assert data.vocab_size is None
    assert data.train.ids.tolist() == list(range(450))
    known = data.with_vocab_size(1000)
    assert (known.train.vocab_size, known.validation.vocab_size) == (1000, 1000)
    assert not (tmp_path / "run" / "data").exists()


def test_prepared_tokens_say_which_tokenizer_made_them(opened, tmp_path):
    byte_tokenizer().save(tmp_path / "bytes.json")
    prepare_tokens("a.txt", byte_tokenizer(), tmp_path / "prepared.bin", progress=False)
    data = opened(data="prepared.bin", tokenizer="bytes.json")
    assert data.vocab_size == 257
    with pytest.raises(ValueError, match="have 257 ids, and the model 200"):
        data.with_vocab_size(200)
    assert Tokenizer.from_pretrained(tmp_path / "run").vocab_size == 257
    (tmp_path / "run" / "tokenizer.json").unlink()
    Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|other|>"]).save(tmp_path / "other.json")
    with pytest.raises(ValueError, match="made by another tokenizer"):
        opened(data="prepared.bin", tokenizer="other.json")


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"data": "none.txt", "tokenizer": "bytes"}, FileNotFoundError, "none.txt"),
        ({"data": "none.bin"}, FileNotFoundError, "none.bin"),
        ({"data": "a.txt", "tokenizer": "none"}, FileNotFoundError, "no tokenizer 'none'"),
        ({"data": "a.txt"}, ValueError, "say how many tokens it shall have"),
        ({"data": ["a.txt", "c.bin"]}, ValueError, "names c.bin and 1 other"),
        ({"data": "c.bin", "validation_data": "b.txt"}, ValueError, "name the tokenizer"),
    ],
)
def test_what_does_not_go_together_is_refused(opened, settings, error, message):
    with pytest.raises(error, match=message):
        opened(**settings)


def test_a_model_of_more_ids_is_fine(opened):
    data = opened(data="a.txt", tokenizer="bytes").with_vocab_size(264)
    assert data.train.vocab_size == 257
    assert replace(data).tokenizer is data.tokenizer
