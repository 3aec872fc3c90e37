"""lmlib.checkpoint: what is saved comes back, what is damaged is named, what is full is warned of."""

import errno
import io
import json
import os
import pickle
import resource
import subprocess
import threading
import warnings
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save as safetensors_bytes
from torch import nn

import lmlib
from lmlib.checkpoint import (
    CheckpointStore,
    CheckpointWarning,
    CorruptCheckpoint,
    TrainingState,
    folders,
    reading,
    store,
    writing,
)
from lmlib.checkpoint.manifest import describe, write_manifest
from lmlib.config import named_config

FILES = ["manifest.json", "meta.json", "model.safetensors", "training.pt"]


def state(value=0.0, **training):
    return TrainingState(model={"weight": torch.full((3, 4), value)}, training={"value": value, **training})


def names(folder):
    return sorted(os.listdir(folder))


def saved(folder, steps, **options):
    made = CheckpointStore(folder, keep_last=10, **options)
    for step in steps:
        made.save(state(float(step)), step=step)
    return made


def equal(one, other):
    """Nested states are equal to the bit, in the same types."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and bytes_of(one) == bytes_of(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and (one == other or one != one)


def bytes_of(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.ndim else tensor.numpy().tobytes()


# --- what is saved comes back ---------------------------------------------------------------------------------------


def test_a_state_comes_back_to_the_bit(tmp_path):
    model = {
        "bf16": torch.randn(3, 5).bfloat16(),
        "fp16": torch.randn(7).half(),
        "fp64": torch.randn(2, 1, 2, dtype=torch.float64),
        "ids": torch.arange(5),
        "mask": torch.tensor([True, False]),
        "not.a.number": torch.tensor([float("nan"), float("inf"), -0.0]),
        "transposed": torch.randn(4, 6).T,
        "nothing": torch.empty(0, 3),
    }
    training = {
        "optimizer": {"state": {0: {"step": torch.tensor(7.0), "moment": torch.randn(3)}}, "lr": [1e-3, 0]},
        "loader": {"position": 2**60, "shuffle": True, "seed": None, "dtype": torch.bfloat16},
        "betas": (0.9, 0.95),
        "text": "é",
        "bytes": b"\x00",
        "loss": float("nan"),
    }
    given = TrainingState(model, training, rank_state={"rng": torch.arange(3)})
    path = CheckpointStore(tmp_path).save(given, step=3, validation_loss=2.5, config={"lr": 1e-3, "betas": (0.9, 0.95)})
    assert names(tmp_path) == ["step-00000003"]
    assert path == tmp_path / "step-00000003"
    assert names(path) == FILES
    loaded = CheckpointStore(tmp_path).load()
    assert loaded.path == path
    assert equal(loaded.model, model)
    assert equal(loaded.training, training)
    assert equal(loaded.rank_state, given.rank_state)
    assert (loaded.meta.step, loaded.meta.validation_loss, loaded.meta.world_size) == (3, 2.5, 1)
    assert loaded.meta.config == {"lr": 1e-3, "betas": [0.9, 0.95]}
    assert loaded.meta.versions["torch"] == torch.__version__
    assert loaded.meta.versions["lmlib"] == lmlib.__version__
    assert loaded.meta.versions.keys() == {"lmlib", "torch", "numpy", "python"}
    assert abs(loaded.meta.time - path.stat().st_mtime) < 60


def test_the_model_can_be_read_by_safetensors_alone(tmp_path):
    path = CheckpointStore(tmp_path).save(state(1.5), step=0)
    assert equal(load_file(path / "model.safetensors"), {"weight": torch.full((3, 4), 1.5)})


def test_a_config_can_be_a_dataclass(tmp_path):
    config = named_config("tiny")
    CheckpointStore(tmp_path).save(state(), step=1, config=config)
    assert CheckpointStore(tmp_path).load().meta.config == config.to_dict()


def test_all_files_have_the_usual_permissions(tmp_path):
    path = CheckpointStore(tmp_path).save(state(), step=1)
    assert len({file.stat().st_mode for file in path.iterdir()}) == 1


@pytest.mark.parametrize("save", ["save", "save_async"])
def test_tied_weights_are_saved_once(tmp_path, save):
    model = nn.ModuleDict({"embedding": nn.Embedding(100, 10), "head": nn.Linear(10, 100, bias=False)})
    model["head"].weight = model["embedding"].weight
    made = CheckpointStore(tmp_path)
    getattr(made, save)(TrainingState(model.state_dict(), {}), step=1)
    made.wait()
    assert (tmp_path / "step-00000001" / "model.safetensors").stat().st_size < 1.5 * 4000
    loaded = made.load().model
    assert loaded.keys() == {"embedding.weight", "head.weight"}
    assert loaded["head.weight"].data_ptr() == loaded["embedding.weight"].data_ptr()
    model.load_state_dict(loaded)


def test_of_a_part_of_a_tensor_only_the_part_is_saved(tmp_path):
    whole = torch.arange(100_000.0)
    given = TrainingState({"a": whole[:10], "b": whole[5:15]}, {"part": whole[:10]})
    path = CheckpointStore(tmp_path).save(given, step=1)
    assert sum(file.stat().st_size for file in path.iterdir()) < 10_000
    loaded = CheckpointStore(tmp_path).load()
    assert equal(loaded.model, dict(given.model))
    assert equal(loaded.training, dict(given.training))


@pytest.mark.parametrize("save", ["save", "save_async"])
def test_what_could_not_be_loaded_is_not_saved(tmp_path, save):
    numpy = torch.zeros(3).numpy()
    made = CheckpointStore(tmp_path, on_error="warn")
    for training, name in [
        ({"loader": {"order": numpy}}, "training/loader/order is array"),
        ({"losses": [1.0, numpy[0] + 0.5]}, r"training/losses/1 is .*float32"),
        ({"loss": numpy.astype("float64")[0]}, r"training/loss is .*of type float64"),
        ({"model": nn.Linear(1, 1)}, r"training/model is Linear.*Convert it before"),
        ({"by_id": {numpy.astype(int)[0]: 1}}, "a key of training/by_id is"),
    ]:
        with pytest.raises(TypeError, match=name):
            getattr(made, save)(state(**training), step=1)
    with pytest.raises(TypeError, match="model/step is no tensor: put it into training"):
        getattr(made, save)(TrainingState({"step": 3}, {}), step=1)
    with pytest.raises(TypeError, match="A config holds numbers, strings, lists and mappings, not <object"):
        getattr(made, save)(state(), step=1, config={"x": object()})
    with pytest.raises(ValueError, match=r"step must be a whole number from 0 on.*-1"):
        getattr(made, save)(state(), step=-1)
    assert made.wait() is None
    assert names(tmp_path) == []


def test_a_run_goes_on_as_if_it_had_never_stopped(tmp_path, one_thread):
    from lmlib.checkpoint import capture_rng, restore_rng
    from lmlib.model import TransformerLM

    config = replace(named_config("tiny"), dropout=0.1, vocab_size=64)

    def start():
        model = TransformerLM(config)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

    def train(model, optimizer, steps):
        for _ in range(steps):
            ids = torch.randint(0, 64, (2, 9))
            loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    torch.manual_seed(0)
    model, optimizer = start()
    train(model, optimizer, 2)
    CheckpointStore(tmp_path).save(
        TrainingState(model.state_dict(), {"optimizer": optimizer.state_dict()}, capture_rng()), step=2
    )
    loss = train(model, optimizer, 2)

    def resume(without=None):
        model, optimizer = start()
        torch.manual_seed(1)
        checkpoint = CheckpointStore(tmp_path).load()
        if without != "model":
            model.load_state_dict(checkpoint.model)
        if without != "optimizer":
            optimizer.load_state_dict(checkpoint.training["optimizer"])
        if without != "rng":
            restore_rng(checkpoint.rank_state)
        return train(model, optimizer, 2), model, optimizer

    resumed_loss, resumed, resumed_optimizer = resume()
    assert resumed_loss == loss
    assert equal(dict(resumed.state_dict()), dict(model.state_dict()))
    assert equal(resumed_optimizer.state_dict(), optimizer.state_dict())
    for without in ("model", "optimizer", "rng"):
        assert resume(without)[0] != loss


# --- which are kept, which are loaded -------------------------------------------------------------------------------


def test_the_last_and_the_best_are_kept(tmp_path):
    made = CheckpointStore(tmp_path / "new" / "checkpoints", keep_last=2)
    assert (made.steps, made.best_step) == ([], None)
    losses = {1: 4.0, 2: 3.0, 3: None, 4: float("nan"), 5: 3.5, 6: 3.2, 7: float("-inf")}
    kept = {}
    for step, loss in losses.items():
        made.save(state(float(step)), step=step, validation_loss=loss)
        kept[step] = made.steps
    assert kept == {1: [1], 2: [1, 2], 3: [2, 3], 4: [2, 3, 4], 5: [2, 4, 5], 6: [2, 5, 6], 7: [2, 6, 7]}
    assert made.best_step == 2
    best, last = made.load("best"), made.load("latest")
    assert (best.meta.step, best.meta.validation_loss, best.meta.best_validation_loss) == (2, 3.0, 3.0)
    assert (last.meta.step, last.meta.validation_loss, last.meta.best_validation_loss) == (7, None, 3.0)
    assert made.load(6).training == {"value": 6.0}
    assert made.load(made.folder / "step-00000006").training == {"value": 6.0}
    assert made.load(str(made.folder / "step-00000006")).training == {"value": 6.0}
    made.save(state(), step=8, validation_loss=2.0)
    assert (made.steps, made.best_step) == ([7, 8], 8)


def test_steps_are_numbers_however_many_digits(tmp_path):
    made = saved(tmp_path, [5, 99_999_999, 100_000_000])
    assert made.steps == [5, 99_999_999, 100_000_000]
    assert made.load().meta.step == 100_000_000


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    (tmp_path / "step-00000001.zip").write_text("")
    (tmp_path / "notes").mkdir()
    (tmp_path / "my-step-00000007").mkdir()
    saved(tmp_path, [3]).save(state(), step=4)
    assert CheckpointStore(tmp_path).steps == [3, 4]
    assert names(tmp_path)[0] == "my-step-00000007"
    assert len(names(tmp_path)) == 5


def test_a_step_is_saved_once(tmp_path):
    made = saved(tmp_path, [3])
    for save in (made.save, made.save_async):
        with pytest.raises(ValueError, match=r"step-00000003 is there already: .* call discard_after"):
            save(state(7.0), step=3)
    assert made.load().training == {"value": 3.0}


def test_a_run_that_goes_back_leaves_what_came_after(tmp_path):
    made = saved(tmp_path, [1, 2, 3, 4])
    made.discard_after(2)
    assert names(tmp_path) == ["step-00000001", "step-00000002"]
    made.save(state(9.0), step=3)
    assert made.load().training == {"value": 9.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep_last": 0}, "keep_last must be a whole number from 1 on"),
        ({"keep_last": 1.5}, "keep_last must be a whole number from 1 on"),
        ({"on_error": "ignore"}, "on_error must be 'raise' or 'warn', not 'ignore'"),
    ],
)
def test_options_are_checked(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        CheckpointStore(tmp_path, **options)


def test_where_there_is_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no checkpoint in .*nowhere"):
        CheckpointStore(tmp_path / "nowhere").load()
    assert not (tmp_path / "nowhere").exists()
    made = saved(tmp_path, [1, 2])
    with pytest.raises(FileNotFoundError, match="has a validation loss"):
        made.load("best")
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*step-00000007; steps in .*: 1, 2\."):
        made.load(7)
    with pytest.raises(FileNotFoundError, match="no checkpoint newest; steps in"):
        made.load("newest")


# --- damage ---------------------------------------------------------------------------------------------------------


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


DAMAGE = {"flip": flip, "cut": cut, "empty": lambda path: path.write_bytes(b""), "remove": os.unlink}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("file", FILES)
def test_the_one_before_is_loaded_instead_of_a_damaged_one(tmp_path, file, damage):
    made = saved(tmp_path, [1, 2, 3])
    path = tmp_path / "step-00000003" / file
    if file == "manifest.json" and damage == "flip":
        path.write_bytes(path.read_bytes().replace(b'"sha256": "', b'"sha256": "0'))
    else:
        DAMAGE[damage](path)
    named = file if damage != "flip" or file != "manifest.json" else "SHA-256 of training.pt"
    message = rf"(?s)step-00000003: .*{named}.*\nstep-00000002 is loaded instead"
    with pytest.warns(CheckpointWarning, match=message) as warned:
        loaded = made.load()
    assert warned[0].filename == __file__
    assert equal((loaded.model["weight"], loaded.training), (torch.full((3, 4), 2.0), {"value": 2.0}))
    with pytest.raises(CorruptCheckpoint, match=rf"(?s)step-00000003: .*{named}"):
        made.load(3)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOMEM, errno.ESTALE])
@pytest.mark.parametrize("file", ["manifest.json", "model.safetensors"])
def test_one_that_the_disk_does_not_let_be_read_is_not_passed_over(tmp_path, monkeypatch, file, number):
    made = saved(tmp_path, [1, 2])
    opened = io.open

    def failing(path, *arguments, **options):
        if str(path).endswith(f"step-00000002/{file}"):
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr("builtins.open", failing)
    monkeypatch.setattr(io, "open", failing)
    with pytest.raises(OSError, match=os.strerror(number)):  # whoever went on from step 1 would discard step 2
        made.load()
    assert made.steps == [1, 2]


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        (reading.torch, "load", "unable to mmap 1343 bytes from file </x (5)/t.pt>: Cannot allocate memory (12)"),
        (reading, "read_weights", "Cannot allocate memory (os error 12)"),
    ],
)
def test_nor_is_one_for_which_there_is_too_little_memory(tmp_path, monkeypatch, module, name, message):
    made = saved(tmp_path, [1, 2])

    def failing(*_, **__):
        raise RuntimeError(message)

    monkeypatch.setattr(module, name, failing)
    with pytest.raises(OSError, match="Cannot allocate memory") as caught:
        made.load()
    assert caught.value.errno == errno.ENOMEM


@pytest.mark.parametrize("name", ["read_weights", "load"])
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_nor_one_that_a_gpu_or_its_process_has_no_memory_for(tmp_path, monkeypatch, name, error):
    made = saved(tmp_path, [1, 2])

    def failing(*_, **__):
        raise error

    monkeypatch.setattr(reading.torch if name == "load" else reading, name, failing)
    with pytest.raises(type(error)):
        made.load()
    assert made.steps == [1, 2]


@pytest.mark.parametrize("error", [KeyError(57), IndexError("pop from an empty list"), RuntimeError("a size of (5)")])
def test_whatever_else_the_libraries_make_of_a_file_is_damage(tmp_path, monkeypatch, error):
    made, load = saved(tmp_path, [1, 2]), torch.load

    def failing(path, *arguments, **options):
        if "step-00000002" in str(path):
            raise error
        return load(path, *arguments, **options)

    monkeypatch.setattr(reading.torch, "load", failing)
    try:
        raise OSError(errno.ENOSPC, "of something before, which says nothing of this file")
    except OSError:
        with pytest.warns(CheckpointWarning, match="step-00000001 is loaded instead"):
            made.load()


def test_what_is_no_folder_is_no_checkpoint(tmp_path):
    made = saved(tmp_path, [1, 2])
    (tmp_path / "step-00000003").write_text("")
    (tmp_path / "step-00000004").symlink_to("nowhere")
    assert made.steps == [1, 2]
    assert made.load().meta.step == 2


def test_a_file_that_is_gone_is_damage(tmp_path, monkeypatch):
    """Another process has removed it since it was verified."""
    made = saved(tmp_path, [1, 2])
    read = store.read_checkpoint

    def removed(path, *arguments, **options):
        if path.name == "step-00000002":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", "training.pt")
        return read(path, *arguments, **options)

    monkeypatch.setattr(store, "read_checkpoint", removed)
    with pytest.warns(CheckpointWarning, match="step-00000001 is loaded instead"):
        made.load()


def test_the_next_best_is_loaded_instead_of_a_damaged_best(tmp_path):
    made = CheckpointStore(tmp_path, keep_last=9)
    for step, loss in enumerate([3.0, 1.0, 2.0, None]):
        made.save(state(), step=step, validation_loss=loss)
    flip(tmp_path / "step-00000001" / "model.safetensors")
    with pytest.warns(CheckpointWarning, match="step-00000002 is loaded instead"):
        assert made.load("best").meta.step == 2


@pytest.mark.parametrize("damage", ["no JSON", "no file"])
def test_one_of_which_nothing_is_known_may_be_the_best_and_is_named(tmp_path, damage):
    made = CheckpointStore(tmp_path, keep_last=9)
    for step, loss in enumerate([3.0, 1.0, 2.0]):
        made.save(state(), step=step, validation_loss=loss)
    path = tmp_path / "step-00000001" / "meta.json"
    path.unlink()
    path.write_text("{") if damage == "no JSON" else path.mkdir()
    with pytest.warns(CheckpointWarning, match=r"(?s)step-00000001: meta.json .*step-00000002 is loaded instead"):
        assert made.load("best").meta.step == 2


def test_where_all_are_damaged_all_are_named(tmp_path):
    made = saved(tmp_path, [1, 2])
    flip(tmp_path / "step-00000001" / "training.pt")
    cut(tmp_path / "step-00000002" / "model.safetensors")
    with pytest.raises(CorruptCheckpoint) as caught:
        made.load()
    assert str(caught.value).splitlines() == [
        "No checkpoint can be read:",
        "  step-00000002: model.safetensors has 165 bytes instead of 168",
        "  step-00000001: the SHA-256 of training.pt differs",
    ]


def test_a_damaged_one_is_no_obstacle_to_going_on(tmp_path):
    """Its meta.json may be what is damaged; and the run will come by its step again."""
    made = saved(tmp_path, [1, 2])
    (tmp_path / "step-00000002" / "meta.json").write_text("{")
    with pytest.warns(CheckpointWarning):
        step = made.load().meta.step
    made.discard_after(step)
    made.save(state(5.0), step=2, validation_loss=1.0)
    assert made.load().training == {"value": 5.0}


def rewrite(path, **files):
    """Put other files into a checkpoint, with a manifest that fits them."""
    for name, content in files.items():
        (path / name.replace("__", ".")).write_bytes(content)
    write_manifest(path, describe(path, [path / name for name in FILES if name != "manifest.json"]))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("[]", "is no list of files"),
        ('{"files": []}', "is no list of files"),
        ('{"files": {"model.safetensors": 3}}', "is no list of files"),
        ('{"files": {"model.safetensors": {"size": 1}}}', "is no list of files"),
        ('{"files": {}}', "does not list meta.json"),
        ("[" * 100_000, "is no list of files"),
    ],
)
def test_another_manifest_is_refused(tmp_path, manifest, message):
    made = saved(tmp_path, [1])
    (tmp_path / "step-00000001" / "manifest.json").write_text(manifest)
    with pytest.raises(CorruptCheckpoint, match=f"manifest.json {message}"):
        made.load()


@pytest.mark.parametrize("left_out", ["model.safetensors", "training.pt", "meta.json"])
def test_what_is_not_in_the_manifest_is_not_read(tmp_path, left_out):
    made = saved(tmp_path, [1])
    path = tmp_path / "step-00000001" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["files"][left_out]
    path.write_text(json.dumps(manifest))
    with pytest.raises(CorruptCheckpoint, match=f"does not list {left_out}"):
        made.load()


DEEP = b"[" * 100_000 + b"]" * 100_000


def tied(text):
    """Weights that say of themselves which are one."""
    return safetensors_bytes({"y": torch.ones(1)}, metadata={"tied": text})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"model__safetensors": b""}, "model.safetensors cannot be read"),
        ({"model__safetensors": b"\xff" * 100}, "model.safetensors cannot be read"),
        ({"model__safetensors": (80).to_bytes(8, "little") + b" " * 200}, "model.safetensors cannot be read"),
        ({"training__pt": b""}, "training.pt cannot be read"),
        ({"training__pt": b"PK\x03\x04" + b"\0" * 99}, "training.pt cannot be read"),
        ({"model__safetensors": tied('["x"]')}, "model.safetensors cannot be read"),
        ({"model__safetensors": tied('{"x": "z"}')}, "model.safetensors cannot be read"),
        ({"model__safetensors": tied('{"x": ["y"]}')}, "model.safetensors cannot be read"),
        ({"meta__json": b'{"step": "1"}'}, "meta.json cannot be read: step must be"),
        ({"meta__json": b"[]"}, "meta.json cannot be read"),
        ({"meta__json": b'{"step": 1, "steps": 2}'}, "meta.json cannot be read"),
        ({"meta__json": b"\xff"}, "meta.json cannot be read"),
        ({"meta__json": DEEP}, "meta.json cannot be read: maximum recursion depth"),
        ({"meta__json": b'{"step": 1, "validation_loss": 1%s}' % (b"0" * 400)}, "meta.json cannot be read: int too l"),
        ({"model__safetensors": tied(DEEP.decode())}, "model.safetensors cannot be read: RecursionError"),
    ],
)
def test_files_that_are_nothing_of_ours_are_refused(tmp_path, files, message):
    made = saved(tmp_path, [1])
    rewrite(tmp_path / "step-00000001", **files)
    with pytest.raises(CorruptCheckpoint, match=message):
        made.load()


class Code:
    """Makes a folder when it is unpickled without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_carries_code_is_refused(tmp_path):
    made, ran = saved(tmp_path, [1]), tmp_path / "ran"
    path = tmp_path / "step-00000001"
    torch.save({"training": {"x": Code(ran)}, "rank_states": [None]}, path / "training.pt")
    rewrite(path)
    with pytest.raises(CorruptCheckpoint, match=r"training.pt asks for posix.mkdir, .*a pickle with code in it"):
        made.load()
    assert not ran.exists()
    torch.load(path / "training.pt", weights_only=False)  # it would have run
    assert ran.exists()


