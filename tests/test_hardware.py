"""lmlib.hardware: accelerators as sold, the devices of this machine, and what they reach."""

import copy
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lmlib.hardware import (
    ACCELERATORS,
    Peak,
    Roofline,
    available_devices,
    diagnose,
    doctor,
    find_accelerator,
    get_accelerator,
    get_device,
    identify,
    installation,
    measure_copy_bandwidth,
    measure_matmul_flops,
    median_seconds,
    peak_bandwidth,
    peak_flops,
    peaks,
    seconds_per_call,
    synchronize,
)
from lmlib.hardware.installation import Missing, Package, find_missing, required_packages

# --- devices --------------------------------------------------------------------------------------------------


def test_the_cpu_is_always_there_and_first():
    assert available_devices()[0] == "cpu"
    assert get_device("cpu") == torch.device("cpu")


def test_auto_prefers_an_accelerator():
    devices = available_devices()
    assert str(get_device()) == (devices[1] if len(devices) > 1 else "cpu")


@pytest.mark.parametrize("name", [torch.device("cpu"), torch.device("cpu", 0), "cpu:0", "CPU", "Cpu:0"])
def test_the_cpu_has_several_names(name):
    assert get_device(name) == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda:97", "tpu", "", "cpu:3", "None"])
def test_a_device_that_is_not_there_says_which_are(name):
    with pytest.raises(ValueError, match=rf"^There is no device {name!r} on this machine, which has cpu.*auto"):
        get_device(name)


@pytest.mark.parametrize("name", [torch.device("cuda", 97), torch.device("meta"), None, 0, []])
def test_what_names_no_device_of_this_machine_says_which_there_are(name):
    with pytest.raises(ValueError, match=r"no device '.*' on this machine, which has cpu.*auto"):
        get_device(name)


def test_cuda_means_the_first_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert available_devices()[:3] == ("cpu", "cuda:0", "cuda:1")
    assert get_device("cuda") == torch.device("cuda:0")
    assert get_device(torch.device("cuda")) == torch.device("cuda:0")
    assert get_device(torch.device("cuda:1")) == torch.device("cuda:1")
    assert get_device("auto") == torch.device("cuda:0")


# --- timing ---------------------------------------------------------------------------------------------------


def test_median_seconds_leaves_out_the_first_call_and_takes_the_median(monkeypatch):
    clock, calls = [0.0], []
    durations = iter([9.0, 2.0, 50.0, 1.0])  # the first is warm-up, 50 an outlier

    def work():
        calls.append(1)
        clock[0] += next(durations)

    monkeypatch.setattr("lmlib.hardware.timing.perf_counter", lambda: clock[0])
    assert median_seconds(work, repeats=3) == 2.0
    assert len(calls) == 4


@pytest.mark.parametrize("repeats", [0, -1, 2.0, float("nan"), "5", None, True])
def test_median_seconds_needs_repeats_before_it_runs_anything(repeats):
    calls = []
    with pytest.raises(ValueError, match="repeats must be a whole number from 1 on"):
        median_seconds(lambda: calls.append(1), repeats=repeats)
    assert not calls


def test_a_gpu_is_waited_for_before_and_after_each_call(monkeypatch):
    events = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: events.append(f"wait for {device}"))
    monkeypatch.setattr("lmlib.hardware.timing.perf_counter", lambda: events.append("clock") or 0.0)
    median_seconds(lambda: events.append("work"), repeats=2, device="cuda:1")
    timed = ["wait for cuda:1", "clock", "work", "wait for cuda:1", "clock"]
    assert events == ["work", *timed, *timed]


def test_each_kind_of_device_is_waited_for_in_its_own_way(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: waited.append(device))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waited.append("mps"))
    for device in ["cpu", torch.device("cpu"), "mps:0", torch.device("cuda", 0)]:
        synchronize(device)
    assert waited == ["mps", torch.device("cuda", 0)]


# --- accelerators ---------------------------------------------------------------------------------------------

