"""What every parameter costs, whatever the batch; by formula, and measured.

It is itself, its gradient, the state of AdamW, and a copy in fp32 where the
parameter itself has 16 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from lmlib.checks import check_count

if TYPE_CHECKING:
    import torch

__all__ = [
    "RECIPES",
    "Ledger",
    "Recipe",
    "get_recipe",
    "ledger",
    "measured_ledger",
]


@dataclass(frozen=True)
class Recipe:
    """Bytes per parameter of a way to train with AdamW, by component."""

    description: str
    parameters: int
    gradients: int
    optimizer_state: int  # two moments
    master_weights: int = 0

    @property
    def total(self) -> int:
        """Bytes per parameter in all."""
        kept = self.parameters + self.gradients + self.optimizer_state
        return kept + self.master_weights


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "bf16": Recipe("everything in bf16, the moments too", 2, 2, 2 + 2),
        "bf16-fp32-moments": Recipe(
            "bf16 weights without a copy, moments in fp32", 2, 2, 4 + 4
        ),
        "fp32": Recipe("everything in fp32; the same under autocast", 4, 4, 4 + 4),
        "bf16-master": Recipe(
            "bf16 weights and gradients, and the weights in fp32", 2, 2, 4 + 4, 4
        ),
        "bf16-master-fp32-gradients": Recipe(
            "the same, with gradients kept in fp32", 2, 4, 4 + 4, 4
        ),
        "bf16-master-both-gradients": Recipe(
            "the same, with gradients kept in bf16 and in fp32", 2, 2 + 4, 4 + 4, 4
        ),
    }
)
"""Ways to keep weights, gradients and optimizer state, by name."""


@dataclass(frozen=True)
class Ledger:
    """Bytes of a model in training, activations apart."""

    parameters: int
    gradients: int
    optimizer_state: int
    master_weights: int

    @property
    def total(self) -> int:
        """The sum of all components."""
        kept = self.parameters + self.gradients + self.optimizer_state
        return kept + self.master_weights


def get_recipe(name: str) -> Recipe:
    """The recipe of that name in ``RECIPES``; ValueError lists the names."""
    if name not in RECIPES:
        known = ", ".join(RECIPES)
        raise ValueError(f"There is no recipe {name!r}: choose one of {known}.")
    return RECIPES[name]


def ledger(
    num_parameters: int, recipe: str = "fp32", num_tensors: int = 0
) -> Ledger:
    """Return the bytes of training with a recipe of ``RECIPES``.

    PyTorch's AdamW counts steps for each of the ``num_tensors`` parameter tensors,
    in 4 bytes; left out, these few bytes are not counted.

    Raises ValueError for a recipe that is not known, and for a number that is not
    whole or negative.
    """
    bytes_each = get_recipe(recipe)
    num_parameters = check_count("num_parameters", num_parameters)
    num_tensors = check_count("num_tensors", num_tensors)
    return Ledger(
        parameters=num_parameters * bytes_each.parameters,
        gradients=num_parameters * bytes_each.gradients,
        optimizer_state=num_parameters * bytes_each.optimizer_state
        + 4 * num_tensors,
        master_weights=num_parameters * bytes_each.master_weights,
    )


def measured_ledger(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> Ledger:
    """Return the bytes that PyTorch holds for a model and its optimizer.

    What the optimizer steps and the model does not hold counts as master weights. A
    tensor that several names share counts once. There are gradients only after a
    backward pass, and there is state only after a step.
    """
    from lmlib.tensors import storage_nbytes  # which imports torch

    own = list(model.parameters())
    stepped = [p for group in optimizer.param_groups for p in group["params"]]
    masters = [p for p in stepped if all(p is not q for q in own)]
    gradients = [p.grad for p in [*own, *masters] if p.grad is not None]
    values = [
        value for state in optimizer.state.values() for value in state.values()
    ]
    return Ledger(
        parameters=storage_nbytes(own),
        gradients=storage_nbytes(gradients),
        optimizer_state=storage_nbytes(v for v in values if hasattr(v, "stride")),
        master_weights=storage_nbytes(masters),
    )
