"""Bytes of keys and values that a model keeps while it generates; by formula."""

from __future__ import annotations

from lmlib.checks import check, check_size
from lmlib.config import ModelConfig
from lmlib.memory.activations import ITEM_SIZES, PRECISIONS

__all__ = ["kv_cache_bytes"]


def kv_cache_bytes(
    config: ModelConfig,
    batch_size: int = 1,
    num_tokens: int | None = None,
    *,
    precision: str = "fp32",
) -> int:
    """Return the bytes of a ``KVCache``: 2·L·B·S·G·K elements.

    Each layer keeps a key and a value of K elements for each of G key-value heads,
    and that for each of S tokens of B texts. ``num_tokens`` left out is the
    config's context length. ``precision`` is as in ``saved_tensors``: keys are
    results of products, which autocast makes bf16.

    Raises ValueError for a size that is no whole number from 1 on, for more tokens
    than the context length, and for an unknown precision.
    """
    longest = config.context_length
    num_tokens = longest if num_tokens is None else num_tokens
    check_size("batch_size", batch_size)
    if check_size("num_tokens", num_tokens) > longest:
        raise ValueError(
            f"num_tokens is {num_tokens}, beyond the context_length of {longest}: "
            "a cache ends there."
        )
    wanted = f"one of {', '.join(PRECISIONS)}"
    check(precision in PRECISIONS, "precision", wanted, precision)
    item_size = ITEM_SIZES["float32" if precision == "fp32" else "bfloat16"]
    kv_size = config.num_kv_heads * config.head_size  # G·K
    return 2 * config.num_layers * batch_size * num_tokens * kv_size * item_size