def test_a_bare_pickle_is_refused(tmp_path):
    made, ran = saved(tmp_path, [1]), tmp_path / "ran"
    rewrite(tmp_path / "step-00000001", training__pt=pickle.dumps(Code(ran)))
    with pytest.raises(CorruptCheckpoint, match=r"training\.pt"):
        made.load()
    assert not ran.exists()


def test_a_training_file_of_something_else_is_refused(tmp_path):
    made = saved(tmp_path, [1])
    for other in ({"model": 1}, [1, 2], torch.zeros(2)):
        torch.save(other, tmp_path / "step-00000001" / "training.pt")
        rewrite(tmp_path / "step-00000001")
        with pytest.raises(CorruptCheckpoint, match=r"training.pt (holds no state of a run|cannot be read)"):
            made.load()


# --- full disks and other errors ------------------------------------------------------------------------------------


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


PLACES = [(folders.os, "fsync"), (folders.os, "rename"), (writing, "describe"), (writing, "write_manifest")]


@pytest.mark.parametrize("save", ["save", "save_async"])
@pytest.mark.parametrize(("module", "name"), PLACES)
def test_a_full_disk_is_warned_of_and_the_old_ones_are_as_they_were(tmp_path, monkeypatch, module, name, save):
    made = saved(tmp_path, [1, 2], on_error="warn")
    with monkeypatch.context() as patch:
        patch.setattr(module, name, full)
        with pytest.warns(CheckpointWarning, match=r"NO CHECKPOINT was written at step 3: .*No space left") as warned:
            path = getattr(made, save)(state(3.0), step=3) or made.wait()
        assert path is None
        assert warned[0].filename == __file__
    assert names(tmp_path) == ["step-00000001", "step-00000002"]
    assert made.load().training == {"value": 2.0}
    assert made.save(state(4.0), step=4) == tmp_path / "step-00000004"