# Written down a second time, in TFLOP/s, GB and GB/s as data sheets print them; dense.
SHEET = """
| V100 SXM2      | -     | 125   | -     | 15.7 | -    | 32  | 900  | NVIDIA V100 data sheet             |
| A100 SXM 40 GB | 312   | 312   | 156   | 19.5 | -    | 40  | 1555 | NVIDIA A100 data sheet             |
| A100 SXM 80 GB | 312   | 312   | 156   | 19.5 | -    | 80  | 2039 | NVIDIA A100 data sheet             |
| H100 SXM       | 989.5 | 989.5 | 494.5 | 67   | 1979 | 80  | 3350 | NVIDIA H100 data sheet             |
| H100 PCIe      | 756.5 | 756.5 | 378   | 51   | 1513 | 80  | 2000 | NVIDIA H100 data sheet             |
| H200 SXM       | 989.5 | 989.5 | 494.5 | 67   | 1979 | 141 | 4800 | NVIDIA H200 data sheet             |
| B200           | 2250  | 2250  | 1125  | -    | 4500 | 180 | 8000 | NVIDIA HGX B200 data sheet         |
| L4             | 121   | 121   | 60    | 30.3 | 242  | 24  | 300  | NVIDIA L4 data sheet               |
| RTX 4090       | 165   | 165   | 82.6  | 82.6 | 330  | 24  | 1008 | NVIDIA Ada architecture white paper |
| TPU v4         | 275   | -     | -     | -    | -    | 32  | 1228 | Google Cloud TPU documentation     |
| TPU v5p        | 459   | -     | -     | -    | -    | 95  | 2765 | Google Cloud TPU documentation     |
"""


def sheet_rows():
    for line in SHEET.strip().splitlines():
        name, *peaks, memory, bandwidth, source = [cell.strip() for cell in line.strip("|").split("|")]
        figures = zip(["bf16", "fp16", "tf32", "fp32", "fp8"], peaks, strict=True)
        tera_flops = {dtype: float(figure) for dtype, figure in figures if figure != "-"}
        yield SimpleNamespace(name=name, tera_flops=tera_flops, gb=int(memory), gb_s=int(bandwidth), source=source)


def test_the_table_is_that_of_the_data_sheets_and_nothing_beyond():
    rows = list(sheet_rows())
    assert [each.name for each in ACCELERATORS] == [row.name for row in rows]
    for each, row in zip(ACCELERATORS, rows, strict=True):
        assert {dtype: peak / 1e12 for dtype, peak in each.peak_flops.items()} == row.tera_flops
        assert (each.memory_bytes, each.bandwidth) == (row.gb * 10**9, row.gb_s * 10**9)
        assert each.source == row.source


def test_fp8_is_twice_bf16_and_tf32_half_where_they_are_tensor_core_peaks():
    for each in ACCELERATORS:
        bf16 = each.peak_flops.get("bf16")
        for dtype, ratio in {"fp8": 2, "tf32": 0.5}.items():
            if dtype in each.peak_flops:
                assert each.peak_flops[dtype] == pytest.approx(ratio * bf16, rel=0.01), (each.name, dtype)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("h100", "h100"),
        ("H100 SXM", "h100"),
        ("h100-sxm", "h100"),
        ("h100_pcie", "h100-pcie"),
        ("A100 SXM 80 GB", "a100-80gb"),
        ("a100-40GB", "a100-40gb"),
        ("rtx4090", "rtx-4090"),
        ("TPU v5p", "tpu-v5p"),
        ("NVIDIA H200", "h200"),
    ],
)
def test_accelerators_have_several_names(name, key):
    assert get_accelerator(name).key == key


@pytest.mark.parametrize("name", ["a100", "h1000", "", "cpu", None, 100, "gpu"])
def test_an_unknown_accelerator_says_which_are_known(name):
    with pytest.raises(
        ValueError, match=rf"unknown accelerator '{name}': choose from v100, a100-40gb, a100-80gb, h100"
    ):
        get_accelerator(name)


@pytest.mark.parametrize(
    ("torch_name", "key"),
    [
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("A100-SXM4-80GB", "a100-80gb"),  # as older drivers say
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
    ],
)
def test_an_accelerator_is_found_by_the_name_torch_reports(torch_name, key):
    assert find_accelerator(torch_name).key == key


@pytest.mark.parametrize(
    "torch_name",
    [
        "NVIDIA H100 NVL",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A100 80GB PCIe",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "Tesla V100-SXM2-16GB",
        "NVIDIA L40S",
        "h100",
        "",
    ],
)
def test_what_only_resembles_an_accelerator_is_none(torch_name):
    assert find_accelerator(torch_name) is None


