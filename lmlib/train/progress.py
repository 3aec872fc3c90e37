"""What a person sees of a run: a bar on a terminal, or lines in a log file."""

import sys
from collections.abc import Mapping
from time import monotonic
from typing import Any

import torch
from tqdm import tqdm

from lmlib.hardware.process import peak_memory_bytes

__all__ = ["Progress", "memory_bytes"]

BETWEEN_LINES = 10  # seconds, at least, where there is no bar


class Progress:
    """A bar with loss, tokens per second, MFU, memory and the time that is left.

    It is on standard error, if that is a terminal. If not, the same numbers are
    lines on standard output: one as soon as there are any, one at least
    ``BETWEEN_LINES`` seconds after the last, and one before each validation loss.
    With ``quiet`` there is nothing, as on every rank but one.
    """

    def __init__(self, steps: int, first: int, quiet: bool) -> None:
        self.quiet = quiet
        self._steps = steps
        self._bar = tqdm(
            total=steps,
            initial=first,
            unit="step",
            disable=True if quiet else None,  # None: unless there is a terminal
            leave=False,
        )
        self._unsaid: Mapping[str, Any] | None = None
        self._said = -float("inf")  # when

    def advance(self) -> None:
        """Count a step."""
        self._bar.update()

    def show(self, record: Mapping[str, Any]) -> None:
        """Show the numbers of a step beside the bar, or as a line if it is time."""
        shown = {
            "loss": f"{record['loss']:.4f}",
            "tok/s": f"{record['tokens_per_second']:,.0f}",
            "MFU": f"{100 * record['mfu']:.0f}%",
            "GB": f"{record['memory_bytes'] / 1e9:.2f}",
        }
        self._bar.set_postfix(shown, refresh=False)
        self._unsaid = record
        if monotonic() - self._said >= BETWEEN_LINES:
            self._say_numbers()

    def validated(self, step: int, loss: float) -> None:
        """Write the validation loss after a step."""
        self._say_numbers()
        self.say(f"step {step:>6,}  validation loss {loss:.4f}")

    def say(self, text: str) -> None:
        """Write lines above the bar, at once: a log file is read meanwhile."""
        if not self.quiet:
            self._bar.write(text, file=sys.stdout)
            sys.stdout.flush()

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()

    def _say_numbers(self) -> None:
        """Write the numbers that are not written yet, where there is no bar."""
        if self._unsaid is not None and self._bar.disable:
            self.say(_line(self._unsaid, self._steps))
            self._said = monotonic()
        self._unsaid = None


def _line(record: Mapping[str, Any], steps: int) -> str:
    step, speed = record["step"], record["tokens_per_second"]
    seconds = record["tokens"] / step * (steps - step) / speed
    return (
        f"step {step:>6,} of {steps:,}  loss {record['loss']:.4f}  "
        f"{speed:,.0f} tokens/s  MFU {100 * record['mfu']:.0f} %  "
        f"{record['memory_bytes'] / 1e9:.2f} GB  "
        f"{tqdm.format_interval(seconds)} left"
    )


def memory_bytes(device: torch.device) -> int:
    """The most memory that was in use: of the GPU by torch, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_memory_bytes()
