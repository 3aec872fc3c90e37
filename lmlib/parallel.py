"""Working ahead in other processes or threads, and ending with what started it."""

import multiprocessing
import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from threading import RLock, Thread
from typing import Any, TypeVar

from lmlib.checks import is_whole

__all__ = ["Worker", "check_workers", "map_ahead", "map_in_processes"]

MOST_WORKERS = 1024  # all of them start at once

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


def map_in_processes(
    function: Callable[[T], R], items: Iterable[T], num_workers: int
) -> Iterator[tuple[T, R]]:
    """Yield each item with ``function(item)``, in order, from several processes.

    This process is one of them: while each of the others has two items, of which it
    works on one, this one does others. At most four results for each process wait
    for an earlier one, so that memory stays bounded.

    Raises what the function and the items raise, in its turn: the same for any
    number of processes; and ChildProcessError if one cannot be started or dies.
    """
    helpers: list[_Helper] = []
    started: deque[tuple[T, Future[R]]] = deque()
    try:
        for _ in range(num_workers - 1):
            helpers.append(_Helper(function))
        for item in _until_error(items, started):
            _listen(helpers, timeout=0)
            started.append((item, _start(function, item, helpers)))
            while started and (
                started[0][1].done() or len(started) > 4 * num_workers
            ):
                yield _pop(started, helpers)
        while started:
            yield _pop(started, helpers)
    finally:
        for helper in helpers:
            helper.worker.stop()


def _until_error(
    items: Iterable[T], started: "deque[tuple[T | None, Future[R]]]"
) -> Iterator[T]:
    """Yield items; an error instead of one comes after what was started."""
    try:
        yield from items
    except Exception as error:
        started.append((None, Future()))
        _settle(started[-1][1], None, error)


_ASKED = 2  # items that a helper has at most


def _start(
    function: Callable[[T], R], item: T, helpers: list["_Helper"]
) -> "Future[R]":
    """Ask a helper for a result, or compute it here if all have enough to do."""
    helper = min(helpers, key=lambda helper: len(helper.asked), default=None)
    if helper is not None and len(helper.asked) < _ASKED:
        return helper.ask(item)
    result: Future[R] = Future()
    _settle(result, *_call(function, item))
    return result


def _pop(
    started: "deque[tuple[T, Future[R]]]", helpers: list["_Helper"]
) -> tuple[T, R]:
    """Remove the first item and return it with its result, once that is there."""
    while not started[0][1].done():
        _listen(helpers, timeout=None)
    item, result = started.popleft()
    return item, result.result()


def _listen(helpers: list["_Helper"], timeout: float | None) -> None:
    """Take the results that helpers have sent, or wait for one."""
    asked = {helper.worker.connection: helper for helper in helpers if helper.asked}
    for connection in wait(list(asked), timeout):
        asked[connection].listen()


def _call(function: Callable[[T], R], item: T) -> tuple[R | None, Exception | None]:
    """Return what a function returns and what it raises, of which one is None."""
    try:
        return function(item), None
    except Exception as error:
        return None, error


def _settle(result: "Future[R]", value: R | None, error: Exception | None) -> None:
    if error is None:
        result.set_result(value)
    else:
        result.set_exception(error)


class _Helper:
    """A process that calls a function, and the results that it was asked for."""

    def __init__(self, function: Callable[[T], R]) -> None:
        self.worker = Worker(_answer, function)
        self.asked: deque[Future[R]] = deque()

    def ask(self, item: T) -> "Future[R]":
        """Ask for the result for an item."""
        self.worker.send(item)
        self.asked.append(Future())
        return self.asked[-1]

    def listen(self) -> None:
        """Take the next result, or wait for it."""
        _settle(self.asked.popleft(), *self.worker.receive())


def _answer(connection: Connection, function: Callable[[T], R]) -> None:
    """Call a function for what comes, and send what it returns or raises.

    Threads receive and send, or each side could wait for the other to receive. They
    come to their turn soon, also while the function is at work. An error in one of
    them ends the process, or the parent would wait for a result for ever.
    """
    items: SimpleQueue[T] = SimpleQueue()
    results: SimpleQueue[bytes] = SimpleQueue()
    for work, queue in ((_receive_all, items), (_send_all, results)):
        Thread(target=_or_exit, args=(work, connection, queue), daemon=True).start()
    while True:
        results.put(pickle.dumps(_call(function, items.get())))


def _or_exit(work: Callable[..., None], *arguments: Any) -> None:
    try:
        work(*arguments)
    except (EOFError, OSError):
        pass  # the parent has gone
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(1)


def _receive_all(connection: Connection, items: SimpleQueue) -> None:
    while True:
        items.put(connection.recv())


def _send_all(connection: Connection, results: SimpleQueue) -> None:
    while True:
        connection.send_bytes(results.get())


# --- processes --------------------------------------------------------------------

# Or a worker that another thread starts meanwhile would inherit this one's end of
# the connection. A worker inherits the lock held, and its thread is the owner.
_starting = RLock()


class Worker:
    """A process that runs ``target(connection, *arguments)``, seen from its parent.

    It does not outlive the parent, and nobody waits for a dead one: its end of the
    connection is in no other process, so that it is closed when it dies, even in
    the middle of a message. ``work`` says what it does, if that is known.

    Raises ChildProcessError if it cannot be started.
    """

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self.work = ""
        inherited = multiprocessing.get_start_method() == "fork"
        try:
            with _starting:
                self._start(target, arguments if inherited else None)
        except (OSError, EOFError, AssertionError) as error:
            number = getattr(error, "errno", None)
            raise ChildProcessError(
                "A worker could not be started: "
                f"{os.strerror(number) if number else error}. Say a smaller number "
                "of workers: more than there are CPUs gain nothing."
            ) from None
        if not inherited:
            self._send_arguments(arguments)

    def send(self, message: Any) -> None:
        """Send something; raise ChildProcessError if the process has died."""
        try:
            self.connection.send(message)
        except OSError:
            raise self._died() from None

    def receive(self) -> Any:
        """Return what it sends next; raise ChildProcessError if it has died."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise self._died() from None

    def stop(self) -> None:
        """End it, if it still runs, also where a signal has stopped it."""
        self.process.kill()
        self.process.join()
        self.connection.close()

    def _start(self, target: Callable[..., None], arguments: tuple | None) -> None:
        self.connection, its_end = multiprocessing.Pipe()
        with its_end:
            self.process = multiprocessing.Process(
                target=_run, args=(target, its_end, arguments), daemon=True
            )
            self.process.start()

    def _send_arguments(self, arguments: tuple) -> None:
        """Send what was not inherited, which may be more than a pipe holds.

        ``Process.start`` would wait for ever for a process that dies before it has
        read that.
        """
        try:
            self.send(arguments)
        except BaseException:
            self.stop()
            raise

    def _died(self) -> ChildProcessError:
        self.process.join()
        code = self.process.exitcode
        advice = _ADVICE.get(code, "look above for what it said.")
        while_ = f" while it {self.work}" if self.work else ""
        return ChildProcessError(
            f"A worker died (exit code {code}){while_}: {advice}"
        )


_ADVICE = {
    -signal.SIGKILL: "with fewer workers each has more memory.",
    1: "look above for what it said. Where processes are spawned, a script must do "
    "its work below `if __name__ == '__main__':`.",
}


def _run(
    target: Callable[..., None], connection: Connection, arguments: tuple | None
) -> None:
    _follow_parent()
    if arguments is None:
        arguments = connection.recv()
    target(connection, *arguments)


def _follow_parent() -> None:
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
