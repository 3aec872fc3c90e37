"""lmlib.parallel: results in order, no more of them ahead than asked for."""

import errno
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from lmlib.parallel import Worker, map_ahead, map_in_processes


@pytest.mark.parametrize("ahead", [0, 1, 3, 100])
@pytest.mark.parametrize("workers", [1, 4])
def test_results_come_in_order_with_their_items(ahead, workers):
    with ThreadPoolExecutor(workers) as pool:
        assert list(map_ahead(pool, lambda i: i * i, range(20), ahead)) == [(i, i * i) for i in range(20)]
        assert list(map_ahead(pool, abs, [], ahead)) == []


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_no_item_is_taken_earlier_than_needed(ahead):
    taken = []

    def items():
        for i in range(10):
            taken.append(i)
            yield i

    with ThreadPoolExecutor(1) as pool:
        for item, _ in map_ahead(pool, abs, items(), ahead):
            assert len(taken) == min(item + ahead + 1, 10)


def test_work_goes_on_while_a_result_is_looked_at():
    done = [threading.Event() for _ in range(3)]
    with ThreadPoolExecutor(1) as pool:
        results = map_ahead(pool, lambda i: done[i].set(), range(3), 2)
        next(results)
        assert done[2].wait(30)


def test_an_error_comes_in_its_turn():
    with ThreadPoolExecutor(2) as pool:
        results = map_ahead(pool, lambda i: 1 / (i - 2), range(5), 4)
        assert [next(results)[0], next(results)[0]] == [0, 1]
        with pytest.raises(ZeroDivisionError):
            next(results)


# --- in processes -------------------------------------------------------------------------------------------------


def negative_with_pid(number):
    return -number, os.getpid()


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_several_processes_work_this_one_too(num_workers):
    results = list(map_in_processes(negative_with_pid, range(60), num_workers))
    assert [(i, value) for i, (value, _) in results] == [(i, -i) for i in range(60)]
    pids = {pid for _, (_, pid) in results}
    assert os.getpid() in pids
    assert len(pids) == num_workers
    assert list(map_in_processes(abs, [], num_workers)) == []
    assert multiprocessing.active_children() == []


def with_much_to_send(data):
    return data[::-1]


def test_much_is_sent_both_ways():
    """More than a connection holds: nobody waits for the other to receive."""
    items = [bytes([i]) * 3_000_000 for i in range(12)]
    assert [value for _, value in map_in_processes(with_much_to_send, items, 3)] == items


def slow_at_first(number):
    time.sleep(1 if number == 0 else 0)
    return number


def test_few_results_wait_for_an_earlier_one():
    taken = []
    results = map_in_processes(slow_at_first, (taken.append(i) or i for i in range(100)), 2)
    assert next(results) == (0, 0)
    assert len(taken) == 9
    assert [value for _, value in results] == list(range(1, 100))


def inverse(number):
    return 1 / (number - 5)


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_an_error_of_any_process_comes_in_its_turn(num_workers):
    results = map_in_processes(inverse, range(100), num_workers)
    assert [next(results)[0] for _ in range(5)] == list(range(5))
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_an_error_of_the_items_comes_in_its_turn(num_workers):
    def items(number):
        yield from range(number)
        raise OSError("no more")

    results = map_in_processes(abs, items(5), num_workers)
    assert [next(results)[0] for _ in range(5)] == list(range(5))
    with pytest.raises(OSError, match="no more"):
        next(results)
    with pytest.raises(ZeroDivisionError):
        list(map_in_processes(inverse, items(6), num_workers))


def die_in_a_worker(number):
    if multiprocessing.parent_process():
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_worker_that_dies_is_an_error():
    with pytest.raises(ChildProcessError, match=r"A worker died \(exit code -9\): with fewer workers each has more"):
        list(map_in_processes(die_in_a_worker, range(100), 3))
    assert multiprocessing.active_children() == []


def die_in_the_middle_of_a_message(connection):
    os.write(connection.fileno(), struct.pack("!i", 1000) + b"too little")
    os._exit(1)


