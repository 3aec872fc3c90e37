"""Ctrl-C and SIGTERM, kept until the loop is at a place where it can save."""

import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Self

__all__ = ["StopSignals", "Stopped"]


class Stopped(Exception):
    """A signal has come: what is being done is left, and a checkpoint saved."""


class StopSignals:
    """Inside, SIGINT and SIGTERM only leave word, which ``received`` tells.

    A second Ctrl-C raises KeyboardInterrupt at once, as the first would outside. A
    second SIGTERM changes nothing: what sends it, such as a cluster that needs the
    machine, kills when its patience ends. Only the main thread can listen; in
    another one this does nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.received = signal.Signals(number)
        # Not print(): it fails if the signal came in the middle of another one.
        word = f"\n{self.received.name}: this step ends, then a checkpoint is saved"
        again = " (Ctrl-C leaves at once)\n"
        _write(word + (again if number == signal.SIGINT else "\n"))


def _write(text: str) -> None:
    with suppress(AttributeError, OSError, ValueError):  # nobody reads it
        sys.__stderr__.buffer.raw.write(text.encode())
