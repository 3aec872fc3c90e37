"""What a person sees of a run: a bar on a terminal, and some lines."""

import sys
from collections.abc import Mapping
from typing import Any

import torch
from tqdm import tqdm

from lmlib.hardware.process import peak_memory_bytes

__all__ = ["Progress", "memory_bytes"]


class Progress:
    """A bar with loss, tokens per second, MFU, memory and the time that is left.

    It is on standard error, if that is a terminal; ``say`` writes to standard
    output. With ``quiet`` both are silent, as on every rank but one.
    """

    def __init__(self, steps: int, first: int, quiet: bool) -> None:
        self.quiet = quiet
        self._bar = tqdm(
            total=steps,
            initial=first,
            unit="step",
            disable=True if quiet else None,  # None: unless there is a terminal
            leave=False,
        )

    def advance(self) -> None:
        """Count a step."""
        self._bar.update()

    def show(self, record: Mapping[str, Any]) -> None:
        """Show the numbers of a step beside the bar."""
        shown = {
            "loss": f"{record['loss']:.4f}",
            "tok/s": f"{record['tokens_per_second']:,.0f}",
            "MFU": f"{100 * record['mfu']:.0f}%",
            "GB": f"{record['memory_bytes'] / 1e9:.2f}",
        }
        self._bar.set_postfix(shown, refresh=False)

    def say(self, text: str) -> None:
        """Write lines above the bar."""
        if not self.quiet:
            self._bar.write(text, file=sys.stdout)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()


def memory_bytes(device: torch.device) -> int:
    """The most memory that was in use: of the GPU by torch, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_memory_bytes()
