"""lmlib.distributed: one process needs nothing, two agree on everything."""

import subprocess
import sys

import pytest
import torch

from lmlib.config import ModelConfig
from lmlib.distributed import (
    World,
    any_rank,
    barrier,
    join_world,
    mean_over_ranks,
    on_main,
    replicate,
    shard,
    sum_over_ranks,
    sync_gradients,
    whole,
)
from lmlib.model import TransformerLM
from lmlib.optim import clip_grad_norm_
from tests.ranks import run_ranks

MODEL = ModelConfig(257, 8, 16, 2, 2)  # of 257 ids, one of two ranks gets more
TORCHRUN = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


@pytest.fixture(autouse=True)
def no_torchrun(monkeypatch):
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)


def make_model():
    return TransformerLM(MODEL, generator=torch.Generator().manual_seed(0))


def test_sharding_is_not_imported_for_one_process():
    """It takes as long as a third of torch."""
    code = (
        "import sys, lmlib.checkpoint\n"
        "late = {'fsdp', 'tensor', 'checkpoint'}\n"
        "sys.exit(any(f'torch.distributed.{name}' in sys.modules for name in late))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- one process ----------------------------------------------------------------------------------


def test_without_torchrun_there_is_one_process_and_no_group():
    with join_world("cpu") as world:
        assert world == World(torch.device("cpu"), rank=0, size=1, local_rank=0)
        assert world.is_main
        assert not torch.distributed.is_initialized()


def test_one_process_has_nobody_to_wait_for_or_ask():
    world, values, model = World(torch.device("cpu")), torch.tensor([1.0, 2.0]), make_model()
    assert sum_over_ranks(values, world) is values
    assert mean_over_ranks(values, world).equal(values)
    assert any_rank(True, world)
    assert not any_rank(False, world)
    assert on_main(world, max, 2, 3) == 3
    assert replicate(model, world) is model
    assert shard(model, model.blocks, world) is model
    assert whole(values) is values
    barrier(world)


def test_torchrun_with_one_process_makes_a_group_and_leaves_it(monkeypatch):
    environment = TORCHRUN | {"MASTER_PORT": "0"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def fail():
        with join_world("cpu") as world:
            assert torch.distributed.is_initialized()
            assert world.size == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    ("changed", "device", "message"),
    [
        ({"MASTER_PORT": None, "LOCAL_RANK": None}, "cpu", "LOCAL_RANK, MASTER_PORT: start with torchrun"),
        ({"RANK": "first"}, "cpu", "RANK='first'.* whole numbers"),
        ({}, "meta", "cannot share meta"),
        ({}, "abacus", "There is no device 'abacus' on this machine, which has cpu"),
        ({}, "cuda", "has 0 GPUs"),
    ],
)
def test_what_torchrun_cannot_have_meant_is_refused(monkeypatch, changed, device, message):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for name, value in (TORCHRUN | changed).items():
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message), join_world(device):
        pass


def test_each_process_takes_the_gpu_of_its_local_rank(monkeypatch):
    from lmlib.distributed import _place

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    environment = TORCHRUN | {"RANK": "6", "LOCAL_RANK": "2", "WORLD_SIZE": "8"}
    assert _place(environment, "cuda") == World(torch.device("cuda", 2), 6, 8, 2)
    with pytest.raises(ValueError, match="cuda:1 cannot serve 8 processes"):
        _place(environment, "cuda:1")
    with pytest.raises(ValueError, match="has 4 GPUs, and process 4"):
        _place(environment | {"LOCAL_RANK": "4"}, "cuda")


# --- two ------------------------------------------------------------------------------------------


def together():
    """What two processes see of each other."""
    with join_world("cpu") as world:
        mine = torch.tensor([1.0 + world.rank, 10.0])
        seen = {
            "world": world,
            "sum": sum_over_ranks(mine, world).tolist(),
            "mean": mean_over_ranks(mine, world).tolist(),
            "mine": mine.tolist(),
            "any": [any_rank(world.rank == 1, world), any_rank(False, world)],
            "main": on_main(world, lambda: {"rank": world.rank}),
        }
        try:
            on_main(world, int, "none")
        except ValueError as error:
            seen["error"] = str(error)
        barrier(world)
        for strategy in ("ddp", "fsdp"):
            seen[strategy] = gradients(strategy, world)
        return seen


def gradients(strategy, world):
    """Gradients after each of two batches, of which only the second is to average them."""
    model = make_model()
    names = list(model.state_dict())
    wrapped = replicate(model, world) if strategy == "ddp" else shard(model, model.blocks, world)
    assert list(model.state_dict()) == names
    ids = torch.arange(16).reshape(2, 8) + 100 * world.rank
    found = []
    for sync in (False, True):
        with sync_gradients(wrapped, sync):
            wrapped(ids).square().mean().backward()
        gradient = model.blocks[0].mlp.up.weight.grad
        found.append(None if gradient is None else whole(gradient).tolist())
    return [*found, float(whole(clip_grad_norm_(model.parameters(), 1e-3)))]


@pytest.fixture(scope="module")
def seen():
    return run_ranks(together)


def test_two_processes_agree(seen):
    assert [each["world"] for each in seen] == [World(torch.device("cpu"), rank, 2, rank) for rank in (0, 1)]
    for rank, each in enumerate(seen):
        assert each["mine"] == [1.0 + rank, 10.0]  # sums are new tensors
        assert (each["sum"], each["mean"]) == ([3.0, 20.0], [1.5, 10.0])
        assert each["any"] == [True, False]
        assert each["main"] == {"rank": 0}
        assert "invalid literal" in each["error"]  # rank 0's, on both


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_gradients_are_averaged_once_and_are_those_of_one_process(seen, strategy, one_thread):
    model = make_model()
    for rank in (0, 1):
        ids = torch.arange(16).reshape(2, 8) + 100 * rank
        (model(ids).square().mean()).backward()  # two batches of each rank: twice half of it
    first, last = seen[0][strategy], seen[1][strategy]
    torch.testing.assert_close(torch.tensor(first[1]), model.blocks[0].mlp.up.weight.grad)
    assert first[1] == last[1]
    norm = clip_grad_norm_(model.parameters(), 1e-3)
    assert first[2] == last[2] == pytest.approx(float(norm), rel=1e-5)
    if strategy == "ddp":  # until then, each has its own
        assert first[0] != last[0]
