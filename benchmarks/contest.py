"""Contenders side by side: every measurement a process of its own, those of a task in turns, medians compared.

What counts are the ratios: seconds differ from machine to machine.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

from tqdm import tqdm

BENCHMARKS = Path(__file__).parent
BUILD = BENCHMARKS.parent / "_build" / "bench"
OURS = "lmlib"


@dataclass(frozen=True)
class Measured:
    """Seconds, what came out, which all contenders must agree on, and what else there is to tell."""

    seconds: float
    result: object
    more: Mapping[str, object] | None = None


@dataclass(frozen=True)
class Task:
    """The same work for lmlib and for its peer; ``runs`` of each, if not as many as asked for.

    ``clock`` says which seconds they measure: "CPU", or "wall" where disks and several ``cores`` are waited for.
    ``needs`` is a feature of the CPU, as Linux names it, without which there is nothing to compare.
    """

    contenders: Mapping[str, Callable[..., Measured]]
    arguments: tuple = ()
    runs: int | None = None
    clock: str = "CPU"
    cores: int = 1
    needs: str | None = None

    @property
    def peer(self) -> str:
        """The other contender."""
        [peer] = self.contenders.keys() - {OURS}
        return peer


def main(
    description: str,
    tasks: Mapping[str, Task],
    prepare: Callable[[Collection[Task]], Mapping[str, object]],
    packages: Collection[str],
) -> None:
    """Run the command line of a benchmark: all of it, or one measurement.

    ``prepare`` writes what these tasks read, and returns what identifies it.
    """
    program = Path(sys.argv[0]).resolve()
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runs", type=_count, default=5, help="measurements of each contender (default: 5)")
    parser.add_argument("--task", choices=tasks, action="append", help="only this task (may be repeated)")
    out = BENCHMARKS / "results" / f"{program.stem}.json"
    parser.add_argument("--out", type=Path, default=out, help="where to write the results")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, contender = options.measure
        _measure(tasks[name], contender)
        return
    from lmlib.cli.files import check_writable  # not above: a measurement tells of its memory
    from lmlib.files import write_atomically

    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        check_writable(options.out)
    except OSError as error:
        parser.error(str(error))
    features = cpu_info("flags").split()
    chosen = {name: tasks[name] for name in options.task or tasks}
    left_out = [name for name, task in chosen.items() if task.needs and task.needs not in features]
    for name in left_out:
        print(f"{name}: left out, for this CPU has no {chosen.pop(name).needs}.", file=sys.stderr)
    BUILD.mkdir(parents=True, exist_ok=True)
    inputs = prepare(chosen.values())
    runs = {name: task.runs or options.runs for name, task in chosen.items()}
    with tqdm(total=2 * sum(runs.values()), unit="run", disable=None) as bar:
        results = {name: _run(program, name, task, runs[name], bar) for name, task in chosen.items()}
    report = {
        "command": "make bench",
        "machine": _machine(packages),
        "inputs": inputs,
        "tasks": results,
        "left_out": left_out,
    }
    print("\n".join(_table(results)))
    write_atomically(options.out, json.dumps(report, indent=2) + "\n")


def _count(text: str) -> int:
    """Return the number that an option says; argparse tells what is wrong with another."""
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {count}")
    return count


def _measure(task: Task, contender: str) -> None:
    """Measure once, in this process, and print what came out as JSON."""
    _take_cores(task.cores)
    measured = task.contenders[contender](*task.arguments)
    print(json.dumps({**vars(measured), "peak_bytes": peak_bytes()}))


def _take_cores(count: int) -> None:
    """Leave so many cores to this process; torch, too, then has as many threads."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])


def peak_bytes() -> int:
    """Return the most memory that this process has had: not getrusage's, which begins with the parent's."""
    return 1024 * process_kib("VmHWM")


def process_kib(field: str) -> int:
    """Return what Linux says of this process's memory, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def cpu_info(field: str) -> str:
    """Return what Linux says of the first CPU; nothing, if it does not."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith(field)), "")


def _run(program: Path, name: str, task: Task, runs: int, bar: tqdm) -> dict:
    """Measure the contenders in turn, and compare lmlib with its peer."""
    measured: dict[str, list[dict]] = {contender: [] for contender in task.contenders}
    for _ in range(runs):
        for contender, results in measured.items():
            results.append(_in_own_process(program, name, contender))
            bar.update()
    outcomes = {json.dumps(result["result"]) for results in measured.values() for result in results}
    if len(outcomes) != 1:
        raise SystemExit(f"{name}: the results differ, so the times say nothing: {outcomes}.")
    seconds = {who: [round(result["seconds"], 3) for result in results] for who, results in measured.items()}
    medians = {who: median(values) for who, values in seconds.items()}
    more = {who: results[-1]["more"] for who, results in measured.items() if results[-1]["more"]}
    return {
        "peer": task.peer,
        "runs": runs,
        "clock": task.clock,
        "seconds": seconds,
        "median_seconds": medians,
        "peak_mib": {who: round(max(r["peak_bytes"] for r in rs) / 2**20) for who, rs in measured.items()},
        "time_ratio": round(medians[OURS] / medians[task.peer], 3),
        **({"more": more} if more else {}),
    }


def _in_own_process(program: Path, name: str, contender: str) -> dict:
    command = [sys.executable, str(program), "--measure", name, contender]
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{name}, {contender}: failed.\n{run.stderr}")
    return json.loads(run.stdout)


def _machine(packages: Collection[str]) -> dict:
    """Describe the machine and what is installed on it."""
    return {
        "cpu": cpu_info("model name") or platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def _table(results: dict) -> Iterator[str]:
    """Yield the lines of a table of ratios."""
    width = max(map(len, results))
    yield f"{'task':<{width}} {'lmlib':>8} {'peer':>8}   time ÷ peer's"
    for task, result in results.items():
        seconds, peer = result["median_seconds"], result["peer"]
        yield f"{task:<{width}} {seconds[OURS]:7.2f}s {seconds[peer]:7.2f}s   {result['time_ratio']:.2f} × {peer}"
