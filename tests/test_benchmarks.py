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
    assert report["tasks"].keys() == {task}
    seconds = result["median_seconds"]
    assert result["time_ratio"] == {"tiktoken": pytest.approx(seconds["lmlib"] / seconds["tiktoken"], abs=1e-3)}
    assert min(result["peak_mib"].values()) > 20  # the text and the vocabulary alone take as much


@pytest.fixture
def run(tasks, monkeypatch):
    """A function that runs a task once, for which each contender measures what it is said to."""
    import contest

    def run(measured, **options):
        outcomes = {
            who: {"seconds": seconds, "result": result, "peak_bytes": 2**20, "more": None}
            for who, (seconds, result) in measured.items()
        }
        monkeypatch.setattr(contest, "_in_own_process", lambda program, name, who: outcomes[who])
        task = contest.Task(dict.fromkeys(measured, print), **options)
        return contest._run(BENCHMARKS / "bpe.py", "any", task, 1, contest.tqdm(disable=True))

    return run


def test_results_that_differ_stop_the_benchmark(run):
    with pytest.raises(SystemExit, match="the results differ"):
        run({"lmlib": (1.0, 1), "one": (1.0, 1), "other": (1.0, 2)})


def test_each_peer_has_its_ratio(run):
    assert run({"lmlib": (1.0, 1), "one": (2.0, 1), "other": (0.5, 1)})["time_ratio"] == {"one": 0.5, "other": 2.0}


def test_where_the_work_grows_the_exponent_is_told(run):
    result = run({"lmlib": (9.0, 1), "a tenth": (1.0, 1)}, work={"lmlib": 3, "a tenth": 1})
    assert result["exponent"] == {"a tenth": 2.0}


@pytest.mark.parametrize(
    ("options", "goal", "judgement"),
    [({}, 3.0, "meets"), ({}, 2.9, "misses"), ({"work": {"lmlib": 3, "one": 1}}, 1.0, "meets")],
)
def test_the_table_says_which_goals_are_met(run, options, goal, judgement):
    import contest

    result = run({"lmlib": (3.0, 1), "one": (1.0, 1)}, goals={"one": goal}, **options)
    _, line = contest._table({"any": result})
    assert line.endswith(f": {judgement} the goal of {goal:.2f}")


def test_peers_that_are_not_installed_are_left_out(tasks, capsys):
    import contest

    both, none = {"lmlib": print, "pytest": print, "no-such": print}, {"lmlib": print, "no-such": print}
    all_tasks = {"possible": contest.Task(both), "impossible": contest.Task(none)}
    possible, left_out = contest._possible(all_tasks, ["lmlib", "pytest", "no-such"])
    assert possible == {"possible": contest.Task({"lmlib": print, "pytest": print})}
    assert left_out == ["impossible"]
    told = capsys.readouterr().err
    assert "not installed: no-such." in told
    assert "impossible: left out, for there is no peer." in told
    assert contest._machine(["pytest", "no-such"])["versions"].keys() == {"pytest"}


def test_what_a_peer_prints_is_no_result(tasks, tmp_path):
    import contest

    program = tmp_path / "program.py"
    program.write_text("print('23347 unique words')\nprint('{\"seconds\": 1.5}')\n")
    assert contest._in_own_process(program, "any task", "peer") == {"seconds": 1.5}


def test_texts_are_read_as_they_were_stored(tasks, tmp_path, monkeypatch):
    import texts

    monkeypatch.setattr(texts, "BUILD", tmp_path)
    monkeypatch.setitem(texts.TEXTS, "two", lambda: iter([b"one\r\n", "zwölf".encode()]))
    facts = texts.store_texts(["two", "two"])["two"]
    assert (facts["bytes"], facts["documents"]) == (5 + 6 + len(texts.END), 2)
    assert texts.documents_of("two") == ["one\n", "zwölf"]


def test_strange_texts_have_other_letters_each_time(tasks, monkeypatch):
    import texts

    monkeypatch.setattr(texts, "_package_files", lambda: iter([b"Zebra az"]))
    monkeypatch.setattr(texts, "MB", 0)  # of which one document is already more
    assert list(texts.strange(20)) == [b"Afcsb ba", b"Bgdtc cb", b"Cheud dc"]


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
        assert seconds.keys() == all_tasks[task].contenders.keys(), task
        ratios = {
            peer: pytest.approx(seconds["lmlib"] / seconds[peer], rel=2e-3, abs=1e-3) for peer in all_tasks[task].peers
        }
        assert result["time_ratio"] == ratios, task
