"""Several processes that train together, as torchrun starts them, each with a function of a test."""

import os
import socket
import traceback
from multiprocessing import get_context
from queue import Empty
from time import monotonic

LONG_ENOUGH = 240  # seconds; on a quiet machine it takes a few


def run_ranks(function, *arguments, size=2):
    """Call ``function(*arguments)`` in each process; return what each returned, by rank."""
    context = get_context("spawn")
    results = context.Queue()
    port = _free_port()
    processes = [
        context.Process(target=_run, args=(rank, size, port, results, function, arguments), daemon=True)
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    try:
        return _collect(processes, results, size)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _collect(processes, results, size):
    found, end = {}, monotonic() + LONG_ENOUGH
    while len(found) < size:
        try:
            rank, result, error = results.get(timeout=1)
        except Empty:
            assert monotonic() < end, f"ranks {set(range(size)) - found.keys()} hang"
            dead = [process.exitcode for process in processes if process.exitcode]
            assert not dead, f"processes ended with {dead}"
            continue
        assert error is None, f"on rank {rank}:\n{error}"
        found[rank] = result
    return [found[rank] for rank in range(size)]


def _free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def _run(rank, size, port, results, function, arguments):
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    import torch

    torch.set_num_threads(1)
    try:
        results.put((rank, function(*arguments), None))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
