"""The parts of lmlib.checkpoint: generators, configs, folders that are whole or not there."""

import fcntl
import math
import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lmlib.checkpoint import ConfigMismatch, capture_rng, check_config, restore_rng
from lmlib.checkpoint.folders import atomic_folder, remove_folder, remove_stale
from lmlib.checkpoint.records import Meta
from lmlib.checkpoint.trees import map_leaves
from lmlib.config import named_config

# --- generators -----------------------------------------------------------------------------------------------------


def draws():
    return [
        random.random(),
        random.gauss(0, 1),  # of which Python makes two at a time
        np.random.random(),
        np.random.standard_normal(),  # and so does NumPy
        torch.rand(()).item(),
        torch.randn(16).sum().item(),
    ]


@pytest.fixture
def own_rng():
    """Leave the generators of other tests as they were."""
    state = capture_rng()
    yield
    restore_rng(state)


@pytest.mark.parametrize("drawn_before", [0, 1, 700])
def test_every_generator_goes_on_where_it_was(tmp_path, own_rng, drawn_before):
    for _ in range(drawn_before):
        draws()
    torch.save(capture_rng(), tmp_path / "rng")
    expected = [draws(), draws()]
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    others = [draws(), draws()]
    assert not set(others[0]) & set(expected[0])
    restore_rng(torch.load(tmp_path / "rng", weights_only=True))
    assert [draws(), draws()] == expected


@pytest.mark.parametrize("left_out", ["python", "numpy", "torch"])
def test_each_generator_is_needed(own_rng, left_out):
    state = capture_rng()
    expected = draws()
    kept = capture_rng()[left_out]
    restore_rng({**state, left_out: kept})
    assert sum(a != b for a, b in zip(draws(), expected, strict=True)) == 2


def test_each_gpu_has_a_state_which_those_that_are_there_get_back(own_rng, monkeypatch):
    restored = {}
    states = [torch.tensor([device], dtype=torch.uint8) for device in range(4)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: states)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: restored.update({device: state.item()}))
    state = capture_rng()
    assert [cuda.item() for cuda in state["cuda"]] == [0, 1, 2, 3]
    restore_rng(state)
    assert restored == {0: 0, 1: 1}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert capture_rng()["cuda"] == []


# --- configs --------------------------------------------------------------------------------------------------------

CONFIG = named_config("tiny")


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("num_heads", 8, "num_heads: 4 in the checkpoint, 8 now"),
        ("rope_theta", 500_000.0, "rope_theta: 10000.0 in the checkpoint, 500000.0 now"),
        ("norm", "layernorm", "norm: 'rmsnorm' in the checkpoint, 'layernorm' now"),
    ],
)
def test_a_field_that_weights_do_not_tell_is_named(field, value, shown):
    other = replace(CONFIG, **{field: value})
    with pytest.raises(ConfigMismatch, match="saved with another config") as caught:
        check_config(CONFIG, other)
    assert f"\n  {shown}\n" in str(caught.value)
    assert caught.value.fields == (field,)


def test_equal_configs_may_differ_in_how_they_are_held():
    check_config(CONFIG.to_dict(), CONFIG)
    check_config({"betas": [0.9, 0.95], "data": "a/b", "n": 1}, {"betas": (0.9, 0.95), "data": Path("a/b"), "n": 1.0})


def test_fields_that_may_differ_do():
    saved = {"model": CONFIG.to_dict(), "steps": 100, "logging": {"every": 10, "to": {"file": "a"}}, "log": 1}
    current = {**saved, "steps": 200, "logging": {"every": 1, "to": {"file": "b"}}, "log": 2}
    with pytest.raises(ConfigMismatch) as caught:
        check_config(saved, current)
    assert caught.value.fields == ("steps", "logging.every", "logging.to.file", "log")
    check_config(saved, current, may_differ=("steps", "logging", "log"))
    with pytest.raises(ConfigMismatch) as caught:
        check_config(saved, current, may_differ=("steps", "logging.to", "log"))
    assert caught.value.fields == ("logging.every",)
    with pytest.raises(ConfigMismatch) as caught:
        check_config(saved, current, may_differ=("steps", "log"))  # "log" is not "logging"
    assert caught.value.fields == ("logging.every", "logging.to.file")


def test_a_field_that_only_one_has_is_named():
    with pytest.raises(ConfigMismatch, match=r"dropout: \(absent\) in the checkpoint, 0.1 now") as caught:
        check_config({"a": 1, "old": None}, {"a": 1, "dropout": 0.1})
    assert caught.value.fields == ("old", "dropout")
    with pytest.raises(ConfigMismatch):
        check_config({"model": {}}, {"model": {"a": 1}})
    with pytest.raises(ConfigMismatch):
        check_config({"compile": True}, {"compile": 1.5})


