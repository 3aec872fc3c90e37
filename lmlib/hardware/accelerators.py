"""Accelerators as their makers state them: peak FLOP/s, memory and bandwidth.

Peaks are dense. Data sheets like to print those "with sparsity", which are twice as
high, and which no training reaches. A figure that is not here was not found in the
source named, and is not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType

from lmlib.dtypes import get_format
from lmlib.hardware.roofline import Roofline

__all__ = [
    "ACCELERATORS",
    "Accelerator",
    "Peak",
    "find_accelerator",
    "get_accelerator",
]

TERA, GIGA = 10**12, 10**9


@dataclass(frozen=True)
class Peak:
    """A rate in FLOP/s or B/s, whether it was measured, and where it is from."""

    value: float
    measured: bool
    source: str


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One accelerator: dense peaks in FLOP/s, memory in bytes, bandwidth in B/s.

    The keys of ``peak_flops`` are dtypes: fp32 without tensor cores, tf32, bf16,
    fp16, and fp8 for both formats of it. ``torch_names`` are the names by which
    torch reports the device. ``source`` is where the figures stand.
    """

    key: str
    name: str
    peak_flops: Mapping[str, float] = field(hash=False)
    memory_bytes: int
    bandwidth: float
    source: str
    aliases: tuple[str, ...] = ()
    torch_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Keep the figures from being changed."""
        object.__setattr__(
            self, "peak_flops", MappingProxyType(dict(self.peak_flops))
        )

    def __reduce__(self) -> tuple[partial[Accelerator], tuple[()]]:
        """Copy and pickle by the fields, whose read-only mapping cannot be."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["peak_flops"] = dict(self.peak_flops)
        return partial(type(self), **values), ()

    def peak(self, dtype: object = "bf16") -> Peak:
        """Dense peak for a dtype, in FLOP/s.

        ``ValueError`` names the dtypes that the source gives when this is none.
        """
        key = peak_key(dtype)
        if key not in self.peak_flops:
            raise ValueError(
                f"{self.source} gives no {key} peak of the {self.name}: "
                f"choose from {', '.join(self.peak_flops)}"
            )
        return Peak(self.peak_flops[key], measured=False, source=self.source)

    @property
    def peak_bandwidth(self) -> Peak:
        """Peak of the memory bandwidth, in B/s."""
        return Peak(self.bandwidth, measured=False, source=self.source)

    def roofline(self, dtype: object = "bf16") -> Roofline:
        """Both limits of the data sheet; ``ValueError`` as for ``peak``."""
        return Roofline(self.peak(dtype).value, self.bandwidth)


def peak_key(dtype: object) -> str:
    """Key of a dtype in ``peak_flops``; ``ValueError`` for an unknown dtype."""
    if dtype == "fp8":
        return "fp8"
    name = get_format(dtype).name
    return "fp8" if name.startswith("fp8") else name


def _tera(**tera_flops: float) -> dict[str, float]:
    return {dtype: peak * TERA for dtype, peak in tera_flops.items()}


_A100 = _tera(bf16=312, fp16=312, tf32=156, fp32=19.5)
_H100_SXM = _tera(bf16=989.5, fp16=989.5, tf32=494.5, fp32=67, fp8=1979)

