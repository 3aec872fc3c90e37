"""lmlib.train.config and settings: what is wrong is said, what is right survives a file."""

import tomllib
from dataclasses import fields, replace

import pytest
import tomli_w

from lmlib.config import ModelConfig, named_config
from lmlib.train import PRESETS, TrainConfig
from lmlib.train.config import MAY_DIFFER
from lmlib.train.settings import absolute_paths, draft, has_vocab_size, merged, with_model

MODEL = ModelConfig(257, 8, 16, 2, 2)


def config(**changes):
    return TrainConfig(model=MODEL, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps must be a whole number from 1 on"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"batch_size": True}, "batch_size must be a whole number"),
        ({"keep_last": 0}, "keep_last must be"),
        ({"warmup_steps": 1000}, "warmup_steps must be .* below total_steps = 1000"),
        ({"warmup_steps": -1}, "warmup_steps must be"),
        ({"lr": 0}, "lr must be a finite number above 0"),
        ({"lr": float("nan")}, "lr must be a finite number above 0"),
        ({"lr": "fast"}, "lr must be a finite number above 0, not 'fast'"),
        ({"betas": (0.9, 1.0)}, "betas must be two numbers from 0 to below 1"),
        ({"betas": (0.9,)}, "betas must be two numbers"),
        ({"weight_decay": -0.1}, "weight_decay must be a finite number from 0 on"),
        ({"max_norm": -1}, "max_norm must be"),
        ({"validation_share": 1}, "validation_share must be above 0 and below 1"),
        ({"final_lr_factor": 2}, "final_lr_factor must be from 0 to 1"),
        ({"final_lr_factor": "x"}, "final_lr_factor must be a finite number"),
        ({"seed": 1e300}, r"seed must be below 2\*\*63"),  # torch takes no larger one
        ({"sample_prompt": "a\udcff"}, "sample_prompt must be text in UTF-8"),
        ({"data": ("a.txt", "a\udcff")}, r"data must be text in UTF-8, not 'a\\udcff'"),  # config.toml could not tell
        ({"validation_data": "a\udcff"}, "validation_data must be text in UTF-8"),
        ({"tokenizer": "a\udcff"}, "tokenizer must be text in UTF-8"),
        ({"schedule": "linear"}, "schedule must be 'cosine' or 'wsd', not 'linear'"),
        ({"schedule": "wsd", "decay_steps": 2000}, "decay_steps must be .* = 950"),
        ({"decay_steps": 10}, "decay_steps belongs to schedule='wsd'"),
        ({"precision": "fp8"}, "precision must be 'fp32' or"),
        ({"precision": "fp16-autocast", "parallel": "fsdp"}, "choose bf16-autocast"),
        ({"parallel": "tensor"}, "parallel must be 'ddp' or 'fsdp'"),
        ({"non_finite": "pray"}, "non_finite must be 'stop' or 'skip'"),
        ({"compile": "yes"}, "compile must be True or False"),
        ({"async_save": 1}, "async_save must be True or False"),
        ({"data": ()}, "data must be one file or more"),
        ({"data": (1,)}, "data must be a name of a file"),
        ({"tokenizer": None}, "tokenizer must be text"),
        ({"micro_batch_size": 5}, "batch_size=32 is no multiple of .* 5 × 1"),
        ({"sample_temperature": -1}, "sample_temperature must be"),
        ({"eval_windows": -1}, "eval_windows must be"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_a_model_must_be_one():
    with pytest.raises(ValueError, match="model must be a ModelConfig"):
        TrainConfig(model="tiny")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"data": "book.txt", "betas": [0.9, 0.99], "lr": 1, "compile": False, "max_norm": 0},
        {"schedule": "wsd", "micro_batch_size": 4, "sample_prompt": 'Call me "Ishmael"\n'},
    ],
)
def test_a_config_comes_back_from_toml(changes):
    before = config(**changes)
    text = tomli_w.dumps(before.to_dict())
    assert TrainConfig.from_dict(tomllib.loads(text)) == before
    assert isinstance(before.lr, float)
    assert isinstance(before.data, tuple)


def test_the_decay_of_wsd_is_a_fifth_unless_told():
    assert config(schedule="wsd").decay_steps == 200
    assert config(schedule="wsd", steps=3).decay_steps == 1


def test_the_warm_up_is_a_twentieth_unless_told():
    assert config(steps=1000).warmup_steps == 50
    assert config(steps=1).warmup_steps == 0
    assert config(steps=1000, warmup_steps=0).warmup_steps == 0
    assert config(steps=1000).to_dict()["warmup_steps"] == 50  # so that a longer run goes on with it