def test_no_two_accelerators_share_a_name():
    names = [n for each in ACCELERATORS for n in {each.key, each.name.lower(), *each.aliases, *each.torch_names}]
    assert len(names) == len(set(names))


def test_an_accelerator_states_its_peak_and_the_source():
    h100 = get_accelerator("h100")
    assert h100.peak("bf16") == Peak(989.5e12, measured=False, source="NVIDIA H100 data sheet")
    assert h100.peak(torch.float8_e4m3fn) == h100.peak("fp8")
    assert h100.peak_bandwidth == Peak(3.35e12, measured=False, source="NVIDIA H100 data sheet")


@pytest.mark.parametrize("dtype", ["fp8", "fp64", torch.float8_e5m2])
def test_a_peak_that_no_source_gives_says_which_there_are(dtype):
    with pytest.raises(ValueError, match=r"NVIDIA A100 data sheet gives no fp\d+ peak .*choose from bf16, fp16, tf32"):
        get_accelerator("a100-80gb").peak(dtype)


def test_a_peak_for_an_unknown_dtype_says_which_are_known():
    with pytest.raises(ValueError, match="unknown floating dtype 'int8': choose from fp64"):
        get_accelerator("h100").peak("int8")


def test_the_figures_cannot_be_changed():
    h100, h200 = get_accelerator("h100"), get_accelerator("h200")
    with pytest.raises(TypeError):
        h100.peak_flops["bf16"] = 1979e12
    with pytest.raises(FrozenInstanceError):
        h100.bandwidth = 1.0
    assert len({h100, h200, get_accelerator("h100")}) == 2  # hashable


# --- rooflines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_accelerators_can_be_copied_and_pickled(duplicate):
    for accelerator in ACCELERATORS:
        again = duplicate(accelerator)
        assert again == accelerator
        with pytest.raises(TypeError):
            again.peak_flops["bf16"] = 1


def test_a_roofline_is_the_lower_of_two_limits():
    roofline = Roofline(peak_flops=100, bandwidth=20)
    assert roofline.ridge == 5
    assert [roofline.limit(intensity) for intensity in (0, 0.5, 5, 50)] == [0, 10, 100, 100]


@pytest.mark.parametrize("intensity", [-1, float("nan")])
def test_a_roofline_has_no_limit_for_what_is_no_intensity(intensity):
    with pytest.raises(ValueError, match=f"intensity must be 0 or above, not {intensity}"):
        Roofline(peak_flops=100, bandwidth=20).limit(intensity)


def test_an_accelerators_roofline_is_that_of_its_data_sheet():
    h100 = get_accelerator("h100")
    assert h100.roofline() == h100.roofline("bf16") == Roofline(989.5e12, 3.35e12)
    assert round(h100.roofline().ridge) == 295
    assert h100.roofline("fp8").ridge == 2 * h100.roofline("bf16").ridge
    with pytest.raises(ValueError, match="gives no fp64 peak"):
        h100.roofline("fp64")


@pytest.mark.parametrize("limit", [0, -1.0, float("nan")])
@pytest.mark.parametrize("name", ["peak_flops", "bandwidth"])
def test_a_roofline_needs_limits_above_zero(name, limit):
    with pytest.raises(ValueError, match=f"{name} must be above 0, not {limit}"):
        Roofline(**{"peak_flops": 1.0, "bandwidth": 1.0, name: limit})


# --- peaks ----------------------------------------------------------------------------------------------------


