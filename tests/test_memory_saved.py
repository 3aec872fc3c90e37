"""lmlib.memory.saved: each storage that autograd keeps counts once, parameters apart."""

import gc
import weakref

import pytest
import torch
from torch import nn

from lmlib.memory import GpuBytes, gpu_bytes, memory_timeline, saved_bytes_by_module, saved_tensor_bytes

WANT_GRADIENT = {"requires_grad": True}


def test_both_factors_of_a_product():
    x, w = torch.randn(7, 5, **WANT_GRADIENT), nn.Parameter(torch.randn(5, 3))
    found = saved_tensor_bytes(torch.matmul, x, w, parameters=[w])
    assert (found.by_dtype, found.parameters, found.total) == ({"float32": 7 * 5 * 4}, 5 * 3 * 4, 7 * 5 * 4)
    assert saved_tensor_bytes(torch.matmul, x, w).total == (7 * 5 + 5 * 3) * 4


def test_only_what_a_gradient_needs():
    x, w = torch.randn(7, 5), torch.randn(5, 3, **WANT_GRADIENT)
    assert saved_tensor_bytes(torch.matmul, x, w).total == 7 * 5 * 4  # w is for the gradient of x, which nobody wants
    assert saved_tensor_bytes(torch.add, w, w).total == 0
    with torch.no_grad():
        assert saved_tensor_bytes(torch.matmul, x, w).total == 0


def test_a_storage_counts_once_and_whole():
    whole = torch.randn(10, 10, **WANT_GRADIENT)

    def squares():
        row = whole[2]
        return row * row, whole[3] * row, whole.T @ whole

    assert saved_tensor_bytes(squares).total == 400


def test_a_view_of_a_parameter_is_the_parameter():
    layer = nn.Linear(5, 3)  # whose product reads weight.T
    x = torch.randn(7, 5, **WANT_GRADIENT)
    found = saved_tensor_bytes(layer, x, parameters=layer.parameters())
    assert (found.total, found.parameters) == (7 * 5 * 4, 3 * 5 * 4)
    detached = layer.weight.detach()
    assert saved_tensor_bytes(torch.mul, x[:3], detached, parameters=[layer.weight]).total == 0


def test_dtypes_are_counted_apart():
    table = nn.Embedding(11, 4)
    ids = torch.tensor([1, 2, 3])

    def run():
        return table(ids).bfloat16().square().float().exp()

    found = saved_tensor_bytes(run, parameters=table.parameters())
    assert found.by_dtype == {"int64": 3 * 8, "bfloat16": 3 * 4 * 2, "float32": 3 * 4 * 4}


def test_storages_that_are_dropped_do_not_make_room_for_others():
    """Each graph is freed at once, and what the next one saves likely lies at its address."""
    x = torch.randn(1000, **WANT_GRADIENT)

    def run():
        for _ in range(5):
            (x * 2).square()

    assert saved_tensor_bytes(run).total == 5 * 4000


def test_nothing_is_held_afterwards():
    """An operation that saves its own result must not make a circle of it."""
    x = torch.randn(1000, **WANT_GRADIENT)
    storages = []
    saved_tensor_bytes(lambda: storages.append(weakref.ref(x.exp().untyped_storage())))
    gc.collect()
    assert storages[0]() is None


def test_the_meta_device_will_do():
    x = torch.ones(1 << 20, 1 << 20, device="meta", **WANT_GRADIENT)
    assert saved_tensor_bytes(lambda: x.exp().exp()).total == 2 * 4 << 40


def test_the_result_is_left_as_it_was():
    x = torch.tensor(3.0, **WANT_GRADIENT)
    kept = []
    saved_tensor_bytes(lambda: kept.append(x.square()))
    kept[0].backward()
    assert x.grad == 6


# --- by module ------------------------------------------------------------------------------------------


class Squares(nn.Module):
    """A module that saves something itself, beside what its parts save."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 3), nn.Tanh())

    def forward(self, x):
        return self.layers(x).square()


def test_each_module_has_what_it_saves_first():
    model, x = Squares(), torch.randn(7, 5)
    found = saved_bytes_by_module(lambda: model(x).exp(), model=model)
    # the result of tanh is saved once more by the square, and counts where it was saved first
    assert found == {"layers.0": 7 * 5 * 4, "layers.1": 7 * 3 * 4, None: 7 * 3 * 4}
    total = saved_tensor_bytes(lambda: model(x).exp(), parameters=model.parameters()).total
    assert sum(found.values()) == total


def test_the_model_itself_has_no_name():
    model, x = Squares(), torch.randn(7, 5)
    model.layers = nn.Linear(5, 3)
    assert saved_bytes_by_module(model, x, model=model) == {"layers": 7 * 5 * 4, "": 7 * 3 * 4}


def test_a_model_is_left_without_hooks_even_by_a_failure():
    model = Squares()
    for x in (torch.randn(7, 5), torch.randn(7, 4)):
        try:
            saved_bytes_by_module(model, x, model=model)
        except RuntimeError:
            assert x.shape[1] == 4
        for module in model.modules():
            assert not module._forward_hooks
            assert not module._forward_pre_hooks


# --- over time ------------------------------------------------------------------------------------------


def test_every_storage_comes_and_goes():
    def run():
        a = torch.ones(1000)
        b = a + 1
        del a
        return b.view(10, 100).T

    assert memory_timeline(run) == [0, 4000, 8000, 4000, 0]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_exists_before_does_not_count(device):
    old = torch.ones(1000, device=device)
    kept = []

    def run():
        old.add_(1)
        old.view(10, 100).T[2:].mul_(2)
        kept.append(old.clone())

    assert memory_timeline(run) == [0, 4000]
    kept.clear()
    assert memory_timeline(run) == [0, 4000]


def test_a_step_leaves_gradients_behind():
    layer, x = nn.Linear(50, 30, bias=False), torch.randn(7, 50)
    timeline = memory_timeline(lambda: layer(x).square().sum().backward())
    assert timeline[-1] == 50 * 30 * 4
    assert max(timeline) > timeline[-1]
    assert memory_timeline(layer.zero_grad) == [0]  # it was not made by this function


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_to_do():
    with pytest.raises(RuntimeError, match=r"no GPU.*measure with saved_tensor_bytes"):
        gpu_bytes(print)


def test_of_the_allocators_counters_the_difference_counts(monkeypatch):
    """On a pretended GPU: the counters are those that torch documents."""
    readings = iter(
        [
            {},  # before the first allocation
            {"requested_bytes.all.current": 4, "allocated_bytes.all.current": 512},
            {"requested_bytes.all.current": 4, "allocated_bytes.all.current": 512},
            {"requested_bytes.all.current": 1004, "allocated_bytes.all.current": 1536},
        ]
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: next(readings))
    assert gpu_bytes(lambda: None) == GpuBytes(requested=4, allocated=512)
    assert gpu_bytes(lambda: None) == GpuBytes(requested=1000, allocated=1024)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize(("numel", "allocated"), [(1, 512), (128, 512), (129, 1024), (32 * 32, 4096)])
def test_a_gpu_allocates_in_blocks(numel, allocated):
    found = gpu_bytes(lambda: torch.empty(numel, device="cuda"))
    assert found == GpuBytes(requested=4 * numel, allocated=allocated)
