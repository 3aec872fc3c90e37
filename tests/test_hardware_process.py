"""lmlib.hardware.process: this process's own memory, and not that of the one that started it."""

import subprocess
import sys

import pytest
import torch

from lmlib.hardware import process

PRINT = "from lmlib.hardware.process import peak_memory_bytes as peak; print(peak(), flush=True)"
LARGE = f"""
import subprocess, sys
{PRINT}
large = b"1" * 2**28
print(peak(), flush=True)
subprocess.run([sys.executable, "-c", {PRINT!r}], check=True)
"""


@pytest.mark.skipif(not process.STATUS.exists(), reason="only Linux tells")
def test_the_memory_of_the_parent_does_not_count():
    command = [sys.executable, "-c", LARGE]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    alone, large, child = map(int, ended.stdout.split())
    assert large == pytest.approx(alone + 2**28, rel=0.1)
    assert child == pytest.approx(alone, rel=0.2)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
    ids=repr,
)
def test_what_says_that_there_is_no_memory_left(error, expected):
    assert process.is_out_of_memory(error) is expected


@pytest.mark.parametrize("size", [(2**46,), (2**62, 4)])
def test_so_does_what_torch_raises_here(size):
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(size)
    assert process.is_out_of_memory(caught.value)


def test_elsewhere_getrusage_tells(monkeypatch, tmp_path):
    before = process.peak_memory_bytes()
    monkeypatch.setattr(process, "STATUS", tmp_path / "none")
    assert process.peak_memory_bytes() == pytest.approx(before, rel=0.1) or process.peak_memory_bytes() > before
