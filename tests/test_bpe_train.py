"""lmlib.bpe.train: the reference's vocabulary, from texts, files and several processes."""

import errno
import gzip
import io
import lzma
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lmlib.bpe import GPT2_PATTERN, byte_ranges, counting, reference, text_files, train_bpe
from lmlib.bpe.counting import PretokenCounter
from lmlib.corpora import load_corpus
from tests.bpe_peers import PATTERNS, outputs_under_hash_seeds, random_texts

MOBY_DICK = load_corpus("moby_dick")
END = "<|endoftext|>"


@pytest.fixture(autouse=True)
def small_shares(monkeypatch):
    """Files of a test are small, and should be shared all the same."""
    monkeypatch.setattr(byte_ranges, "_LEAST", 1)
    monkeypatch.setattr(byte_ranges, "_MOST", 10_000)


@pytest.fixture
def moby_dick(tmp_path):
    path = tmp_path / "moby_dick.txt"
    path.write_text(MOBY_DICK[:60_000], newline="")
    return path


# --- equal to the reference -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern", [*PATTERNS.values(), None, r"\w+", r"\S+(?=\s)|\s", r"(?<=a)b+|[\s\S]", r"(\w)\1?|\s+(?!\S)|x*"]
)
def test_it_learns_what_the_reference_does(pattern):
    documents = [text + END + text[::-1] for text in random_texts(seed=3, number=60)]
    documents += ["ab ab ab ", "abbb abbb"]
    expected = reference.train(documents, 340, [END, "\n\n"], pattern)
    assert train_bpe(documents, 340, [END, "\n\n"], pattern) == expected


def test_texts_and_files_are_the_same(moby_dick, tmp_path):
    text = MOBY_DICK[:60_000]
    expected = reference.train([text], 290, [END])
    for name, writer in {"text.gz": gzip.open, "text.xz": lzma.open}.items():
        with writer(tmp_path / name, "wt", encoding="utf-8", newline="") as file:
            file.write(text)
        assert train_bpe(tmp_path / name, 290, [END]) == expected
    assert train_bpe(moby_dick, 290, [END]) == expected
    assert train_bpe(str(moby_dick), 290, [END]) == expected
    assert train_bpe([text], 290, [END]) == expected
    assert train_bpe(iter([text[:30_000], END, text[30_000:]]), 290, [END])[1][:20] == expected[1][:20]


def test_texts_and_files_can_be_mixed(moby_dick, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("aaaa bbbb " * 9000)
    expected = reference.train([MOBY_DICK[:60_000], "aaaa bbbb " * 9000, "cccc" * 500], 280)
    for num_workers in [1, 2]:
        assert train_bpe([moby_dick, "cccc" * 500, other], 280, num_workers=num_workers) == expected


def test_standard_input(monkeypatch):
    expected = reference.train([MOBY_DICK[:9000]], 280)
    for num_workers in [1, 2]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MOBY_DICK[:9000].encode())))
        assert train_bpe("-", 280, num_workers=num_workers) == expected


@pytest.mark.parametrize("num_workers", [2, 3, 5])
@pytest.mark.parametrize("pattern", [GPT2_PATTERN, r"\s*\w+|[^\w]"])
def test_number_of_workers_does_not_matter(tmp_path, num_workers, pattern):
    rng = random.Random(0)
    texts = [text.encode("utf-8", "ignore").decode() for text in random_texts(seed=4, number=3000)]
    path = tmp_path / "text.txt"
    path.write_text("".join(text + rng.choice(["", " ", END]) for text in texts), newline="")
    assert train_bpe(path, 400, [END], pattern, num_workers) == train_bpe(path, 400, [END], pattern)


def test_order_of_documents_does_not_matter():
    documents = list(random_texts(seed=5, number=200))
    expected = train_bpe(documents, 400)
    random.Random(0).shuffle(documents)
    assert train_bpe(documents, 400) == expected


def test_hash_seed_does_not_matter(moby_dick):
    code = f"""
from lmlib.bpe import train_bpe
print(train_bpe({str(moby_dick)!r}, 600, ["<|endoftext|>", "the"], num_workers=2))
"""
    assert len(outputs_under_hash_seeds(code)) == 1


def test_counts_are_kept_small(monkeypatch):
    monkeypatch.setattr(counting, "_MANY", 100)
    monkeypatch.setattr(counting, "_PART", 1000)
    counter = PretokenCounter(GPT2_PATTERN)
    counter.add([MOBY_DICK[:100_000]])
    assert len(counter._pieces) < 500
    words = reference.count_pretokens([MOBY_DICK[:100_000]], (), GPT2_PATTERN)
    assert counter.counts() == {b"".join(word).decode(): count for word, count in words.items()}


def test_a_vocabulary_may_be_smaller_than_asked_for():
    vocab, merges = train_bpe(["ab ab"], 1000, [END])
    assert merges == [(b"a", b"b"), (b" ", b"ab")]
    assert vocab[258] == END.encode()
    assert train_bpe(["a"], 1000) == ({i: bytes([i]) for i in range(256)}, [])


