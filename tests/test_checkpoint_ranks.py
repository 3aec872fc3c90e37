"""lmlib.checkpoint on several ranks: copies and parts of a model, and what all agree on."""

import errno
import os
import shutil
import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from lmlib.checkpoint import (
    CheckpointStore,
    CheckpointWarning,
    CorruptCheckpoint,
    TrainingState,
    capture_rng,
    folders,
    restore_rng,
    writing,
)
from lmlib.checkpoint.trees import map_leaves
from lmlib.config import ModelConfig
from lmlib.distributed import World, barrier, join_world, replicate, shard, whole
from lmlib.model import TransformerLM
from tests.ranks import run_ranks

SINGLE = World(torch.device("cpu"))


class Model(nn.Module):
    """257 rows and 1 number do not divide by the number of ranks: parts are unequal, or empty."""

    def __init__(self, vocab_size=257):
        super().__init__()
        config = ModelConfig(vocab_size, context_length=8, d_model=12, num_layers=2, num_heads=2, dropout=0.1)
        self.lm = TransformerLM(config)
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, ids):
        return self.lm(ids) * self.gain


def build(world, wrap=None, **options):
    torch.manual_seed(0)
    model = Model(**options)
    if wrap == "replicate":
        model = replicate(model, world)
    if wrap == "shard":
        model = shard(model, model.lm.blocks, world)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(model, optimizer, steps):
    losses = []
    for _ in range(steps):
        ids = torch.randint(0, 250, (2, 9))
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def state_of(model, optimizer):
    training = {"optimizer": get_optimizer_state_dict(model, optimizer), "loader": {"position": [3, 4]}}
    return TrainingState(get_model_state_dict(model), training, capture_rng())


def put_in(checkpoint, model, optimizer):
    set_model_state_dict(model, checkpoint.model)
    set_optimizer_state_dict(model, optimizer, checkpoint.training["optimizer"])


def whole_state(state):
    """Model and training with whole tensors, by name."""
    found = {}

    def note(name, leaf):
        found[name] = whole(leaf).clone() if isinstance(leaf, torch.Tensor) else leaf

    map_leaves(state.model, note, "model")
    map_leaves(state.training, note, "training")
    return found


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        same = value.equal(other[name]) if isinstance(value, torch.Tensor) else value == other[name]
        assert same, name


# --- what the ranks do ----------------------------------------------------------------------------------------------

WRAPS = ("replicate", "shard")


def save_and_go_on(folder):
    with join_world("cpu") as world:
        results = {wrap: save_and_go_on_with(world, folder, wrap) for wrap in WRAPS}
        return results, load_here(world, folder)


def save_and_go_on_with(world, folder, wrap):
    """Train 2 steps, save, train 3 more; then the same 3 from what was saved, with and without the generators."""
    model, optimizer = build(world, wrap)
    torch.manual_seed(world.rank)
    train(model, optimizer, 2)
    store = CheckpointStore(folder / wrap, world=world)
    torch.save(whole_state(state_of(model, optimizer)), folder / f"{wrap}-{world.rank}.pt")
    store.save_async(state_of(model, optimizer), step=2, validation_loss=1.0, config={"d_model": 12})
    losses = train(model, optimizer, 3)
    path = store.wait()
    resumed = {}
    for rng in (True, False):
        model, optimizer = build(world, wrap)
        train(model, optimizer, 1)
        checkpoint = store.load(into=state_of(model, optimizer))
        put_in(checkpoint, model, optimizer)
        if rng:
            restore_rng(checkpoint.rank_state)
        resumed[rng] = train(model, optimizer, 3)
    return path, losses, resumed, checkpoint.meta.world_size, checkpoint.training["loader"]


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


PLACES = [  # rank, and what fails on it
    (0, folders.os, "rename"),
    (0, writing, "describe"),
    (0, folders.os, "fsync"),
    (1, writing, "describe"),  # for its own part
    (1, dcp.HuggingFaceStorageWriter, "write_data"),
]


