"""Working ahead in other processes or threads, and ending with what started it."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing.connection import wait
from threading import Thread
from typing import TypeVar

from lmlib.checks import is_whole

__all__ = ["check_workers", "follow_parent", "map_ahead", "start_processes"]

MOST_WORKERS = 1024  # a pool starts all of them at once

T = TypeVar("T")
R = TypeVar("R")


def check_workers(num_workers: object) -> int:
    """Return a number of processes; ValueError if there cannot be so many."""
    if not is_whole(num_workers, 1) or num_workers > MOST_WORKERS:
        raise ValueError(
            f"num_workers must be a whole number from 1 to {MOST_WORKERS}, such as "
            f"8, not {num_workers!r}: more than there are CPUs gain nothing."
        )
    return int(num_workers)


def map_ahead(
    pool: Executor, function: Callable[[T], R], items: Iterable[T], ahead: int
) -> Iterator[tuple[T, R]]:
    """Yield each item with ``function(item)``, in order, from a pool.

    While one is looked at, up to ``ahead`` more are waiting or being worked on, so
    that memory stays bounded. Raises what the function raises, in its turn.
    """
    started: deque = deque()
    for item in items:
        started.append((item, pool.submit(function, item)))
        if len(started) > ahead:
            first, result = started.popleft()
            yield first, result.result()
    for item, result in started:
        yield item, result.result()


def start_processes(pool: ProcessPoolExecutor) -> None:
    """Start the processes of a new pool: all of them, or none.

    Left to itself, a pool that cannot start them all, for want of memory or of open
    files, keeps those it has started, and Python waits for them for ever.

    Raises OSError if one cannot be started.
    """
    others = set(multiprocessing.active_children())
    try:
        pool.submit(os.getpid)
    except OSError:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
            process.join()
        raise


def follow_parent() -> None:
    """Make this worker process leave Ctrl-C to its parent, and end when it dies.

    SIGTERM ends it at once, whatever handler it inherited: what that raises would
    go to the parent as a result, and the worker would live on.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End when the parent is killed, instead of waiting for work for ever."""
    wait([multiprocessing.parent_process().sentinel])
    os._exit(1)
