"""In which precision a model computes: autocast and its scaler; int8 for inference.

What a step then saves for backward, by dtype, is what
``lmlib.memory.saved_tensor_bytes`` measures and ``saved_tensors`` says by formula.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int8
from torch import Tensor, nn

__all__ = [
    "PRECISIONS",
    "Int8Linear",
    "Precision",
    "get_precision",
    "make_scaler",
    "precision_context",
    "quantize_rows",
    "to_precision",
]


@dataclass(frozen=True)
class Precision:
    """How parameters are kept, and what products of matrices are computed in.

    Gradients have the dtype of their parameters, whatever autocast does between.
    """

    description: str
    parameters: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    float32_products: str = "highest"  # torch.set_float32_matmul_precision


PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        "fp32": Precision("everything in fp32"),
        "tf32": Precision(
            "fp32 in memory, rounded to 10 bits of fraction where a GPU multiplies",
            float32_products="high",
        ),
        "bf16-autocast": Precision(
            "fp32 parameters, products in bf16", autocast=torch.bfloat16
        ),
        "fp16-autocast": Precision(
            "fp32 parameters, products in fp16, losses scaled",
            autocast=torch.float16,
        ),
        "bf16": Precision("everything in bf16", parameters=torch.bfloat16),
    }
)
"""What a model is computed in, by name."""


def get_precision(mode: str) -> Precision:
    """The precision of that name in ``PRECISIONS``; ValueError lists the names."""
    if mode not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise ValueError(f"There is no precision {mode!r}: choose one of {known}.")
    return PRECISIONS[mode]


def to_precision(model: nn.Module, mode: str) -> nn.Module:
    """Cast a model's parameters as a mode keeps them, and return it.

    Warns of pure bf16, in which training stalls without master weights in fp32.
    """
    precision = get_precision(mode)
    if precision.parameters == torch.bfloat16:
        warnings.warn(
            "In bf16 an update below 1/512 of its weight is rounded away: train "
            "with master weights in fp32, or with bf16-autocast.",
            stacklevel=2,
        )
    return model.to(precision.parameters)


def make_scaler(
    mode: str, device: torch.device | str = "cpu"
) -> torch.amp.GradScaler:
    """A scaler of losses that works for fp16, and for other modes does nothing."""
    enabled = get_precision(mode).autocast == torch.float16
    return torch.amp.GradScaler(torch.device(device).type, enabled=enabled)


@contextmanager
def precision_context(
    mode: str,
    device: torch.device | str = "cpu",
    scaler: torch.amp.GradScaler | None = None,
) -> Iterator[None]:
    """Compute a forward pass and its loss in a mode of ``PRECISIONS``.

    The backward of autocast belongs outside: it takes the dtypes of its forward.
    That of tf32 belongs inside, or its products are in fp32.

    Raises ValueError for an unknown mode, for tf32 on anything but a GPU, and for
    fp16 with gradients but without an enabled ``scaler``.
    """
    precision = get_precision(mode)
    device_type = torch.device(device).type
    _check_tf32(mode, device_type)
    _check_scaler(precision, scaler)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision.float32_products)
    enabled = precision.autocast is not None
    try:
        with torch.autocast(device_type, precision.autocast, enabled=enabled):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _check_tf32(mode: str, device_type: str) -> None:
    if mode == "tf32" and device_type != "cuda":
        raise ValueError(
            "tf32 is what NVIDIA GPUs multiply in, from Ampere on: for "
            f"{device_type} choose fp32 or bf16-autocast."
        )


def _check_scaler(
    precision: Precision, scaler: torch.amp.GradScaler | None
) -> None:
    scaled = scaler is not None and scaler.is_enabled()
    needed = precision.autocast == torch.float16 and torch.is_grad_enabled()
    if needed and not scaled:
        raise ValueError(
            "In fp16 gradients below 2⁻²⁵ become 0, and training stalls: pass the "
            "scaler that you step with, such as make_scaler('fp16-autocast'), or "
            "choose bf16-autocast, which needs none."
        )


# --- int8 -----------------------------------------------------------------------


def quantize_rows(
    weight: Float[Tensor, "d_out d_in"],
) -> tuple[Int8[Tensor, "d_out d_in"], Float[Tensor, " d_out"]]:
    """Round each row to whole multiples of 1/127 of its largest absolute value.

    Returns the multiples and, for each row, what one of them is worth: a weight is
    off by half of that at most. A row of zeros stays one.

    Raises ValueError for a weight that is no matrix, has no columns, or is not
    finite in fp32.
    """
    if weight.ndim != 2 or not weight.shape[1]:
        raise ValueError(
            f"A weight of shape {tuple(weight.shape)} has no rows to be rounded: "
            "pass a matrix (d_out, d_in)."
        )
    wide = weight.float()
    if not wide.isfinite().all():
        raise ValueError("A weight that is not finite cannot be rounded to int8.")
    scales = wide.abs().amax(dim=1) / 127  # (d_out)
    steps = wide / scales.where(scales > 0, 1)[:, None]
    return steps.round().to(torch.int8), scales


class Int8Linear(nn.Module):
    """A linear layer with int8 weights, for inference; its inputs stay as they are.

    A weight takes 1 byte, and each row 4 more for its scale. Without a compiler,
    each call makes a copy of the weights in the dtype of its input: that saves
    memory between calls, not time.
    """

    def __init__(
        self,
        weight: Float[Tensor, "d_out d_in"],
        bias: Float[Tensor, " d_out"] | None = None,
    ) -> None:
        super().__init__()
        quantized, scales = quantize_rows(weight.detach())
        self.register_buffer("weight", quantized)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", None if bias is None else bias.detach())

    @classmethod
    def from_linear(cls, linear: nn.Linear) -> Self:
        """The layer whose weights are those of ``linear``, rounded."""
        return cls(linear.weight, linear.bias)

    @torch.no_grad()
    def forward(self, x: Float[Tensor, "... d_in"]) -> Float[Tensor, "... d_out"]:
        """The product with each row's whole numbers, times what one is worth."""
        y = F.linear(x, self.weight.to(x.dtype)) * self.scales.to(x.dtype)
        return y if self.bias is None else y + self.bias.to(x.dtype)
