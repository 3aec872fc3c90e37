"""What this machine has, what it reaches, and what it lacks: ``lmlib doctor``."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lmlib import __version__
from lmlib.hardware.accelerators import Accelerator, peak_key
from lmlib.hardware.devices import available_devices, get_device
from lmlib.hardware.installation import (
    Missing,
    Package,
    driver_version,
    find_missing,
    import_torch,
    required_packages,
)
from lmlib.hardware.peaks import (
    can_multiply,
    can_store,
    identify,
    measure_copy_bandwidth,
    measure_matmul_flops,
)

if TYPE_CHECKING:
    import torch

__all__ = ["DeviceFacts", "Diagnosis", "DtypeFacts", "diagnose"]

DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8_e4m3fn", "fp8_e5m2")
MEASURED = ("fp32", "tf32", "bf16", "fp16")
CPU_FACTS = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class DtypeFacts:
    """What a device does with a dtype, and how fast, in FLOP/s of dense matmuls.

    ``support`` is ``"matmul"``, ``"storage"`` where torch holds values but does not
    multiply them, or ``"none"``. A rate that is not known is None.
    """

    dtype: str
    support: Literal["matmul", "storage", "none"]
    measured_flops: float | None
    data_sheet_flops: float | None


@dataclass(frozen=True)
class DeviceFacts:
    """A device: memory in bytes, bandwidth in B/s, and its dtypes.

    ``data_sheet`` names the source of the maker's figures; where it is None, what
    is measured stands in for them.
    """

    device: str
    model: str
    memory_bytes: int | None
    compute_capability: str | None
    threads: int | None
    data_sheet: str | None
    dtypes: tuple[DtypeFacts, ...]
    measured_bandwidth: float | None
    data_sheet_bandwidth: float | None


@dataclass(frozen=True)
class Diagnosis:
    """Versions, devices and what is missing; ``torch`` is None where it is not."""

    lmlib: str
    python: str
    platform: str
    torch: str | None
    cuda: str | None
    driver: str | None
    packages: tuple[Package, ...]
    devices: tuple[DeviceFacts, ...]
    missing: tuple[Missing, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the same as dictionaries and lists, ready for JSON."""
        return asdict(self)


def diagnose(device: str = "all", measure: bool = True) -> Diagnosis:
    """Look at this machine, and measure the devices unless told not to.

    ``device`` is one of ``available_devices()``, ``"auto"``, or ``"all"``.
    ``ValueError`` names those that exist when it is not.
    """
    torch = import_torch()
    driver = driver_version()
    packages = required_packages()
    return Diagnosis(
        lmlib=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        torch=torch.__version__ if torch else None,
        cuda=torch.version.cuda if torch else None,
        driver=driver,
        packages=packages,
        devices=tuple(
            _device_facts(each, measure) for each in _chosen(torch, device)
        ),
        missing=find_missing(packages, torch, driver),
    )


def _chosen(torch: Any, device: str) -> Iterator[torch.device]:
    if torch is None:
        return
    names = available_devices() if device == "all" else (device,)
    yield from map(get_device, names)


def _device_facts(device: torch.device, measure: bool) -> DeviceFacts:
    import torch

    accelerator = identify(device)
    is_cuda = device.type == "cuda"
    capability = torch.cuda.get_device_capability(device) if is_cuda else None
    return DeviceFacts(
        device=str(device),
        model=_model(device),
        memory_bytes=_memory_bytes(device),
        compute_capability="{}.{}".format(*capability) if capability else None,
        threads=torch.get_num_threads() if device.type == "cpu" else None,
        data_sheet=accelerator.source if accelerator else None,
        dtypes=tuple(_dtype_facts(d, device, accelerator, measure) for d in DTYPES),
        measured_bandwidth=measure_copy_bandwidth(device) if measure else None,
        data_sheet_bandwidth=accelerator.bandwidth if accelerator else None,
    )


def _dtype_facts(
    dtype: str,
    device: torch.device,
    accelerator: Accelerator | None,
    measure: bool,
) -> DtypeFacts:
    multiplies = can_multiply(dtype, device)
    stores = multiplies or can_store(dtype, device)
    peaks = accelerator.peak_flops if accelerator else {}
    is_measured = measure and multiplies and dtype in MEASURED
    return DtypeFacts(
        dtype=dtype,
        support="matmul" if multiplies else "storage" if stores else "none",
        measured_flops=measure_matmul_flops(dtype, device) if is_measured else None,
        data_sheet_flops=peaks.get(peak_key(dtype)),
    )


def _model(device: torch.device) -> str:
    """What the device is called."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu" and CPU_FACTS.is_file():
        found = re.search(r"model name\s*: (.+)", CPU_FACTS.read_text())
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def _memory_bytes(device: torch.device) -> int | None:
    """Memory in bytes: a GPU's own, this machine's for a CPU; None if unknown."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
