"""Weights in the layouts of ``transformers``, for GPT-2 and for Llama."""

import re
from collections.abc import Mapping
from types import MappingProxyType

import torch
from einops import rearrange
from torch import Tensor

from lmlib.config import ModelConfig
from lmlib.model import TransformerLM

__all__ = ["from_transformers_state_dict"]

_GPT2 = ("layernorm", "gelu", "learned")
_LLAMA = ("rmsnorm", "swiglu", "rope")
# Our name of a module, and theirs.
_GPT2_NAMES = MappingProxyType(
    {
        "token_embedding": "transformer.wte",
        "position_embedding": "transformer.wpe",
        "blocks": "transformer.h",
        "attention_norm": "ln_1",
        "attention.query": "attn.c_attn",
        "attention.key": "attn.c_attn",
        "attention.value": "attn.c_attn",
        "attention.output": "attn.c_proj",
        "mlp_norm": "ln_2",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
        "final_norm": "transformer.ln_f",
        "head": "lm_head",
    }
)
_LLAMA_NAMES = MappingProxyType(
    {
        "token_embedding": "model.embed_tokens",
        "blocks": "model.layers",
        "attention_norm": "input_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.output": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "mlp.gate": "mlp.gate_proj",
        "mlp.up": "mlp.up_proj",
        "mlp.down": "mlp.down_proj",
        "final_norm": "model.norm",
        "head": "lm_head",
    }
)
# Masks and frequencies that old versions stored beside the weights.
_BUFFERS = re.compile(r".*\.(attn\.(masked_)?bias|rotary_emb\.inv_freq)")


def from_transformers_state_dict(
    config: ModelConfig, state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The state dict of ``TransformerLM(config)`` with the weights of another one.

    ``state`` is that of ``GPT2LMHeadModel`` or of ``LlamaForCausalLM``, as the
    config says. The tensors are views of its own. Weights cannot tell the heads,
    ``rope_theta`` or ``norm_eps``: the config must have them right.

    Raises ValueError for a config that is neither a GPT-2 nor a Llama, and where
    ``state`` lacks a weight that it asks for, or holds one without a place in it.
    """
    gpt2 = _is_gpt2(config)
    names = _their_names(config, _GPT2_NAMES if gpt2 else _LLAMA_NAMES)
    embedding, head = names["token_embedding.weight"], "lm_head.weight"
    if config.tie_embeddings and _equal(state, embedding, head):
        state = {name: weight for name, weight in state.items() if name != head}
    _check_names(state, set(names.values()))
    weights = {ours: state[theirs] for ours, theirs in names.items()}
    if gpt2:
        weights = {name: _from_gpt2(name, w) for name, w in weights.items()}
    return weights


def _is_gpt2(config: ModelConfig) -> bool:
    switches = (config.norm, config.mlp, config.position)
    if switches not in (_GPT2, _LLAMA):
        raise ValueError(
            f"A model with {', '.join(switches)} is neither a GPT-2 nor a Llama: "
            f"choose {', '.join(_GPT2)} or {', '.join(_LLAMA)}."
        )
    return switches == _GPT2


def _their_names(config: ModelConfig, modules: Mapping[str, str]) -> dict[str, str]:
    """Their name of each parameter, by ours."""
    with torch.device("meta"):
        ours = TransformerLM(config).state_dict()
    return {name: _their_name(name, modules) for name in ours}


def _their_name(name: str, modules: Mapping[str, str]) -> str:
    path, _, kind = name.rpartition(".")  # kind: weight or bias
    if block := re.fullmatch(r"blocks\.(\d+)\.(.+)", path):
        number, module = block.groups()
        return f"{modules['blocks']}.{number}.{modules[module]}.{kind}"
    return f"{modules[path]}.{kind}"


def _equal(state: Mapping[str, Tensor], one: str, other: str) -> bool:
    both_there = one in state and other in state
    return both_there and torch.equal(state[one], state[other])


def _check_names(state: Mapping[str, Tensor], wanted: set[str]) -> None:
    surplus = {name for name in state if not _BUFFERS.fullmatch(name)} - wanted
    for names, problem in [
        (wanted - state.keys(), "lack a weight that the config asks for"),
        (surplus, "hold a weight that the config has no place for"),
    ]:
        if names:
            raise ValueError(
                f"The weights {problem}: {min(names)!r}. Change the config so that "
                "it describes the model that they come from."
            )


def _from_gpt2(name: str, weight: Tensor) -> Tensor:
    """Cut query, key and value apart, and transpose what x is multiplied with."""
    if thirds := re.search(r"attention\.(query|key|value)", name):
        third = ("query", "key", "value").index(thirds[1])
        weight = rearrange(weight, "... (qkv size) -> qkv ... size", qkv=3)[third]
    linear = re.search(r"(attention|mlp)\.\w+\.weight$", name)
    return rearrange(weight, "d_in d_out -> d_out d_in") if linear else weight
