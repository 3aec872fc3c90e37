"""lmlib.hardware.process: this process's own memory, and not that of the one that started it."""

import subprocess
import sys

import pytest

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


def test_elsewhere_getrusage_tells(monkeypatch, tmp_path):
    before = process.peak_memory_bytes()
    monkeypatch.setattr(process, "STATUS", tmp_path / "none")
    assert process.peak_memory_bytes() == pytest.approx(before, rel=0.1) or process.peak_memory_bytes() > before
