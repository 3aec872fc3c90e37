"""lmlib.cli: what it says to a standard error that nobody can be told on, and how help shows a default."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmlib.cli import main

ROOT = Path(__file__).parents[1]
COMMANDS = [
    "data prepare",
    "data inspect",
    "doctor",
    "export",
    "generate",
    "import",
    "plan",
    "tokenizer encode",
    "tokenizer train",
    "train",
]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", ["nosuch", "tokenizer inspect --tokenizer nosuch"])
def test_an_error_that_cannot_be_said_is_still_an_exit_code(words):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lmlib", *words.split()], stdout=full, stderr=full, env=environment, timeout=120
        )
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "book.txt"], "'book.txt' belongs to no option of lmlib train: say --data 'book.txt', or see"),
        (["generate", "runs/1", "Call me"], "of lmlib generate: say --prompt 'Call me', or see lmlib generate --help."),
        (["data", "inspect", "a.bin", "b.bin"], "'b.bin' belongs to no option of lmlib data inspect: see lmlib data"),
    ],
)
def test_a_word_that_stands_alone_is_told_where_it_belongs(capsys, words, message):
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_switch_that_is_on_is_shown_in_one_way(capsys, command):
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "default: True" not in shown
    assert "default: False" not in shown
    assert ("default: yes" in shown) == (command in ("doctor", "train"))
