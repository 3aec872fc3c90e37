"""How long something takes: warmed up, waited for, and the median of several."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from lmlib.checks import check, is_whole

if TYPE_CHECKING:
    import torch

__all__ = ["median_seconds", "seconds_per_call", "synchronize"]

LONG_ENOUGH = 0.02  # seconds, beside which the call and the clock cost nothing


def median_seconds(
    function: Callable[[], object],
    repeats: int = 5,
    device: str | torch.device = "cpu",
) -> float:
    """Median wall time of a call, in seconds, until ``device`` has done its work.

    One call that is not counted comes first, and pays for pages and caches.
    ``ValueError`` unless ``repeats`` is a whole number from 1 on.
    """
    check(is_whole(repeats, 1), "repeats", "a whole number from 1 on", repeats)
    function()
    times = []
    for _ in range(repeats):
        synchronize(device)
        start = perf_counter()
        function()
        synchronize(device)
        times.append(perf_counter() - start)
    return median(times)


def seconds_per_call(
    function: Callable[[], object],
    repeats: int = 5,
    device: str | torch.device = "cpu",
) -> float:
    """Wall time of a short call, in seconds: the median of several rows of calls.

    A row takes 20 ms or more, so that the clock, and a GPU that is waited for once
    a row, cost next to nothing. ``ValueError`` as for ``median_seconds``.
    """
    once = median_seconds(function, repeats=1, device=device)
    calls = max(1, ceil(LONG_ENOUGH / once)) if once > 0 else 1000

    def row() -> None:
        for _ in range(calls):
            function()

    return median_seconds(row, repeats, device) / calls


def synchronize(device: str | torch.device) -> None:
    """Wait for what a device was given to do; a CPU is never behind."""
    kind = str(device).partition(":")[0]
    if kind == "cuda":
        import torch

        torch.cuda.synchronize(device)
    elif kind == "mps":
        import torch

        torch.mps.synchronize()
