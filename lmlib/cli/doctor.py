"""``lmlib doctor``."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter

from lmlib.cli.files import Json, print_json
from lmlib.hardware.doctor import DeviceFacts, Diagnosis, DtypeFacts, diagnose
from lmlib.hardware.installation import Missing, Package

__all__ = ["EXAMPLES", "USAGE", "DoctorOptions", "app", "doctor"]

USAGE = "Usage: lmlib doctor [OPTIONS]"

EXAMPLES = """Examples:

  lmlib doctor

  lmlib doctor --device cuda:0 --json

  lmlib doctor --no-measure
"""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """Options of ``lmlib doctor``."""

    device: str = "all"
    """A device to look at: cpu, cuda:0, mps; auto for the best; all."""
    measure: Annotated[
        bool,
        Parameter(
            negative="--no-measure",
            help="Measure the FLOP/s of large matmuls and the B/s of a copy, bytes "
            "read and written both counted: a few seconds for each device.",
        ),
    ] = True
    json: Json = False


DEFAULTS = DoctorOptions()

app = App(name="doctor", usage=USAGE, help_epilogue=EXAMPLES)


@app.default
def doctor(
    *, options: Annotated[DoctorOptions, Parameter(name="*")] = DEFAULTS
) -> None:
    """Show what this machine has, what it reaches, and what it lacks."""
    diagnosis = diagnose(options.device, options.measure)
    if options.json:
        print_json(diagnosis.as_dict())
    else:
        _print(diagnosis)


def _print(diagnosis: Diagnosis) -> None:
    print(f"lmlib     {diagnosis.lmlib}")
    print(f"python    {diagnosis.python}")
    print(f"platform  {diagnosis.platform}")
    print(f"torch     {_torch(diagnosis)}")
    print(f"driver    {diagnosis.driver or 'no NVIDIA driver'}")
    print(f"packages  {_packages(diagnosis.packages)}")
    for device in diagnosis.devices:
        _print_device(device)
    _print_missing(diagnosis.missing)


def _torch(diagnosis: Diagnosis) -> str:
    if diagnosis.torch is None:
        return "not installed, or it does not start: no device can be looked at"
    build = f"CUDA {diagnosis.cuda}" if diagnosis.cuda else "no CUDA"
    return f"{diagnosis.torch} (built with {build})"


def _packages(packages: Iterable[Package]) -> str:
    """Return how many of those needed are there, for each purpose."""
    counts: dict[str, list[bool]] = {}
    for package in packages:
        counts.setdefault(package.needed_for, []).append(package.fits)
    shown = [f"{name} {sum(fit)}/{len(fit)}" for name, fit in counts.items()]
    return ", ".join(shown) or "unknown"


def _print_device(device: DeviceFacts) -> None:
    facts = [device.model]
    if device.memory_bytes is not None:
        facts.append(f"{device.memory_bytes / 1e9:.1f} GB of memory")
    if device.compute_capability:
        facts.append(f"compute capability {device.compute_capability}")
    if device.threads:
        facts.append(f"{device.threads} thread{'s' * (device.threads > 1)}")
    print(f"\n{device.device:8}  {', '.join(facts)}")
    if device.data_sheet:
        print(f"          data sheet: {device.data_sheet}, dense")
    else:
        print(f"          no data sheet is known{_stand_in(device)}")
    print(
        f"\n          {'':12} {'torch does':12} {'measured':>15} {'data sheet':>15}"
    )
    for dtype in device.dtypes:
        _print_dtype(dtype)
    measured = _rate(device.measured_bandwidth, "B/s")
    stated = _rate(device.data_sheet_bandwidth, "B/s")
    print(f"          {'memory':12} {'copy':12} {measured:>15} {stated:>15}")


def _stand_in(device: DeviceFacts) -> str:
    """Return what is there instead of a data sheet, if anything was measured."""
    rates = [device.measured_bandwidth, *(d.measured_flops for d in device.dtypes)]
    return "" if set(rates) == {None} else ": measured peaks stand in for it"


def _print_dtype(dtype: DtypeFacts) -> None:
    measured = _rate(dtype.measured_flops, "FLOP/s")
    stated = _rate(dtype.data_sheet_flops, "FLOP/s")
    print(
        f"          {dtype.dtype:12} {dtype.support:12} {measured:>15} {stated:>15}"
    )


def _rate(value: float | None, unit: str) -> str:
    """Return a rate with three or four digits and a decimal prefix."""
    if value is None:
        return "-"
    for prefix, scale in {"T": 1e12, "G": 1e9, "M": 1e6}.items():
        if value >= scale:
            return f"{value / scale:,.1f} {prefix}{unit}"
    return f"{value:,.0f} {unit}"


def _print_missing(missing: Iterable[Missing]) -> None:
    missing = tuple(missing)
    print("\nmissing   " + ("" if missing else "nothing"))
    for each in missing:
        print(f"  {each.what}\n    {each.command}")
