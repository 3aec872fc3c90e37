"""Hardware: accelerators as sold, the devices of this machine, what they reach."""

from lmlib.hardware.accelerators import (
    ACCELERATORS,
    Accelerator,
    Peak,
    find_accelerator,
    get_accelerator,
)
from lmlib.hardware.devices import available_devices, get_device
from lmlib.hardware.doctor import diagnose
from lmlib.hardware.peaks import (
    identify,
    measure_copy_bandwidth,
    measure_matmul_flops,
    peak_bandwidth,
    peak_flops,
)
from lmlib.hardware.roofline import Roofline
from lmlib.hardware.timing import median_seconds, seconds_per_call, synchronize

__all__ = [
    "ACCELERATORS",
    "Accelerator",
    "Peak",
    "Roofline",
    "available_devices",
    "diagnose",
    "find_accelerator",
    "get_accelerator",
    "get_device",
    "identify",
    "measure_copy_bandwidth",
    "measure_matmul_flops",
    "median_seconds",
    "peak_bandwidth",
    "peak_flops",
    "seconds_per_call",
    "synchronize",
]
