"""README.md: its examples run as they stand."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lmlib.cli import main
from lmlib.corpora import load_corpus

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text(load_corpus("moby_dick")[:300_000], "utf-8")


@pytest.mark.usefixtures("corpus")
def test_python(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # other tests run beside this one
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        subprocess.run([sys.executable, "-c", block], check=True)


@pytest.mark.usefixtures("corpus", "one_thread")
def test_commands(capfd):
    commands = re.findall(r"^lmlib .*$", README, re.MULTILINE)
    assert len(commands) == 16
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0, command  # one process: each would load torch
    assert capfd.readouterr().out.count("written to") == 8


def test_the_command_is_installed():
    assert shutil.which("lmlib", path=Path(sys.executable).parent)