def do_nothing(connection):
    connection.recv()


def test_nobody_waits_for_a_message_of_a_dead_worker():
    """Not even if other workers were started since."""
    worker, other = Worker(die_in_the_middle_of_a_message), Worker(do_nothing)
    with pytest.raises(ChildProcessError, match=r"A worker died \(exit code 1\): look above .*__main__"):
        worker.receive()
    with pytest.raises(ChildProcessError, match="A worker died"):
        worker.send("a" * 10_000_000)
    worker.stop()
    other.stop()


def test_workers_that_cannot_be_started(monkeypatch):
    """Those that were started are ended."""
    start, started = multiprocessing.Process.start, []

    def start_two(process):
        if len(started) == 2:
            raise OSError(errno.EAGAIN, "no more")
        start(process)
        started.append(process)

    monkeypatch.setattr(multiprocessing.Process, "start", start_two)
    with pytest.raises(
        ChildProcessError, match=r"could not be started: Resource temporarily unavailable\. Say a smaller"
    ):
        list(map_in_processes(abs, range(3), 4))
    assert [process.exitcode for process in started] == [-9, -9]
    assert multiprocessing.active_children() == []


def in_a_daemon(connection):
    try:
        list(map_in_processes(abs, range(3), 2))
    except ChildProcessError as error:
        connection.send(str(error))


def test_a_daemon_has_no_workers():
    worker = Worker(in_a_daemon)
    assert "could not be started: daemonic processes are not allowed to have children. Say" in worker.receive()
    worker.stop()


class LeftAtHome:
    """Something that only the process that made it can read."""

    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        return only_at_home, (self.error,)


def only_at_home(error):
    if multiprocessing.parent_process():
        raise error
    return LeftAtHome(error)


@pytest.mark.parametrize("error", [TypeError("not here"), FileNotFoundError("not here"), MemoryError()])
def test_nobody_waits_for_an_item_that_a_worker_cannot_read(error):
    with pytest.raises(ChildProcessError, match=r"A worker died \(exit code 1\)"):
        list(map_in_processes(id, [LeftAtHome(error) for _ in range(9)], 2))
    assert multiprocessing.active_children() == []


def test_a_worker_that_is_stopped_by_a_signal_is_ended():
    worker = Worker(do_nothing)
    os.kill(worker.process.pid, signal.SIGSTOP)
    worker.stop()
    assert worker.process.exitcode == -signal.SIGKILL


def test_nobody_waits_for_a_dead_worker_that_another_thread_started(monkeypatch):
    """Neither has the other's end of the connection."""
    start, both = multiprocessing.Process.start, threading.Barrier(2)

    def start_together(process):
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)
        start(process)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)

    monkeypatch.setattr(multiprocessing.Process, "start", start_together)
    with ThreadPoolExecutor(2) as pool:
        workers = list(pool.map(Worker, [do_nothing] * 2))
    for worker in workers:
        worker.process.kill()
        assert worker.connection.poll(10)
    for worker in workers:
        worker.stop()


SCRIPT = """
import multiprocessing
from functools import partial
from lmlib.parallel import map_in_processes

def count(data, number):
    return len(data) + number

multiprocessing.set_start_method({method!r}, force=True)
{guard}print([count for _, count in map_in_processes(partial(count, bytes(10_000_000)), range(3), 2)])
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_that_inherit_nothing(tmp_path, method):
    """What they need is more than a pipe holds; without a guard they die before they read it."""
    with_guard, without = tmp_path / "with.py", tmp_path / "without.py"
    with_guard.write_text(SCRIPT.format(method=method, guard='if __name__ == "__main__":\n    '))
    without.write_text(SCRIPT.format(method=method, guard=""))
    run = partial(subprocess.run, capture_output=True, text=True, timeout=25)
    done = run([sys.executable, with_guard])
    assert (done.returncode, done.stdout, done.stderr) == (0, "[10000000, 10000001, 10000002]\n", "")
    done = run([sys.executable, without])
    assert done.returncode == 1
    assert "ChildProcessError: A worker died (exit code 1): look above" in done.stderr
