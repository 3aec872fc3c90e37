"""lmlib.hardware: the devices of this machine, and a clear word about those it lacks."""

import pytest
import torch

from lmlib.hardware import available_devices, get_device, median_seconds


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
    with pytest.raises(ValueError, match=rf"no device {name!r} on this machine, which has cpu.*auto"):
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


def test_median_seconds_leaves_out_the_first_call_and_takes_the_median(monkeypatch):
    clock, calls = [0.0], []
    durations = iter([9.0, 2.0, 50.0, 1.0])  # the first is warm-up, 50 an outlier

    def work():
        calls.append(1)
        clock[0] += next(durations)

    monkeypatch.setattr("lmlib.hardware.perf_counter", lambda: clock[0])
    assert median_seconds(work, repeats=3) == 2.0
    assert len(calls) == 4


@pytest.mark.parametrize("repeats", [0, -1, 2.0, float("nan"), "5", None])
def test_median_seconds_needs_repeats_before_it_runs_anything(repeats):
    calls = []
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        median_seconds(lambda: calls.append(1), repeats=repeats)
    assert not calls
