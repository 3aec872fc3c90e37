"""lmlib.export.weights: each weight finds its place in transformers' models, and its way back, to the bit."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from lmlib.config import ModelConfig
from lmlib.export import from_transformers_state_dict, to_transformers_state_dict
from lmlib.model import TransformerLM

SIZES = {"vocab_size": 101, "context_length": 32, "d_model": 48, "num_layers": 2, "num_heads": 6}
GPT2 = {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True, "tie_embeddings": True}


def llama_state():
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 128}
    return LlamaForCausalLM(LlamaConfig(vocab_size=101, attention_bias=True, mlp_bias=True, **sizes)).state_dict()


def gpt2_state(tied=True):
    ends = {"bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": tied}
    reference = GPT2LMHeadModel(GPT2Config(vocab_size=101, n_positions=32, n_embd=48, n_layer=2, n_head=6, **ends))
    return reference.state_dict()


LAYOUTS = [
    (GPT2, gpt2_state),
    (GPT2 | {"tie_embeddings": False}, lambda: gpt2_state(tied=False)),
    ({"bias": True}, llama_state),
]


@pytest.mark.parametrize(("changes", "state"), LAYOUTS)
def test_every_weight_arrives_once(changes, state):
    config, state = ModelConfig(**SIZES, **changes), state()
    weights = from_transformers_state_dict(config, state)
    TransformerLM(config).load_state_dict(weights)
    state.pop("lm_head.weight" if config.tie_embeddings else "", None)
    for function in (torch.numel, lambda tensor: tensor.double().square().sum().item()):
        total = sum(map(function, state.values()))
        assert sum(map(function, weights.values())) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(("changes", "state"), LAYOUTS)
def test_there_and_back_is_the_same_to_the_bit(changes, state):
    config, theirs = ModelConfig(**SIZES, **changes), state()
    again = to_transformers_state_dict(config, from_transformers_state_dict(config, theirs))
    theirs.pop("lm_head.weight" if config.tie_embeddings else "", None)
    assert again.keys() == theirs.keys()
    assert all(torch.equal(again[name], theirs[name]) for name in theirs)
    ours = TransformerLM(config).state_dict()
    back = from_transformers_state_dict(config, to_transformers_state_dict(config, ours))
    assert back.keys() == ours.keys()
    assert all(torch.equal(back[name], ours[name]) for name in ours)


def test_what_old_versions_stored_beside_the_weights_is_ignored():
    state = gpt2_state()
    masks = {"transformer.h.0.attn.bias": torch.ones(1, 1, 32, 32), "transformer.h.0.attn.masked_bias": torch.ones(1)}
    config = ModelConfig(**SIZES, **GPT2)
    assert from_transformers_state_dict(config, state | masks).keys() == TransformerLM(config).state_dict().keys()


def test_names_as_in_the_release_of_gpt2():
    """It was saved from the model without a head, and so without the name of the part that is left."""
    config, state = ModelConfig(**SIZES, **GPT2), gpt2_state()
    released = {name.removeprefix("transformer."): weight for name, weight in state.items() if "lm_head" not in name}
    assert "wte.weight" in released
    weights, expected = (from_transformers_state_dict(config, each) for each in (released, state))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    untied = ModelConfig(**SIZES, **GPT2 | {"tie_embeddings": False})
    with pytest.raises(ValueError, match=r"lack a weight that the config asks for: 'lm_head\.weight'"):
        from_transformers_state_dict(untied, released)


def test_weights_that_do_not_fit_the_config_are_named():
    for num_layers in (3, 1):
        other = ModelConfig(**SIZES | {"num_layers": num_layers}, bias=True)
        with pytest.raises(ValueError, match=f"num_layers={num_layers}, and there are weights of 2. Change"):
            from_transformers_state_dict(other, llama_state())
    incomplete = llama_state()
    del incomplete["model.layers.1.input_layernorm.weight"]
    with pytest.raises(ValueError, match=r"lack a weight that the config asks for: 'model\.layers\.1\.input_layernorm"):
        from_transformers_state_dict(ModelConfig(**SIZES, bias=True), incomplete)
    without_bias = ModelConfig(**SIZES)
    with pytest.raises(ValueError, match=r"has no place for: 'model\.layers\.0\.mlp\.down_proj\.bias'"):
        from_transformers_state_dict(without_bias, llama_state())
    tied = ModelConfig(**SIZES, tie_embeddings=True, bias=True)
    with pytest.raises(ValueError, match=r"has no place for: 'lm_head\.weight'"):
        from_transformers_state_dict(tied, llama_state())


@pytest.mark.parametrize(
    ("changes", "state", "message"),
    [
        (
            {"vocab_size": 100} | GPT2,
            gpt2_state,
            r"'transformer\.wte\.weight' has the shape \(101, 48\), .* \(100, 48\)",
        ),
        ({"context_length": 64} | GPT2, gpt2_state, r"wpe\.weight' has the shape \(32, 48\), .* asks for \(64, 48\)"),
        ({"d_ff": 96} | GPT2, gpt2_state, r"c_fc\.weight' has the shape \(48, 192\), .* asks for \(48, 96\)"),
        ({"num_kv_heads": 2, "bias": True}, llama_state, r"k_proj\.weight' has the shape \(48, 48\), .* \(16, 48\)"),
    ],
)
def test_weights_of_another_shape_are_named(changes, state, message):
    with pytest.raises(ValueError, match=rf"do not fit the config: .*{message}\. Change the config"):
        from_transformers_state_dict(ModelConfig(**SIZES | changes), state())


@pytest.mark.parametrize(
    ("changes", "wishes"),
    [
        (
            {"position": "learned"},
            "a GPT-2 has norm='layernorm', mlp='gelu', bias=True and a Llama has position='rope'",
        ),
        ({"norm": "layernorm"}, "a GPT-2 has .* and a Llama has norm='rmsnorm'"),
        ({"mlp": "gelu"}, "a GPT-2 has .* and a Llama has mlp='swiglu'"),
        (GPT2 | {"position": "rope"}, "a GPT-2 has position='learned' and a Llama has norm='rmsnorm', mlp='swiglu'"),
        (GPT2 | {"bias": False}, "a GPT-2 has bias=True and a Llama"),
        (GPT2 | {"num_kv_heads": 3}, "a GPT-2 has num_kv_heads=6 and a Llama"),
    ],
)
def test_a_config_without_a_layout(changes, wishes):
    config = ModelConfig(**SIZES | changes)
    for convert in (from_transformers_state_dict, to_transformers_state_dict):
        with pytest.raises(ValueError, match=f"neither a GPT-2 nor a Llama: {wishes}"):
            convert(config, {})


def test_a_head_of_its_own_may_be_equal_to_the_embedding():
    config, state = ModelConfig(**SIZES, bias=True), llama_state()
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    assert "head.weight" in from_transformers_state_dict(config, state)


def test_names_that_are_not_ours():
    config = ModelConfig(**SIZES)
    compiled = {f"_orig_mod.{name}": weight for name, weight in TransformerLM(config).state_dict().items()}
    with pytest.raises(ValueError, match=r"lack a weight that the config asks for: 'blocks\.0\.attention\.key"):
        to_transformers_state_dict(config, compiled)
