"""A GPU in six minutes, without a network: what it computes, against a CPU, and how fast it trains.

On a GPU box: make gpu, or this program alone. Where there is none, the same path is tried with tiny shapes by
python benchmarks/gpu.py --device cpu --tiny
"""

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter

import torch
from gpu_checks import CHECKS, Skipped
from gpu_shapes import FULL, TINY, Scale
from gpu_steps import Peaks, find_peaks, measure

from lmlib.cli.files import check_writable
from lmlib.files import write_atomically
from lmlib.hardware import diagnose, get_device
from lmlib.hardware.installation import find_c_compiler

BENCHMARKS = Path(__file__).parent
RESULTS = BENCHMARKS / "results" / "gpu"
TRIALS = BENCHMARKS.parent / "_build" / "gpu"  # tiny shapes are no results


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark, and return 1 if something failed; the results are written all the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="cuda, cuda:1, cpu; auto for the first GPU (default)")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, which a CPU computes in seconds")
    parser.add_argument(
        "--out", type=Path, help="where to write the results (default: results/gpu/, by the GPU's name)"
    )
    options = parser.parse_args(arguments)
    scale = TINY if options.tiny else FULL
    try:
        device = usable_device(options.device, scale)
        out = prepare_out(options.out, device, scale)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    # as large as PyTorch's own on the newest GPUs, and of a fixed order
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    report = {
        "command": shlex.join(["python", "benchmarks/gpu.py", *(sys.argv[1:] if arguments is None else arguments)])
    }
    report |= run(device, scale)
    print("\n".join(summary(report)))
    text = json.dumps(report, indent=2) + "\n"
    try:
        write_atomically(out, text)
    except OSError as error:
        print(text, end="")  # minutes of a GPU are not to be lost
        print(f"The results could not be written, and stand on standard output: {error}", file=sys.stderr)
        return 1
    print(f"The results: {out}")
    return int(any(part["status"] == "failed" for part in all_parts(report).values()))


def usable_device(name: str, scale: Scale) -> torch.device:
    """Return the device; ValueError says what to do where it cannot run at that scale."""
    device = get_device(name)
    if scale.name == "full" and device.type != "cuda":
        raise ValueError(
            f"torch sees no GPU here, or was told not to use it ({device}): run this on a GPU box (lmlib doctor says "
            "what one lacks), or try its path with --device cpu --tiny"
        )
    if scale.compiles and find_c_compiler() is None:
        raise ValueError("torch.compile needs a C compiler: install gcc, or name one in the variable CC")
    if device.type == "cuda":
        torch.cuda.set_device(device)  # whose allocator lmlib.memory asks
    return device


def prepare_out(out: Path | None, device: torch.device, scale: Scale) -> Path:
    """Return the file to write, in a folder that is there; OSError if it cannot be written."""
    if out is None:
        out = (RESULTS if scale.name == "full" else TRIALS) / f"{slug(device_name(device))}.json"
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder: name a file for the results")
    out.parent.mkdir(parents=True, exist_ok=True)
    check_writable(out)
    return out


def device_name(device: torch.device) -> str:
    """Return what torch calls the GPU; of others the kind."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def slug(name: str) -> str:
    """Return a name as files have it: nvidia-h200."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def run(device: torch.device, scale: Scale) -> dict[str, object]:
    """Check, then measure; what goes wrong in a part is told in its place."""
    start = perf_counter()
    report = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": device_name(device),
        "scale": scale.name,
        "machine": describe_machine(device),
        "checks": {name: outcome(name, partial(check, device, scale)) for name, check in CHECKS.items()},
    }
    peaks: Peaks = {"data_sheet": None, "source": None, "measured": None}

    def find() -> tuple[bool, Peaks]:
        peaks.update(find_peaks(device, scale))
        return True, peaks

    report["peaks"] = outcome("peak of products", find)
    report["steps"] = {
        name: outcome(name, partial(measure, timed, device, scale, peaks)) for name, timed in scale.timed.items()
    }
    return report | {"seconds": round(perf_counter() - start, 1)}


def outcome(name: str, part: Callable[[], tuple[bool, dict]]) -> dict[str, object]:
    """Run a part, and tell whether it passed, with its figures, or why there are none."""
    print(f"{name} …", file=sys.stderr, flush=True)
    start = perf_counter()
    try:
        passed, figures = part()
        result = {"status": "passed" if passed else "failed", "figures": figures}
    except Skipped as reason:
        result = {"status": "skipped", "reason": str(reason)}
    except Exception as error:  # whatever it is: the other parts still have something to say
        result = {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:2000]}
    return result | {"part_seconds": round(perf_counter() - start, 1)}


def describe_machine(device: torch.device) -> dict[str, object]:
    """Return the device, the driver, and the versions of what computes."""
    found = diagnose(measure=False).as_dict()
    devices = {facts["device"]: facts for facts in found["devices"]}
    here = devices[str(device)]
    needed = (package for package in found["packages"] if package["needed_for"] in ("core", "train"))
    return {
        **{name: here[name] for name in ("device", "model", "memory_bytes", "compute_capability", "data_sheet")},
        "gpus": torch.cuda.device_count(),
        "cpu": devices["cpu"]["model"],
        "cores": os.cpu_count(),
        **{name: found[name] for name in ("platform", "driver", "cuda", "torch", "python", "lmlib")},
        "packages": {package["name"]: package["installed"] for package in needed},
    }


def all_parts(report: dict) -> dict[str, dict]:
    """Return every part that passes, fails or is skipped."""
    return {**report["checks"], "peak of products": report["peaks"], **report["steps"]}


def summary(report: dict) -> Iterator[str]:
    """Yield the lines that a person reads."""
    width = max(map(len, all_parts(report)))
    yield f"{report['device']}, {report['scale']} shapes, {report['seconds']:.0f} s"
    for name, part in all_parts(report).items():
        yield f"  {part['status']:8} {name:<{width}}  {part.get('reason', '')}".rstrip()
    for name, part in report["steps"].items():
        if (figures := part.get("figures")) and report["scale"] == "full":  # tiny ones say nothing of speed
            yield f"{name}, {figures['batch_size']} × {figures['seq_len']} tokens a step: {_speed(figures)}"


def _speed(figures: dict) -> str:
    shares = {"MFU": figures["mfu"], "of the measured peak": figures["mfu_of_measured_peak"]}
    waiting = figures["waiting_for_data"]
    return ", ".join(
        [
            f"{figures['tokens_per_second']:,.0f} tokens/s",
            *(f"{what} {share:.1%}" for what, share in shares.items() if share is not None),
            f"waiting for data {waiting['0']:.1%}, with prefetch {waiting['2']:.1%}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
