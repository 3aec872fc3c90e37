"""lmlib.export.config_json: what transformers would compute is what our config says, or it is refused."""

import json

import pytest
from transformers import AutoConfig, GPT2Config, LlamaConfig

from lmlib.config import MODEL_SHAPES, ModelConfig
from lmlib.export import from_transformers_config, to_transformers_config
from lmlib.export.layouts import GPT2, LLAMA

SIZES = {"vocab_size": 101, "context_length": 32, "d_model": 48, "num_layers": 2, "num_heads": 6}
AS_GPT2 = {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True}
CONFIGS = [
    *MODEL_SHAPES.values(),
    ModelConfig(**SIZES, **AS_GPT2, dropout=0.1, d_ff=100, norm_eps=3e-6),
    ModelConfig(**SIZES, bias=True, num_kv_heads=2, rope_theta=12_345.5, norm_eps=1e-7, d_ff=100, dropout=0.25),
]


def config_json(kind="llama", **changes):
    theirs = LlamaConfig if kind == "llama" else GPT2Config
    return json.loads(theirs().to_json_string(use_diff=False)) | changes


@pytest.mark.parametrize("config", CONFIGS)
def test_there_and_back_is_the_same(config):
    content = to_transformers_config(config)
    assert from_transformers_config(json.loads(json.dumps(content))) == config


@pytest.mark.parametrize("config", CONFIGS)
def test_transformers_understands_and_repeats_it(config, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(to_transformers_config(config)))
    theirs = AutoConfig.from_pretrained(tmp_path)
    assert theirs.num_attention_heads == config.num_heads
    assert theirs.tie_word_embeddings == config.tie_embeddings
    theirs.save_pretrained(tmp_path / "again")
    again = json.loads((tmp_path / "again" / "config.json").read_text())
    assert from_transformers_config(again) == config


@pytest.mark.parametrize(("layout", "theirs"), [(GPT2, GPT2Config), (LLAMA, LlamaConfig)])
def test_what_is_left_out_is_as_in_transformers(layout, theirs):
    """In a config.json that says nothing but the model's type and its sizes, which transformers fills, too."""
    full = json.loads(theirs().to_json_string(use_diff=False))
    names = {name for names in layout.fields.values() for name in names}
    sizes = {name: full[name] for name in names - layout.defaults.keys()}
    config = from_transformers_config({"model_type": layout.model_type, **sizes})
    assert config == from_transformers_config(full)
    assert len(sizes) == (5 if layout is GPT2 else 6)
    for name in sizes:
        with pytest.raises(ValueError, match=f"^{name} is missing: add it"):
            from_transformers_config({k: v for k, v in full.items() if k != name})


def test_both_ways_to_say_how_positions_turn():
    old = {key: value for key, value in config_json().items() if key != "rope_parameters"}
    assert from_transformers_config(old).rope_theta == 10_000
    assert from_transformers_config(old | {"rope_theta": 5e5, "rope_scaling": None}).rope_theta == 5e5
    new = old | {"rope_parameters": {"rope_type": "default", "rope_theta": 7e4}}
    assert from_transformers_config(new).rope_theta == 7e4
    assert from_transformers_config(new | {"rope_theta": 5e5}).rope_theta == 7e4


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model_type": "mistral"}, "model_type is 'mistral': only models of type 'gpt2' or 'llama' can be read"),
        ({"vocab_size": 101}, "model_type is None"),
        (config_json(hidden_act="gelu"), "hidden_act is 'gelu': only a model with 'silu' or 'swish'"),
        (config_json(quantization_config={"bits": 4}), "quantization_config is set: save the model before"),
        (config_json(rope_scaling=LLAMA3), "rope_scaling is of type 'llama3'"),
        (config_json(rope_scaling={"type": "linear", "factor": 2.0}), "rope_scaling is of type 'linear'"),
        (config_json(rope_parameters=LLAMA3 | {"rope_theta": 1e4}), "rope_parameters is of type 'llama3'"),
        (config_json(rope_parameters="default"), "rope_parameters is 'default': it should be an object"),
        (config_json(partial_rotary_factor=0.5), "partial_rotary_factor is 0.5: only heads that turn as a whole"),
        (config_json(attention_bias=True), "attention_bias is True and mlp_bias is False: .* equal, which is our bias"),
        (config_json(head_dim=64), "head_dim is 64: only heads of hidden_size / num_attention_heads = 128 elements"),
        (config_json(num_key_value_heads=5), "num_kv_heads=5 does not divide num_heads=32"),
        (config_json(hidden_size="4096"), "d_model must be a whole number from 1 on, such as 64, not '4096'"),
        (config_json(tie_word_embeddings="yes"), "tie_embeddings must be True or False, not 'yes'"),
        (config_json("gpt2", activation_function="gelu"), "activation_function is 'gelu': only .* 'gelu_new' or"),
        (config_json("gpt2", scale_attn_weights=False), "scale_attn_weights is False: only a model with True"),
        (config_json("gpt2", scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx is True"),
        (config_json("gpt2", add_cross_attention=True), "add_cross_attention is True"),
        (
            config_json("gpt2", attn_pdrop=0.2),
            "embd_pdrop is 0.1 and attn_pdrop is 0.2: .* equal, which is our dropout",
        ),
    ],
)
def test_what_we_would_compute_otherwise_is_refused(content, message):
    with pytest.raises(ValueError, match=message):
        from_transformers_config(content)
