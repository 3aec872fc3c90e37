"""The command ``lmlib`` as a program of its own; also ``python -m lmlib``."""

import os
import signal
import sys

__all__ = ["is_busy", "run"]


def run() -> int:
    """Run the command that the shell names, and return its exit code.

    Ctrl-C while it loads ends it as quietly as later. SIGTERM lets it clean up, as
    Ctrl-C does, and ends it with 143.
    """
    if is_busy():
        # OpenMP's threads spin while they wait for each other. On busy cores that
        # is where the awaited one should run: with one other program on each of two
        # cores a step of the preset tiny took over ten times as long as with
        # threads that sleep, which else cost it two thirds. Read when torch loads.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        from lmlib.cli import main

        return main()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def is_busy() -> bool:
    """Whether other programs keep more than a quarter of the cores busy."""
    if not hasattr(os, "getloadavg"):  # Windows
        return False
    return os.getloadavg()[0] > (os.cpu_count() or 1) / 4


if __name__ == "__main__":
    sys.exit(run())
