"""lmlib.train.trainer: to stop and go on is never to have stopped, to the bit."""

import errno
import os
import shutil
import signal
from dataclasses import replace
from math import log, nan

import pytest
import torch
import torch.distributed.checkpoint as dcp

import lmlib.checkpoint.store
import lmlib.train.trainer
from lmlib.checkpoint import (
    CheckpointStore,
    CheckpointWarning,
    ConfigMismatch,
    CorruptCheckpoint,
    TrainingState,
    capture_rng,
    restore_rng,
)
from lmlib.checkpoint.manifest import MANIFEST, describe, write_manifest
from lmlib.data import BatchLoader
from lmlib.distributed import World
from lmlib.hardware import Peak
from lmlib.model import TransformerLM
from lmlib.train import NonFiniteError, train_step, validation
from lmlib.train.logs import Logs
from lmlib.train.step import StepReport
from tests.training import DATA, MODEL, config, curve, state, tokens, trainer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def half_way(tmp_path):
    """A function that trains in one go, and returns the trainer and a copy of the folder to go on in."""

    def half_way(**changes):
        whole = trainer(tmp_path / "whole", **changes)
        result = whole.run()
        assert result.step == whole.config.steps
        shutil.copytree(tmp_path / "whole", tmp_path / "again")
        return whole, tmp_path / "again"

    return half_way


@pytest.fixture
def own_rng():
    """Give the generators back as they were."""
    before = capture_rng()
    yield
    restore_rng(before)


# --- going on ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16-autocast"])
def test_going_on_is_never_having_stopped(half_way, precision, asynchronous):
    changes = {"precision": precision, "async_save": asynchronous}
    whole, folder = half_way(**changes)
    again = trainer(folder, resume=3, **changes)
    assert again.step == 3
    again.run()
    assert state(again) == state(whole)
    assert curve(folder) == curve(whole.folder.path)
    assert (folder / "samples.txt").read_text() == whole.folder.samples.read_text()
    assert again.store.steps == [3, 6]


def ignored(*_, **__):
    """Stands for what loads a part of a checkpoint, and does nothing."""


LEFT_OUT = {
    "model": (TransformerLM, "load_state_dict"),
    "optimizer": (torch.optim.AdamW, "load_state_dict"),
    "loader": (BatchLoader, "load_state_dict"),
    "random numbers": (lmlib.train.trainer, "restore_rng"),
}


@pytest.mark.parametrize("part", LEFT_OUT)
def test_no_part_of_a_checkpoint_can_be_left_out(half_way, monkeypatch, part):
    whole, folder = half_way()
    monkeypatch.setattr(*LEFT_OUT[part], ignored)
    again = trainer(folder, resume=3)
    again.run()
    assert state(again)["model"] != state(whole)["model"]


def test_the_step_cannot_be_left_out(half_way):
    whole, folder = half_way()
    again = trainer(folder, resume=3)
    again.config = replace(again.config, steps=3, eval_every=0)
    again.step = 0  # the schedule begins anew, for as many steps
    again._evaluate = again._sample = ignored
    again._save = ignored
    again.run()
    assert state(again)["model"] != state(whole)["model"]


@pytest.mark.parametrize("left_out", [False, True])
def test_the_scaler_of_fp16_goes_on_too(half_way, monkeypatch, left_out):
    def scaler(precision, device):  # so high that it has to come down first
        return torch.amp.GradScaler("cpu", init_scale=2.0**26)

    monkeypatch.setattr(lmlib.train.trainer, "make_scaler", scaler)
    changes = {"precision": "fp16-autocast", "steps": 24, "save_every": 16, "eval_every": 0}
    whole, folder = half_way(**changes)
    assert [r.get("made") for r in curve(folder)].count(False) > 3
    if left_out:
        monkeypatch.setattr(torch.amp.GradScaler, "load_state_dict", ignored)
    again = trainer(folder, resume=16, **changes)
    again.run()
    assert (state(again)["model"] != state(whole)["model"]) == left_out


