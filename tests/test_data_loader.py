"""lmlib.data.loader: every window once per epoch, on any number of ranks, over any stop."""

import json
import multiprocessing
import os
import threading
from collections import Counter
from itertools import chain, islice, repeat

import numpy as np
import pytest
import torch

from lmlib.data import BatchLoader, loader, open_tokens

pytestmark = pytest.mark.usefixtures("one_thread")

T = 5
TOKENS = np.arange(23 * T + 1 + 3)  # 23 windows, and three tokens left over


def build(batch_size=4, tokens=TOKENS, context_length=T, **options):
    return BatchLoader(tokens, batch_size, context_length, **options)


def endless(loader):
    return chain.from_iterable(repeat(loader))


def take(loader, number):
    return list(islice(endless(loader), number))


def starts(batches):
    """The first tokens of all windows; ids are their own places here."""
    return [int(i) for inputs, _ in batches for i in inputs[:, 0]]


def equal(batches, others):
    assert len(batches) == len(others)
    for one, other in zip(batches, others, strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
    return True


def epochs(windows, size=23):
    """Cut a stream of windows into its epochs."""
    return [windows[i : i + size] for i in range(0, len(windows) - size + 1, size)]


# --- windows ------------------------------------------------------------------------------------------------------


def test_batches_are_inputs_and_next_tokens():
    for inputs, targets in build():
        assert inputs.shape == targets.shape == (4, T)
        assert inputs.dtype == targets.dtype == torch.int64
        assert torch.equal(inputs + 1, targets)
        assert torch.equal(inputs, inputs[:, :1] + torch.arange(T))


@pytest.mark.parametrize("batch_size", [1, 4, 23, 24, 50])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_window_comes_once_in_every_epoch(batch_size, shuffle):
    stream = starts(take(build(batch_size, shuffle=shuffle), 23 * 4 // batch_size + 4))
    for number, epoch in enumerate(epochs(stream)[:4]):
        offset = number % 2 * 3
        assert sorted(epoch) == list(range(offset, offset + 23 * T, T))
        assert (epoch == sorted(epoch)) == (not shuffle)


def test_two_epochs_show_every_token():
    inputs, targets = map(torch.cat, zip(*take(build(1), 46), strict=True))
    assert set(inputs.flatten().tolist()) == set(range(len(TOKENS) - 1))
    assert set(targets.flatten().tolist()) == set(range(1, len(TOKENS)))


def test_every_epoch_has_an_order_of_its_own():
    orders = [[start // T for start in epoch] for epoch in epochs(starts(take(build(23), 20)))]
    assert len(set(map(tuple, orders))) == 20
    assert starts(take(build(23, seed=1), 1)) != starts(take(build(23, seed=0), 1))
    assert starts(take(build(23, seed=1), 3)) == starts(take(build(23, seed=1), 3))


@pytest.mark.parametrize("n", [T + 1, T + 2, 2 * T, 2 * T + 1])
def test_the_shortest_files(n):
    windows = (n - 1) // T
    found = build(1, np.arange(n))
    assert found.windows_per_epoch == windows
    left_over = (n - 1) % T
    stream = starts(take(found, 2 * windows))
    assert sorted(stream[:windows]) == list(range(0, windows * T, T))
    assert max(stream[windows:]) == n - 1 - T == (windows - 1) * T + left_over


# --- epochs, length and iterating twice -----------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_loop_ends_with_the_epoch_and_the_next_goes_on(prefetch):
    found = build(prefetch=prefetch)
    lengths, stream, seen = [], [], []
    for epoch in range(4):
        assert found.epoch == epoch
        lengths.append(len(found))
        batches = list(found)
        assert len(batches) == lengths[-1]
        seen.append(len(batches))
        stream += batches
    assert lengths == seen == [6, 6, 6, 5]  # 23 windows each, of which 4 make a batch: 23 batches in all
    assert len(stream) == 23
    assert equal(stream, take(build(), 23))


def test_len_counts_what_is_left():
    found = build()
    left = [len(found)]
    for _ in found:
        left.append(len(found) if found.epoch == 0 else 0)
    assert left == [6, 5, 4, 3, 2, 1, 0]


def test_a_batch_larger_than_an_epoch_is_full_all_the_same():
    found = build(50)
    assert len(found) == 1
    (batch,) = found
    assert batch[0].shape == (50, T)
    assert found.epoch == 2
    assert Counter(start // T for start in starts([batch])).most_common()[0][1] == 3


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_after_a_break_it_goes_on_where_it_was_left(prefetch):
    found, expected = build(prefetch=prefetch), take(build(), 9)
    batches = []
    for batch in found:
        batches.append(batch)
        if len(batches) == 2:
            break
    assert found.state_dict()["windows"] == 8
    assert equal(batches + take(found, 7), expected)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_two_loops_at_a_time_are_refused(prefetch):
    found = build(prefetch=prefetch)
    first, second = iter(found), iter(found)
    next(first)
    next(first)
    assert equal([next(second)], take(build(), 3)[2:])
    with pytest.raises(RuntimeError, match="moved while it was iterated over"):
        next(first)
    assert found.state_dict()["windows"] == 12
    moved = iter(found)
    next(moved)
    found.load_state_dict(build().state_dict())
    with pytest.raises(RuntimeError, match="load_state_dict or by another loop"):
        next(moved)
    assert equal(take(found, 2), take(build(), 2))


# --- resuming -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("stop", [0, 1, 5, 6, 7, 20])
def test_resuming_gives_the_batches_that_would_have_come(stop, prefetch):
    whole = take(build(), 30)
    found = build(prefetch=prefetch)
    before = take(found, stop)
    state = json.loads(json.dumps(found.state_dict()))  # nothing but plain values
    resumed = build(prefetch=prefetch)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert equal(before + take(resumed, 30 - stop), whole)
    assert equal(take(found, 30 - stop), whole[stop:])  # asking for the state moved nothing


def test_the_state_can_be_saved_by_torch_without_pickles(tmp_path):
    torch.save(build().state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True) == build().state_dict()


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_the_state_counts_what_was_handed_out_and_not_what_was_read(monkeypatch, prefetch):
    read, enough = [], threading.Event()
    read_windows = loader.read_windows

    def counted(*arguments):
        read.append(arguments)
        if len(read) == 3 + prefetch:
            enough.set()
        return read_windows(*arguments)

    monkeypatch.setattr(loader, "read_windows", counted)
    found = build(2, prefetch=prefetch)
    batches = iter(found)
    for number in range(1, 4):
        next(batches)
        assert found.state_dict()["windows"] == 2 * number
    assert enough.wait(30)  # it was read ahead
    assert len(read) <= 3 + prefetch  # and no further
    resumed = build(2)
    resumed.load_state_dict(found.state_dict())
    assert equal(take(resumed, 4), list(islice(batches, 4)))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_while_reading_comes_where_it_belongs(monkeypatch, prefetch):
    found = build(prefetch=prefetch)
    read = found._read
    monkeypatch.setattr(found, "_read", lambda place: 1 / 0 if place == 8 else read(place))
    batches = iter(found)
    assert equal([next(batches), next(batches)], take(build(), 2))
    with pytest.raises(ZeroDivisionError):
        next(batches)
    assert found.state_dict()["windows"] == 8


def test_prefetching_leaves_no_thread(monkeypatch):
    before = threading.active_count()
    found = build(prefetch=2)
    assert equal(list(found), take(build(), 6))
    for _ in found:
        assert threading.active_count() == before + 1
        break
    assert threading.active_count() == before


# --- what a state must agree with ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ({"seed": 1}, "seed is 0, but 1 in the state"),
        ({"shuffle": False}, "shuffle is True, but False in the state"),
        ({"context_length": T + 1}, "context_length is 5, but 6 in the state"),
        ({"batch_size": 3}, "batch_size is 4, but 3 in the state"),
        ({"tokens": TOKENS + 1}, "fingerprint: the state belongs to other tokens"),
        ({"tokens": TOKENS[:-1]}, "fingerprint: the state belongs to other tokens"),
        ({"tokens": TOKENS.astype("uint16")}, "fingerprint: the state belongs to other tokens"),
    ],
)
def test_another_loaders_state_is_refused_by_name(other, field):
    found = build()
    expected = take(build(), 9)
    before = take(found, 2)
    with pytest.raises(ValueError, match=field):
        found.load_state_dict(build(**other).state_dict())
    assert equal(before + take(found, 7), expected)


@pytest.mark.parametrize("name", list(build().state_dict()))
def test_every_field_of_the_state_is_needed(name):
    state = build().state_dict()
    del state[name]
    with pytest.raises(ValueError, match=f"no state of a BatchLoader: see {name}"):
        build().load_state_dict(state)
    with pytest.raises(ValueError, match="no state of a BatchLoader: see epoch"):
        build().load_state_dict(build().state_dict() | {"epoch": 3})


@pytest.mark.parametrize("windows", [-1, 1.5, "8", None, 2**62, 10**30])
def test_the_number_of_windows_must_be_one(windows):
    with pytest.raises(ValueError, match="windows must be a whole number from 0 to"):
        build().load_state_dict(build().state_dict() | {"windows": windows})


@pytest.mark.parametrize("number", [1.0, "1", None, True, -1, torch.tensor([1, 2]), np.array([1, 2])], ids=repr)
@pytest.mark.parametrize("name", ["batch_size", "world_size", "context_length", "seed"])
def test_the_numbers_of_a_state_are_whole(name, number):
    """Else a damaged state would count as that of another number of ranks, or end in an error of torch."""
    found = build()
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        found.load_state_dict(found.state_dict() | {name: number})


@pytest.mark.parametrize(
    ("name", "value"), [("fingerprint", None), ("fingerprint", 7), ("shuffle", 1), ("shuffle", "no")]
)
def test_the_other_values_of_a_state_have_their_types(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a (str|bool), not"):
        build().load_state_dict(build().state_dict() | {name: value})


def test_a_state_may_have_numbers_of_numpy():
    first, again = build(), build()
    take(first, 2)
    state = {name: np.int64(value) if type(value) is int else value for name, value in first.state_dict().items()}
    again.load_state_dict(state)
    assert again.state_dict() == first.state_dict()
    assert type(again.state_dict()["windows"]) is int


@pytest.mark.parametrize("state", [None, [], "state", {3: 4}, {None: 1, "x": 2}])
def test_a_state_is_a_mapping(state):
    with pytest.raises(ValueError, match="no state of a BatchLoader"):
        build().load_state_dict(state)


def test_a_file_resumes_only_itself(tmp_path):
    paths = [tmp_path / "a.bin", tmp_path / "b.bin", tmp_path / "copy.bin"]
    for path, ids in zip(paths, [TOKENS, TOKENS[::-1], TOKENS], strict=True):
        ids.astype("uint16").tofile(path)
    first, other, copy = (build(tokens=open_tokens(path)) for path in paths)
    take(first, 3)
    copy.load_state_dict(first.state_dict())
    assert equal(take(copy, 5), take(first, 5))
    with pytest.raises(ValueError, match="fingerprint"):
        other.load_state_dict(first.state_dict())


# --- ranks --------------------------------------------------------------------------------------------------------


def ranks(world_size, batch_size=2, **options):
    return [build(batch_size, rank=rank, world_size=world_size, **options) for rank in range(world_size)]


def together(loaders, number):
    """The windows of a number of batches of all ranks."""
    batches = [take(each, number) for each in loaders]
    return [start for step in zip(*batches, strict=True) for start in starts(step)]


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_ranks_share_the_batch_of_one(world_size, prefetch):
    shared = zip(*(take(each, 20) for each in ranks(world_size, prefetch=prefetch)), strict=True)
    joined = [tuple(map(torch.cat, zip(*step, strict=True))) for step in shared]
    assert equal(joined, take(build(2 * world_size), 20))


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_all_ranks_get_the_same_number_of_batches(world_size):
    loaders = ranks(world_size)
    for _ in range(5):
        assert len(set(map(len, loaders))) == 1
        assert len({len(list(each)) for each in loaders}) == 1
        assert len({json.dumps(each.state_dict()) for each in loaders}) == 1


@pytest.mark.parametrize("after", [1, 2, 3])
@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_every_window_once_over_a_stop_on_other_ranks(before, after, stop):
    """With any batch size, and a second stop that goes back to the first number of ranks."""
    loaders = ranks(before)
    stream = together(loaders, stop)
    resumed = ranks(after, batch_size=2 if before == after else 1)
    for each in resumed:
        each.load_state_dict(loaders[-1].state_dict())
    stream += together(resumed, 2)
    again = ranks(before)
    for each in again:
        each.load_state_dict(resumed[0].state_dict())
    stream += together(again, 60 // before)
    for number, epoch in enumerate(epochs(stream)[:3]):
        offset = number % 2 * 3
        assert sorted(epoch) == list(range(offset, offset + 23 * T, T))


@pytest.mark.parametrize("world_size", [1, 2, 3, 6])
def test_as_many_windows_in_all_are_the_same_batches_on_other_ranks(world_size):
    whole = ranks(2, batch_size=3)
    together(whole, 5)
    resumed = ranks(world_size, batch_size=6 // world_size)
    for each in resumed:
        each.load_state_dict(whole[0].state_dict())
    assert together(resumed, 12) == together(whole, 12)


# --- other processes ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_fork_goes_on_by_itself(prefetch):
    """The child goes on with a new loop; in the old one there is no thread to wait for."""
    found = build(prefetch=prefetch)
    batches = iter(found)
    next(batches)
    receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)

    def child():
        try:
            next(batches)
        except RuntimeError as error:
            sender.send(str(error))
        sender.send([inputs.tolist() for inputs, _ in take(found, 3)])
        sender.send(found.state_dict())

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert receiver.poll(60)
    assert "forked inside a loop" in receiver.recv()
    assert receiver.poll(60)
    expected = take(build(), 4)[1:]
    assert receiver.recv() == [inputs.tolist() for inputs, _ in expected]
    assert receiver.recv()["windows"] == 16
    process.join()
    assert found.state_dict()["windows"] == 4
    assert equal(list(islice(batches, 3)), expected)


def test_the_last_of_very_many_ranks():
    size = 2**60
    found = build(rank=size - 1, world_size=size)
    assert equal(take(found, 1), take(build(rank=size - 1, world_size=size), 1))
    assert found.state_dict()["windows"] == 2**62


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number from 1 on"),
        ({"context_length": 0}, "context_length must be a whole number from 1 on"),
        ({"context_length": len(TOKENS)}, "119 tokens, but a window takes 120"),
        ({"batch_size": 10**10, "world_size": 10**10}, r"at most 2\*\*62"),
        ({"batch_size": 10**400}, r"at most 2\*\*62"),
        ({"world_size": 0}, "world_size must be a whole number from 1 on"),
        ({"rank": 1}, "rank must be a whole number from 0 to 0, not 1"),
        ({"rank": -1, "world_size": 2}, "rank must be a whole number from 0 to 1, not -1"),
        ({"seed": -1}, "seed must be a whole number from 0 on"),
        ({"seed": 0.5}, "seed must be a whole number from 0 on"),
        ({"prefetch": -1}, "prefetch must be a whole number from 0 on"),
        ({"device": "gpu"}, "no device 'gpu' on this machine, which has cpu"),
        ({"tokens": TOKENS[:T]}, "The array holds 5 tokens, but a window takes 6"),
        ({"tokens": TOKENS.reshape(7, -1)}, "a row of integers"),
    ],
)
def test_options_that_cannot_be(options, match):
    with pytest.raises(ValueError, match=match):
        build(**options)


# --- size and devices ---------------------------------------------------------------------------------------------


def test_a_file_of_a_terabyte_takes_no_time(tmp_path):
    """A sparse one: a permutation that is stored would take 2 GB."""
    path = tmp_path / "train.bin"
    with path.open("wb") as file:
        try:
            file.truncate(2**39)
        except OSError:
            pytest.skip("no file can be so large here")
    found = build(4, open_tokens(path), 1024)
    assert found.windows_per_epoch == 2**38 // 1024 - 1
    assert len(found) == -(-found.windows_per_epoch // 4)
    assert take(found, 2)[1][0].shape == (4, 1024)


def test_a_gpu_is_read_ahead_for(monkeypatch):
    monkeypatch.setattr(loader, "as_device", torch.device)  # as if it were there
    assert build(device="cuda").prefetch == 2
    assert build(device="cuda", prefetch=0).prefetch == 0
    assert build().prefetch == 0
    threads = []
    monkeypatch.setattr(loader, "pin", lambda batch, device: threads.append((threading.get_ident(), device)) or batch)
    monkeypatch.setattr(loader, "to_device", lambda batch, device: (*batch, device))
    (_, _, device), *_ = build(device="cuda:1")
    assert device == torch.device("cuda:1")
    assert {each for _, each in threads} == {device}
    assert threading.get_ident() not in dict(threads)  # pinning waits for memory, in the other thread


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_on_a_gpu(prefetch):
    found = take(build(device="cuda", prefetch=prefetch), 30)
    assert all(inputs.device.type == "cuda" for inputs, _ in found)
    assert equal([(inputs.cpu(), targets.cpu()) for inputs, targets in found], take(build(), 30))
