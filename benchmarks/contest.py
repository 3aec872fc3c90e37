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
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from math import log
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
    """The same work for lmlib and for its peers; ``runs`` of each, if not as many as asked for.

    ``clock`` says which seconds they measure: "CPU", or "wall" where disks and several ``cores`` are waited for.
    ``needs`` is a feature of the CPU, as Linux names it, without which there is nothing to compare. ``reads`` names
    what ``prepare`` writes for it. Where it is not the same work, but more and less of it, ``work`` says how much
    each contender has; with which power of it the time grows is then told, too. ``goals`` say which ratio of our
    time to a peer's, or which power, is good enough.
    """

    contenders: Mapping[str, Callable[..., Measured]]
    arguments: tuple = ()
    runs: int | None = None
    clock: str = "CPU"
    cores: int = 1
    needs: str | None = None
    reads: tuple[str, ...] = ()
    work: Mapping[str, float] | None = None
    goals: Mapping[str, float] | None = None

    @property
    def peers(self) -> list[str]:
        """The other contenders."""
        return [contender for contender in self.contenders if contender != OURS]


def main(
    description: str,
    tasks: Mapping[str, Task],
    prepare: Callable[[Collection[Task]], Mapping[str, object]],
    packages: Collection[str],
) -> None:
    """Run the command line of a benchmark: all of it, or one measurement.

    ``prepare`` writes what these tasks read, and returns what identifies it. A peer that is one of ``packages``
    but is not installed is left out.
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
    chosen, left_out = _possible({name: tasks[name] for name in options.task or tasks}, packages)
    BUILD.mkdir(parents=True, exist_ok=True)
    inputs = prepare(chosen.values())
    runs = {name: task.runs or options.runs for name, task in chosen.items()}
    total = sum(runs[name] * len(task.contenders) for name, task in chosen.items())
    with tqdm(total=total, unit="run", disable=None) as bar:
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


def _possible(tasks: Mapping[str, Task], packages: Collection[str]) -> tuple[dict[str, Task], list[str]]:
    """Return what can be compared here, and the names of tasks that cannot, after telling why."""
    features = cpu_info("flags").split()
    missing = [package for package in packages if _version(package) is None]
    if missing:
        print(f"Left out, for they are not installed: {', '.join(missing)}.", file=sys.stderr)
    possible = {}
    for name, task in tasks.items():
        contenders = {who: measure for who, measure in task.contenders.items() if who not in missing}
        if task.needs and task.needs not in features:
            print(f"{name}: left out, for this CPU has no {task.needs}.", file=sys.stderr)
        elif len(contenders) == 1:
            print(f"{name}: left out, for there is no peer.", file=sys.stderr)
        else:
            possible[name] = replace(task, contenders=contenders)
    return possible, [name for name in tasks if name not in possible]


def _version(package: str) -> str | None:
    """Return what is installed, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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
    """Measure the contenders in turn, and compare lmlib with its peers."""
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
    ratios = {peer: medians[OURS] / medians[peer] for peer in task.peers}
    more = {who: results[-1]["more"] for who, results in measured.items() if results[-1]["more"]}
    return {
        "runs": runs,
        "clock": task.clock,
        "seconds": seconds,
        "median_seconds": medians,
        "peak_mib": {who: round(max(r["peak_bytes"] for r in rs) / 2**20) for who, rs in measured.items()},
        "time_ratio": {peer: round(ratio, 3) for peer, ratio in ratios.items()},
        **({"exponent": _exponents(task.work, ratios)} if task.work else {}),
        **({"goal": dict(task.goals)} if task.goals else {}),
        **({"more": more} if more else {}),
    }


def _exponents(work: Mapping[str, float], ratios: Mapping[str, float]) -> dict[str, float]:
    """Return with which power of the work the time grows, from that of each peer to ours."""
    return {peer: round(log(ratio) / log(work[OURS] / work[peer]), 3) for peer, ratio in ratios.items()}


def _in_own_process(program: Path, name: str, contender: str) -> dict:
    command = [sys.executable, str(program), "--measure", name, contender]
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{name}, {contender}: failed.\n{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])  # a peer may have printed before


def _machine(packages: Collection[str]) -> dict:
    """Describe the machine and what is installed on it."""
    return {
        "cpu": cpu_info("model name") or platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages if _version(name)},
    }


def _table(results: dict) -> Iterator[str]:
    """Yield the lines of a table: our seconds and memory, and their ratios to those of each peer."""
    width = max(map(len, results), default=0)
    yield f"{'task':<{width}} {'seconds':>8} {'MiB':>6}   seconds and MiB ÷ peer's"
    for task, result in results.items():
        peaks, exponents, goals = result["peak_mib"], result.get("exponent", {}), result.get("goal", {})
        for number, (peer, ratio) in enumerate(result["time_ratio"].items()):
            ours = f"{task:<{width}} {result['median_seconds'][OURS]:8.2f} {peaks[OURS]:6}"
            power = f" (the work to the {exponents[peer]:.2f})" if peer in exponents else ""
            goal = _judged(exponents.get(peer, ratio), goals[peer]) if peer in goals else ""
            shown = ours if number == 0 else " " * len(ours)
            yield f"{shown}   {ratio:5.2f} {peaks[OURS] / peaks[peer]:5.2f} × {peer}{power}{goal}"


def _judged(value: float, goal: float) -> str:
    return f": {'meets' if value <= goal else 'misses'} the goal of {goal:.2f}"