def test_a_run_that_is_over_has_nothing_to_add(half_way):
    _, folder = half_way()
    before = curve(folder)
    result = trainer(folder, resume="latest").run()
    assert result.step == 6
    assert result.validation_loss == before[-2]["validation_loss"]
    assert curve(folder) == before


def test_a_run_can_be_prolonged(half_way):
    _, folder = half_way()
    again = trainer(folder, resume="latest", steps=8)
    assert again.run().step == 8
    steps = [record["step"] for record in curve(folder) if "loss" in record]
    assert steps == list(range(1, 9))


def test_but_not_below_what_it_has_made(half_way):
    _, folder = half_way()
    with pytest.raises(ValueError, match="step-00000006 has made 6 steps already: steps = 5"):
        trainer(folder, resume="latest", steps=5)


def test_it_can_go_on_in_smaller_pieces(half_way):
    plain = replace(MODEL, dropout=0.0)  # which would draw other numbers
    whole, folder = half_way(model=plain)
    for size in (1, 4):
        again = trainer(folder, resume=3, model=plain, micro_batch_size=size)
        again.run()
        for mine, theirs in zip(curve(folder), curve(whole.folder.path), strict=True):
            if "loss" in mine:
                assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-6)


def test_a_new_run_leaves_another_as_it_is(half_way):
    _, folder = half_way()
    before = curve(folder)
    with pytest.raises(FileExistsError, match='holds checkpoints of a run: go on with it by resume="latest"'):
        trainer(folder)
    assert curve(folder) == before


def test_a_damaged_checkpoint_is_passed_over_and_the_later_metrics_with_it(half_way):
    whole, folder = half_way()
    (folder / "checkpoints/step-00000006/model.safetensors").write_bytes(b"damaged")
    with pytest.warns(CheckpointWarning, match="step-00000003 is loaded instead"):
        again = trainer(folder, resume="latest")
    assert again.step == 3
    again.run()
    assert state(again) == state(whole)
    assert curve(folder) == curve(whole.folder.path)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": replace(MODEL, rope_theta=500.0)}, "model.rope_theta"),
        ({"model": replace(MODEL, num_heads=4, num_kv_heads=4)}, "model.num_heads"),
        ({"lr": 2e-3}, "lr"),
        ({"batch_size": 8}, "batch_size"),
        ({"seed": 1}, "seed"),
    ],
)
def test_another_config_is_refused_by_the_name_of_the_field(half_way, changes, field):
    _, folder = half_way()
    with pytest.raises(ConfigMismatch) as caught:
        trainer(folder, resume="latest", **changes)
    assert field in caught.value.fields


def test_other_data_are_refused(half_way):
    _, folder = half_way()
    with pytest.raises(ValueError, match="fingerprint"):
        trainer(folder, resume="latest", data=replace(DATA, train=tokens(1000, seed=7)))


# --- the loop -----------------------------------------------------------------------------------------


def test_metrics_have_every_step_once(tmp_path):
    trainer(tmp_path).run()
    records = curve(tmp_path)
    trained = [record for record in records if "loss" in record]
    assert [record["step"] for record in trained] == [1, 2, 3, 4, 5, 6]
    assert [record["lr"] for record in trained] == [config().learning_rate(step) for step in range(6)]
    assert [record["tokens"] for record in trained] == [32, 64, 96, 128, 160, 192]
    assert [r["step"] for r in records if "validation_loss" in r] == [0, 2, 4, 6]
    assert records[0]["validation_loss"] == pytest.approx(log(257), abs=0.1)
    assert [r["step"] for r in records if "sample" in r] == [0, 6]


def test_how_often_one_looks_changes_nothing(tmp_path):
    often = trainer(tmp_path / "often", eval_every=1, save_every=1, log_every=1)
    seldom = trainer(tmp_path / "seldom", eval_every=0, save_every=0, log_every=4, sample_tokens=0)
    often.run()
    seldom.run()
    assert state(often) == state(seldom)
    steps = [record["step"] for record in curve(tmp_path / "seldom") if "loss" in record]
    assert steps == [4, 6]