def test_an_error_is_raised_where_that_is_asked_for(tmp_path, monkeypatch):
    made = saved(tmp_path, [1])
    monkeypatch.setattr(folders.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        made.save(state(), step=2)
    made.save_async(state(), step=2)
    with pytest.raises(OSError, match="No space left"):
        made.wait()
    assert made.wait() is None  # it is raised once
    assert names(tmp_path) == ["step-00000001"]


def test_the_next_save_warns_of_the_one_before(tmp_path, monkeypatch):
    made = CheckpointStore(tmp_path, on_error="warn")
    with monkeypatch.context() as patch:
        patch.setattr(folders.os, "rename", full)
        made.save_async(state(), step=1)
        made._thread.submit(int).result()
    with pytest.warns(CheckpointWarning, match="at step 1"):
        made.save_async(state(), step=2)
    assert made.wait() == tmp_path / "step-00000002"


def test_an_old_one_that_cannot_be_removed_is_no_failure(tmp_path, monkeypatch):
    made = CheckpointStore(tmp_path, keep_last=1)
    made.save(state(), step=1)
    monkeypatch.setattr(store, "remove_folder", full)
    with pytest.warns(CheckpointWarning, match="An old checkpoint could not be removed"):
        assert made.save(state(), step=2) == tmp_path / "step-00000002"
    assert made.load().meta.step == 2


def fill(folder, model, training):
    """Save what is too large; return what was said, and see that nothing else has changed."""
    made = CheckpointStore(folder, on_error="warn")
    made.save(state(1.0), step=1)
    big = TrainingState({"a": torch.zeros(model)}, {"a": torch.zeros(training)})
    with pytest.warns(CheckpointWarning) as warned:  # noqa: PT031
        assert made.save(big, step=2) is None
        made.save_async(big, step=3)
        assert made.wait() is None
        assert names(folder) == ["step-00000001"]
    assert made.save(state(4.0), step=4)
    assert made.load(1).training == {"value": 1.0}
    assert made.load(4).training == {"value": 4.0}
    return [str(warning.message) for warning in warned]


@pytest.mark.parametrize(
    ("model", "training", "file"), [(100_000, 9, "model.safetensors"), (9, 100_000, "training.pt")]
)
def test_a_file_that_the_kernel_refuses_to_write(tmp_path, model, training, file):
    """A limit on the size of files, in the writers of safetensors and of torch."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        told = fill(tmp_path, model, training)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for step, line in zip((2, 3), told, strict=True):
        assert f"NO CHECKPOINT was written at step {step}: [Errno 27] File too large: " in line
        assert f"{file}'. The run goes on; what is in {tmp_path} is as it was." in line


def test_a_disk_that_is_full(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", tmp_path]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount")
    try:
        for model, training in [(100_000, 9), (9, 100_000), (20_000, 40_000)]:
            told = fill(tmp_path / f"{model}", model, training)
            assert len(told) == 2
            assert all("[Errno 28] No space left on device" in line for line in told)
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


# --- saving while the run goes on -----------------------------------------------------------------------------------


@pytest.fixture
def gate(monkeypatch):
    """Writing waits until the gate is opened; ``entered`` is released as it begins."""
    opened, entered, write = threading.Event(), threading.Semaphore(0), store.write_checkpoint

    def wait(*arguments):
        entered.release()
        assert opened.wait(60)
        return write(*arguments)

    opened.entered = entered
    monkeypatch.setattr(store, "write_checkpoint", wait)
    yield opened
    opened.set()


def test_later_steps_cannot_touch_what_is_being_saved(tmp_path, gate):
    weight, moment, rng = torch.ones(3), torch.ones(2), torch.ones(1)
    training = {"moment": moment, "losses": [1.0], "nested": {"step": 1}}
    made = CheckpointStore(tmp_path)
    made.save_async(TrainingState({"weight": weight}, training, {"rng": rng}), step=1)
    assert gate.entered.acquire(timeout=60)
    for tensor in (weight, moment, rng):
        tensor.zero_()
    training["losses"].append(2.0)
    training["nested"]["step"] = 2
    assert made.steps == []
    gate.set()
    assert made.wait() == tmp_path / "step-00000001"
    loaded = made.load()
    assert equal(loaded.model, {"weight": torch.ones(3)})
    assert equal(loaded.training, {"moment": torch.ones(2), "losses": [1.0], "nested": {"step": 1}})
    assert equal(loaded.rank_state, {"rng": torch.ones(1)})


def test_one_is_written_at_a_time(tmp_path, gate):
    made = CheckpointStore(tmp_path)
    made.save_async(state(), step=1)
    second = threading.Thread(target=made.save_async, args=(state(),), kwargs={"step": 2})
    assert gate.entered.acquire(timeout=60)
    second.start()
    second.join(0.2)
    assert second.is_alive()  # it waits for the first
    gate.set()
    second.join(60)
    made.wait()
    assert made.steps == [1, 2]


@pytest.mark.parametrize("call", ["save", "load", "discard_after"])
def test_what_is_being_written_counts(tmp_path, call):
    made = CheckpointStore(tmp_path)
    made.save_async(state(1.0), step=1)
    if call == "save":
        with pytest.raises(ValueError, match="is there already"):
            made.save(state(2.0), step=1)
    if call == "load":
        assert made.load().training == {"value": 1.0}
    if call == "discard_after":
        made.discard_after(0)
        assert names(tmp_path) == []


def test_nothing_is_said_where_nothing_is_wrong(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = CheckpointStore(tmp_path, keep_last=1)
        for step in range(3):
            made.save_async(state(), step=step)
        made.load()
