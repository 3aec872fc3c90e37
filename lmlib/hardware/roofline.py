"""The roofline: the most FLOP/s that peak and bandwidth leave to an operation."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Roofline"]


@dataclass(frozen=True)
class Roofline:
    """A device as two limits: ``peak_flops`` in FLOP/s, ``bandwidth`` in B/s.

    Source: Williams, Waterman and Patterson 2009. Raises ValueError for a limit
    that is not above 0.
    """

    peak_flops: float
    bandwidth: float

    def __post_init__(self) -> None:
        """Check both limits."""
        for name in ("peak_flops", "bandwidth"):
            limit = getattr(self, name)
            if not limit > 0:  # which NaN is not, either
                raise ValueError(f"{name} must be above 0, not {limit!r}.")

    @property
    def ridge(self) -> float:
        """FLOPs per byte from which on the peak is the limit."""
        return self.peak_flops / self.bandwidth

    def limit(self, intensity: float) -> float:
        """FLOP/s that an operation of so many FLOPs per byte can reach.

        Raises ValueError for an intensity that is not a number from 0 on.
        """
        if not intensity >= 0:  # which NaN is not, either
            raise ValueError(f"intensity must be 0 or above, not {intensity!r}.")
        return min(self.peak_flops, intensity * self.bandwidth)
