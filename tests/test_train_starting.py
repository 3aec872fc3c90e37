"""lmlib.train.starting: a run that starts from a model is that model, and then needs its folder no more."""

import shutil
from dataclasses import replace

import pytest
import torch

from lmlib.bpe import Tokenizer
from lmlib.export import load_hugging_face, load_model, save_hugging_face, save_trained
from lmlib.model import TransformerLM
from lmlib.train import TrainConfig, open_dataset
from tests.training import DATA, MODEL, TOKENIZER, curve, state, tokens, trainer

pytestmark = pytest.mark.usefixtures("one_thread")

OTHER = Tokenizer({i: bytes([255 - i]) for i in range(256)}, [], ["<|endoftext|>"])  # as many ids, others


@pytest.fixture
def source(tmp_path):
    """The folder of a model with weights that no seed of a run makes."""
    model = TransformerLM(MODEL, generator=torch.Generator().manual_seed(1234))
    save_trained(tmp_path / "source", model, TOKENIZER)
    return tmp_path / "source"


def same_weights(model, other):
    ours, theirs = model.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)


def start(folder, source, **changes):
    return trainer(folder, init_from=str(source), **changes)


def test_it_starts_with_the_weights_of_any_folder_and_with_nothing_else(tmp_path, source):
    model = load_model(source).model
    save_hugging_face(tmp_path / "exported", model, TOKENIZER)
    for number, folder in enumerate([source, source / "checkpoints/step-00000000", tmp_path / "exported"]):
        run = start(tmp_path / str(number), folder)
        assert same_weights(run.model, model)
        assert run.model.training
        assert (run.step, state(run)["optimizer"]["state"]) == (0, {})


def test_weights_in_bf16_are_trained_in_fp32(tmp_path, source):
    save_hugging_face(tmp_path / "bf16", load_model(source).model, TOKENIZER, dtype=torch.bfloat16)
    run = start(tmp_path / "run", tmp_path / "bf16")
    assert {weight.dtype for weight in run.model.parameters()} == {torch.float32}
    assert same_weights(run.model, load_hugging_face(tmp_path / "bf16", dtype=torch.float32).model)


def test_without_its_source_it_goes_on_as_if_it_had_never_stopped(tmp_path, source):
    whole = start(tmp_path / "whole", source, keep_last=3)
    whole.run()
    assert whole.store.steps == [0, 3, 6]
    assert whole.store.load(0).meta.config["init_from"] == str(source)
    shutil.rmtree(source)
    for step in whole.store.steps:
        shutil.copytree(tmp_path / "whole", tmp_path / f"from-{step}")
        again = start(tmp_path / f"from-{step}", source, keep_last=3, resume=step)
        assert again.step == step
        again.run()
        assert state(again) == state(whole)
        assert curve(again.folder.path) == curve(whole.folder.path)
        assert again.store.steps == [0, 3, 6]


def test_the_start_is_never_the_best_of_what_was_trained(tmp_path, source):
    run = start(tmp_path / "run", source, lr=1.0, keep_last=3)
    run.run()
    assert curve(run.folder.path)[0]["validation_loss"] < run.validation_loss
    assert run.store.load(0).meta.validation_loss is None
    assert run.store.best_step == 6


def test_dropout_belongs_to_training_and_may_differ(tmp_path, source):
    run = start(tmp_path / "run", source, model=replace(MODEL, dropout=0.5))
    assert run.model.config.dropout == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 3}, "num_layers is 3, and the model in .*source has 2: leave num_layers out"),
        ({"rope_theta": 500.0}, "rope_theta is 500.0, and the model in .*source has 10000.0"),
        ({"vocab_size": 264}, "vocab_size is 264, and the model in .*source has 257"),
    ],
)
def test_a_model_of_another_shape_is_refused_by_the_name_of_the_field(tmp_path, source, change, message):
    with pytest.raises(ValueError, match=message):
        start(tmp_path / "run", source, model=replace(MODEL, **change))


@pytest.mark.parametrize(
    "data",
    [
        replace(DATA, tokenizer=OTHER),
        replace(DATA, tokenizer=None, train=replace(tokens(1000), tokenizer_sha256="another")),
        replace(DATA, tokenizer=None, validation=replace(tokens(300), tokenizer_sha256="another")),
    ],
    ids=["tokenizer", "tokens", "validation"],
)
def test_data_of_another_tokenizer_are_refused(tmp_path, source, data):
    with pytest.raises(ValueError, match=r"by another tokenizer than that of the model in .*source"):
        start(tmp_path / "run", source, data=data)


def test_a_model_without_a_tokenizer_takes_any_that_it_has_ids_for(tmp_path, source):
    (source / "tokenizer.json").unlink()
    assert start(tmp_path / "run", source, data=replace(DATA, tokenizer=OTHER)).step == 0
    with pytest.raises(ValueError, match=r"data have 300 ids, and the model 257.*or use the tokenizer that"):
        start(tmp_path / "other", source, data=replace(DATA, tokenizer=None, train=tokens(1000, vocab_size=300)))


def test_no_tokenizer_is_trained_for_weights_that_know_one(tmp_path, source):
    (tmp_path / "a.txt").write_text("the white whale " * 50)
    config = TrainConfig(model=MODEL, data=str(tmp_path / "a.txt"), init_from=str(source))
    with pytest.raises(ValueError, match="know the ids of one tokenizer alone: name it"):
        open_dataset(config, tmp_path / "run", vocab_size=257)
    data = open_dataset(replace(config, tokenizer=str(source)), tmp_path / "run")
    assert data.tokenizer.spec == TOKENIZER.spec


@pytest.mark.parametrize("folder", [3, "a\udcff"])
def test_a_name_that_is_none_is_refused(folder):
    with pytest.raises(ValueError, match="init_from must be"):
        TrainConfig(model=MODEL, init_from=folder)