def test_one_seed_is_one_run_and_another_another(tmp_path):
    runs = [trainer(tmp_path / str(place), seed=seed) for place, seed in enumerate([0, 0, 1])]
    for run in runs:
        torch.rand(5)  # what was drawn before does not matter
        run.run()
    assert state(runs[0]) == state(runs[1])
    assert state(runs[0]) != state(runs[2])


def test_each_rank_drops_out_something_else_and_so_does_each_start(tmp_path):
    run = trainer(tmp_path)

    def drawn(rank, step):
        run.world, run.step = replace(run.world, rank=rank), step
        run._set_random_numbers()
        return tuple(torch.rand(3).tolist())

    places = [(0, 0), (1, 0), (0, 3)]
    assert len({drawn(*place) for place in places}) == 3
    assert [drawn(*place) for place in places] == [drawn(*place) for place in places]


def spoil(monkeypatch, steps, loss=nan):
    """Let some steps, counted from 1, have a loss or a gradient that is not finite."""
    made = []

    def spoilt(*arguments, **options):
        made.append(None)
        if len(made) in steps:
            return StepReport(loss, nan, made=False)
        return train_step(*arguments, **options)

    monkeypatch.setattr(lmlib.train.trainer, "train_step", spoilt)


def test_a_loss_that_is_not_finite_stops_with_step_and_rate(tmp_path, monkeypatch):
    spoil(monkeypatch, {5}, loss=2.718281828459045)
    run = trainer(tmp_path)
    message = r"Step 5 .* loss is 2\.718, the norm of its gradients nan, at a learning rate of 0\.000325"
    with pytest.raises(NonFiniteError, match=message):
        run.run()
    assert run.store.steps == [3]
    monkeypatch.undo()
    again = trainer(tmp_path, resume="latest")
    assert again.run().step == 6
    assert [r["step"] for r in curve(tmp_path) if "loss" in r] == [1, 2, 3, 4, 5, 6]


def test_or_is_skipped_and_said(tmp_path, monkeypatch):
    spoil(monkeypatch, {2, 5})
    trainer(tmp_path, non_finite="skip").run()
    records = [record for record in curve(tmp_path) if "loss" in record]
    assert [record["made"] for record in records] == [True, False, True, True, False, True]
    assert records[1]["loss"] is None


def test_but_not_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(lmlib.train.trainer, "MOST_SKIPPED", 3)
    spoil(monkeypatch, range(2, 100))
    run = trainer(tmp_path, non_finite="skip")
    with pytest.raises(NonFiniteError, match="Step 5"):
        run.run()


def test_a_signal_saves_at_the_next_step(half_way, tmp_path, monkeypatch):
    whole, _ = half_way()

    def stop_after_four(*arguments, **options):
        report = train_step(*arguments, **options)
        if stopped.step == 3:
            signal.raise_signal(signal.SIGTERM)
        return report

    stopped = trainer(tmp_path / "stopped")
    monkeypatch.setattr(lmlib.train.trainer, "train_step", stop_after_four)
    before = signal.getsignal(signal.SIGTERM)
    result = stopped.run()
    assert signal.getsignal(signal.SIGTERM) is before
    assert (result.step, result.stopped_by) == (4, signal.SIGTERM)
    assert stopped.store.steps == [3, 4]
    monkeypatch.undo()
    again = trainer(tmp_path / "stopped", resume="latest")
    assert again.run().stopped_by is None
    assert state(again) == state(whole)
    assert curve(tmp_path / "stopped") == curve(whole.folder.path)


