"""Gradient clipping by the norm of all gradients together."""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from lmlib.checks import check, is_number

__all__ = ["clip_grad_norm_"]

Gradient = Float[Tensor, "..."]


@torch.no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    *,
    error_if_nonfinite: bool = False,
) -> Float[Tensor, ""]:
    """Shorten all gradients by one factor if together they exceed ``max_norm``.

    So their direction stays. Returns the norm before clipping, on the device of the
    first gradient; a ``max_norm`` of ``math.inf`` only measures it. Gradients that
    were scaled for fp16 must be unscaled first. Source: Pascanu et al. 2013,
    Algorithm 1.

    As ``torch.nn.utils.clip_grad_norm_``, but for gradients of 16 bits: their norm
    has 32 here and 16 there, which in fp16 end at 65,504.

    Raises ValueError for a ``max_norm`` that is not above 0, and with
    ``error_if_nonfinite`` RuntimeError for a norm that is infinite or not a number,
    before any gradient has changed; without it, such a norm spoils all of them.
    RuntimeError for a sparse gradient, too.
    """
    unlimited = isinstance(max_norm, float) and max_norm == math.inf
    is_positive = unlimited or (is_number(max_norm) and max_norm > 0)
    check(is_positive, "max_norm", "a number above 0, such as 1.0", max_norm)
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    once = dict.fromkeys(parameters)  # given twice, they would shrink twice
    gradients = [p.grad for p in once if p.grad is not None]
    if any(gradient.layout != torch.strided for gradient in gradients):
        raise RuntimeError(
            "A gradient is sparse, and its norm is not known: make it dense (an "
            "embedding without sparse=True)."
        )
    norm = _global_norm(gradients)
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(
            f"The norm of the gradients is {norm.item()}, and no factor would make "
            "them finite: skip this step, and see whether the loss was finite."
        )
    # An `if norm > max_norm` would have to wait for a GPU to know.
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.to(gradient.device))
    return norm


def _global_norm(gradients: list[Gradient]) -> Float[Tensor, ""]:
    """√(Σ g²) over all elements: the norm of the norms, in fp32 or wider."""
    if not gradients:
        return torch.tensor(0.0)
    first = gradients[0].device
    norms = [
        torch.linalg.vector_norm(
            g, dtype=torch.promote_types(g.dtype, torch.float32)
        )
        for g in gradients
    ]
    return torch.linalg.vector_norm(torch.stack([norm.to(first) for norm in norms]))
