"""lmlib.config: what a config refuses, what it fills in, and the sizes of models everybody knows."""

import dataclasses
import json
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from lmlib.config import MODEL_SHAPES, ModelConfig, named_config

SIZES = {"vocab_size": 1000, "context_length": 32, "d_model": 48, "num_layers": 2, "num_heads": 6}


def config(**changes):
    return ModelConfig(**(SIZES | changes))


# --- named shapes ----------------------------------------------------------------------------------------

# As counted in the released weights.
RELEASED = {
    "gpt2-124m": 124_439_808,
    "gpt2-355m": 354_823_168,
    "gpt2-774m": 774_030_080,
    "gpt2-1558m": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-33b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3-405b": 405_853_388_800,
}


@pytest.mark.parametrize("name", RELEASED)
def test_released_models_have_their_size(name):
    assert named_config(name).num_parameters == RELEASED[name]


def test_every_other_named_shape_is_one_of_the_books_own():
    assert MODEL_SHAPES.keys() - RELEASED.keys() == {"tiny", "small"}
    assert MODEL_SHAPES["tiny"].num_parameters < MODEL_SHAPES["small"].num_parameters < 10_000_000


def test_the_shape_of_gpt2_is_that_of_the_release():
    shape = named_config("gpt2-124m")
    assert (shape.vocab_size, shape.context_length, shape.head_size, shape.d_ff) == (50_257, 1024, 64, 3072)
    assert (shape.norm, shape.mlp, shape.position) == ("layernorm", "gelu", "learned")
    assert shape.bias
    assert shape.tie_embeddings
    assert shape.norm_eps == 1e-5


def test_components_of_gpt2():
    counts = named_config("gpt2-124m").parameter_counts
    assert counts.token_embedding == 50_257 * 768
    assert counts.position_embedding == 1024 * 768
    assert counts.attention == 12 * (768 * 3 * 768 + 3 * 768 + 768 * 768 + 768)
    assert counts.mlp == 12 * (768 * 3072 + 3072 + 3072 * 768 + 768)
    assert counts.norms == 25 * 2 * 768
    assert counts.head == 0
    assert counts.total == 124_439_808
    assert round((counts.token_embedding / counts.total) * 100) == 31


def test_an_unknown_name_is_answered_with_the_names():
    with pytest.raises(ValueError, match="no model shape 'GPT2-124M'; did you mean 'gpt2-124m'"):
        named_config("GPT2-124M")
    with pytest.raises(ValueError, match="no model shape 'gpt2-124'; did you mean 'gpt2-124m'") as error:
        named_config("gpt2-124")
    assert all(name in str(error.value) for name in MODEL_SHAPES)
    with pytest.raises(ValueError, match="no model shape 'Zebra'; it can be one of tiny"):
        named_config("Zebra")


def test_the_named_shapes_cannot_be_changed():
    with pytest.raises(TypeError):
        MODEL_SHAPES["tiny"] = config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        MODEL_SHAPES["tiny"].d_model = 1


# --- what is filled in -----------------------------------------------------------------------------------


def test_what_is_left_out_is_filled_in():
    assert config().num_kv_heads == 6
    assert config(mlp="gelu").d_ff == 4 * 48
    assert config().d_ff == 128  # two thirds of 4·48, which is a multiple of 64
    assert config(num_kv_heads=2, d_ff=100).num_kv_heads == 2
    assert config(num_kv_heads=2, d_ff=100).d_ff == 100


@pytest.mark.parametrize("d_model", [6, 24, 48, 96, 102, 4096, 5120])
def test_swiglu_is_about_as_large_as_gelu(d_model):
    d_ff = config(d_model=d_model, num_heads=1).d_ff
    assert d_ff % 64 == 0
    assert 0 <= d_ff - Fraction(2, 3) * 4 * d_model < 64