@pytest.mark.parametrize(("step", "doing"), [(0, "validation"), (0, "sample"), (4, "validation"), (6, "sample")])
def test_a_signal_does_not_wait_for_a_long_look(half_way, tmp_path, monkeypatch, step, doing):
    whole, _ = half_way()
    seen = []

    def stop_in(function, name):
        def stop(*arguments, **options):
            if (stopped.step, doing) == (step, name):
                seen.append(name)
                signal.raise_signal(signal.SIGTERM)
            return function(*arguments, **options)

        return stop

    stopped = trainer(tmp_path / "stopped")
    with monkeypatch.context() as patch:
        patch.setattr(validation, "read_windows", stop_in(validation.read_windows, "validation"))
        patch.setattr(lmlib.train.trainer, "decode_stream", stop_in(lmlib.train.trainer.decode_stream, "sample"))
        result = stopped.run()
    assert seen == [doing]  # of three batches, or eight tokens, and the next was not begun
    assert (result.step, result.stopped_by) == (step, signal.SIGTERM)
    assert (result.validation_loss is None) == (doing == "validation")
    assert stopped.store.steps[-1] == step
    assert stopped.store.load().meta.validation_loss == result.validation_loss
    again = trainer(tmp_path / "stopped", resume="latest")
    assert again.run().validation_loss is not None
    assert state(again) == state(whole)
    assert curve(tmp_path / "stopped") == curve(whole.folder.path)
    assert again.folder.samples.read_text() == whole.folder.samples.read_text()


def test_a_model_smaller_than_its_data_is_refused(tmp_path):
    with pytest.raises(ValueError, match="data have 257 ids, and the model 256"):
        trainer(tmp_path, model=replace(MODEL, vocab_size=256))


def test_validation_data_that_fill_no_window_are_refused_before_anything_is_trained(tmp_path):
    with pytest.raises(ValueError, match="holds 8 tokens, but a window takes 9"):
        trainer(tmp_path, data=replace(DATA, validation=tokens(8)))


def test_metrics_are_on_disk_before_a_checkpoint_that_goes_on_from_them(tmp_path, monkeypatch):
    calls = []
    for cls, name in ((Logs, "sync"), (CheckpointStore, "save_async")):
        method = getattr(cls, name)
        monkeypatch.setattr(cls, name, lambda *a, _m=method, _n=name, **k: (calls.append(_n), _m(*a, **k))[1])
    trainer(tmp_path).run()
    assert calls == ["sync", "save_async"] * 2


def test_a_checkpoint_has_the_validation_loss_of_its_own_step_or_none(tmp_path):
    run = trainer(tmp_path)  # looks after 2, 4 and 6 steps, saves after 3 and 6
    loss = run.run().validation_loss
    found = [run.store.load(step).meta.validation_loss for step in (3, 6)]
    assert found == [None, loss]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_training_goes_on_while_the_disk_is_full(half_way, tmp_path, monkeypatch, asynchronous):
    whole, _ = half_way()

    def full(path, *arguments):
        if path.name == "step-00000004":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, *arguments)

    write = lmlib.checkpoint.store.write_checkpoint
    monkeypatch.setattr(lmlib.checkpoint.store, "write_checkpoint", full)
    run = trainer(tmp_path / "full", save_every=2, async_save=asynchronous)
    with pytest.warns(CheckpointWarning, match="NO CHECKPOINT was written at step 4: .*No space left") as warned:
        assert run.run().step == 6
    assert len(warned) == 1
    assert run.store.steps == [2, 6]  # the old one was kept for longer
    assert state(run) == state(whole)
    assert curve(tmp_path / "full") == curve(whole.folder.path)