ACCELERATORS: tuple[Accelerator, ...] = (
    Accelerator(
        key="v100",
        name="V100 SXM2",
        peak_flops=_tera(fp16=125, fp32=15.7),
        memory_bytes=32 * GIGA,
        bandwidth=900 * GIGA,
        source="NVIDIA V100 data sheet",
        torch_names=("Tesla V100-SXM2-32GB",),
    ),
    Accelerator(
        key="a100-40gb",
        name="A100 SXM 40 GB",
        peak_flops=_A100,
        memory_bytes=40 * GIGA,
        bandwidth=1555 * GIGA,
        source="NVIDIA A100 data sheet",
        torch_names=("NVIDIA A100-SXM4-40GB",),
    ),
    Accelerator(
        key="a100-80gb",
        name="A100 SXM 80 GB",
        peak_flops=_A100,
        memory_bytes=80 * GIGA,
        bandwidth=2039 * GIGA,
        source="NVIDIA A100 data sheet",
        torch_names=("NVIDIA A100-SXM4-80GB",),
    ),
    Accelerator(
        key="h100",
        name="H100 SXM",
        peak_flops=_H100_SXM,
        memory_bytes=80 * GIGA,
        bandwidth=3350 * GIGA,
        source="NVIDIA H100 data sheet",
        aliases=("h100-sxm",),
        torch_names=("NVIDIA H100 80GB HBM3",),
    ),
    Accelerator(
        key="h100-pcie",
        name="H100 PCIe",
        peak_flops=_tera(bf16=756.5, fp16=756.5, tf32=378, fp32=51, fp8=1513),
        memory_bytes=80 * GIGA,
        bandwidth=2000 * GIGA,
        source="NVIDIA H100 data sheet",
        torch_names=("NVIDIA H100 PCIe",),
    ),
    Accelerator(
        key="h200",
        name="H200 SXM",
        peak_flops=_H100_SXM,
        memory_bytes=141 * GIGA,
        bandwidth=4800 * GIGA,
        source="NVIDIA H200 data sheet",
        aliases=("h200-sxm",),
        torch_names=("NVIDIA H200",),
    ),
    Accelerator(
        key="b200",
        name="B200",
        peak_flops=_tera(bf16=2250, fp16=2250, tf32=1125, fp8=4500),
        memory_bytes=180 * GIGA,
        bandwidth=8000 * GIGA,
        source="NVIDIA HGX B200 data sheet",
        torch_names=("NVIDIA B200",),
    ),
    Accelerator(
        key="l4",
        name="L4",
        peak_flops=_tera(bf16=121, fp16=121, tf32=60, fp32=30.3, fp8=242),
        memory_bytes=24 * GIGA,
        bandwidth=300 * GIGA,
        source="NVIDIA L4 data sheet",
        torch_names=("NVIDIA L4",),
    ),
    Accelerator(
        key="rtx-4090",
        name="RTX 4090",
        peak_flops=_tera(bf16=165, fp16=165, tf32=82.6, fp32=82.6, fp8=330),
        memory_bytes=24 * GIGA,
        bandwidth=1008 * GIGA,
        source="NVIDIA Ada architecture white paper",
        aliases=("4090",),
        torch_names=("NVIDIA GeForce RTX 4090",),
    ),
    Accelerator(
        key="tpu-v4",
        name="TPU v4",
        peak_flops=_tera(bf16=275),
        memory_bytes=32 * GIGA,
        bandwidth=1228 * GIGA,
        source="Google Cloud TPU documentation",
    ),
    Accelerator(
        key="tpu-v5p",
        name="TPU v5p",
        peak_flops=_tera(bf16=459),
        memory_bytes=95 * GIGA,
        bandwidth=2765 * GIGA,
        source="Google Cloud TPU documentation",
    ),
)
"""All that are known, each with the source of its figures."""


def _spelling(name: str) -> str:
    """A name without what people write differently: case, spaces, hyphens."""
    return "".join(filter(str.isalnum, name.casefold()))


def get_accelerator(name: str) -> Accelerator:
    """Accelerator by its key, its name, or the name that torch reports.

    ``ValueError`` lists the keys when there is none of that name.
    """
    found = find_accelerator(str(name))
    for each in ACCELERATORS:
        names = (each.key, each.name, *each.aliases)
        if _spelling(str(name)) in map(_spelling, names):
            found = each
    if found is None:
        keys = ", ".join(each.key for each in ACCELERATORS)
        raise ValueError(f"unknown accelerator {str(name)!r}: choose from {keys}")
    return found


def find_accelerator(torch_name: str) -> Accelerator | None:
    """Accelerator that torch reports by that name, or None.

    The whole name has to fit, since those that share a part of it (PCIe, NVL, a
    laptop's, a slice of one) have other peaks. Older drivers leave out ``NVIDIA``.
    """
    short_name = torch_name.casefold().removeprefix("nvidia ")
    for each in ACCELERATORS:
        names = [
            name.casefold().removeprefix("nvidia ") for name in each.torch_names
        ]
        if short_name in names:
            return each
    return None
