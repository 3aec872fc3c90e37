"""Weights in the layouts of ``transformers``, for GPT-2 and for Llama."""

import re
from collections.abc import Iterable, Mapping

import torch
from einops import rearrange
from torch import Tensor

from lmlib.config import ModelConfig
from lmlib.export.fit import check_depth, check_fit, empty_model
from lmlib.export.layouts import Layout, layout_of

__all__ = ["from_transformers_state_dict", "to_transformers_state_dict"]

_HEAD = "lm_head.weight"
# Masks and frequencies that old versions stored beside the weights.
_BUFFERS = re.compile(r".*\.(attn\.(masked_)?bias|rotary_emb\.inv_freq)")


def to_transformers_state_dict(
    config: ModelConfig, state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The state dict of ``TransformerLM(config)`` as ``transformers`` has it.

    It is that of ``GPT2LMHeadModel`` or of ``LlamaForCausalLM``, as the config
    says, without the head of a tied model. Tensors are views of ours, but for the
    query, key and value of a GPT-2, which are joined.

    Raises ValueError for a config that is neither a GPT-2 nor a Llama, and if
    ``state`` is not that of its model.
    """
    layout = layout_of(config)
    check_fit(state, empty_model(config).state_dict())
    return {
        theirs: _join([_turn(layout, name, state[name]) for name in names])
        for theirs, names in _our_names(state, layout).items()
    }


def from_transformers_state_dict(
    config: ModelConfig, state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The state dict of ``TransformerLM(config)`` with the weights of another one.

    ``state`` is that of ``GPT2LMHeadModel`` or of ``LlamaForCausalLM``, as the
    config says, or of the model in it that has no head. The tensors are views of
    its own. Weights cannot tell the heads, ``rope_theta`` or ``norm_eps``: the
    config must have them right.

    Raises ValueError for a config that is neither a GPT-2 nor a Llama, and where
    ``state`` lacks a weight that it asks for, or holds one without a place in it or
    of another shape.
    """
    layout = layout_of(config)
    state = _named_in_full(layout, state)
    embedding = _their_name("token_embedding.weight", layout.modules)
    if config.tie_embeddings and _equal(state, embedding, _HEAD):
        state.pop(_HEAD)
    check_depth(config, state, layout.modules["blocks"])
    ours = empty_model(config).state_dict()
    check_fit(state, to_transformers_state_dict(config, ours))
    weights = {}
    for theirs, names in _our_names(ours, layout).items():
        pieces = state[theirs].chunk(len(names), dim=-1)
        for name, piece in zip(names, pieces, strict=True):
            weights[name] = _turn(layout, name, piece)
    return weights


# --- names ------------------------------------------------------------------------


def _our_names(names: Iterable[str], layout: Layout) -> dict[str, list[str]]:
    """For each of their names ours, in order where several are one of theirs."""
    grouped: dict[str, list[str]] = {}
    for name in names:
        grouped.setdefault(_their_name(name, layout.modules), []).append(name)
    return grouped


def _their_name(name: str, modules: Mapping[str, str]) -> str:
    path, _, kind = name.rpartition(".")  # kind: weight or bias
    if block := re.fullmatch(r"blocks\.(\d+)\.(.+)", path):
        number, module = block.groups()
        return f"{modules['blocks']}.{number}.{modules[module]}.{kind}"
    return f"{modules[path]}.{kind}"


def _named_in_full(
    layout: Layout, state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Name weights as in the model with a head, unlike those of GPT-2's release."""
    weights = {k: v for k, v in state.items() if not _BUFFERS.fullmatch(k)}
    if any(name.startswith(layout.prefix) for name in weights):
        return weights
    return {
        name if name == _HEAD else layout.prefix + name: weight
        for name, weight in weights.items()
    }


# --- tensors ----------------------------------------------------------------------


def _turn(layout: Layout, name: str, weight: Tensor) -> Tensor:
    """Swap the sides of a linear layer's matrix, where the layout has them swapped.

    A second time it is as it was.
    """
    linear = re.search(r"(attention|mlp)\.\w+\.weight$", name)
    if linear and layout.linear_weights_are_transposed:
        return rearrange(weight, "one other -> other one")
    return weight


def _join(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]


def _equal(state: Mapping[str, Tensor], one: str, other: str) -> bool:
    both_there = one in state and other in state
    return both_there and torch.equal(state[one], state[other])
