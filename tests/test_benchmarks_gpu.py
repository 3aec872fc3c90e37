"""The GPU benchmark, tried with tiny shapes on the CPU; each of its checks sees what it is there to see."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch

from lmlib.hardware import Peak, get_accelerator
from lmlib.memory import GpuBytes, SavedTensor, saved_tensors

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # where its modules find each other
gpu, gpu_checks, gpu_shapes, gpu_steps = map(import_module, ("gpu", "gpu_checks", "gpu_shapes", "gpu_steps"))
FULL, TINY, PRECISION = gpu_shapes.FULL, gpu_shapes.TINY, gpu_shapes.PRECISION

CPU = torch.device("cpu")
NOT_NEEDED = ("matplotlib", "IPython", "tiktoken", "transformers", "tokenizers")  # none of core or train

pytestmark = pytest.mark.usefixtures("one_thread")


NO_PARTS = {"checks": {}, "peaks": {"status": "passed"}, "steps": {}}


def spare_peaks(monkeypatch):
    """Let trainers know their peak, which else each of them measures."""
    monkeypatch.setattr("lmlib.train.trainer.peak_flops", lambda *_: Peak(1e9, measured=True, source="a guess"))


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """The exit code and the results of one run on the CPU."""
    out = tmp_path_factory.mktemp("gpu") / "new" / "cpu.json"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as monkeypatch:
        spare_peaks(monkeypatch)
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # which the run may set: what was before returns
        code = gpu.main(["--device", "cpu", "--tiny", "--out", str(out)])
    torch.set_num_threads(threads)
    return code, json.loads(out.read_text())


# --- the whole ------------------------------------------------------------------------------------------------------


def test_a_trial_on_the_cpu_passes(trial):
    code, report = trial
    statuses = {name: part["status"] for name, part in gpu.all_parts(report).items()}
    assert statuses.pop("the allocator's bytes by formula") == "skipped"
    assert statuses == dict.fromkeys(statuses, "passed")
    assert (code, report["device"], report["scale"]) == (0, "cpu", "tiny")
    assert report["checks"].keys() == gpu_checks.CHECKS.keys()
    assert report["machine"]["torch"] == torch.__version__
    assert report["command"].startswith("python benchmarks/gpu.py --device cpu --tiny")


def test_a_trial_claims_nothing_of_a_data_sheet(trial):
    _, report = trial
    assert report["peaks"]["figures"]["data_sheet"] is None
    assert [part["figures"]["mfu"] for part in report["steps"].values()] == [None, None]
    assert "tokens/s" not in "\n".join(gpu.summary(report))


def test_a_trial_is_no_recorded_result(trial):
    _, report = trial
    assert result_complaints("nvidia-h200", report) == ["it is of a trial", "it is of another device", "it has no GPU"]


def test_a_result_without_its_mfu_is_none(trial):
    _, report = trial
    with_sheet = {**report, "peaks": {"status": "passed", "figures": {"data_sheet": 989.5e12}}}
    assert result_complaints("cpu", with_sheet)[-1] == "it lacks an MFU"
    assert result_complaints("cpu", {**with_sheet, "steps": {}})[-1] == "it has no step"


def result_complaints(name: str, report: dict) -> list[str]:
    parts = gpu.all_parts(report)
    figures = [part["figures"] for part in report["steps"].values() if "figures" in part]
    wrong = {
        "it is of a trial": report["scale"] != "full",
        "it is of another device": gpu.slug(report["device"]) != name,
        "it has no GPU": report["device"] == "cpu",
        "something failed": any(part["status"] == "failed" for part in parts.values()),
        "it has no step": not figures,
        "it lacks an MFU": report["peaks"]["figures"]["data_sheet"] and any(each["mfu"] is None for each in figures),
    }
    return [complaint for complaint, is_so in wrong.items() if is_so]


def test_recorded_results_are_of_a_gpu_and_without_a_failure():
    results = {path.stem: json.loads(path.read_text()) for path in gpu.RESULTS.glob("*.json")}
    assert {name: result_complaints(name, report) for name, report in results.items()} == {name: [] for name in results}


def test_what_fails_or_breaks_is_told_and_the_results_are_written(tmp_path, monkeypatch, capsys):
    def breaks(*_):
        raise RuntimeError("out of order")

    monkeypatch.setattr(gpu, "CHECKS", {"fails": lambda *_: (False, {"off": 3}), "breaks": breaks})
    monkeypatch.setattr(gpu, "TINY", replace(TINY, timed={}))
    monkeypatch.setattr(gpu, "find_peaks", lambda *_: {"measured": 1.0})
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    out = tmp_path / "results.json"
    assert gpu.main(["--device", "cpu", "--tiny", "--out", str(out)]) == 1
    checks = json.loads(out.read_text())["checks"]
    assert (checks["fails"]["status"], checks["fails"]["figures"]) == ("failed", {"off": 3})
    assert (checks["breaks"]["status"], checks["breaks"]["reason"]) == ("failed", "RuntimeError: out of order")
    assert str(out) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "cpu"], "torch sees no GPU here, or was told not to use it"),
        (["--device", "cuda:97"], "no device 'cuda:97' on this machine"),
        (["--device", "cpu", "--tiny", "--out", "."], "is a folder: name a file for the results"),
        (["--device", "cpu", "--tiny", "--out", "/proc/results.json"], "No file can be made in /proc"),
    ],
)
def test_what_cannot_run_is_one_clear_error(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr(gpu, "run", lambda *_: pytest.fail("it ran"))
    with pytest.raises(SystemExit, match="2"):
        gpu.main(arguments)
    assert message in capsys.readouterr().err


def test_results_that_find_no_room_are_printed(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "results.json")

    monkeypatch.setattr(gpu, "run", lambda *_: {"device": "cpu", "scale": "tiny", "seconds": 1.0, **NO_PARTS})
    monkeypatch.setattr(gpu, "write_atomically", full)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    assert gpu.main(["--device", "cpu", "--tiny", "--out", str(tmp_path / "results.json")]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out[out.index("{") :])["device"] == "cpu"
    assert "The results could not be written, and stand on standard output: [Errno 28]" in err


def test_without_a_c_compiler_nothing_starts(monkeypatch):
    monkeypatch.setattr(gpu, "get_device", lambda _: torch.device("cuda:0"))
    monkeypatch.setattr(gpu, "find_c_compiler", lambda: None)
    with pytest.raises(ValueError, match="needs a C compiler: install gcc"):
        gpu.usable_device("auto", FULL)


def test_results_are_named_after_the_gpu_and_trials_lie_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(gpu, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(gpu, "TRIALS", tmp_path / "trials")
    assert gpu.prepare_out(None, torch.device("cuda:0"), FULL) == tmp_path / "results" / "nvidia-h100-80gb-hbm3.json"
    assert gpu.prepare_out(None, CPU, TINY) == tmp_path / "trials" / "cpu.json"
    assert (tmp_path / "results").is_dir()


@pytest.mark.slow
def test_the_command_needs_nothing_beyond_core_and_train(tmp_path):
    blocked = f"import runpy, sys; sys.modules.update(dict.fromkeys({NOT_NEEDED}))"
    program = f"{blocked}; sys.argv = ['gpu.py', *sys.argv[1:]]; sys.path.insert(0, {str(BENCHMARKS)!r}); "
    program += f"runpy.run_path({str(BENCHMARKS / 'gpu.py')!r}, run_name='__main__')"
    command = [sys.executable, "-c", program, "--device", "cpu", "--tiny", "--out", str(tmp_path / "cpu.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


# --- its checks see what they are there to see ----------------------------------------------------------------------


def test_fp32_that_is_none_is_seen(monkeypatch):
    right = gpu_checks._on_cpu
    monkeypatch.setattr(gpu_checks, "_on_cpu", lambda config, scale, _: right(config, scale, PRECISION))
    passed, figures = gpu_checks.check_fp32(CPU, TINY)
    assert not passed
    assert figures["relative_errors"]["Llama"]["gradients"] > 10 * figures["tolerance"]


@pytest.mark.parametrize(("share", "passes"), [(0.6, True), (0.4, False)])
def test_bf16_that_rounds_more_than_twice_as_much_as_the_cpu_is_seen(monkeypatch, share, passes):
    def on_cpu(config, scale, precision):  # a CPU whose own error is that share of the device's
        here = gpu_checks._logits_and_gradients(config, scale, CPU, precision)
        right = gpu_checks._logits_and_gradients(config, scale, CPU, "fp32")
        return tuple(torch.lerp(b, a, share) for a, b in zip(here, right, strict=True))

    monkeypatch.setattr(gpu_checks, "_on_cpu", on_cpu)
    assert gpu_checks.check_bf16(CPU, TINY)[0] == passes


def test_a_model_whose_weights_are_bf16_is_seen(monkeypatch):
    right = gpu_checks._loss
    monkeypatch.setattr(gpu_checks, "_loss", lambda config, device: right(config, device).bfloat16())
    passed, figures = gpu_checks.check_dtypes(CPU, TINY)
    assert not passed
    assert figures["GPT-2"]["gradients"] == ["bfloat16"]


@pytest.mark.parametrize(("extra", "passes"), [(0.01, True), (0.05, False)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_formula_that_is_off_is_seen(monkeypatch, dtype, extra, passes):
    def off(config, batch_size, **options):
        right = saved_tensors(config, batch_size, **options)
        numel = sum(each.copies * each.numel for each in right if each.dtype == dtype)
        return *right, SavedTensor("mlp", "forgotten", round(extra * numel), dtype)

    monkeypatch.setattr(gpu_checks, "saved_tensors", off)
    assert gpu_checks.check_dtypes(CPU, TINY)[0] == passes


@pytest.mark.parametrize(
    ("factors", "passes"), [((1, 1), True), ((1.01, 0.99), True), ((1.03, 1), False), ((1, 1.03), False)]
)
def test_an_allocator_that_hands_out_something_else_is_seen(monkeypatch, factors, passes):
    """A GPU that is none: its tensors lie on the CPU, and the allocator's counters are made of the formula."""
    loss, counted = gpu_checks._loss, []
    monkeypatch.setattr(gpu_checks, "_loss", lambda config, _: loss(config, CPU))
    cases = [("GPT-2", "fp32"), ("GPT-2", PRECISION), ("Llama", PRECISION)]

    def gpu_bytes(forward):
        assert forward().isfinite()
        name, precision = cases[len(counted)]
        saved = saved_tensors(TINY.remembered[name], TINY.batch_size, precision=precision)
        counted.append(name)
        sums = sum(each.nbytes for each in saved), sum(each.allocated_nbytes for each in saved)
        return GpuBytes(*(round(total * factor) for total, factor in zip(sums, factors, strict=True)))

    monkeypatch.setattr(gpu_checks, "gpu_bytes", gpu_bytes)
    monkeypatch.setattr(gpu_checks, "release_memory", lambda _: None)
    assert gpu_checks.check_allocator(torch.device("cuda"), TINY)[0] == passes
    assert len(counted) == len(cases)


