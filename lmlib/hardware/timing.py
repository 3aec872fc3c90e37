"""How long something takes: warmed up, waited for, and the median of several."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["median_seconds", "synchronize"]


def median_seconds(
    function: Callable[[], object],
    repeats: int = 5,
    device: str | torch.device = "cpu",
) -> float:
    """Median wall time of a call, in seconds, until ``device`` has done its work.

    One call that is not counted comes first, and pays for pages and caches.
    ``ValueError`` unless ``repeats`` is a whole number from 1 on.
    """
    if not isinstance(repeats, Integral) or repeats < 1:
        raise ValueError(
            f"repeats must be at least 1, and a whole number, not {repeats!r}"
        )
    function()
    times = []
    for _ in range(repeats):
        synchronize(device)
        start = perf_counter()
        function()
        synchronize(device)
        times.append(perf_counter() - start)
    return median(times)


def synchronize(device: str | torch.device) -> None:
    """Wait for what a device was given to do; a CPU is never behind."""
    kind = str(device).partition(":")[0]
    if kind == "cuda":
        import torch

        torch.cuda.synchronize(device)
    elif kind == "mps":
        import torch

        torch.mps.synchronize()
