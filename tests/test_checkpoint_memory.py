"""lmlib.checkpoint: going on with a run takes no more memory than the run itself."""

import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import re, sys, torch
from lmlib.checkpoint import CheckpointStore, TrainingState
from lmlib.config import ModelConfig
from lmlib.model import TransformerLM

torch.set_num_threads(1)
model = TransformerLM(ModelConfig(2048, context_length=8, d_model=384, num_layers=6, num_heads=6))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)


def train():
    model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def peak():
    # not getrusage's, which begins with that of the process that started this one
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1])


store, start = CheckpointStore(sys.argv[1]), peak()
if sys.argv[2] == "train":
    train()
else:
    checkpoint = store.load()
    print(peak())
    model.load_state_dict(checkpoint.model)
    optimizer.load_state_dict(checkpoint.training["optimizer"])
    del checkpoint
train()
print(peak(), start, 4 * sum(p.numel() for p in model.parameters()))
if sys.argv[2] == "train":
    store.save(TrainingState(model.state_dict(), {"optimizer": optimizer.state_dict()}), step=2)
    print(peak())
"""


def run(*arguments):
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    return [int(number) for number in ended.stdout.split()]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells")
def test_a_resume_takes_no_more_memory_than_training(tmp_path):
    """In units of the weights' bytes: three more for gradients and moments, and what activations take."""
    trained, start, weights, saved = run(tmp_path, "train")
    loaded, resumed, resumed_start, _ = run(tmp_path, "resume")
    assert 2.9 < (trained - start) / weights < 4
    assert (resumed - resumed_start) / weights < (trained - start) / weights + 0.1
    assert (loaded - resumed_start) / weights < 0.3  # the state is still on the disk
    assert (saved - trained) / weights < 0.3  # and writing it makes no copy