def test_swiglu_is_exact_for_any_size():
    sizes = {"vocab_size": 8, "context_length": 8, "num_layers": 1, "num_heads": 1}
    for d_model in (192, 24 * 10**400):
        assert ModelConfig(d_model=d_model, **sizes).d_ff == 64 * (d_model // 24)


def test_numbers_of_numpy_become_plain():
    given = config(d_model=np.int64(96), dropout=np.float64(0.5), rope_theta=500)
    assert [type(value) for value in (given.d_model, given.dropout, given.rope_theta)] == [int, float, float]
    assert json.loads(json.dumps(given.to_dict())) == given.to_dict()


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, 2.0, 1.5, math.nan, math.inf, "12", True, [1]])
@pytest.mark.parametrize("name", [*SIZES, "num_kv_heads", "d_ff"])
def test_sizes_are_whole_numbers_from_1_on(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be a whole number from 1 on"):
        config(**{name: value})


@pytest.mark.parametrize("name", SIZES)
def test_sizes_without_a_default_are_needed(name):
    with pytest.raises(ValueError, match=f"^{name} must be a whole number from 1 on, such as 64, not None"):
        config(**{name: None})


def test_heads_that_do_not_divide():
    with pytest.raises(ValueError, match="num_heads=5 does not divide d_model=48: choose"):
        config(num_heads=5)
    with pytest.raises(ValueError, match="num_kv_heads=4 does not divide num_heads=6: choose one of 1, 2, 3, 6, so"):
        config(num_kv_heads=4)
    with pytest.raises(ValueError, match="num_kv_heads=12 does not divide num_heads=6: choose"):
        config(num_kv_heads=12)


def test_rope_needs_pairs():
    with pytest.raises(ValueError, match=r"A head has 3 elements \(d_model=48 over num_heads=16\).*even"):
        config(num_heads=16)
    assert config(num_heads=16, position="learned").head_size == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "batchnorm"}, "norm must be 'layernorm' or 'rmsnorm', not 'batchnorm'"),
        ({"mlp": "SwiGLU"}, "mlp must be 'gelu' or 'swiglu', not 'SwiGLU'"),
        ({"position": None}, "position must be 'learned' or 'rope', not None"),
        ({"bias": 1}, "bias must be True or False, not 1"),
        ({"tie_embeddings": "no"}, "tie_embeddings must be True or False, not 'no'"),
        ({"dropout": 1}, r"dropout .* at least 0 and below 1, not 1\.0"),
        ({"dropout": -0.1}, r"dropout .* at least 0 and below 1, not -0\.1"),
        ({"dropout": math.nan}, "dropout must be a finite number, not nan"),
        ({"dropout": "0.1"}, "dropout must be a finite number, not '0.1'"),
        ({"dropout": False}, "dropout must be a finite number, not False"),
        ({"dropout": 10**400}, "dropout must be a finite number, not 1000"),
        ({"rope_theta": 0}, "rope_theta must be greater than 0"),
        ({"norm_eps": -1e-5}, "norm_eps must be greater than 0"),
        ({"norm_eps": math.inf}, "norm_eps must be a finite number, not inf"),
    ],
)
def test_other_values_outside_their_range(change, message):
    with pytest.raises(ValueError, match=message):
        config(**change)


# --- to and from a dict ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODEL_SHAPES)
def test_a_config_survives_json(name):
    stored = json.dumps(MODEL_SHAPES[name].to_dict())
    assert ModelConfig.from_dict(json.loads(stored)) == MODEL_SHAPES[name]


def test_a_dict_may_leave_out_what_has_a_default():
    assert ModelConfig.from_dict(SIZES) == config()


def test_unknown_and_missing_keys_are_named():
    with pytest.raises(ValueError, match="no config key 'n_layers'; did you mean 'num_layers'"):
        ModelConfig.from_dict(SIZES | {"n_layers": 3})
    with pytest.raises(ValueError, match="no config key 'xyz'; it can be one of vocab_size, context_length"):
        ModelConfig.from_dict(SIZES | {"xyz": 3})
    with pytest.raises(ValueError, match="lacks context_length, num_heads: add"):
        ModelConfig.from_dict({"vocab_size": 10, "d_model": 8, "num_layers": 1})


def test_it_imports_without_torch():
    code = "import sys; sys.modules['torch'] = None; import lmlib.config"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
