"""lmlib doctor: it says what is here, on any machine, and what is wrong in one line."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lmlib import __version__
from lmlib.cli import doctor, main
from lmlib.hardware.doctor import DeviceFacts, Diagnosis, DtypeFacts
from lmlib.hardware.installation import Missing, Package
from tests.reports import squeezed

ROOT = Path(__file__).parents[1]

H100 = DeviceFacts(
    device="cuda:0",
    model="NVIDIA H100 80GB HBM3",
    memory_bytes=85_000_000_000,
    compute_capability="9.0",
    threads=None,
    data_sheet="NVIDIA H100 data sheet",
    dtypes=(
        DtypeFacts("bf16", "matmul", measured_flops=7.004e14, data_sheet_flops=9.895e14),
        DtypeFacts("fp8_e4m3fn", "storage", measured_flops=None, data_sheet_flops=1.979e15),
    ),
    measured_bandwidth=2.9e12,
    data_sheet_bandwidth=3.35e12,
)
DIAGNOSIS = Diagnosis(
    lmlib=__version__,
    python="3.11.2",
    platform="Linux",
    torch="2.13.0",
    cuda="13.0",
    driver="580.65.06",
    packages=(Package("numpy", "core", ">=1.26", "2.4.6"), Package("matplotlib", "notebooks", ">=3.9", None)),
    devices=(H100,),
    missing=(Missing("for lmlib[notebooks]: matplotlib >=3.9 (missing)", "python -m pip install -e '.[notebooks]'"),),
)


@pytest.fixture
def run(capsys):
    """Run the command; return its exit code and what it wrote."""

    def run(*arguments):
        capsys.readouterr()
        code = main(["doctor", *arguments])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


@pytest.fixture
def report(monkeypatch, run):
    """What is printed of a diagnosis."""

    def report(diagnosis, *arguments):
        monkeypatch.setattr(doctor, "diagnose", lambda device, measure: diagnosis)
        done = run(*arguments)
        assert (done.code, done.err) == (0, "")
        return done.out

    return report


def test_it_measures_this_machine(run):
    done = run("--device", "cpu")
    assert (done.code, done.err) == (0, "")
    lines = squeezed(done.out)
    assert f"lmlib {__version__}" in lines
    assert any(line.startswith(f"torch {torch.__version__} (built with") for line in lines)
    assert any(re.fullmatch(r"fp32 matmul [\d,.]+ [TGM]FLOP/s -", line) for line in lines)
    assert any(re.fullmatch(r"memory copy [\d,.]+ [TGM]B/s -", line) for line in lines)
    assert "no data sheet is known: measured peaks stand in for it" in lines


def test_nothing_stands_in_for_a_data_sheet_unmeasured(run):
    lines = squeezed(run("--device", "cpu", "--no-measure").out)
    assert "no data sheet is known" in lines


def test_json_holds_the_same_facts(run):
    done = run("--json", "--no-measure", "--device", "cpu")
    assert (done.code, done.err) == (0, "")
    facts = json.loads(done.out)
    assert facts.keys() == Diagnosis.__dataclass_fields__.keys()
    assert facts["torch"] == torch.__version__
    (cpu,) = facts["devices"]
    assert cpu.keys() == DeviceFacts.__dataclass_fields__.keys()
    assert (cpu["device"], cpu["data_sheet"], cpu["measured_bandwidth"]) == ("cpu", None, None)
    assert {"dtype": "fp32", "support": "matmul", "measured_flops": None, "data_sheet_flops": None} in cpu["dtypes"]


def test_a_data_sheet_stands_beside_what_is_measured(report):
    lines = squeezed(report(DIAGNOSIS))
    assert "torch 2.13.0 (built with CUDA 13.0)" in lines
    assert "driver 580.65.06" in lines
    assert "cuda:0 NVIDIA H100 80GB HBM3, 85.0 GB of memory, compute capability 9.0" in lines
    assert "data sheet: NVIDIA H100 data sheet, dense" in lines
    assert "bf16 matmul 700.4 TFLOP/s 989.5 TFLOP/s" in lines
    assert "fp8_e4m3fn storage - 1,979.0 TFLOP/s" in lines
    assert "memory copy 2.9 TB/s 3.4 TB/s" in lines


def test_what_is_missing_comes_with_its_command(report):
    lines = squeezed(report(DIAGNOSIS))
    assert "packages core 1/1, notebooks 0/1" in lines
    place = lines.index("missing")
    assert lines[place + 1 :] == ["for lmlib[notebooks]: matplotlib >=3.9 (missing)", DIAGNOSIS.missing[0].command]
    assert squeezed(report(replace(DIAGNOSIS, missing=())))[-1] == "missing nothing"
    assert json.loads(report(DIAGNOSIS, "--json"))["missing"] == [
        {"what": DIAGNOSIS.missing[0].what, "command": DIAGNOSIS.missing[0].command}
    ]


def test_a_report_is_narrow_enough_for_a_terminal(report):
    assert max(map(len, report(DIAGNOSIS).splitlines())) <= 80


def test_a_machine_without_torch_is_told_what_to_do():
    code = "import sys; sys.modules['torch'] = None; from lmlib.cli import main; sys.exit(main(['doctor']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "torch     not installed, or it does not start" in done.stdout
    assert "python -m pip install --force-reinstall torch==" in done.stdout  # it is installed here


@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_an_unknown_device_is_told_in_one_line(run, flag):
    done = run("--device", "cuda:97", *flag)
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(r"error: There is no device 'cuda:97' on this machine, which has cpu.*\.\n", done.err)


@pytest.mark.parametrize("arguments", [["cpu"], ["--device"], ["--measur"], ["--json", "yes"]])
def test_wrong_usage_is_told_in_one_line(run, arguments):
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(r"error: .+\n", done.err)


def test_help_is_complete(run):
    help = run("--help").out
    for option in ["--device", "--no-measure", "--json"]:
        assert re.search(rf"{option}\b", help), option
    assert doctor.USAGE in help
    assert doctor.EXAMPLES.rstrip() in help
    assert max(map(len, help.splitlines())) <= 80


def test_the_examples_are_right(run, report):
    examples = [line.split()[2:] for line in doctor.EXAMPLES.splitlines() if line.startswith("  lmlib doctor")]
    assert len(examples) == 3
    for arguments in examples:
        report(DIAGNOSIS, *arguments)
