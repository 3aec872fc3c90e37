"""Which parameters decay and which do not."""

from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from lmlib.checks import check, is_nonnegative

__all__ = ["parameter_groups"]


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for an optimizer: what decays, and after it what does not.

    Vectors and numbers do not: these are the gains of norms, and biases. Matrices
    do, embeddings among them. So GPT was trained, with decay "on all non bias or
    gain weights" (Radford et al. 2018, section 4.1).

    Every parameter is in one of them, once, however many names it has. So are the
    frozen: an optimizer passes over what has no gradient. A group may be empty.

    Raises ValueError for a model without parameters, or with lazy ones that have no
    shape yet, and for a ``weight_decay`` that is not a finite number from 0 on.
    """
    wanted = "a finite number from 0 on"
    check(is_nonnegative(weight_decay), "weight_decay", wanted, weight_decay)
    parameters = _checked_parameters(model)
    return [
        {
            "params": [p for p in parameters if p.ndim >= 2],
            "weight_decay": weight_decay,
        },
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def _checked_parameters(model: nn.Module) -> list[nn.Parameter]:
    parameters = list(model.parameters())  # tied ones once
    if not parameters:
        raise ValueError(
            "The model has no parameters: there is nothing to optimize."
        )
    if any(map(is_lazy, parameters)):
        raise ValueError(
            "The model has lazy parameters: give it one batch first, so that they "
            "get the shape that decides whether they decay."
        )
    return parameters
