"""lmlib.data.token_file and sidecar: a file is mapped as it is, and refused when it is not what is said of it."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from lmlib.bpe import Tokenizer
from lmlib.corpora import load_corpus
from lmlib.data import open_tokens
from lmlib.data.sidecar import Sidecar, sidecar_path
from lmlib.data.token_file import check_ids, fingerprint, tokenizer_sha256

VOCAB_SIZE = 50_257
IDS = np.random.default_rng(0).integers(0, VOCAB_SIZE, 300_001)  # more than a sample of 64 blocks


@pytest.fixture
def write(tmp_path):
    """Write ids as a token file, with a sidecar where something is said of it."""

    def write(ids, dtype="uint16", said=None):
        path = tmp_path / "train.bin"
        np.asarray(ids).astype(dtype).tofile(path)
        if said:
            sidecar_path(path).write_text(json.dumps(said))
        return path

    return write


def true_sidecar(ids, dtype="uint16", /, **changes):
    found = fingerprint(np.asarray(ids, dtype))
    said = Sidecar(dtype, len(ids), VOCAB_SIZE, found, "0" * 64, 50_256)
    return asdict(said) | changes


# --- what is right ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["sample", "all", "none"])
@pytest.mark.parametrize("ids", [IDS, IDS[:2000], IDS[:1]], ids=len)
def test_a_file_of_nanogpt_opens_as_it_is(write, ids, check):
    path = write(ids)
    for said in [{}, {"dtype": "uint16"}, {"dtype": np.uint16, "vocab_size": VOCAB_SIZE}]:
        tokens = open_tokens(path, check=check, **said)
        assert tokens.ids.tolist() == ids.tolist()
        assert len(tokens) == len(ids)
        assert tokens.vocab_size == said.get("vocab_size")
        assert (tokens.end_of_text, tokens.tokenizer_sha256) == (None, None)
    assert os.listdir(path.parent) == ["train.bin"]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int32", "int64"])
def test_the_sidecar_says_what_the_file_cannot(write, dtype):
    ids = IDS % 251
    path = write(ids, dtype, true_sidecar(ids, dtype))
    tokens = open_tokens(path, check="all")
    assert tokens.ids.dtype == dtype
    assert tokens.ids.tolist() == ids.tolist()
    assert (tokens.vocab_size, tokens.end_of_text, tokens.tokenizer_sha256) == (VOCAB_SIZE, 50_256, "0" * 64)
    assert open_tokens(path, dtype=dtype, vocab_size=VOCAB_SIZE).ids.dtype == dtype


def test_a_sidecar_written_by_hand_may_be_short(write):
    tokens = open_tokens(write(IDS, said={"dtype": "uint16", "count": len(IDS), "vocab_size": VOCAB_SIZE}))
    assert (tokens.vocab_size, tokens.end_of_text) == (VOCAB_SIZE, None)


def test_ids_are_little_endian(write):
    path = write([1, 258, 3])
    assert path.read_bytes() == b"\1\0\2\1\3\0"
    assert open_tokens(path, dtype="<u2").ids.tolist() == [1, 258, 3]


def test_big_endian_ids_are_not_read_in_silence(write):
    path = write([1, 258, 3])
    refused(path, "'>u2': token files are little-endian", dtype=">u2")
    refused(write([1], said={"dtype": ">u2", "count": 1, "vocab_size": 2}), "token files are little-endian")


def test_the_file_cannot_be_written_to(write):
    tokens = open_tokens(write(IDS))
    with pytest.raises(ValueError, match="read-only"):
        tokens.ids[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        tokens.ids.flags.writeable = True


def test_opening_loads_nothing(tmp_path):
    """A sparse file of a terabyte, or of a gigabyte where none can be: far more than opening may read."""
    path = tmp_path / "train.bin"
    with path.open("wb") as file:
        try:
            file.truncate(2**40)
        except OSError:
            file.truncate(2**30)
    tokens = open_tokens(path, vocab_size=VOCAB_SIZE)
    assert len(tokens) == path.stat().st_size // 2
    assert tokens.ids[-1] == 0


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux says how much of a mapping is resident")
def test_what_was_read_can_be_released(write):
    tokens = open_tokens(write(np.arange(4_000_000) % 50_000), check="none")

    def resident():
        mapping = Path("/proc/self/smaps").read_text().partition(str(tokens.path))[2]
        return int(mapping.partition("Rss:")[2].split()[0])

    total = int(tokens.ids.sum())
    assert resident() > 7000  # kB
    tokens.release()
    assert resident() == 0
    assert tokens.ids.sum() == total


# --- what is refused ----------------------------------------------------------------------------------------------


def refused(path, match, error=ValueError, **said):
    with pytest.raises(error, match=match):
        open_tokens(path, **said)


def test_a_missing_file(tmp_path):
    refused(tmp_path / "train.bin", "No such file", FileNotFoundError)


def test_what_is_no_file_on_disk(tmp_path):
    """Opening a pipe would wait for ever, and a device has no size."""
    os.mkfifo(tmp_path / "pipe")
    for path in [tmp_path / "pipe", "/dev/null"]:
        refused(path, "is no file on disk")
    with pytest.raises(IsADirectoryError):
        open_tokens(tmp_path)


def test_an_empty_file(write):
    refused(write([]), "train.bin is empty")


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("ids", [IDS, IDS[:1]], ids=len)
def test_a_npy_file_whose_header_would_be_ids(tmp_path, dtype, ids):
    path = tmp_path / "data.npy"
    np.save(path, ids.astype(dtype))
    refused(path, r"data.npy is a .npy file: a header comes before its ids", dtype=dtype)
    header = 128 // np.dtype(dtype).itemsize
    assert open_tokens(path, dtype=dtype, check="none").ids[header:].tolist() == ids.tolist()
    np.load(path).tofile(path)  # what the message says to do
    assert open_tokens(path, dtype=dtype).ids.tolist() == ids.tolist()


@pytest.mark.parametrize(("dtype", "ids"), [("int32", IDS), ("int32", IDS * 2), ("int64", IDS), ("uint32", IDS[:50])])
@pytest.mark.parametrize("said", [{}, {"dtype": "uint16"}, {"vocab_size": VOCAB_SIZE}])
def test_wide_ids_read_as_uint16(write, dtype, ids, said):
    refused(write(ids, dtype), "looks like ids of 32 bits.*at most [01].*dtype='uint32'", **said)


def test_wide_ids_under_a_sidecar_that_says_uint16(write):
    halves = IDS.astype("<i4").view("<u2")
    path = write(IDS, "int32", true_sidecar(halves, fingerprint=None))
    refused(path, "looks like ids of 32 bits")
    assert len(open_tokens(path, check="none")) == 2 * len(IDS)


def test_a_fingerprint_knows_better_than_a_guess(write):
    """Text like "a!a!" has such ids, and what was prepared is known to be what it is."""
    alternating = np.tile([64, 0], 500)
    refused(write(alternating), "looks like ids of 32 bits")
    assert open_tokens(write(alternating, said=true_sidecar(alternating))).ids.tolist() == alternating.tolist()


@pytest.mark.parametrize("ids", [IDS % 5, IDS[:60], np.zeros(1000), np.arange(1000), np.full(1000, 9)])
def test_narrow_ids_are_not_taken_for_wide_ones(write, ids):
    assert len(open_tokens(write(ids))) == len(ids)


@pytest.mark.parametrize("said", [{}, {"vocab_size": VOCAB_SIZE}])
def test_uint16_read_as_wide_ids(write, said):
    refused(write(IDS[:2000]), "not in a vocabulary.*is it a file of uint32", dtype="uint32", **said)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_an_id_that_the_vocabulary_does_not_have(write, dtype):
    for place, check in [(0, "sample"), (-1, "sample"), (150_001, "all")]:
        ids = IDS.copy()
        ids[place] = VOCAB_SIZE
        refused(
            write(ids, dtype),
            "the id 50,257, which is not in a vocabulary of 50,257",
            dtype=dtype,
            vocab_size=VOCAB_SIZE,
            check=check,
        )
        path = write(ids, dtype, true_sidecar(ids, dtype))
        refused(path, "the id 50,257", check=check)
        sidecar_path(path).unlink()


def test_negative_ids(write):
    ids = [5, -1, 7]
    refused(write(ids, "int32"), "the id -1, which", dtype="int32")
    refused(write(ids, "int32"), "the id 4,294,967,295, which", dtype="uint32")


@pytest.mark.parametrize("missing", [1, 2, 1000])
def test_a_truncated_file(write, missing):
    path = write(IDS, said=true_sidecar(IDS))
    os.truncate(path, 2 * len(IDS) - missing)
    refused(path, "cut off")
    refused(path, "cut off", check="none")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"count": 300_000}, "says 300,000 tokens: the file was cut off, or the sidecar is another's"),
        ({"dtype": "uint32"}, "ends inside a token: 600,002 bytes are no multiple of the 4 of uint32"),
        ({"dtype": "uint8", "count": 600_002}, "holds other tokens than"),
        ({"vocab_size": 50_000, "end_of_text": None}, "not in a vocabulary of 50,000"),
        ({"fingerprint": "0" * 64}, "holds other tokens than .*train.bin.json was written for"),
        ({"dtype": "float32"}, "dtype is 'float32': ids are integers"),
        ({"dtype": "tokens"}, "dtype is 'tokens': ids are integers"),
        ({"dtype": None}, "dtype is None: ids are integers"),
        ({"dtype": "m8"}, "dtype is 'm8': ids are integers"),
        ({"dtype": ","}, "dtype is ',': ids are integers"),
        ({"count": 0}, "count must be a whole number from 1 on"),
        ({"count": "many"}, "count must be a whole number"),
        ({"vocab_size": None}, "vocab_size must be a whole number"),
        ({"fingerprint": 7}, "fingerprint must be a text"),
        ({"tokenizer_sha256": ["a"]}, "tokenizer_sha256 must be a text"),
        ({"end_of_text": "<|endoftext|>"}, "end_of_text must be an id"),
        ({"size": 3}, "'size' is none of dtype, count"),
        ({"end_of_text": VOCAB_SIZE}, "end_of_text must be an id of the vocabulary"),
        ({"end_of_text": -1}, "end_of_text must be an id of the vocabulary"),
    ],
)
def test_a_lying_sidecar(write, changes, match):
    refused(write(IDS, said=true_sidecar(IDS, **changes)), match)


def test_the_tokens_of_another_file_of_the_same_length(write):
    """Such as after a copy without the sidecar: the last block is part of the sample."""
    other = IDS.copy()
    other[-1] += 1
    refused(write(other, said=true_sidecar(IDS)), "holds other tokens than")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "does not describe tokens"),
        ("[]", "no JSON object"),
        ("{}", "lacks dtype, count, vocab_size"),
        ("é", "."),
        ("[" * 100_000, "does not describe tokens: it is nested too deeply"),
    ],
    ids=lambda value: value[:20],
)
def test_a_broken_sidecar(write, text, match):
    path = write(IDS)
    sidecar_path(path).write_bytes(text.encode("latin-1"))
    refused(path, match)
    refused(path, r"train.bin.json does not describe tokens: .*[^.]\. Prepare the tokens again")


def test_a_caller_who_contradicts_the_sidecar(write):
    path = write(IDS, said=true_sidecar(IDS))
    refused(path, "dtype is uint32, but .*train.bin.json says uint16", dtype="uint32")
    refused(path, "vocab_size is 50,304, but .*train.bin.json says 50,257", vocab_size=50_304)


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"dtype": "float32"}, "ids are integers"),
        ({"vocab_size": 0}, "vocab_size must be"),
        ({"vocab_size": "50257"}, "vocab_size must be"),
        ({"check": "some"}, "choose 'sample', 'all' or 'none'"),
    ],
)
def test_a_caller_who_says_what_cannot_be(write, said, match):
    refused(write(IDS), match, **said)
    refused(write(IDS, said=true_sidecar(IDS)), match, **said)


def test_ids_that_are_checked_one_batch_at_a_time():
    check_ids(np.array([[0, 9]], "uint16"), 10, "x")
    check_ids(np.array([], "uint16"), 10, "x")
    with pytest.raises(ValueError, match="x holds the id 10"):
        check_ids(np.array([[0, 10]], "uint16"), 10, "x")


# --- fingerprints and tokenizers ------------------------------------------------------------------------------------


def test_a_fingerprint_tells_files_apart():
    ids = IDS.astype("<u2")
    changed = [np.append(ids, ids[:1]), ids[:-1], ids[1:], ids.astype("<u4"), ids[::-1]]
    for place in (0, -1, len(ids) // 63 // 2 * 2):
        other = ids.copy()
        other[place] ^= 1
        changed.append(other)
    assert len({fingerprint(each) for each in [ids, *changed]}) == 1 + len(changed)
    assert fingerprint(ids.copy()) == fingerprint(ids)
    between = ids.copy()
    between[2**11 + 5] ^= 1  # between the first two blocks: as documented
    assert fingerprint(between) == fingerprint(ids)


BYTES = {i: bytes([i]) for i in range(256)}


def test_a_tokenizer_is_known_by_what_it_does(tmp_path):
    tokenizers = [
        Tokenizer(BYTES, []),
        Tokenizer(BYTES, [], pattern=None),
        Tokenizer(BYTES, [], ["<|endoftext|>"]),
        Tokenizer(BYTES | {256: b"<|endoftext|>"}, []),
        Tokenizer(BYTES | {256: b"ab"}, [(b"a", b"b")]),
        Tokenizer(BYTES | {0: b"\1", 1: b"\0"}, []),
    ]
    assert len(set(map(tokenizer_sha256, tokenizers))) == len(tokenizers)
    tokenizers[4].save(tmp_path / "tokenizer.json")
    assert tokenizer_sha256(Tokenizer.from_pretrained(tmp_path)) == tokenizer_sha256(tokenizers[4])


def test_tokens_know_the_tokenizer_that_made_them(write):
    tokenizer = Tokenizer(BYTES, [])
    ids = tokenizer.encode(load_corpus("moby_dick")[:1000])
    said = true_sidecar(ids, vocab_size=256, end_of_text=None, tokenizer_sha256=tokenizer_sha256(tokenizer))
    path = write(ids, said=said)
    tokens = open_tokens(path)
    tokens.check_tokenizer(tokenizer)
    other = Tokenizer(tokenizer.vocab, [], pattern=None)
    with pytest.raises(ValueError, match="made by another tokenizer"):
        tokens.check_tokenizer(other)
    sidecar_path(path).unlink()
    open_tokens(path).check_tokenizer(other)  # nobody knows


# --- splitting ----------------------------------------------------------------------------------------------------


def test_a_split_shares_no_token_and_loses_none(write):
    tokens = open_tokens(write(IDS), vocab_size=VOCAB_SIZE)
    first, last = tokens.split(validation=0.1)
    assert (len(first), len(last)) == (270_001, 30_000)
    assert np.concatenate([first.ids, last.ids]).tolist() == IDS.tolist()
    assert np.shares_memory(first.ids, tokens.ids)
    assert last.vocab_size == VOCAB_SIZE
    assert len({tokens.fingerprint, first.fingerprint, last.fingerprint}) == 3


def test_a_split_ends_a_document(write):
    ids = np.arange(100)
    ids[[19, 49, 79, 99]] = 7
    tokens = open_tokens(write(ids, said=true_sidecar(ids, vocab_size=100, end_of_text=7)))
    for validation, cut in [(0.9, 20), (0.8, 20), (0.79, 50), (0.5, 50), (0.21, 80), (0.2, 80)]:
        assert len(tokens.split(validation)[0]) == cut
    assert len(tokens.split(0.1)[0]) == 90  # no document ends between there and the end


@pytest.mark.parametrize("validation", [0, 1, -0.1, 10, float("nan"), "0.1", None])
def test_a_split_needs_a_share(write, validation):
    with pytest.raises(ValueError, match="share between 0 and 1"):
        open_tokens(write(IDS)).split(validation)


def test_a_split_leaves_tokens_on_both_sides(write):
    with pytest.raises(ValueError, match=r"of which 0\.1 is none"):
        open_tokens(write(IDS[:3])).split(0.1)


# --- imports ------------------------------------------------------------------------------------------------------


def test_torch_is_loaded_only_for_batches():
    code = (
        "import sys\nfor name in ['torch', 'jaxtyping', 'einops']: sys.modules[name] = None\n"
        "import lmlib.data, lmlib.cli.data\n"
        "assert callable(lmlib.data.open_tokens) and callable(lmlib.data.prepare_tokens)\n"
        "try: lmlib.data.get_batch\n"
        "except ImportError: print('needs torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("needs torch\n", "")


def test_the_package_offers_what_it_names():
    import lmlib.data

    for name in lmlib.data.__all__:
        assert getattr(lmlib.data, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Loader'"):
        _ = lmlib.data.Loader
