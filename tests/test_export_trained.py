"""lmlib.export.trained: a model is read from a run as it was at a step, with the run's tokenizer."""

import os
from dataclasses import dataclass

import pytest
import torch

from lmlib.bpe import Tokenizer
from lmlib.checkpoint import CheckpointStore, CheckpointWarning, CorruptCheckpoint, TrainingState
from lmlib.config import ModelConfig
from lmlib.export import load_trained, save_trained
from lmlib.model import TransformerLM

TOKENIZER = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
CONFIG = ModelConfig(vocab_size=257, context_length=8, d_model=16, num_layers=1, num_heads=2, tie_embeddings=True)


@dataclass(frozen=True)
class RunConfig:
    """As that of the trainer: the model's is a part of it."""

    model: ModelConfig
    lr: float = 1e-3


def build(seed=0, config=CONFIG):
    return TransformerLM(config, generator=torch.Generator().manual_seed(seed)).eval()


def same(model, other):
    one, two = model.state_dict(), other.state_dict()
    return one.keys() == two.keys() and all(
        one[name].dtype == two[name].dtype and torch.equal(one[name], two[name]) for name in one
    )


@pytest.fixture
def run(tmp_path):
    """Three checkpoints, of which the second is best, and a tokenizer."""
    folder = tmp_path / "run"
    store = CheckpointStore(folder / "checkpoints", keep_last=3)
    for step, loss in [(10, 3.0), (20, 2.0), (30, 2.5)]:
        state = TrainingState(build(step).state_dict(), training={"step": step})
        store.save(state, step=step, validation_loss=loss, config=RunConfig(CONFIG))
    TOKENIZER.save(folder / "tokenizer.json")
    return folder


@pytest.mark.parametrize(("which", "step"), [(None, 20), ("best", 20), ("latest", 30), (10, 10)])
def test_which_checkpoint_of_a_run(run, which, step):
    trained = load_trained(run, which)
    assert trained.step == step
    assert trained.validation_loss == {10: 3.0, 20: 2.0, 30: 2.5}[step]
    assert same(trained.model, build(step))
    assert trained.config == CONFIG
    assert not trained.model.training
    assert trained.tokenizer.spec == TOKENIZER.spec


def test_a_checkpoint_by_its_folder(run, monkeypatch):
    path = run / "checkpoints" / "step-00000010"
    for each in (path, str(path)):
        trained = load_trained(each)
        assert trained.step == 10
        assert same(trained.model, build(10))
        assert trained.tokenizer.spec == TOKENIZER.spec
    monkeypatch.chdir(path.parent)
    assert load_trained(path.name).tokenizer.spec == TOKENIZER.spec


def test_without_validation_it_is_the_latest(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    for step in (1, 2):
        store.save(TrainingState(build(step).state_dict(), {}), step=step, config=RunConfig(CONFIG))
    trained = load_trained(tmp_path)
    assert (trained.step, trained.validation_loss) == (2, None)
    assert (trained.tokenizer, trained.no_tokenizer) == (None, "there is no tokenizer.json")


def test_a_loaded_model_needs_its_file_no_more(run):
    model = load_trained(run, 10).model
    path = run / "checkpoints" / "step-00000010" / "model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    assert same(model, build(10))


def test_what_is_damaged_is_not_read(run):
    path = run / "checkpoints" / "step-00000020" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.warns(CheckpointWarning, match=r"SHA-256 of model\.safetensors differs"):
        assert load_trained(run).step == 30
    with pytest.raises(CorruptCheckpoint, match="SHA-256"):
        load_trained(path.parent)


def test_what_is_no_run(tmp_path, run):
    with pytest.raises(FileNotFoundError, match="is neither the folder of a run nor a checkpoint of one"):
        load_trained(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*step-00000011"):
        load_trained(run, 11)


def test_a_folder_around_what_is_meant_names_one_of_them(tmp_path, run):
    with pytest.raises(FileNotFoundError, match=rf"Name one that it holds, such as {run}\.$"):
        load_trained(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"such as .*/checkpoints/step-00000030\.$"):
        load_trained(run / "checkpoints")
    with pytest.raises(FileNotFoundError, match=r"no meta\.json in it\.$"):
        load_trained(run / "checkpoints" / "step-00000030" / "nowhere")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "its config says nothing of a model"),
        ({"lr": 1.0}, "its config says nothing of a model"),
        ({"model": CONFIG.to_dict() | {"rope": 1}}, "no config key 'rope'"),
        ({"model": CONFIG.to_dict() | {"num_layers": 10**9}}, "num_layers=1000000000, and there are weights of 1"),
        ({"model": CONFIG.to_dict() | {"vocab_size": 256}}, r"'token_embedding.weight' has the shape \(257, 16\)"),
    ],
)
def test_a_config_that_does_not_describe_the_model(tmp_path, config, message):
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(TrainingState(build().state_dict(), {}), step=1, config=config)
    with pytest.raises(ValueError, match=rf"step-00000001 cannot be used: .*{message}"):
        load_trained(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_there_and_back_is_the_same_to_the_bit(tmp_path, dtype):
    model = build().to(dtype)
    save_trained(tmp_path / "run", model, TOKENIZER)
    assert os.listdir(tmp_path) == ["run"]
    trained = load_trained(tmp_path / "run")
    assert same(trained.model, model)
    assert (trained.config, trained.step, trained.validation_loss) == (CONFIG, 0, None)
    assert trained.tokenizer.spec == TOKENIZER.spec


def test_what_cannot_be_saved(tmp_path, monkeypatch):
    def refuse(folder, error, message, tokenizer=TOKENIZER, config=CONFIG):
        before = sorted(os.listdir(tmp_path))
        with pytest.raises(error, match=message):
            save_trained(folder, build(config=config), tokenizer)
        assert sorted(os.listdir(tmp_path)) == before

    small = ModelConfig(256, 8, 16, 1, 2)
    refuse(tmp_path / "run", ValueError, "ids up to 256, and the model's vocab_size is 256", config=small)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("")
    refuse(tmp_path / "there", FileExistsError, "is there already: name another folder")

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CheckpointStore, "save", fail)
    refuse(tmp_path / "run", OSError, "No space left")