def test_a_config_that_json_cannot_hold_is_refused():
    with pytest.raises(TypeError, match="not tensor"):
        check_config({"a": torch.zeros(1)}, {})


@pytest.mark.parametrize("loss", [None, math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_none(loss):
    assert Meta(1, loss, loss).validation_loss is None
    assert Meta(1, loss, loss).best_validation_loss is None


def test_leaves_are_named_by_their_path():
    seen = []
    tree = {"a": [1, {"b": (2, 3)}], "c": {}, 4: None}
    assert map_leaves(tree, lambda name, leaf: seen.append(name) or leaf, "root") == tree
    assert seen == ["root/a/0", "root/a/1/b/0", "root/a/1/b/1", "root/4"]


# --- folders --------------------------------------------------------------------------------------------------------


def names(folder):
    return sorted(os.listdir(folder))


def test_a_folder_takes_its_name_at_the_end(tmp_path):
    path = tmp_path / "new" / "folder"
    with atomic_folder(path) as folder:
        (folder / "file").write_text("all")
        (folder / "nested").mkdir()
        (folder / "nested" / "file").write_text("of it")
        assert not path.exists()
        assert folder.parent == path.parent
    assert names(path.parent) == ["folder"]
    assert names(path) == ["file", "nested"]


def test_everything_reaches_the_disk_before_the_name(tmp_path, monkeypatch):
    events = []
    fsync, rename = os.fsync, os.rename

    def record(descriptor):
        events.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")).partition(".tmp-")[0])
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "rename", lambda *paths: (events.append("rename"), rename(*paths)))
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "nested").mkdir()
        (folder / "nested" / "file").write_text("")
    assert sorted(events[:2]) == ["file", "nested"]
    assert events[2:] == [".folder", "rename", tmp_path.name]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_after_an_exception_nothing_is_left(tmp_path, error):
    with pytest.raises(error), atomic_folder(tmp_path / "folder") as folder:  # noqa: PT012
        (folder / "file").write_text("half")
        raise error
    assert names(tmp_path) == []


def test_nor_are_the_folders_that_were_made_around_it(tmp_path):
    def fail(path):
        with pytest.raises(ZeroDivisionError), atomic_folder(path):
            raise ZeroDivisionError

    fail(tmp_path / "a" / "b" / "folder")
    assert names(tmp_path) == []
    (tmp_path / "there").mkdir()
    fail(tmp_path / "there" / "a" / "folder")
    fail(tmp_path / "there" / "folder")
    assert names(tmp_path) == ["there"]  # was empty before
    assert names(tmp_path / "there") == []


def test_but_those_in_which_somebody_else_has_put_something_stay(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "a" / "b" / "folder"):  # noqa: PT012
        (tmp_path / "a" / "file").write_text("")
        raise ZeroDivisionError
    assert names(tmp_path / "a") == ["file"]


def test_a_folder_is_never_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").write_text("")
    with pytest.raises(OSError, match="not empty"), atomic_folder(tmp_path / "folder") as folder:
        (folder / "new").write_text("")
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == ["old"]


def test_a_folder_is_removed_under_another_name(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda path, **_: None)  # as if the process were killed here
        remove_folder(tmp_path / "folder")
    (left,) = names(tmp_path)
    assert left.startswith(".folder.tmp-")
    remove_stale(tmp_path)
    assert names(tmp_path) == []


def test_only_what_nobody_writes_to_is_stale(tmp_path):
    others = [".folder.tmp-0", ".folder", "folder.tmp-0123456789abcdef", ".folder.tmp-0123456789abcdeg"]
    stale = ".step-1.tmp-0123456789abcdef"
    for name in [stale, *others]:
        (tmp_path / name).mkdir()
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "file").write_text("")
        remove_stale(tmp_path)
        assert names(tmp_path) == sorted([folder.name, stale, *others])
    remove_stale(tmp_path)
    assert names(tmp_path) == sorted(["folder", *others])
    assert names(tmp_path / "folder") == ["file"]
    remove_stale(tmp_path / "nowhere")


def test_a_second_writer_does_not_wait_and_nothing_is_removed_meanwhile(tmp_path):
    with atomic_folder(tmp_path / "first") as first:
        with atomic_folder(tmp_path / "second"):
            pass
        remove_stale(tmp_path)
        assert names(tmp_path) == [first.name, "second"]
    assert names(tmp_path) == ["first", "second"]


def test_where_the_file_system_knows_no_locks_all_is_left(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    (tmp_path / ".step-1.tmp-0123456789abcdef").mkdir()
    remove_stale(tmp_path)
    with atomic_folder(tmp_path / "folder"):
        pass
    assert names(tmp_path) == [".step-1.tmp-0123456789abcdef", "folder"]
