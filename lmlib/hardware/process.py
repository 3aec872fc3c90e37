"""What this process has taken of its machine."""

import sys
from pathlib import Path

__all__ = ["peak_memory_bytes"]

STATUS = Path("/proc/self/status")


def peak_memory_bytes() -> int:
    """The most memory that this process has had at once, in bytes.

    On Linux it is VmHWM. getrusage, which other systems have, begins there with the
    peak of the process that started this one.
    """
    if STATUS.exists():
        lines = STATUS.read_text().splitlines()
        return 1024 * next(
            int(line.split()[1]) for line in lines if line.startswith("VmHWM:")
        )
    import resource  # which Windows has not

    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
