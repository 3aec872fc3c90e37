"""lmlib.__main__: what is set before anything is loaded."""

import os
import subprocess
import sys

import pytest

CODE = """
import os, sys
from lmlib.__main__ import run
load = float(sys.argv[1])
os.getloadavg, os.cpu_count = lambda: (load, load, load), lambda: 8
before = [name for name in ("torch", "numpy") if name in sys.modules]
sys.argv = ["lmlib", "--version"]
code = run()
print(code, os.environ.get("OMP_WAIT_POLICY"), before)
"""


@pytest.mark.parametrize(
    ("load", "told", "policy"),
    [
        ("2.1", {}, "PASSIVE"),
        ("1.9", {}, "None"),
        ("2.1", {"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
    ],
)
def test_threads_do_not_spin_on_busy_cores_unless_told(load, told, policy):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | told
    command = [sys.executable, "-c", CODE, load]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == f"0 {policy} []"
