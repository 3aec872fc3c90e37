"""lmlib.train.progress: a bar on a terminal, and elsewhere lines that a log file can hold."""

import re
import sys
from io import BytesIO, TextIOWrapper

import pytest

from lmlib.train import Trainer, progress
from lmlib.train.progress import Progress
from tests.training import DATA, config


def record(step):
    return {
        "step": step,
        "loss": 4.56789,
        "tokens": 2000 * step,
        "tokens_per_second": 1000.0,
        "mfu": 0.123,
        "memory_bytes": 2_340_000_000,
    }


@pytest.fixture
def clock(monkeypatch):
    """A clock whose time a test sets."""
    times = [100.0]
    monkeypatch.setattr(progress, "monotonic", lambda: times[-1])
    return times.append


def line(step):
    left = {1: "06:38", 6: "06:28", 7: "06:26"}[step]  # 2 s a step
    return f"step      {step} of 200  loss 4.5679  1,000 tokens/s  MFU 12 %  2.34 GB  {left} left"


def test_without_a_terminal_there_is_a_line_now_and_then(capsys, clock):
    shown = Progress(200, 0, quiet=False)
    for step in range(1, 7):
        clock(100.0 + 2 * step)  # the sixth comes 10 s after the first
        shown.advance()
        shown.show(record(step))
    shown.close()
    out, err = capsys.readouterr()
    assert out.splitlines() == [line(1), line(6)]
    assert err == ""


def test_a_validation_loss_stands_below_the_numbers_of_its_step(capsys, clock):
    shown = Progress(200, 0, quiet=False)
    shown.validated(0, 7.0)
    shown.show(record(6))
    shown.show(record(7))
    shown.validated(7, 4.6)
    shown.validated(7, 4.6)
    assert capsys.readouterr().out.splitlines() == [
        "step      0  validation loss 7.0000",
        line(6),
        line(7),
        "step      7  validation loss 4.6000",
        "step      7  validation loss 4.6000",
    ]


class Terminal(TextIOWrapper):
    def isatty(self):
        return True


def test_on_a_terminal_the_bar_has_the_numbers(capsys, monkeypatch, clock):
    written = BytesIO()
    monkeypatch.setattr(sys, "stderr", Terminal(written, "utf-8", write_through=True))
    shown = Progress(200, 0, quiet=False)
    shown.show(record(6))
    shown.validated(6, 4.6)
    shown.close()
    assert capsys.readouterr().out == "step      6  validation loss 4.6000\n"
    assert "loss=4.5679, tok/s=1,000, MFU=12%, GB=2.34" in written.getvalue().decode()


def test_who_is_quiet_says_nothing(capsys, clock):
    shown = Progress(200, 0, quiet=True)
    shown.show(record(1))
    shown.validated(1, 4.6)
    shown.say("text")
    shown.close()
    assert capsys.readouterr() == ("", "")


def test_a_line_does_not_wait_for_others(monkeypatch):
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, "utf-8"))  # holds back, as in a pipe
    Progress(200, 0, quiet=False).say("text")
    assert written.getvalue() == b"text\n"


@pytest.mark.usefixtures("one_thread")
def test_a_log_of_a_run_has_its_losses_and_no_carriage_return(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "BETWEEN_LINES", 0)
    Trainer(config(sample_tokens=0), DATA, tmp_path).run()
    out, err = capsys.readouterr()
    kinds = [re.fullmatch(r"step +(\d)(?: of 6)?  (validation)?.*", line).groups() for line in out.splitlines()]
    validated = [(step, "validation") for step in "0246"]
    assert kinds == sorted([(step, None) for step in "123456"] + validated, key=lambda kind: (kind[0], kind[1] or ""))
    assert "\r" not in out
    assert err == ""
