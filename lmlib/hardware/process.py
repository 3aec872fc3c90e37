"""What memory this process has taken, and whether there is none left."""

import re
import sys
from pathlib import Path

__all__ = ["is_out_of_memory", "peak_memory_bytes"]

STATUS = Path("/proc/self/status")

# of torch's allocators for CPU and GPU, of CUDA's libraries, and of sizes in bytes
# that no 64-bit number holds
_NO_MEMORY = re.compile(
    "out of memory|can't allocate memory|not enough memory|ALLOC_FAILED"
    "|Storage size calculation overflowed"
)


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


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left, of a CPU or of a GPU.

    torch raises a RuntimeError, of which only the GPU's has a kind of its own.
    """
    if isinstance(error, RuntimeError):
        return _NO_MEMORY.search(str(error)) is not None
    return isinstance(error, MemoryError)