@pytest.fixture
def h100(monkeypatch):
    """A machine that says it has an H100; nothing can run on it."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


@pytest.fixture
def fixed_seconds(monkeypatch):
    """Every measured call takes 1 ms, and one size is enough."""
    monkeypatch.setattr(peaks, "SIZES", (256,))
    monkeypatch.setattr(peaks, "seconds_per_call", lambda function, repeats, device: 1e-3)


def test_a_known_device_has_the_peaks_of_its_data_sheet(h100):
    assert identify() is get_accelerator("h100")
    assert identify("cpu") is None
    assert peak_flops("bf16") == get_accelerator("h100").peak("bf16")
    assert peak_bandwidth("cuda") == get_accelerator("h100").peak_bandwidth


def test_a_dtype_that_the_data_sheet_leaves_out_is_measured(h100, monkeypatch):
    monkeypatch.setattr(peaks, "measure_matmul_flops", lambda dtype, device: 3e13)
    assert peak_flops("fp64") == Peak(3e13, measured=True, source="matmul measured on cuda:0")


def test_an_unknown_device_has_measured_peaks_and_says_so(fixed_seconds):
    flops, bandwidth = peak_flops("fp32", "cpu"), peak_bandwidth("cpu")
    assert (flops.measured, flops.source) == (True, "matmul measured on cpu")
    assert flops.value == 2 * 256**3 / 1e-3
    assert (bandwidth.measured, bandwidth.source) == (True, "copy measured on cpu")


def test_an_unknown_gpu_has_measured_peaks_too(h100, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    monkeypatch.setattr(peaks, "measure_matmul_flops", lambda dtype, device: 1e14)
    monkeypatch.setattr(peaks, "measure_copy_bandwidth", lambda device: 4e11)
    assert peak_flops("bf16") == Peak(1e14, measured=True, source="matmul measured on cuda:0")
    assert peak_bandwidth() == Peak(4e11, measured=True, source="copy measured on cuda:0")


def test_matmul_flops_are_two_n_cubed_over_the_time_of_the_fastest_size(monkeypatch):
    seconds = {256: 1e-3, 512: 2e-3, 1024: 0.021}  # the last one is long enough
    sizes = []

    def fake_seconds(function, repeats, device):
        product = function()
        sizes.append(product.shape[0])
        assert product.shape == (sizes[-1], sizes[-1])
        assert product.dtype == torch.float64
        return seconds[sizes[-1]]

    monkeypatch.setattr(peaks, "seconds_per_call", fake_seconds)
    assert measure_matmul_flops("fp64", "cpu") == 2 * 512**3 / 2e-3
    assert sizes == [256, 512, 1024]


def test_matrices_stay_within_a_quarter_of_a_gpus_free_memory(monkeypatch):
    monkeypatch.setattr(peaks, "_free_bytes", lambda device: 4 * 3 * 512 * 512 * 4)
    monkeypatch.setattr(peaks, "seconds_per_call", lambda function, repeats, device: 2 * function().shape[0] ** 3)
    assert list(peaks._matmul_rates("fp32", torch.device("cpu"), 1)) == [1.0]  # 256 takes long enough
    monkeypatch.setattr(peaks, "LONG_ENOUGH", float("inf"))
    assert list(peaks._matmul_rates("fp32", torch.device("cpu"), 1)) == [1.0, 1.0]  # 256 and 512


def test_bandwidth_counts_what_is_read_and_what_is_written(fixed_seconds):
    assert measure_copy_bandwidth("cpu", nbytes=1000) == 2 * 1000 / 1e-3


def test_calls_are_timed_in_batches_that_are_long_enough(monkeypatch):
    clock, calls = [0.0], []

    def work():
        calls.append(1)
        clock[0] += 0.003

    monkeypatch.setattr("lmlib.hardware.timing.perf_counter", lambda: clock[0])
    assert seconds_per_call(work, repeats=3) == pytest.approx(0.003)
    assert len(calls) == 2 + 4 * 7  # twice to see how long it takes; then 7 × 3 ms > 20 ms, and the first is warm-up


def test_this_machine_is_measured():
    """No time is claimed, only that it is one: no CPU is slower than 1 MFLOP/s or 1 MB/s, or as fast as 1e16."""
    assert 1e6 < measure_matmul_flops("fp32", "cpu", repeats=1) < 1e16
    assert 1e6 < measure_copy_bandwidth("cpu", nbytes=2**20, repeats=1) < 1e16


@pytest.mark.parametrize("dtype", [torch.float32, "float32", np.float32, "fp32"])
def test_dtypes_are_those_of_torch(dtype):
    assert peaks._torch_dtype(dtype) is torch.float32


def test_every_format_that_torch_has_is_found_in_it():
    found = {name: peaks._torch_dtype(name) for name in ["fp64", "bf16", "fp16", "fp8_e4m3fn", "fp8_e5m2", "tf32"]}
    assert found == {
        "fp64": torch.float64,
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp8_e4m3fn": torch.float8_e4m3fn,
        "fp8_e5m2": torch.float8_e5m2,
        "tf32": torch.float32,
    }


def test_tf32_needs_an_nvidia_gpu(h100, monkeypatch):
    assert peaks._has_tf32(torch.device("cuda:0"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    assert not peaks._has_tf32(torch.device("cuda:0"))
    assert not peaks.can_multiply("tf32", "cpu")
    with pytest.raises(ValueError, match=r"cpu has no tf32: .*choose fp32"):
        measure_matmul_flops("tf32", "cpu")


@pytest.mark.parametrize("setting", ["highest", "high"])
def test_torchs_setting_for_fp32_is_put_aside_and_back(setting):
    """The switch itself, which a build without CUDA has too; nothing is multiplied."""
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(setting)
        for dtype, precision in {"tf32": "tf32", "fp32": "ieee"}.items():
            with peaks._fp32_arithmetic(dtype, torch.device("cuda:0")):
                assert torch.backends.cuda.matmul.fp32_precision == precision
            assert torch.get_float32_matmul_precision() == setting  # raises where two switches disagree
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_dtype_that_cannot_be_multiplied_says_so(monkeypatch):
    def fail(*arguments):
        raise NotImplementedError("\"addmm\" not implemented for 'Float8_e5m2'\nand more")

    monkeypatch.setattr(peaks, "_multiply_once", fail)
    message = (
        r"torch cannot multiply fp8_e5m2 on cpu: choose another dtype \(.addmm. not implemented for 'Float8_e5m2'\)"
    )
    with pytest.raises(ValueError, match=message):
        measure_matmul_flops("fp8_e5m2", "cpu")
    assert not peaks.can_multiply("fp8_e5m2", "cpu")
    assert peaks.can_store("fp8_e5m2", "cpu")
    assert not peaks.can_store("tf32", "cpu")


@pytest.mark.parametrize("measure", [measure_matmul_flops, peak_flops])
def test_measuring_needs_a_known_dtype_and_a_device_that_is_there(measure):
    with pytest.raises(ValueError, match="unknown floating dtype 'int8'"):
        measure("int8", "cpu")
    with pytest.raises(ValueError, match="no device 'cuda:97' on this machine"):
        measure("fp32", "cuda:97")


@pytest.mark.parametrize("nbytes", [0, -1, 1.5, "1", float("nan"), True])
def test_a_copy_needs_bytes(nbytes):
    with pytest.raises(ValueError, match="nbytes must be at least 1, and a whole number"):
        measure_copy_bandwidth("cpu", nbytes=nbytes)


def test_a_number_of_numpy_is_one_of_bytes():
    assert measure_copy_bandwidth("cpu", nbytes=np.int64(1000), repeats=np.int64(1)) > 0


def test_the_table_imports_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from lmlib.hardware import get_accelerator, median_seconds\n"
        "assert get_accelerator('h100').peak('bf16').value == 989.5e12\n"
        "median_seconds(lambda: None)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# --- what is installed and what is missing --------------------------------------------------------------------


@pytest.fixture
def no_gpu(monkeypatch, tmp_path):
    """A machine without an NVIDIA GPU, and with gcc and apt-get alone."""
    monkeypatch.setattr(installation, "PCI_DEVICES", tmp_path)
    monkeypatch.setattr(installation.shutil, "which", lambda name: name if name in ("gcc", "apt-get") else None)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.fixture
def gpu(no_gpu):
    """The same with one, as Linux shows it."""
    plug_in(no_gpu, vendor="0x10de", kind="0x030200")
    return no_gpu


def plug_in(folder, vendor, kind):
    device = folder / f"0000:{len(list(folder.iterdir())):02x}:00.0"
    device.mkdir()
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")


def fake_torch(cuda, devices=0, version="2.13.0+cpu"):
    return SimpleNamespace(
        __version__=version,
        version=SimpleNamespace(cuda=cuda, hip=None),
        cuda=SimpleNamespace(device_count=lambda: devices),
    )


FITTING = [Package("numpy", "core", ">=1.26", "2.4.6")]


def test_packages_are_those_that_pyproject_declares():
    packages = {package.name: package for package in required_packages()}
    assert packages["numpy"].needed_for == "core"
    assert packages["torch"].needed_for == "train"
    assert packages["torch"].installed == torch.__version__
    assert packages["jupyter-book"].wanted == "<2,>=1.0.4"
    assert "lmlib" not in packages
    assert all(package.fits for package in packages.values())


@pytest.mark.parametrize(
    ("wanted", "installed", "fits"),
    [
        (">=2.6", "2.13.0+cpu", True),
        (">=2.6", "2.6", True),
        (">=2.6", "2.6.0", True),
        (">=2.6.0", "2.6", True),
        (">=2.6", "2.5.1", False),
        (">=2.6", "2.6.0rc1", True),
        ("<2,>=1.0.4", "1.0.4.post1", True),
        ("<2,>=1.0.4", "2.0", False),
        ("<2,>=1.0.4", "1.0.3", False),
        ("", "0.1", True),
        ("", None, False),
    ],
)
def test_a_package_fits_where_its_version_does(wanted, installed, fits):
    assert Package("name", "core", wanted, installed).fits is fits


def test_nothing_is_missing_on_a_machine_that_is_complete(no_gpu):
    assert find_missing(FITTING, fake_torch(cuda=None), driver=None) == ()
    assert find_missing(FITTING, fake_torch(cuda="12.9", devices=1), driver="580.65") == ()


def test_packages_that_are_missing_come_with_the_command(no_gpu):
    packages = [
        *FITTING,
        Package("torch", "train", ">=2.6", "2.5.0"),
        Package("matplotlib", "notebooks", ">=3.9", None),
        Package("tiktoken", "notebooks", ">=0.14", None),
    ]
    repository = "# in lmlib's repository"
    assert find_missing(packages, None, None) == (
        Missing("for lmlib[train]: torch >=2.6 (2.5.0)", f"python -m pip install -e '.[train]'  {repository}"),
        Missing(
            "for lmlib[notebooks]: matplotlib >=3.9 (missing), tiktoken >=0.14 (missing)",
            f"python -m pip install -e '.[notebooks]'  {repository}",
        ),
    )


def test_files_without_a_package_are_told(no_gpu, monkeypatch):
    def not_found(name):
        raise installation.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(installation.metadata, "requires", not_found)
    assert required_packages() == ()
    (missing,) = find_missing(required_packages(), fake_torch(cuda=None), None)
    assert missing.command.startswith("python -m pip install -e . ")


def test_a_torch_that_does_not_start_is_told(no_gpu):
    packages = [*FITTING, Package("torch", "train", ">=2.6", "2.13.0+cpu")]
    (missing,) = find_missing(packages, None, None)
    assert missing == Missing(
        "torch that starts: 2.13.0+cpu is installed, but importing it fails",
        "python -m pip install --force-reinstall torch==2.13.0",
    )


def test_a_cpu_build_beside_a_gpu_is_told(gpu):
    (missing,) = find_missing(FITTING, fake_torch(cuda=None), driver="580.65")
    assert missing.command == "python -m pip install --force-reinstall torch==2.13.0"
    assert "2.13.0+cpu is a build for CPUs" in missing.what


def test_a_gpu_without_a_driver_is_told(gpu, monkeypatch):
    torch_ = fake_torch(cuda="12.9", version="2.13.0")
    (missing,) = find_missing(FITTING, torch_, driver=None)
    assert missing == Missing("a driver: there is an NVIDIA GPU without one", "sudo apt-get install nvidia-driver")
    monkeypatch.setattr(installation.shutil, "which", lambda name: name)
    (missing,) = find_missing(FITTING, torch_, driver=None)
    assert missing.command == "sudo ubuntu-drivers install"
    monkeypatch.setattr(installation.shutil, "which", lambda name: None)
    (missing,) = find_missing(FITTING, torch_, driver=None)
    assert "package manager" in missing.command


def test_a_gpu_without_a_c_compiler_is_told(gpu, monkeypatch):
    torch_ = fake_torch(cuda="12.9", devices=1)
    monkeypatch.setattr(installation.shutil, "which", lambda name: name if name == "apt-get" else None)
    (missing,) = find_missing(FITTING, torch_, driver="580.65")
    assert missing.command == "sudo apt-get install gcc"
    monkeypatch.setenv("CC", "icx")
    monkeypatch.setattr(installation.shutil, "which", lambda name: name if name == "icx" else None)
    assert find_missing(FITTING, torch_, driver="580.65") == ()


def test_a_driver_too_old_for_torch_and_hidden_gpus_are_told_apart(gpu, monkeypatch):
    torch_ = fake_torch(cuda="12.9", version="2.13.0")
    (missing,) = find_missing(FITTING, torch_, driver="470.1")
    assert "a driver for CUDA 12.9: torch cannot use a GPU with driver 470.1" in missing.what
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (missing,) = find_missing(FITTING, torch_, driver="580.65")
    assert missing.command == "unset CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(("vendor", "kind"), [("0x1002", "0x030000"), ("0x10de", "0x020000")])
def test_another_makers_gpu_or_another_device_of_nvidia_is_no_nvidia_gpu(no_gpu, vendor, kind):
    plug_in(no_gpu, vendor, kind)
    (no_gpu / "0000:ff:00.0").mkdir()  # tells nothing
    assert not installation.has_nvidia_gpu()
    plug_in(no_gpu, "0x10de", "0x030000")
    assert installation.has_nvidia_gpu()


def test_the_driver_is_read_from_nvidia_smi_or_the_kernel(monkeypatch, tmp_path):
    file = tmp_path / "version"
    monkeypatch.setattr(installation, "DRIVER_FILE", file)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installation.driver_version() is None

    file.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Fri Jan 24 2025\n")
    assert installation.driver_version() == "570.86.15"

    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 580.65.06\necho 580.65.06\n")
    smi.chmod(0o755)
    assert installation.driver_version() == "580.65.06"
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert installation.driver_version() == "570.86.15"


# --- the diagnosis --------------------------------------------------------------------------------------------


def test_the_diagnosis_of_this_machine():
    diagnosis = diagnose("cpu", measure=False)
    assert diagnosis.torch == torch.__version__
    (cpu,) = diagnosis.devices
    assert (cpu.device, cpu.threads) == ("cpu", torch.get_num_threads())
    assert cpu.memory_bytes > 10**8
    assert cpu.data_sheet is None
    support = {dtype.dtype: dtype.support for dtype in cpu.dtypes}
    assert support["fp64"] == support["fp32"] == "matmul"
    assert support["tf32"] == "none"
    assert all(dtype.measured_flops is None for dtype in cpu.dtypes)
    assert cpu.measured_bandwidth is None


def test_all_devices_are_looked_at_unless_one_is_named():
    assert [device.device for device in diagnose(measure=False).devices] == list(available_devices())
    with pytest.raises(ValueError, match="no device 'tpu' on this machine"):
        diagnose("tpu", measure=False)


def test_a_known_gpu_has_its_data_sheet_beside_what_is_measured(h100, monkeypatch):
    """The report alone: what it asks of the GPU is answered for it."""
    monkeypatch.setattr(doctor, "can_multiply", lambda dtype, device: not dtype.startswith("fp8"))
    monkeypatch.setattr(doctor, "can_store", lambda dtype, device: True)
    monkeypatch.setattr(doctor, "measure_matmul_flops", lambda dtype, device: 7e14)
    monkeypatch.setattr(doctor, "measure_copy_bandwidth", lambda device: 3e12)
    properties = SimpleNamespace(total_memory=85_000_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    (gpu,) = diagnose("cuda").devices
    assert (gpu.model, gpu.compute_capability) == ("NVIDIA H100 80GB HBM3", "9.0")
    assert (gpu.memory_bytes, gpu.data_sheet) == (85_000_000_000, "NVIDIA H100 data sheet")
    assert (gpu.measured_bandwidth, gpu.data_sheet_bandwidth) == (3e12, 3.35e12)
    dtypes = {each.dtype: (each.support, each.measured_flops, each.data_sheet_flops) for each in gpu.dtypes}
    assert dtypes["bf16"] == ("matmul", 7e14, 989.5e12)
    assert dtypes["fp64"] == ("matmul", None, None)
    assert dtypes["fp8_e4m3fn"] == ("storage", None, 1979e12)