def meet_errors(folder):
    with join_world("cpu") as world:
        failed = {wrap: meet_full_disks(world, folder / wrap, wrap) for wrap in WRAPS}
        meet_wrong_arguments(world, folder / "shard")
        return failed, meet_damage(world, folder / "damage")


def meet_full_disks(world, folder, wrap):
    """One rank after the other meets a full disk at one place after the other."""
    model, optimizer = build(world, wrap)
    train(model, optimizer, 1)
    store = CheckpointStore(folder, world=world, on_error="warn")
    assert store.save(state_of(model, optimizer), step=0)
    found = []
    for rank, module, name in PLACES if wrap == "shard" else PLACES[:3]:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", CheckpointWarning)
            if world.rank == rank:
                patch.setattr(module, name, full)
            store.save_async(state_of(model, optimizer), step=1)
            path = store.wait() or store.save(state_of(model, optimizer), step=2)
            barrier(world)
        found.append((name, path, messages(warned), sorted(os.listdir(folder))))
    assert store.save(state_of(model, optimizer), step=50)
    return found


def messages(warned):
    return [str(warning.message) for warning in warned if warning.category is CheckpointWarning]


def meet_wrong_arguments(world, folder):
    """All ranks raise what one does, and go on together."""
    store = CheckpointStore(folder, world=world)
    mine = {1} if world.rank == 1 else None
    model, optimizer = build(world, "shard")
    with pytest.raises(ValueError, match="The state is sharded: pass the world"):
        CheckpointStore(folder).save(state_of(model, optimizer), step=51)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"rank_state is \{1\}"):
            store.save(TrainingState({}, {}, mine), step=51)
        with pytest.raises(ValueError, match="step-00000050 is there already"):
            store.save(TrainingState({}, {}), step=50)
        with pytest.raises(FileNotFoundError, match="no checkpoint"):
            store.load(77)


def meet_damage(world, folder):
    """Parts that rank 0 reads, and parts that rank 1 reads, are damaged on the disk."""
    model, optimizer = build(world, "shard")
    train(model, optimizer, 1)
    store = CheckpointStore(folder, world=world, keep_last=9)
    for step in range(4):
        store.save(state_of(model, optimizer), step=step)
    if world.is_main:
        for step, pattern in [(3, "shards/shard-00001-*"), (2, "shards/shard-00002-*"), (1, "training.pt")]:
            (damaged,) = (folder / f"step-{step:08d}").glob(pattern)
            content = bytearray(damaged.read_bytes())
            content[-1] ^= 1
            damaged.write_bytes(content)
    barrier(world)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", CheckpointWarning)
        step = store.load(into=state_of(model, optimizer)).meta.step
    smaller, its_optimizer = build(world, "shard", vocab_size=256)
    with pytest.raises(ValueError, match=r"weight has the shape \(257, 12\) in the checkpoint.*into \(256, 12\)"):
        store.load(0, into=state_of(smaller, its_optimizer))
    store.discard_after(1)
    return step, messages(warned), store.steps


def load_here(world, folder):
    """Load parts, and what was saved as a whole, into sharded tensors; put together, they are what was saved."""
    has_rng = {}
    for wrap in WRAPS:
        model, optimizer = build(world, "shard")
        checkpoint = CheckpointStore(folder / wrap, world=world).load(into=state_of(model, optimizer))
        put_in(checkpoint, model, optimizer)
        assert_equal(whole_state(state_of(model, optimizer)), torch.load(folder / f"{wrap}-0.pt"))
        has_rng[wrap] = checkpoint.rank_state is not None
    return has_rng


def load_on_others(folder):
    with join_world("cpu") as world:
        return load_here(world, folder)


# --- what is seen of it ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder that all is in, and what each rank returned."""
    folder = tmp_path_factory.mktemp("ranks")
    results = run_ranks(save_and_go_on, folder)
    assert [has_rng for _, has_rng in results] == [dict.fromkeys(WRAPS, True)] * 2
    return folder, [result for result, _ in results]


