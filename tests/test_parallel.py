"""lmlib.parallel: results in order, no more of them ahead than asked for."""

import errno
import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from lmlib.parallel import map_ahead, start_processes

FORK = multiprocessing.get_context("fork")  # whose processes do not come on demand


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


def test_a_pool_starts_all_its_processes():
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(3, mp_context=FORK) as pool:
        start_processes(pool)
        assert len(set(multiprocessing.active_children()) - others) == 3
        assert pool.submit(os.getpid).result() != os.getpid()
    assert set(multiprocessing.active_children()) <= others


def test_a_pool_starts_none_if_one_cannot_start(monkeypatch):
    others = set(multiprocessing.active_children())
    start, started = FORK.Process.start, []

    def start_two(process):
        if len(started) == 2:
            raise OSError(errno.EAGAIN, "no more")
        start(process)
        started.append(process)

    monkeypatch.setattr(FORK.Process, "start", start_two)
    with ProcessPoolExecutor(3, mp_context=FORK) as pool:
        with pytest.raises(OSError, match="no more"):
            start_processes(pool)
        assert set(multiprocessing.active_children()) <= others
    assert [process.exitcode for process in started] == [-9, -9]