def test_the_learning_rate_rises_and_falls():
    cosine = config(lr=1.0, steps=100, warmup_steps=9, final_lr_factor=0.1)
    rates = [cosine.learning_rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == 1.0 == max(rates)
    assert 0.1 < rates[-1] < 0.101
    stable = config(lr=1.0, steps=100, schedule="wsd", warmup_steps=0, decay_steps=50)
    assert [stable.learning_rate(step) for step in (0, 50, 75)] == pytest.approx([1, 1, 0.55])


def test_a_batch_is_shared_out():
    assert config(batch_size=32).micro_batches(1) == (32, 1)
    assert config(batch_size=32).micro_batches(4) == (8, 1)
    assert config(batch_size=32, micro_batch_size=2).micro_batches(4) == (2, 4)
    with pytest.raises(ValueError, match="shared evenly by 3 devices"):
        config(batch_size=32).micro_batches(3)
    with pytest.raises(ValueError, match="no multiple"):
        config(batch_size=32, micro_batch_size=16).micro_batches(4)


def test_names_of_settings_that_are_none_are_answered_with_the_closest():
    with pytest.raises(ValueError, match="no setting 'leraning_rate'"):
        TrainConfig.from_dict({"model": "tiny", "leraning_rate": 1})
    with pytest.raises(ValueError, match="did you mean 'warmup_steps'"):
        TrainConfig.from_dict({"model": "tiny", "warm_up_steps": 1})
    with pytest.raises(ValueError, match="no config key 'heads'"):
        TrainConfig.from_dict({"model": {"shape": "tiny", "heads": 2}})
    with pytest.raises(ValueError, match="model must be given"):
        TrainConfig.from_dict({})
    with pytest.raises(ValueError, match="model must be a name or a table"):
        TrainConfig.from_dict({"model": 3})


def test_a_shape_is_a_name_with_exceptions():
    tiny = named_config("tiny")
    assert TrainConfig.from_dict({"model": "tiny"}).model == tiny
    changed = TrainConfig.from_dict({"model": {"shape": "tiny", "dropout": 0.2}}).model
    assert changed == replace(tiny, dropout=0.2)


def test_what_may_differ_are_fields():
    assert set(MAY_DIFFER) <= {field.name for field in fields(TrainConfig)}
    assert not set(MAY_DIFFER) & {"model", "lr", "batch_size", "seed", "schedule", "precision"}


# --- layers ---------------------------------------------------------------------------------------


def test_the_later_layer_wins():
    preset = {"steps": 5, "lr": 0.1, "model": {"d_model": 8, "num_layers": 2}}
    file = {"lr": 0.2, "model": {"d_model": 16}}
    assert merged(preset, file, {"steps": 7}) == {
        "steps": 7,
        "lr": 0.2,
        "model": {"d_model": 16, "num_layers": 2},
    }
    assert preset["model"]["d_model"] == 8


def test_a_shape_begins_the_model_anew():
    preset = {"model": {"d_model": 8, "d_ff": 10}}
    assert merged(preset, {"model": "tiny"}) == {"model": {"shape": "tiny"}}
    assert merged(preset, {"model": {"shape": "tiny", "d_ff": 3}}, {"model": {"bias": True}}) == {
        "model": {"shape": "tiny", "d_ff": 3, "bias": True}
    }


@pytest.mark.parametrize(
    ("layer", "stays"),
    [
        ({"data": "book.txt"}, True),
        ({"tokenizer": "train"}, True),
        ({"tokenizer": "gpt2"}, False),
        ({"data": "train.bin"}, False),
        ({"data": ["train.bin"]}, False),
    ],
)
def test_tokens_say_themselves_how_many_there_are(layer, stays):
    preset = {"model": {"vocab_size": 512, "d_model": 8}}
    assert ("vocab_size" in merged(preset, layer)["model"]) == stays
    assert merged(preset, {**layer, "model": {"vocab_size": 7}})["model"] == {"d_model": 8, "vocab_size": 7}


def test_the_vocabulary_may_be_open():
    sizes = {"context_length": 8, "d_model": 16, "num_layers": 2, "num_heads": 2}
    assert not has_vocab_size({"model": sizes})
    assert draft({"model": sizes}).model.d_model == 16
    assert has_vocab_size({"model": {**sizes, "vocab_size": 5}})
    assert draft({"model": {**sizes, "vocab_size": 5}}).model.vocab_size == 5
    assert draft({"model": "gpt2-124m"}).model.vocab_size == 50257
    with pytest.raises(ValueError, match="num_heads=3 does not divide"):
        draft({"model": {**sizes, "num_heads": 3}})


def test_a_model_to_start_from_has_the_shape_of_all_that_is_left_out():
    tiny = named_config("tiny")
    assert with_model({"lr": 1.0}, tiny, "runs/1") == {"lr": 1.0, "model": tiny.to_dict()}
    for same in ({"num_layers": 2}, {"shape": "tiny"}, "tiny", {"shape": "small", "dropout": 0.2} | tiny.to_dict()):
        assert with_model({"model": same}, tiny, "runs/1")["model"] == tiny.to_dict()
    dropped = with_model({"model": {"dropout": 0.2}}, tiny, "runs/1")
    assert draft(dropped).model == replace(tiny, dropout=0.2)
    for other in ({"num_heads": 3}, {"shape": "tiny", "num_heads": 3}):
        with pytest.raises(ValueError, match="num_heads is 3, and the model in runs/1 has 4: leave num_heads out"):
            with_model({"model": other}, tiny, "runs/1")
    with pytest.raises(ValueError, match="no config key 'heads'"):
        draft(with_model({"model": {"heads": 2}}, tiny, "runs/1"))


def test_paths_mean_the_same_from_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {
        "data": ["moby_dick", "a.txt"],
        "validation_data": "/b.txt",
        "tokenizer": "t",
        "lr": 1,
        "init_from": "r",
    }
    assert absolute_paths(settings) == {
        "data": ["moby_dick", str(tmp_path / "a.txt")],
        "validation_data": ["/b.txt"],
        "tokenizer": str(tmp_path / "t"),
        "lr": 1,
        "init_from": str(tmp_path / "r"),
    }
    assert absolute_paths({"tokenizer": "gpt2"}) == {"tokenizer": "gpt2"}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_configs(name):
    assert draft({"model": "tiny", **PRESETS[name]}).steps >= 100


@pytest.mark.parametrize("steps", [1, 2, 50, 100])
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_serves_any_number_of_steps(name, steps):
    short = draft(merged({"model": "tiny"}, PRESETS[name], {"steps": steps}))
    assert short.warmup_steps < short.steps == steps
    assert short.learning_rate(steps - 1) > 0