def test_random_numbers_that_do_not_go_on_are_seen(monkeypatch):
    spare_peaks(monkeypatch)
    monkeypatch.setattr("lmlib.train.trainer.restore_rng", lambda state: None)
    model = replace(TINY.compared["GPT-2"], num_layers=1, dropout=0.1)
    assert not gpu_checks._resumes_to_the_bit(model, CPU)


# --- speed ----------------------------------------------------------------------------------------------------------


def test_a_loss_that_does_not_fall_is_seen(monkeypatch):
    monkeypatch.setattr(gpu_steps, "LEARNING_RATE", 0.0)
    peaks = {"data_sheet": None, "measured": 1e9}
    passed, figures = gpu_steps.measure(TINY.timed["GPT-2"], CPU, replace(TINY, steps=1), peaks)
    assert not passed
    assert figures["losses"][0] == figures["losses"][1]


def test_a_model_that_does_not_fit_is_skipped(monkeypatch):
    monkeypatch.setattr(gpu_steps, "free_bytes", lambda _: 24e9)
    with pytest.raises(gpu_checks.Skipped, match=r"One window takes 30\.8 GB, more than 24\.0 GB of free memory"):
        gpu_steps.measure(FULL.timed["Llama 1.3B"], CPU, FULL, {})


def test_the_batch_is_the_largest_half_that_fits():
    timed = FULL.timed["GPT-2 124M"]
    for batch_size in (32, 16, 8, 1):
        needed = gpu_shapes.step_bytes(timed.config, batch_size) / gpu_shapes.SHARE_OF_FREE_MEMORY
        assert gpu_shapes.fitting_batch_size(timed, 1.001 * needed) == batch_size
        assert gpu_shapes.fitting_batch_size(timed, 0.999 * needed) == (batch_size // 2 or None)


def test_the_shapes_are_those_of_the_names():
    gpt2, llama = (timed.config for timed in FULL.timed.values())
    assert (gpt2.context_length, llama.context_length) == (1024, 2048)
    assert (round(gpt2.num_parameters / 1e6), gpt2.vocab_size) == (124, 50_304)
    assert round(llama.num_parameters / 1e9, 1) == 1.3
    free = get_accelerator("h200").memory_bytes
    assert [gpu_shapes.fitting_batch_size(timed, free) for timed in FULL.timed.values()] == [32, 8]


def test_rates_are_shares_of_both_peaks():
    config = TINY.timed["Llama"].config
    rates = gpu_steps._rates(config, 2, 0.5, {"data_sheet": None, "measured": 4e9})
    with_sheet = gpu_steps._rates(config, 2, 0.5, {"data_sheet": 8e9, "measured": 4e9})
    assert rates["tokens_per_second"] == 2 * 32 / 0.5
    assert rates["mfu"] is None
    assert with_sheet["mfu"] == pytest.approx(rates["flops_per_second"] / 8e9)
    assert with_sheet["mfu_of_measured_peak"] == pytest.approx(2 * with_sheet["mfu"])


def test_peaks_are_the_data_sheets_and_the_measured(monkeypatch):
    monkeypatch.setattr(gpu_steps, "identify", lambda _: get_accelerator("h200"))
    monkeypatch.setattr(gpu_steps, "measure_matmul_flops", lambda dtype, _: {"bf16": 7e14}[dtype])
    expected = {"data_sheet": 989.5e12, "source": "NVIDIA H200 data sheet", "measured": 7e14}
    assert gpu_steps.find_peaks(CPU, FULL) == expected
    assert gpu_steps.find_peaks(CPU, TINY)["data_sheet"] is None


def test_the_share_of_waiting_is_that_of_the_clock(monkeypatch):
    now = 0.0

    class Slow:
        def step(self, batch):
            nonlocal now
            now += batch

    def batches():
        nonlocal now
        for _ in range(4):
            now += 3.0
            yield 1.0
        now += 100.0  # to learn that there is none left

    monkeypatch.setattr(gpu_steps, "perf_counter", lambda: now)
    assert gpu_steps._waited(Slow(), batches()) == 0.75