def test_progress_is_silent_where_nobody_looks(moby_dick, capfd):
    train_bpe(moby_dick, 280, num_workers=2, progress=True)
    assert capfd.readouterr() == ("", "")


# --- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((["a"], 255), ValueError, "vocab_size is 255, but the 256 bytes and 0 special tokens need 256"),
        ((["a"], 257, ["x", "y"]), ValueError, "2 special tokens need 258"),
        ((["a"], 300.0), TypeError, "vocab_size is 300.0: it must be an int"),
        ((["a"], 300, ["x", "x"]), ValueError, "named twice"),
        ((["a"], 300, [""]), ValueError, "empty"),
        ((["a"], 300, END), TypeError, "list of special tokens"),
        ((["a"], 300, {"x", "y"}), TypeError, "a set has no order"),
        ((["a"], 10**30), ValueError, "at most 1114112 tokens"),
        ((["a"], 300, ["\ud800"]), ValueError, "surrogate"),
        ((["a"], 300, [], "("), ValueError, "invalid at position"),
        (
            (["a"], 300, [], GPT2_PATTERN, 0),
            ValueError,
            "num_workers must be a whole number from 1 to 1024, such as 8, not 0",
        ),
        ((["a"], 300, [], GPT2_PATTERN, 1.5), ValueError, "num_workers must be .* not 1.5"),
        ((["a"], 300, [], GPT2_PATTERN, 10**9), ValueError, "num_workers must be .* not 1000000000"),
        (([], 300), ValueError, "no text to train on"),
        ((["", END], 300, [END]), ValueError, "no text to train on"),
        (([b"a"], 300), TypeError, "b'a'"),
        (("no such file", 300), FileNotFoundError, "'no such file'. To train on a text itself"),
        (([Path("no such file")], 300), FileNotFoundError, "'no such file'"),
    ],
)
def test_it_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        train_bpe(*arguments)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_bad_files(tmp_path, num_workers):
    path = tmp_path / "text.txt"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="no text to train on"):
        train_bpe(path, 300, num_workers=num_workers)
    path.write_bytes(b"good " * 10_000 + b"\xff" + b" good" * 10_000)
    with pytest.raises(ValueError, match=r"text\.txt' is not UTF-8: .* at byte 50000 "):
        train_bpe(path, 300, num_workers=num_workers)
    with pytest.raises(IsADirectoryError):
        train_bpe(tmp_path, 300, num_workers=num_workers)


def test_unreadable_file(moby_dick, monkeypatch):
    def deny(path, mode):  # root may read everything, so permissions would not do
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(text_files, "open", deny, raising=False)
    for num_workers in [1, 2]:
        with pytest.raises(PermissionError, match=r"Permission denied: .*moby_dick\.txt"):
            train_bpe(moby_dick, 300, num_workers=num_workers)


def test_a_worker_that_dies_says_where(moby_dick, monkeypatch):
    read_text, here = counting.read_text, os.getpid()

    def die_in_the_middle(path, start=0, stop=None, *rest):
        if os.getpid() == here:
            time.sleep(0.5)  # so that a worker gets the other end of the file
        elif start > 20_000:
            os.kill(os.getpid(), signal.SIGKILL)
        return read_text(path, start, stop, *rest)

    monkeypatch.setattr(counting, "read_text", die_in_the_middle)
    with pytest.raises(ChildProcessError, match=r"exit code -9\) while .* bytes [2-6]\d+ to \d+ of '.*moby_dick\.txt'"):
        train_bpe(moby_dick, 300, num_workers=3)
    assert multiprocessing.active_children() == []


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(MOBY_DICK * 20)
    code = (
        "import multiprocessing, threading\n"
        "from lmlib.bpe import train_bpe\n"
        f"threading.Thread(target=train_bpe, args=({str(path)!r}, 300), kwargs={{'num_workers': 3}}).start()\n"
        "while len(multiprocessing.active_children()) < 2: pass\n"
        "print(*(child.pid for child in multiprocessing.active_children()), flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    workers = [int(pid) for pid in process.stdout.readline().split()]
    process.kill()
    process.wait()
    for _ in range(100):
        if not any(map(is_running, workers)):
            break
        time.sleep(0.1)
    assert not any(map(is_running, workers))


def is_running(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_name_of_a_file_is_no_text(moby_dick, monkeypatch):
    monkeypatch.chdir(moby_dick.parent)
    with pytest.raises(ValueError, match=r"'moby_dick\.txt' is the name of a file: pass Path"):
        train_bpe(["moby_dick.txt"], 300)


def test_a_file_named_as_standard_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("-").write_text("zzzz")
    for num_workers in [1, 2]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abab")))
        assert train_bpe("-", 258, num_workers=num_workers)[1] == [(b"a", b"b"), (b"ab", b"ab")]


def test_an_interrupt_ends_the_workers(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(MOBY_DICK * 100)
    code = (
        "import multiprocessing, sys\n"
        "from lmlib.bpe import train_bpe\n"
        "try:\n"
        f"    print('begun', flush=True); train_bpe({str(path)!r}, 300, num_workers=2)\n"
        "except KeyboardInterrupt:\n"
        "    print(multiprocessing.active_children())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("[]\n", "")