@pytest.mark.parametrize("wrap", WRAPS)
def test_each_rank_goes_on_as_if_it_had_never_stopped(saved, wrap):
    folder, results = saved
    for path, losses, resumed, world_size, loader in (result[wrap] for result in results):
        assert path == folder / wrap / "step-00000002"
        assert resumed[True] == losses
        assert resumed[False] != losses
        assert (world_size, loader) == (2, {"position": [3, 4]})
    assert results[0][wrap][1] != results[1][wrap][1]  # the ranks' batches differ
    assert os.listdir(folder / wrap) == ["step-00000002"]


@pytest.mark.parametrize("wrap", WRAPS)
def test_one_process_reads_what_two_have_saved(saved, wrap):
    folder, _ = saved
    checkpoint = CheckpointStore(folder / wrap).load("best")
    assert checkpoint.rank_state is None  # which of the two it would be, nobody knows
    expected = torch.load(folder / f"{wrap}-0.pt")
    assert expected["model/lm.token_embedding.weight"].shape == (257, 12)
    assert_equal(expected, torch.load(folder / f"{wrap}-1.pt"))
    assert_equal(whole_state(checkpoint), expected)
    model, optimizer = build(SINGLE)
    put_in(checkpoint, model, optimizer)
    assert_equal(whole_state(state_of(model, optimizer)), expected)
    model.load_state_dict(checkpoint.model)  # its names are those of the plain model


def test_every_rank_writes_its_own_part(saved):
    folder, _ = saved
    parts = sorted((folder / "shard" / "step-00000002" / "shards").iterdir())
    assert [part.name[:11] for part in parts] == ["shard-00001", "shard-00002"]
    assert parts[0].stat().st_size < 1.1 * parts[1].stat().st_size
    assert (folder / "shard" / "step-00000002" / "model.safetensors").stat().st_size < 1000
    assert not (folder / "replicate" / "step-00000002" / "shards").exists()


@pytest.mark.parametrize("damage", ["flip", "remove", "add"])
def test_a_damaged_part_is_refused(saved, tmp_path, damage):
    shutil.copytree(saved[0] / "shard", tmp_path / "copy")
    folder = tmp_path / "copy" / "step-00000002" / "shards"
    (part,) = folder.glob("shard-00002-*")
    if damage == "flip":
        part.write_bytes(part.read_bytes()[:-1] + b"\x55")
    if damage == "remove":
        part.unlink()
    if damage == "add":
        shutil.copy(part, folder / "shard-00003.safetensors")
    message = {"flip": "SHA-256 of shards/shard-00002", "remove": "is missing", "add": "shard-00003.* is not listed"}
    with pytest.raises(CorruptCheckpoint, match=message[damage]):
        CheckpointStore(tmp_path / "copy").load()


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3])
def test_another_number_of_ranks_takes_its_parts(saved, size):
    assert run_ranks(load_on_others, saved[0], size=size) == [dict.fromkeys(WRAPS, False)] * size


def test_what_one_rank_meets_all_do(tmp_path):
    (main_failed, main_fell_back), (other_failed, other_fell_back) = run_ranks(meet_errors, tmp_path)
    for wrap in WRAPS:
        assert len(main_failed[wrap]) == len(PLACES if wrap == "shard" else PLACES[:3])
        for main, other in zip(main_failed[wrap], other_failed[wrap], strict=True):
            name, path, told, there = main
            assert path is other[1] is None, name
            assert len(told) == 2, name
            assert all("No space left" in line for line in told), name
            assert other[2] == [], name  # rank 0 speaks for all
            assert there == ["step-00000000"], name
    step, (told,), steps = main_fell_back
    assert (step, [], steps) == other_fell_back == (0, [], [0, 1])
    for damaged, file in [(3, "shards/shard-00001"), (2, "shards/shard-00002"), (1, "training.pt")]:
        assert f"step-{damaged:08d}: the SHA-256 of {file}" in told
    assert "step-00000000 is loaded instead" in told