def test_a_last_checkpoint_that_could_not_be_written_is_no_success(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    run = trainer(tmp_path, save_every=3)
    write = lmlib.checkpoint.store.write_checkpoint
    monkeypatch.setattr(lmlib.checkpoint.store, "write_checkpoint", lambda *a: full() if run.step == 6 else write(*a))
    with (
        pytest.warns(CheckpointWarning, match="NO CHECKPOINT was written at step 6"),
        pytest.raises(OSError, match="what was trained after step 3 is lost"),
    ):
        run.run()
    monkeypatch.undo()
    assert trainer(tmp_path, resume="latest").run().step == 6


def test_a_gpu_too_small_for_what_is_loaded_is_no_damage(half_way, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    _, folder = half_way()
    monkeypatch.setattr("lmlib.train.trainer.load_optimizer", full)
    with pytest.raises(torch.OutOfMemoryError):
        trainer(folder, resume="latest")


def test_a_whole_checkpoint_of_something_else_is_refused(tmp_path):
    run = trainer(tmp_path)
    run.store.save(TrainingState(run.model.state_dict(), {"step": 3}), step=3, config=run.config.to_dict())
    with pytest.raises(CorruptCheckpoint, match=r"step-00000003 holds no state of this trainer: .*'optimizer'"):
        trainer(tmp_path, resume="latest")


def test_what_the_machine_reaches_is_measured_once(tmp_path, monkeypatch):
    measured = []

    def measure(*arguments):
        measured.append(arguments)
        return Peak(1e9, measured=True, source="a test")

    monkeypatch.setattr(lmlib.train.trainer, "peak_flops", measure)
    lmlib.train.trainer._peak_flops.cache_clear()
    for precision in ("fp32", "fp32", "bf16-autocast"):
        trainer(tmp_path / str(len(list(tmp_path.iterdir()))), precision=precision, steps=1).run()
    assert [dtype for dtype, _ in measured] == ["fp32", "bf16"]
    lmlib.train.trainer._peak_flops.cache_clear()


def test_a_torch_that_is_too_old_for_shards_is_refused_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.delattr(dcp, "HuggingFaceStorageWriter")
    two = World(torch.device("cpu"), size=2)
    with pytest.raises(
        ValueError, match=r"torch .* cannot write .*: install 2\.9 or newer, or choose parallel = 'ddp'"
    ):
        trainer(tmp_path, world=two, parallel="fsdp")


def resealed(folder, step, change):
    """Change what training.pt holds, and let the manifest fit it."""
    path = folder / f"checkpoints/step-{step:08}"
    state = torch.load(path / "training.pt", weights_only=True)
    change(state["training"], state["rank_states"])
    torch.save(state, path / "training.pt")
    files = [file for file in path.iterdir() if file.name != MANIFEST]
    write_manifest(path, describe(path, files))


TAMPERED = {
    "step": lambda training, _: training.update(step="6"),
    "earlier step": lambda training, _: training.update(step=0),
    "seconds": lambda training, _: training.update(seconds=None),
    "optimizer": lambda training, _: training.update(optimizer=[1]),
    "moments": lambda training, _: training["optimizer"]["state"].update({0: "x"}),
    "a moment": lambda training, _: training["optimizer"]["state"][3].update(exp_avg="x"),
    "shape": lambda training, _: training["optimizer"]["state"][3].update(exp_avg_sq=torch.ones(2)),
    "one without": lambda training, _: training["optimizer"]["state"].pop(2),
    "scaler": lambda training, _: training.update(scaler={"scale": "x"}),
    "loader": lambda training, _: training.update(loader=3),
    "windows": lambda training, _: training["loader"].update(windows="x"),
    "random numbers": lambda _, ranks: ranks.__setitem__(0, {"python": 1}),
    "torch's": lambda _, ranks: ranks[0].update(torch=torch.ones(3)),
    "numpy's": lambda _, ranks: ranks[0]["numpy"].update(key="x"),
}


@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_a_checkpoint_of_wrong_types_is_one_clear_error(half_way, change, own_rng):
    _, folder = half_way()
    before = curve(folder)
    resealed(folder, 6, change)
    with pytest.raises(ValueError, match=r"holds no state of this trainer|generators are none|windows must be"):
        trainer(folder, resume="latest", steps=8).run()
    assert sorted(os.listdir(folder / "checkpoints")) == ["step-00000003", "step-00000006"]
    assert curve(folder) == before


def test_what_the_groups_of_the_optimizer_hold_comes_from_the_config(half_way):
    whole, folder = half_way()
    resealed(folder, 3, lambda training, _: training["optimizer"]["param_groups"][0].update(betas="x", eps=None))
    again = trainer(folder, resume=3)
    again.run()
    assert state(again) == state(whole)


def test_compiled_it_is_the_same_run(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr("lmlib.train.step.NextTokenLoss.compile", lambda self: compiled.append(self))
    run = trainer(tmp_path, compile=True)
    assert compiled == [run.loss]
    assert list(run.model.state_dict()) == list(TransformerLM(MODEL).state_dict())
