"""lmlib.data.batches: every window is equally likely, and what comes next is right."""

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

import lmlib.data.batches
from lmlib.data import open_tokens
from tests.typechecking import typechecked

pytestmark = pytest.mark.usefixtures("one_thread")


batches = typechecked("lmlib.data.batches")
get_batch = batches.get_batch


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def token_file(tmp_path):
    def token_file(ids, **said):
        path = tmp_path / "train.bin"
        np.asarray(ids, "uint16").tofile(path)
        return open_tokens(path, **said)

    return token_file


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int32", "int64"])
def test_targets_are_the_next_tokens(dtype):
    tokens = (np.arange(10_000) * 7 % 251).astype(dtype)
    inputs, targets = get_batch(tokens, 8, 32, generator=seeded())
    assert inputs.shape == targets.shape == (8, 32)
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.is_contiguous()
    assert targets.is_contiguous()
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal((inputs + 7) % 251, targets)
    assert len(set(inputs[:, 0].tolist())) > 1


def test_ids_above_the_half_of_uint16_stay_positive(token_file):
    inputs, targets = get_batch(token_file(np.arange(65_000, 65_536)), 100, 20, generator=seeded())
    assert (inputs.min() >= 65_000, targets.max() <= 65_535) == (True, True)


def test_every_start_is_equally_likely(token_file):
    """Chi-square of 40,000 starts: each is a start from 0 to n − T − 1, and the last token a target."""
    n, context_length, draws = 30, 9, 40_000
    inputs, targets = get_batch(token_file(np.arange(n)), draws, context_length, generator=seeded())
    starts = inputs[:, 0]
    counts = np.bincount(starts, minlength=n)
    assert counts[n - context_length :].sum() == 0
    counts = counts[: n - context_length]
    expected = draws / len(counts)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 45.3  # exceeded once in 1,000 by chance, with 20 degrees of freedom
    assert targets.max() == n - 1
    assert inputs.max() == n - 2


def test_a_file_of_one_window(token_file):
    inputs, targets = get_batch(token_file([5, 6, 7]), 4, 2)
    assert inputs.tolist() == [[5, 6]] * 4
    assert targets.tolist() == [[6, 7]] * 4


