"""What a device reaches: matmul FLOP/s and copy bandwidth, measured or as sold."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from lmlib.checks import is_whole
from lmlib.dtypes import get_format
from lmlib.hardware.accelerators import (
    Accelerator,
    Peak,
    find_accelerator,
    peak_key,
)
from lmlib.hardware.devices import get_device
from lmlib.hardware.timing import LONG_ENOUGH, seconds_per_call, synchronize

if TYPE_CHECKING:
    import torch

__all__ = [
    "can_multiply",
    "can_store",
    "identify",
    "measure_copy_bandwidth",
    "measure_matmul_flops",
    "peak_bandwidth",
    "peak_flops",
]

SIZES = (256, 512, 1024, 2048, 4096, 8192)  # of square matrices
CPU_COPY_BYTES = 256 * 2**20  # more than most caches hold
GPU_COPY_BYTES = 2**30


def identify(device: str | torch.device = "auto") -> Accelerator | None:
    """Accelerator that a device of this machine is; None if no table has it."""
    import torch

    device = get_device(device)
    if device.type != "cuda":
        return None
    return find_accelerator(torch.cuda.get_device_name(device))


def peak_flops(dtype: object = "bf16", device: str | torch.device = "auto") -> Peak:
    """Peak of a device of this machine for a dtype, in FLOP/s.

    The data sheet's where there is one; otherwise what large matmuls reach here,
    and then ``measured`` is True. ``ValueError`` for a dtype that the device cannot
    multiply, or for a device that is not there.
    """
    device = get_device(device)
    accelerator = identify(device)
    if accelerator and peak_key(dtype) in accelerator.peak_flops:
        return accelerator.peak(dtype)
    value = measure_matmul_flops(dtype, device)
    return Peak(value, measured=True, source=f"matmul measured on {device}")


def peak_bandwidth(device: str | torch.device = "auto") -> Peak:
    """Memory bandwidth of a device of this machine, in B/s: as ``peak_flops``."""
    device = get_device(device)
    accelerator = identify(device)
    if accelerator:
        return accelerator.peak_bandwidth
    value = measure_copy_bandwidth(device)
    return Peak(value, measured=True, source=f"copy measured on {device}")


# --- measured ---------------------------------------------------------------------


def measure_matmul_flops(
    dtype: object = "fp32",
    device: str | torch.device = "auto",
    repeats: int = 5,
) -> float:
    """FLOP/s of the fastest square matmul: 2·n³ over the median of its time.

    The size n doubles until one product takes 20 ms, or its matrices would fill a
    quarter of a GPU's free memory. On an NVIDIA GPU fp32 is fp32 arithmetic, and
    tf32 that of fp32 tensors on tensor cores, whatever torch is set to.
    ``ValueError`` for a dtype that the device cannot multiply.
    """
    device = get_device(device)
    _check_multiplies(dtype, device)
    with _fp32_arithmetic(dtype, device):
        return max(_matmul_rates(dtype, device, repeats))


def _matmul_rates(
    dtype: object, device: torch.device, repeats: int
) -> Iterator[float]:
    """FLOP/s at one size after another."""
    for n in SIZES:
        if n > SIZES[0] and 3 * n * n * 4 > _free_bytes(device) / 4:
            return
        left, right = _matrix(n, dtype, device), _matrix(n, dtype, device)
        multiply = partial(operator.matmul, left, right)
        seconds = seconds_per_call(multiply, repeats, device)
        yield 2 * n**3 / seconds
        if seconds > LONG_ENOUGH:
            return


def _matrix(n: int, dtype: object, device: torch.device) -> torch.Tensor:
    """A random square matrix: zeros cost a GPU less power, and run faster."""
    import torch

    generator = torch.Generator(device).manual_seed(n)
    values = torch.randn(n, n, device=device, generator=generator)
    return values.to(_torch_dtype(dtype))


def _torch_dtype(dtype: object) -> torch.dtype:
    """The dtype of the tensors: for tf32 that of fp32, of which it is a use."""
    import torch

    format = get_format(dtype)
    if format.name == "tf32":
        return torch.float32
    for name in format.aliases:
        if isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
    raise ValueError(
        f"torch {torch.__version__} has no {format.name}: choose another dtype"
    )


def can_store(dtype: object, device: str | torch.device = "auto") -> bool:
    """Whether torch has tensors of a dtype on a device; of tf32 there are none."""
    return get_format(dtype).name != "tf32" and not _obstacle(
        lambda: _matrix(SIZES[0], dtype, get_device(device))
    )


def can_multiply(dtype: object, device: str | torch.device = "auto") -> bool:
    """Whether torch multiplies matrices of a dtype on a device: it is tried."""
    try:
        _check_multiplies(dtype, get_device(device))
    except ValueError:
        return False
    return True


def _check_multiplies(dtype: object, device: torch.device) -> None:
    name = get_format(dtype).name
    if name == "tf32" and not _has_tf32(device):
        raise ValueError(
            f"{device} has no tf32: it needs an NVIDIA GPU from Ampere on; "
            "choose fp32"
        )
    obstacle = _obstacle(lambda: _multiply_once(dtype, device))
    if obstacle:
        raise ValueError(
            f"torch cannot multiply {name} on {device}: choose another dtype "
            f"({obstacle})"
        )


def _multiply_once(dtype: object, device: torch.device) -> None:
    matrix = _matrix(SIZES[0], dtype, device)
    matrix @ matrix
    synchronize(device)


def _obstacle(attempt: Callable[[], object]) -> str:
    """First line of what torch says against something, empty if it does it."""
    try:
        attempt()
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


@contextmanager
def _fp32_arithmetic(dtype: object, device: torch.device) -> Iterator[None]:
    """Multiply fp32 tensors in tf32 or not, whatever torch was told before."""
    import torch

    wants_tf32 = get_format(dtype).name == "tf32"
    if device.type != "cuda":
        yield
        return
    backend = torch.backends.cuda.matmul
    # Since torch 2.9 there is a new switch, and mixing it with the old one raises.
    is_new = hasattr(backend, "fp32_precision")
    name = "fp32_precision" if is_new else "allow_tf32"
    value = ("tf32" if wants_tf32 else "ieee") if is_new else wants_tf32
    before = getattr(backend, name)
    setattr(backend, name, value)
    try:
        yield
    finally:
        setattr(backend, name, before)


def _has_tf32(device: torch.device) -> bool:
    import torch

    return (
        device.type == "cuda"
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def measure_copy_bandwidth(
    device: str | torch.device = "auto",
    nbytes: int | None = None,
    repeats: int = 5,
) -> float:
    """B/s of a copy within a device's memory, read and written bytes both counted.

    ``nbytes`` are copied: 256 MiB on a CPU and 1 GiB on a GPU, or an eighth of what
    it has free, unless given. ``ValueError`` unless it is a whole number from 1 on.
    """
    import torch

    device = get_device(device)
    if nbytes is None:
        default = CPU_COPY_BYTES if device.type == "cpu" else GPU_COPY_BYTES
        nbytes = int(min(default, _free_bytes(device) / 8))
    if not is_whole(nbytes, 1):
        raise ValueError(
            f"nbytes must be at least 1, and a whole number, not {nbytes!r}"
        )
    source = torch.ones(int(nbytes), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = seconds_per_call(lambda: target.copy_(source), repeats, device)
    return 2 * nbytes / seconds


def _free_bytes(device: torch.device) -> float:
    """Free memory of an NVIDIA GPU; elsewhere the sizes are taken to fit."""
    import torch

    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else inf
