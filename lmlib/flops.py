"""Work in FLOPs: by formula, which needs no torch, and counted by PyTorch.

A multiplication and an addition are two FLOPs. Only matrix products count: in a
Transformer they are more than 99 % of the work. FLOPs are work; FLOP/s are speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import prod
from typing import Any, Self

from lmlib.checks import check_size
from lmlib.config import ModelConfig

__all__ = [
    "ModelFlops",
    "attention_flops",
    "count_flops",
    "estimated_step_flops",
    "forward_flops",
    "linear_backward_flops",
    "linear_flops",
    "linear_intensity",
    "mfu",
    "step_flops",
    "working_parameters",
]


# --- parts ----------------------------------------------------------------------


def linear_flops(num_rows: int, d_in: int, d_out: int) -> int:
    """Return the FLOPs of ``(num_rows, d_in) @ (d_in, d_out)``.

    Each of the ``num_rows · d_out`` results adds ``d_in`` products.

    Raises ValueError for a size that is no whole number from 1 on.
    """
    _check_sizes(num_rows=num_rows, d_in=d_in, d_out=d_out)
    return 2 * num_rows * d_in * d_out


def linear_backward_flops(
    num_rows: int, d_in: int, d_out: int, input_gradient: bool = True
) -> int:
    """Return the FLOPs of a linear layer's backward pass.

    The gradient of the weights is one product of the forward's size, and that of
    the input another one. The first layer's input may need none.
    """
    return (1 + input_gradient) * linear_flops(num_rows, d_in, d_out)


def linear_intensity(
    num_rows: int, d_in: int, d_out: int, bytes_per_element: int = 2
) -> float:
    """Return the FLOPs per byte of ``(num_rows, d_in) @ (d_in, d_out)``.

    At best: both factors are read once, the product is written once, and caches
    keep what is needed again.
    """
    _check_sizes(bytes_per_element=bytes_per_element)
    flops = linear_flops(num_rows, d_in, d_out)
    elements = num_rows * d_in + d_in * d_out + num_rows * d_out
    return flops / (bytes_per_element * elements)


def attention_flops(
    batch_size: int,
    seq_len: int,
    num_heads: int,
    head_size: int,
    causal: bool = False,
) -> int:
    """Return the FLOPs of queries × keys and weights × values.

    By convention every query meets every key. ``causal`` halves that, for a kernel
    that leaves out what the mask hides. Fewer heads for keys and values save
    memory, and no work.
    """
    _check_sizes(
        batch_size=batch_size,
        seq_len=seq_len,
        num_heads=num_heads,
        head_size=head_size,
    )
    scores = 2 * batch_size * num_heads * seq_len * seq_len * head_size
    return scores if causal else 2 * scores


# --- a whole model --------------------------------------------------------------


@dataclass(frozen=True)
class ModelFlops:
    """FLOPs of a model by component; each counts those of all layers."""

    projections: int  # to queries, keys, values, and from the heads back
    attention: int  # queries × keys, weights × values
    mlp: int
    head: int

    @property
    def total(self) -> int:
        """The sum of all components."""
        return sum(getattr(self, field.name) for field in fields(self))

    def times(self, factor: int) -> Self:
        """Return each component times a factor."""
        return type(self)(
            **{f.name: factor * getattr(self, f.name) for f in fields(self)}
        )


def forward_flops(
    config: ModelConfig,
    batch_size: int = 1,
    seq_len: int | None = None,
    causal: bool = False,
) -> ModelFlops:
    """Return the FLOPs of a forward pass over sequences of ``seq_len`` tokens.

    ``seq_len`` left out is the config's context length; ``causal`` is that of
    ``attention_flops``. Looking up embeddings is no work.

    Raises ValueError for a size that is no whole number from 1 on.
    """
    seq_len = config.context_length if seq_len is None else seq_len
    _check_sizes(batch_size=batch_size, seq_len=seq_len)
    rows, d_model = batch_size * seq_len, config.d_model
    kv_size = config.num_kv_heads * config.head_size
    matrices = 3 if config.mlp == "swiglu" else 2
    # queries and output, keys and values
    projections = 2 * linear_flops(rows, d_model, d_model + kv_size)
    attention = attention_flops(
        batch_size, seq_len, config.num_heads, config.head_size, causal
    )
    return ModelFlops(
        projections=config.num_layers * projections,
        attention=config.num_layers * attention,
        mlp=config.num_layers * matrices * linear_flops(rows, d_model, config.d_ff),
        head=linear_flops(rows, d_model, config.vocab_size),
    )


def step_flops(
    config: ModelConfig,
    batch_size: int = 1,
    seq_len: int | None = None,
    causal: bool = False,
    checkpointing: bool = False,
) -> ModelFlops:
    """Return the FLOPs of a training step: forward and, twice as much, backward.

    Each product of the forward has two in the backward, one for each factor; the
    first layer's input is no exception, because the embeddings are trained.
    ``checkpointing`` runs the blocks forward a second time: work which the hardware
    does and MFU does not count. PyTorch leaves out each block's last product then,
    because backward does not need its result.
    """
    forward = forward_flops(config, batch_size, seq_len, causal)
    step = forward.times(3)
    if not checkpointing:
        return step
    return ModelFlops(
        projections=step.projections + forward.projections,
        attention=step.attention + forward.attention,
        mlp=step.mlp + forward.mlp,
        head=step.head,
    )


def working_parameters(config: ModelConfig) -> int:
    """Return N of 6·N: the parameters that a token is multiplied with.

    An embedding that is only looked up does no work; tied to the head, it does. The
    few of the norms are counted, as is customary.
    """
    counts = config.parameter_counts
    looked_up = 0 if config.tie_embeddings else counts.token_embedding
    return counts.total - counts.position_embedding - looked_up


def estimated_step_flops(
    config: ModelConfig, num_tokens: int, seq_len: int | None = None
) -> int:
    """Return 6·N + 12·L·H·K·T FLOPs for each of ``num_tokens`` tokens.

    2·N and 4·L·H·K·T are a forward pass. After Chowdhery et al. 2022 (PaLM),
    appendix B. Not halved for causal attention, which is the convention of MFU.
    """
    seq_len = config.context_length if seq_len is None else seq_len
    _check_sizes(num_tokens=num_tokens, seq_len=seq_len)
    attention = (
        12 * config.num_layers * config.num_heads * config.head_size * seq_len
    )
    return num_tokens * (6 * working_parameters(config) + attention)


def mfu(flops: float, seconds: float, peak_flops_per_second: float) -> float:
    """Return the model FLOPs utilisation: work over time, as a share of the peak.

    ``flops`` is what the model asks for: nothing that is computed a second time.
    For several devices give the sum of their peaks. Source: Chowdhery et al. 2022
    (PaLM), section 4.1. Raises ValueError if the time or the peak is not positive,
    or the work negative or not a number.
    """
    if not flops >= 0:
        raise ValueError(f"flops must be 0 or above, not {flops!r}.")
    if not (seconds > 0 and peak_flops_per_second > 0):  # NaN is neither
        raise ValueError("seconds and peak_flops_per_second must be positive.")
    return flops / seconds / peak_flops_per_second


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        check_size(name, size)


# --- counted --------------------------------------------------------------------


def count_flops(function: Callable[..., object], *arguments: Any) -> int:
    """Run a function and return the FLOPs that torch's counter finds in it.

    The counter is told about products with a vector, which it would leave out. An
    outer product stays uncounted, also as a gradient: to torch it is one of
    elements. Attention runs as plain matrix products meanwhile: on a CPU the
    counter knows no fused kernel, and elsewhere it adds the scores that backward
    computes again. On the meta device nothing is computed, and a model of any size
    can be counted.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.ops import aten
    from torch.utils.flop_counter import FlopCounterMode

    with_vectors = {
        aten.mv: lambda matrix, vector, **_: 2 * prod(matrix),
        aten.addmv: lambda bias, matrix, vector, **_: 2 * prod(matrix),
        aten.dot: lambda a, b, **_: 2 * prod(a),
        aten.vdot: lambda a, b, **_: 2 * prod(a),
    }
    counter = FlopCounterMode(display=False, custom_mapping=with_vectors)
    with sdpa_kernel(SDPBackend.MATH), counter:
        function(*arguments)
    return counter.get_total_flops()
