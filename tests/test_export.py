"""lmlib.export: weights of transformers find their place; tests of lmlib.model compare what then comes out."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from lmlib.config import ModelConfig
from lmlib.export import from_transformers_state_dict
from lmlib.model import TransformerLM

SIZES = {"vocab_size": 101, "context_length": 32, "d_model": 48, "num_layers": 2, "num_heads": 6}
GPT2 = {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True, "tie_embeddings": True}


def llama_state():
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 128}
    return LlamaForCausalLM(LlamaConfig(vocab_size=101, attention_bias=True, mlp_bias=True, **sizes)).state_dict()


def gpt2_state():
    ends = {"bos_token_id": None, "eos_token_id": None}
    reference = GPT2LMHeadModel(GPT2Config(vocab_size=101, n_positions=32, n_embd=48, n_layer=2, n_head=6, **ends))
    return reference.state_dict()


@pytest.mark.parametrize(("changes", "state"), [(GPT2, gpt2_state), ({"bias": True}, llama_state)])
def test_every_weight_arrives_once(changes, state):
    config, state = ModelConfig(**SIZES, **changes), state()
    weights = from_transformers_state_dict(config, state)
    TransformerLM(config).load_state_dict(weights)
    state.pop("lm_head.weight" if config.tie_embeddings else "", None)
    for function in (torch.numel, lambda tensor: tensor.double().square().sum().item()):
        total = sum(map(function, state.values()))
        assert sum(map(function, weights.values())) == pytest.approx(total, rel=1e-12)


def test_what_old_versions_stored_beside_the_weights_is_ignored():
    state = gpt2_state()
    masks = {"transformer.h.0.attn.bias": torch.ones(1, 1, 32, 32), "transformer.h.0.attn.masked_bias": torch.ones(1)}
    config = ModelConfig(**SIZES, **GPT2)
    assert from_transformers_state_dict(config, state | masks).keys() == TransformerLM(config).state_dict().keys()


def test_weights_that_do_not_fit_the_config_are_named():
    deeper = ModelConfig(**SIZES | {"num_layers": 3}, bias=True)
    with pytest.raises(ValueError, match=r"lack a weight that the config asks for: 'model\.layers\.2\.input_layernorm"):
        from_transformers_state_dict(deeper, llama_state())
    without_bias = ModelConfig(**SIZES)
    with pytest.raises(ValueError, match=r"has no place for: 'model\.layers\.0\.mlp\.down_proj\.bias'"):
        from_transformers_state_dict(without_bias, llama_state())
    for switch in [{"norm": "layernorm"}, {"mlp": "gelu"}, {"position": "learned"}]:
        with pytest.raises(
            ValueError, match=r"neither a GPT-2 nor a Llama: choose layernorm, gelu, learned or rmsnorm"
        ):
            from_transformers_state_dict(ModelConfig(**SIZES, **switch), llama_state())
    tied = ModelConfig(**SIZES, tie_embeddings=True, bias=True)
    with pytest.raises(ValueError, match=r"has no place for: 'lm_head\.weight'"):
        from_transformers_state_dict(tied, llama_state())
