"""lmlib.train.metrics: every step once, whatever came between."""

import json
import resource
import signal

import pytest

from lmlib.train.logs import Logs, LogWarning
from lmlib.train.metrics import MetricsFile, TensorBoardLog, read_metrics
from lmlib.train.run_folder import RunFolder


@pytest.fixture
def path(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    for step in (1, 2, 3):
        file.write({"step": step, "loss": step / 2})
    file.close()
    return tmp_path / "metrics.jsonl"


def steps(path):
    return [record["step"] for record in read_metrics(path)]


def test_each_record_is_a_line(path):
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": 1.0},
        {"step": 3, "loss": 1.5},
    ]


def test_a_line_is_there_as_soon_as_it_is_written(path):
    file = MetricsFile(path)
    file.write({"step": 4})
    assert steps(path) == [1, 2, 3, 4]
    file.sync()
    file.close()


def test_going_on_takes_back_what_came_later(path):
    file = MetricsFile(path, last_step=2)
    assert steps(path) == [1, 2]
    file.write({"step": 3, "loss": 7.0})
    file.close()
    assert [record["loss"] for record in read_metrics(path)] == [0.5, 1.0, 7.0]


def test_an_unfinished_line_is_dropped(path):
    with open(path, "a") as file:
        file.write('{"step": 4, "lo')
    assert steps(path) == [1, 2, 3]
    MetricsFile(path).close()
    assert path.read_text().endswith("1.5}\n")


def test_a_line_that_only_lacks_its_end_is_unfinished_too(path):
    path.write_text(path.read_text().removesuffix("\n"))
    assert steps(path) == [1, 2]


def test_so_is_one_of_garbage(path):
    with open(path, "ab") as file:
        file.write(b"\xff\0\n")
    assert steps(path) == [1, 2, 3]


BROKEN = ["{", "[]", "3", "[" * 100_000, '{"loss": 1}', '{"step": "1"}']


@pytest.mark.parametrize("line", BROKEN, ids=lambda line: line[:9])
def test_a_broken_line_in_the_middle_is_named(path, line):
    path.write_text(f"{line}\n" + path.read_text())
    with pytest.raises(ValueError, match="line 1, is no record"):
        read_metrics(path)


def test_json_has_no_nan(path):
    file = MetricsFile(path)
    file.write({"step": 4, "loss": float("nan"), "lr": float("inf"), "made": False})
    file.close()
    assert "NaN" not in path.read_text()
    assert read_metrics(path)[-1] == {"step": 4, "loss": None, "lr": None, "made": False}


@pytest.fixture
def full_at():
    """A function after which no file can grow beyond a size, as on a disk that is full; None ends it."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def full_at(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, before if size is None else (size, before[1]))

    yield full_at
    full_at(None)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_a_warning_and_no_line_is_lost(tmp_path, full_at):
    logs = Logs(RunFolder(tmp_path), last_step=-1, tensorboard=False, is_main=True)
    path = tmp_path / "metrics.jsonl"
    logs.write({"step": 1})
    full_at(path.stat().st_size + 5)  # in the middle of the second line
    with pytest.warns(LogWarning, match="METRICS or samples could not be written.*The run goes on"):
        logs.write({"step": 2})
    with pytest.warns(LogWarning):
        logs.write_sample(3, "a text")
    with pytest.warns(LogWarning):
        logs.sync()
    assert steps(path) == [1]  # and half a line
    full_at(None)
    logs.write({"step": 4})
    logs.close()
    assert steps(path) == [1, 2, 3, 4]


def test_tensorboard_reads_the_curve_without_what_was_taken_back(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    first = TensorBoardLog(tmp_path)
    for step in (1, 2, 3):
        first.write({"step": step, "loss": float(step), "sample": "text"})
    first.sync()
    first.close()
    again = TensorBoardLog(tmp_path, last_step=2)
    again.write({"step": 3, "loss": 30.0})
    again.close()
    events = event_accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 1.0), (2, 2.0), (3, 30.0)]
    assert events.Tags()["scalars"] == ["loss"]
