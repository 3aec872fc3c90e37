"""The benchmarks run, and their committed results are of the tasks that they have."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def tasks(monkeypatch):
    """A function that returns the tasks of a benchmark."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return lambda name: __import__(name).TASKS


def test_a_task_is_measured_and_its_results_compared(tmp_path):
    """Run as `make bench` does, one short task; the benchmark itself compares what came out of both."""
    out, task = tmp_path / "results.json", "encode 34 languages, cold"
    command = [sys.executable, BENCHMARKS / "bpe.py", "--runs", "1", "--task", task, "--out", out]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    report = json.loads(out.read_text())
    result = report["tasks"][task]
    assert (report["tasks"].keys(), result["peer"]) == ({task}, "tiktoken")
    seconds = result["median_seconds"]
    assert result["time_ratio"] == pytest.approx(seconds["lmlib"] / seconds["tiktoken"], abs=1e-3)
    assert min(result["peak_mib"].values()) > 20  # the text and the vocabulary alone take as much


def test_results_that_differ_stop_the_benchmark(tasks, monkeypatch):
    import contest

    results = iter([1, 2])
    measured = lambda *_: {"seconds": 1.0, "result": next(results), "peak_bytes": 1, "more": None}  # noqa: E731
    monkeypatch.setattr(contest, "_in_own_process", measured)
    task = contest.Task({"lmlib": print, "other": print})
    with pytest.raises(SystemExit, match="the results differ"):
        contest._run(BENCHMARKS / "bpe.py", "any", task, 1, contest.tqdm(disable=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runs", "0"], "argument --runs: must be 1 or more, not 0"),
        (["--runs", "x"], "argument --runs: invalid _count value: 'x'"),
        (["--out", "."], ". is a folder: name a file in it"),
        (["--out", "file/results.json"], "File exists: 'file'"),
        (["--out", "/dev/fd"], "is a folder"),
    ],
)
def test_what_cannot_be_measured_or_written_is_told_before_the_first_run(
    tasks, tmp_path, monkeypatch, capsys, arguments, message
):
    import contest

    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    monkeypatch.setattr("sys.argv", ["bpe.py", *arguments])
    with pytest.raises(SystemExit, match="2"):
        contest.main("", {"any": contest.Task({"lmlib": print, "other": print})}, {}, [])
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", [path.stem for path in sorted((BENCHMARKS / "results").glob("*.json"))])
def test_the_committed_results_are_whole(name, tasks):
    report = json.loads((BENCHMARKS / "results" / f"{name}.json").read_text())
    all_tasks, left_out = tasks(name), report.get("left_out", [])
    assert {*report["tasks"], *left_out} == all_tasks.keys(), "run `make bench` again"
    assert all(all_tasks[task].needs for task in left_out)
    for task, result in report["tasks"].items():
        seconds = result["median_seconds"]
        assert result["time_ratio"] == pytest.approx(seconds["lmlib"] / seconds[result["peer"]], rel=2e-3), task
