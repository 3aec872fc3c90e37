"""lmlib.train on two processes: the run of one, and it goes on to the bit; from there, one goes on alone."""

import shutil
from dataclasses import replace

import pytest
import torch

from lmlib.distributed import join_world
from lmlib.export import save_trained
from lmlib.model import TransformerLM
from tests.ranks import run_ranks
from tests.training import MODEL, curve, state, trainer

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = replace(MODEL, dropout=0.0)  # which draws other numbers on each rank
KINDS = [("ddp", "fp32"), ("fsdp", "fp32"), ("ddp", "bf16-autocast"), ("fsdp", "bf16-autocast")]


def train_on_two(folder):
    """Train without dropout, then with it: in one go, and again from the middle."""
    found = {}
    with join_world("cpu") as world:
        for parallel, precision in KINDS:
            changes = {"parallel": parallel, "precision": precision, "micro_batch_size": 1}
            name = f"{parallel}-{precision}"
            plain = trainer(folder / name / "plain", world=world, model=PLAIN, **changes)
            plain.run()
            whole = trainer(folder / name / "whole", world=world, **changes)
            whole.run()
            state_of_whole, generator = state(whole), torch.get_rng_state()
            if world.is_main:
                shutil.copytree(folder / name / "whole", folder / name / "again")
            torch.distributed.barrier()
            again = trainer(folder / name / "again", world=world, resume=3, **changes)
            again.run()
            found[parallel, precision] = {
                "same": state(again) == state_of_whole,
                "same random numbers": torch.get_rng_state().equal(generator),
                "plain": state(plain)["model"],
            }
            if precision == "fp32":
                found[parallel, precision]["started"] = start_on_two(folder, name, world, changes)
    return found


def start_on_two(folder, name, world, changes):
    """Start from a model, then go on from the beginning; return whether that is the same."""
    start = {**changes, "steps": 2, "save_every": 0, "model": PLAIN}
    whole = trainer(folder / name / "started", world=world, init_from=str(folder / "source"), **start)
    whole.run()
    if world.is_main:
        shutil.copytree(folder / name / "started", folder / name / "started again")
    torch.distributed.barrier()
    again = trainer(folder / name / "started again", world=world, resume=0, init_from=str(folder / "source"), **start)
    again.run()
    return state(again) == state(whole)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    save_trained(folder / "source", TransformerLM(MODEL, generator=torch.Generator().manual_seed(1234)))
    return folder


@pytest.fixture(scope="module")
def ranks(folder):
    return run_ranks(train_on_two, folder)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_two_go_on_as_if_they_had_never_stopped(ranks, folder, kind):
    for rank in ranks:
        assert rank[kind]["same"]
        assert rank[kind]["same random numbers"]
    name = "-".join(kind)
    assert curve(folder / name / "again") == curve(folder / name / "whole")
    texts = [(folder / name / run / "samples.txt").read_text() for run in ("again", "whole")]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_two_are_as_good_as_one(ranks, folder, tmp_path, kind):
    _, precision = kind
    alone = trainer(tmp_path, model=PLAIN, precision=precision, micro_batch_size=1)
    alone.run()
    together = curve(folder / "-".join(kind) / "plain")
    near = 1e-5 if precision == "fp32" else 1e-2
    for mine, theirs in zip(curve(tmp_path), together, strict=True):
        assert mine["step"] == theirs["step"]
        for name in {"loss", "validation_loss"} & mine.keys():
            assert theirs[name] == pytest.approx(mine[name], abs=near)
    assert ranks[0][kind]["plain"] == ranks[1][kind]["plain"]


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_start_from_a_model_as_one_does(ranks, folder, tmp_path, parallel):
    assert all(rank[parallel, "fp32"]["started"] for rank in ranks)
    source = str(folder / "source")
    trainer(tmp_path, init_from=source, model=PLAIN, micro_batch_size=1, steps=2, save_every=0).run()
    for mine, theirs in zip(curve(tmp_path), curve(folder / f"{parallel}-fp32" / "started"), strict=True):
        for name in {"loss", "validation_loss"} & mine.keys():
            assert theirs[name] == pytest.approx(mine[name], abs=1e-5)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_one_goes_on_from_what_two_have_saved(ranks, folder, tmp_path, parallel):
    saved = folder / f"{parallel}-fp32" / "plain"
    shutil.copytree(saved, tmp_path / "alone")
    alone = trainer(tmp_path / "alone", resume=3, model=PLAIN, micro_batch_size=1)
    assert alone.step == 3
    alone.run()
    for mine, theirs in zip(curve(tmp_path / "alone"), curve(saved), strict=True):
        for name in {"loss", "validation_loss"} & mine.keys():
            assert mine[name] == pytest.approx(theirs[name], abs=1e-5)
