"""lmlib.optim.groups: what decays and what does not, and every parameter once."""

import math

import pytest
import torch
from torch import nn

from lmlib.config import ModelConfig
from lmlib.model import TransformerLM
from lmlib.optim import AdamW, parameter_groups

pytestmark = pytest.mark.usefixtures("one_thread")


def model(**changes):
    sizes = {"vocab_size": 11, "context_length": 8, "d_model": 12, "num_layers": 2, "num_heads": 2}
    return TransformerLM(ModelConfig(**(sizes | changes)))


GPT2 = {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True}


def names_of_groups(built):
    groups = parameter_groups(built, 0.1)
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    names = {parameter: name for name, parameter in built.named_parameters()}
    return [{names[parameter] for parameter in group["params"]} for group in groups]


@pytest.mark.parametrize("changes", [{}, GPT2, {"tie_embeddings": True}, GPT2 | {"tie_embeddings": True}])
def test_norms_and_biases_do_not_decay(changes):
    built = model(**changes)
    decayed, kept = names_of_groups(built)
    assert kept == {name for name, _ in built.named_parameters() if "norm" in name or name.endswith("bias")}
    assert {"token_embedding.weight", "blocks.0.attention.query.weight"} <= decayed
    assert ("position_embedding.weight" in decayed) == ("position" in changes)


@pytest.mark.parametrize("tied", [False, True])
def test_every_parameter_once(tied):
    built = model(tie_embeddings=tied)
    built.alias = built.blocks[0].mlp  # under two names
    if tied:
        built.head = nn.Linear(12, 11, bias=False)
        built.head.weight = built.token_embedding.weight
    built.blocks[1].requires_grad_(False)
    groups = parameter_groups(built, 0.1)
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted({id(parameter) for parameter in built.parameters()})


def test_numbers_and_vectors_do_not_decay_and_a_group_may_be_empty():
    odd = nn.ParameterDict({"number": torch.ones(()), "vector": torch.ones(3), "filters": torch.ones(2, 1, 3)})
    assert names_of_groups(odd) == [{"filters"}, {"number", "vector"}]
    assert names_of_groups(nn.LayerNorm(4)) == [set(), {"weight", "bias"}]
    assert names_of_groups(nn.Linear(4, 4, bias=False)) == [{"weight"}, set()]


@pytest.mark.parametrize("optimizer", [AdamW, torch.optim.AdamW])
def test_an_optimizer_takes_them(optimizer):
    built = model(**GPT2)
    stepped = optimizer(parameter_groups(built, 0.5), lr=0.1)
    before = {name: parameter.detach().clone() for name, parameter in built.named_parameters()}
    for parameter in built.parameters():
        parameter.grad = torch.zeros_like(parameter)
    stepped.step()
    for name, parameter in built.named_parameters():
        factor = 1 if parameter.ndim < 2 else 1 - 0.1 * 0.5
        torch.testing.assert_close(parameter.detach(), before[name] * factor)


@pytest.mark.parametrize("weight_decay", [-0.1, math.nan, math.inf, "0.1", None])
def test_bad_weight_decay(weight_decay):
    with pytest.raises(ValueError, match="weight_decay must be a finite number from 0 on, not "):
        parameter_groups(nn.Linear(2, 2), weight_decay)


def test_a_model_without_parameters():
    with pytest.raises(ValueError, match="has no parameters: there is nothing to optimize"):
        parameter_groups(nn.Tanh(), 0.1)


def test_lazy_parameters_have_no_shape_to_go_by():
    lazy = nn.LazyLinear(3)
    with pytest.raises(ValueError, match="lazy parameters: give it one batch first"):
        parameter_groups(lazy, 0.1)
    lazy(torch.ones(2, 4))
    assert names_of_groups(lazy) == [{"weight"}, {"bias"}]
