"""One token, drawn from the distribution that its logits make."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lmlib.checks import check, is_nonnegative, is_number, is_whole

__all__ = ["check_options", "keep_top_k", "keep_top_p", "sample"]


def sample(
    logits: Float[Tensor, " vocab_size"],
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: Generator | None = None,
) -> int:
    """Draw a token from the distribution that its logits make.

    ``temperature`` divides the logits: below 1 the likely become likelier, and 0
    always takes the likeliest. ``top_k`` keeps that many of the likeliest tokens,
    and ``top_p`` then the fewest that together have this probability. The draw is
    made on the CPU, so that a ``generator`` gives the same on every device.

    Raises ValueError for an option out of range, and for logits with a NaN or +∞.
    """
    check_options(temperature, top_k, top_p)
    logits = logits.float().cpu()  # (V)
    if not logits.max().isfinite():
        raise ValueError(
            "The logits hold a NaN or an infinity: the model's weights are broken."
        )
    if temperature == 0:
        return int(logits.argmax())
    # The largest becomes 0, which a small temperature does not divide up to
    # infinity; in fp64, for in fp32 it could be a 0 itself.
    logits = ((logits - logits.max()).double() / float(temperature)).float()
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if top_p is not None:
        logits = keep_top_p(logits, top_p)
    return int(torch.multinomial(logits.softmax(-1), 1, generator=generator))


def keep_top_k(
    logits: Float[Tensor, " vocab_size"], top_k: int
) -> Float[Tensor, " vocab_size"]:
    """Set all logits to −∞ but the ``top_k`` largest.

    Source: Fan et al. 2018, section 5.4.
    """
    top = logits.topk(min(top_k, len(logits))).indices  # ties too are cut at k
    return torch.full_like(logits, -torch.inf).scatter(0, top, logits[top])


def keep_top_p(
    logits: Float[Tensor, " vocab_size"], top_p: float
) -> Float[Tensor, " vocab_size"]:
    """Set to −∞ what the fewest tokens with probability ``top_p`` leave over.

    The likeliest always stays. Source: Holtzman et al. 2020, section 3.1.
    """
    ordered, order = logits.sort(descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities  # what likelier ones have
    surplus = before >= top_p
    surplus[0] = False  # in fp32 a small top_p is 0
    ordered = ordered.masked_fill(surplus, -torch.inf)
    return torch.empty_like(logits).scatter(0, order, ordered)


def check_options(
    temperature: float, top_k: int | None, top_p: float | None
) -> None:
    """ValueError for an option of ``sample`` that is out of range."""
    wanted = "a number from 0 on"
    check(is_nonnegative(temperature), "temperature", wanted, temperature)
    if top_k is not None:
        check(is_whole(top_k, 1), "top_k", "a whole number from 1 on", top_k)
    if top_p is not None:
        holds = is_number(top_p) and 0 < top_p <= 1
        check(holds, "top_p", "above 0 and at most 1", top_p)
