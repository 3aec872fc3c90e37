"""lmlib.memory.recipes: what training costs per parameter, to the byte."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from lmlib.memory import RECIPES, Ledger, ledger, measured_ledger


def small_model(dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 33), nn.LayerNorm(33), nn.Linear(33, 7, bias=False)).to(dtype)


def train_with_own_weights(model, state_dtype=None):
    """One step of AdamW over the model's own weights; moments may be kept in another dtype."""
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 10, dtype=next(model.parameters()).dtype)).sum().backward()
    optimizer.step()
    if state_dtype:
        for state in optimizer.state.values():
            state.update({name: state[name].to(state_dtype) for name in ("exp_avg", "exp_avg_sq")})
    return measured_ledger(model, optimizer)


def train_with_master_weights(model, fp32_gradients, keep_bf16_gradients):
    """One step over copies in fp32, as mixed-precision optimizers take it."""
    masters = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    optimizer = torch.optim.AdamW(masters)
    model(torch.ones(2, 10, dtype=torch.bfloat16)).sum().backward()
    for master, parameter in zip(masters, model.parameters(), strict=True):
        master.grad = parameter.grad.float()
    optimizer.step()
    for master, parameter in zip(masters, model.parameters(), strict=True):
        parameter.data.copy_(master.data)
        master.grad = master.grad if fp32_gradients else None
        parameter.grad = parameter.grad if keep_bf16_gradients else None
    return measured_ledger(model, optimizer)


TRAINED = {
    "bf16": lambda: train_with_own_weights(small_model(torch.bfloat16)),
    "bf16-fp32-moments": lambda: train_with_own_weights(small_model(torch.bfloat16), torch.float32),
    "fp32": lambda: train_with_own_weights(small_model(torch.float32)),
    "bf16-master": lambda: train_with_master_weights(small_model(torch.bfloat16), False, True),
    "bf16-master-fp32-gradients": lambda: train_with_master_weights(small_model(torch.bfloat16), True, False),
    "bf16-master-both-gradients": lambda: train_with_master_weights(small_model(torch.bfloat16), True, True),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_ledger_is_what_torch_holds(recipe):
    parameters = list(small_model(torch.float32).parameters())
    expected = ledger(sum(p.numel() for p in parameters), recipe, num_tensors=len(parameters))
    assert TRAINED[recipe]() == expected


def test_autocast_costs_what_fp32_does():
    model = small_model(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.ones(2, 10)).sum()
    loss.backward()
    optimizer.step()
    parameters = list(model.parameters())
    assert measured_ledger(model, optimizer) == ledger(sum(p.numel() for p in parameters), "fp32", len(parameters))


def test_bytes_per_parameter():
    assert [recipe.total for recipe in RECIPES.values()] == [8, 12, 16, 16, 18, 20]
    assert ledger(10**9, "bf16-master").total == 16 * 10**9


def test_shared_weights_count_once():
    embedding = nn.Embedding(11, 5)
    head = nn.Linear(5, 11, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    optimizer = torch.optim.AdamW(model.parameters())
    before = measured_ledger(model, optimizer)
    assert before == Ledger(parameters=220, gradients=0, optimizer_state=0, master_weights=0)
    model(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert measured_ledger(model, optimizer) == ledger(55, "fp32", num_tensors=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, "fp8"), "no recipe 'fp8': choose one of bf16,"),
        ((-1,), "num_parameters must be a whole number from 0 on, such as 64 or 70e9, not -1"),
        ((1.5,), "num_parameters must be a whole number"),
        ((True,), "num_parameters must be a whole number"),
        (("70e9",), "num_parameters must be .*, not '70e9'"),
        ((math.nan,), "num_parameters must be .*, not nan"),
        ((math.inf,), "num_parameters must be .*, not inf"),
        ((1, "fp32", -1), "num_tensors must be a whole number from 0 on"),
    ],
)
def test_it_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        ledger(*arguments)


def test_a_whole_float_is_a_number_of_parameters():
    assert repr(ledger(70e9, "bf16-master")) == repr(ledger(70_000_000_000, "bf16-master"))


def test_counts_of_numpy_do_not_overflow():
    assert ledger(np.int32(2**31 - 1)).total == 16 * (2**31 - 1)
