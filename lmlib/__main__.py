"""The command ``lmlib`` as a program of its own; also ``python -m lmlib``."""

import os
import signal
import sys

__all__ = ["run"]


def run() -> int:
    """Run the command that the shell names, and return its exit code.

    Ctrl-C while it loads ends it as quietly as later. SIGTERM lets it clean up, as
    Ctrl-C does, and ends it with 143.
    """
    # OpenMP's threads spin while they wait for each other. Where something else
    # runs too, that is on the core that the awaited one needs: on two busy cores a
    # step of `lmlib train` took 5 times as long. OpenMP reads this with torch.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        from lmlib.cli import main

        return main()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(run())
