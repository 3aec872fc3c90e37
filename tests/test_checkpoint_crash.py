"""lmlib.checkpoint under SIGKILL: a run is readable and loses nothing that was saved."""

import os
import subprocess
import sys

import pytest

# One process imports torch; each run that is killed is a fork of it.
RUNS = r"""
import os, random, signal, sys, time, warnings, torch
from lmlib.checkpoint import CheckpointStore, TrainingState

folder, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
warnings.simplefilter("error")  # nothing may be damaged
torch.set_num_threads(1)  # a fork has none of the threads that OpenMP would wait for
random.seed(seed)


def run(pipe, asynchronous):
    store = CheckpointStore(folder, keep_last=2)
    step = store.steps[-1] + 1 if store.steps else 0
    save = store.save_async if asynchronous else store.save
    while True:
        state = {"weight": torch.full((300, 300), float(step))}
        save(TrainingState(state, {"step": step, "moment": torch.full((100, 300), float(step))}), step=step)
        store.wait()
        os.write(pipe, step.to_bytes(8, "little"))
        step += 1


saved, stale, last = -1, 0, -1
for kill in range(kills):
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        run(writer, asynchronous=kill % 2)
        os._exit(1)
    os.close(writer)
    if kill % 4 == 0:  # let it come some way
        os.read(reader, 8)
    time.sleep(random.uniform(0, 0.04))
    os.kill(process, signal.SIGKILL)
    assert os.waitpid(process, 0)[1] == signal.SIGKILL
    while report := os.read(reader, 8):
        saved = max(saved, int.from_bytes(report, "little"))
    os.close(reader)
    left = [name for name in os.listdir(folder) if not name.startswith("step-")] if os.path.isdir(folder) else []
    stale += bool(left)
    store = CheckpointStore(folder)
    assert all(name.startswith("step-") for name in os.listdir(folder)), os.listdir(folder)
    for step in store.steps:
        checkpoint = store.load(step)
        assert (checkpoint.model["weight"] == step).all() and (checkpoint.training["moment"] == step).all()
        assert checkpoint.training["step"] == checkpoint.meta.step == step
    assert store.load().meta.step >= max(saved, last)
    last = store.load().meta.step
print(kills, stale, last)
"""


@pytest.mark.parametrize("kills", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_at_random_moments(tmp_path, kills):
    """Whatever was saved before is there, complete, and nothing else."""
    seed = str(os.getpid())
    command = [sys.executable, "-c", RUNS, tmp_path / "checkpoints", str(kills), seed]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, f"seed {seed}: {ended.stderr}"
    done, interrupted, last = map(int, ended.stdout.split())
    assert done == kills
    assert interrupted > kills / 10  # else the moments were none
    assert last > kills / 10