def test_the_generator_decides(token_file):
    tokens = token_file(np.arange(5000))
    first, again, other = (get_batch(tokens, 4, 16, generator=seeded(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    state = torch.get_rng_state()
    get_batch(tokens, 4, 16, generator=seeded())
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.equal(get_batch(tokens, 4, 16)[0], first)


def test_a_file_of_nanogpt_gives_what_nanogpt_reads(token_file):
    tokens = token_file(np.random.default_rng(0).integers(0, 50_257, 5000), vocab_size=50_257)
    inputs, targets = get_batch(tokens, 3, 64, generator=seeded(4))
    data = np.memmap(tokens.path, dtype=np.uint16, mode="r")
    starts = torch.randint(len(data) - 64, (3,), generator=seeded(4))
    for row, i in enumerate(starts):
        assert inputs[row].tolist() == data[i : i + 64].tolist()
        assert targets[row].tolist() == data[i + 1 : i + 65].tolist()


@pytest.mark.parametrize("length", [0, 1, 16])
def test_a_file_shorter_than_a_window(token_file, length):
    with pytest.raises(ValueError, match=f"The array holds {length} tokens, but a window takes 17: context_length=16"):
        get_batch(np.arange(length), 4, 16)
    if length:
        with pytest.raises(ValueError, match=f"train.bin holds {length} tokens, but a window takes 17"):
            get_batch(token_file(np.arange(length)), 4, 16)
    assert get_batch(np.arange(17), 4, 16)[0].shape == (4, 16)


def test_an_id_beyond_the_vocabulary_is_met_before_the_model_is(token_file):
    ids = np.arange(300_000) % 1000
    ids[3000] = 1000  # between two blocks of the sample that is checked on opening
    tokens = token_file(ids, vocab_size=1000)
    with pytest.raises(ValueError, match=r"train\.bin holds the id 1,000, which is not in a vocabulary of 1,000"):
        batches.read_windows(tokens, np.array([5, 2990]), 20)
    assert batches.read_windows(tokens, np.array([2970]), 20)[0].shape == (1, 20)


@pytest.mark.parametrize("ids", [np.arange(-3, 5), np.arange(8, dtype=np.uint64) + 2**63])
def test_ids_of_an_array_that_no_vocabulary_has(ids):
    """int64 would hold the large ones as negative numbers."""
    with pytest.raises(ValueError, match=r"The array holds the id .*, which is not in a vocabulary"):
        get_batch(ids, 1, 7)


@pytest.mark.parametrize("device", ["gpu", "cuda", "cuda:1"])
def test_a_device_that_is_not_there(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=f"no device '{device}' on this machine, which has cpu"):
        get_batch(np.arange(9), 1, 8, device=device)
    assert batches.as_device("auto").type in ("cpu", "mps")
    assert batches.as_device("meta").type == "meta"


@pytest.mark.parametrize("device", ["cuda:1", torch.device("cuda:1")], ids=str)
def test_a_second_gpu_where_there_is_one(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="no device 'cuda:1' on this machine, which has cpu, cuda:0"):
        batches.as_device(device)
    assert batches.as_device("cuda") == torch.device("cuda")


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="it is there")
@pytest.mark.parametrize("device", ["mps", "mps:0"])
def test_no_apple_gpu(device):
    with pytest.raises(ValueError, match=f"no device '{device}'"):
        get_batch(np.arange(9), 1, 8, device=device)


@pytest.mark.parametrize(
    ("tokens", "match"),
    [
        (np.zeros((5, 5), int), "a row of integers, not int64 of shape"),
        (np.zeros(50), "a row of integers, not float64"),
    ],
)
def test_what_is_no_row_of_ids(tokens, match):
    with pytest.raises(ValueError, match=match):
        get_batch(tokens, 1, 4)


@pytest.mark.parametrize("sizes", [(0, 8), (4, 0), (-1, 8), (True, 8)])
def test_sizes(sizes):
    with pytest.raises(ValueError, match="must be a whole number from 1 on"):
        get_batch(np.arange(100), *sizes)


def test_the_annotations_are_checked():
    with pytest.raises(TypeCheckError):
        batches.to_device((torch.zeros(2, 3), torch.zeros(2, 3)), "cpu")
    with pytest.raises(TypeCheckError):
        batches.to_device((torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 4, dtype=torch.int64)), "cpu")


def test_batches_keep_no_page_of_the_file(token_file, monkeypatch):
    released = []
    monkeypatch.setattr(lmlib.data.TokenFile, "release", lambda self: released.append(self))
    tokens = token_file(np.arange(5000), check="none")
    get_batch(tokens, 4, 16)
    assert released == [tokens]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_batch_on_a_gpu(token_file):
    tokens = token_file(np.arange(5000))
    expected = get_batch(tokens, 4, 16, generator=seeded())
    found = get_batch(tokens, 4, 16, generator=seeded(), device="cuda")
    assert all(part.is_pinned() for part in batches.pin(expected, "cuda"))
    for one, other in zip(expected, found, strict=True):
        assert other.device.type == "cuda"
        assert torch.equal(one, other.cpu())


def test_only_a_gpu_is_copied_to_from_pinned_memory(monkeypatch):
    """What a GPU would be told, on a machine without one."""
    told = []

    class Recorded:
        def pin_memory(self):
            told.append("pin")
            return self

        def to(self, device, non_blocking):
            told.append((str(device), non_blocking))
            return self

    class Device:
        def __init__(self, device):
            told.append(str(device))

        def __enter__(self):
            pass

        def __exit__(self, *error):
            pass

    plain = lmlib.data.batches
    monkeypatch.setattr(torch.cuda, "device", Device)
    batch = (Recorded(), Recorded())
    plain.to_device(plain.pin(batch, "cuda:1"), "cuda:1")
    assert told == ["cuda:1", "pin", "pin", ("cuda:1", True), ("cuda:1", True)]
    told.clear()
    plain.to_device(plain.pin(batch, "cpu"), "cpu")
    assert told == [("cpu", False), ("cpu", False)]
