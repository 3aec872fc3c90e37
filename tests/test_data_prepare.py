"""lmlib.data.prepare: the ids are those of the tokenizer, whoever encodes them, and are written whole or not at all."""

import errno
import gzip
import io
import json
import lzma
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from lmlib import files as lmlib_files
from lmlib.bpe import CL100K_PATTERN, Tokenizer, train_bpe
from lmlib.corpora import load_corpus
from lmlib.data import open_tokens, prepare, prepare_tokens
from lmlib.data.sidecar import sidecar_path
from lmlib.data.token_file import fingerprint, tokenizer_sha256

ROOT = Path(__file__).parents[1]
MOBY_DICK = load_corpus("moby_dick")
TEXT = MOBY_DICK[:20_000] + "\r\nüber 鯨 🐳 \x00\n  \n"
END, OTHER = "<|endoftext|>", "<|other|>"
TRAINED = train_bpe([TEXT], 500, progress=False)
TOKENIZER = Tokenizer(*TRAINED, [END, OTHER])
PLAIN = Tokenizer(*TRAINED)
END_ID = TOKENIZER.special_tokens[END]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """So that a short text is cut often."""
    monkeypatch.setattr(prepare, "_PART", 1500)


@pytest.fixture
def write(tmp_path):
    """Write texts as files, packed as their names say."""
    (tmp_path / "in").mkdir()

    def write(**texts):
        paths = []
        for name, text in texts.items():
            path = tmp_path / "in" / name.replace("_", ".")
            pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
            path.write_bytes(pack(text.encode()))
            paths.append(path)
        return paths

    return write


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "train.bin"


def prepared(paths, out, tokenizer=TOKENIZER, **options):
    return prepare_tokens(paths, tokenizer, out, progress=False, **options).ids.tolist()


def encode(text):
    return TOKENIZER.encode(text, allowed_special={END})


# --- ids ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_the_ids_are_those_of_the_tokenizer(write, out, num_workers):
    second = f"a{END}b {END}" + MOBY_DICK[50_000:60_000]
    paths = write(a_txt=TEXT, b_txt_gz=second, c_txt_xz=TEXT[:3000], d_txt="")
    expected = [*encode(TEXT), END_ID, *encode(second), END_ID, *encode(TEXT[:3000]), END_ID]
    assert prepared(paths, out, num_workers=num_workers) == expected
    assert out.read_bytes() == np.array(expected, "<u2").tobytes()
    assert sorted(os.listdir(out.parent)) == ["train.bin", "train.bin.json"]


def test_the_files_are_the_same_for_any_number_of_workers(write, out):
    paths = write(a_txt=TEXT * 2, b_txt_gz=TEXT)
    written = []
    for num_workers in (1, 2, 4):
        prepared(paths, out, num_workers=num_workers)
        written.append((out.read_bytes(), sidecar_path(out).read_bytes()))
    assert written[0] == written[1] == written[2]


@pytest.mark.parametrize("pattern", [CL100K_PATTERN, None, r"\w+|\W+"])
def test_any_pattern(write, out, pattern):
    tokenizer = Tokenizer(*TRAINED, [END], pattern=pattern)
    text = f"{TEXT[:4000]}{END}{TEXT[4000:8000]}"
    expected = [*tokenizer.encode(text, allowed_special="all"), END_ID]
    assert prepared(write(a_txt=text), out, tokenizer, num_workers=2) == expected


def test_no_special_token_is_cut(write, out):
    """Between letters and punctuation, as inside this one, ordinary text may be."""
    for length in range(1, 6):
        text = ("a" * length + END) * 400
        assert prepared(write(a_txt=text), out) == encode(text)


def test_standard_input_and_one_path(write, out, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert prepared("-", out, num_workers=2) == [*encode(TEXT), END_ID]
    (path,) = write(a_txt=TEXT)
    assert prepared(path, out) == prepared(str(path), out) == [*encode(TEXT), END_ID]


def test_random_documents(write, out):
    rng = random.Random(0)
    for _ in range(10):
        pieces = [END, "\n", "a", " the", "🐳", END[:5], MOBY_DICK[:2000], " " * 50]
        texts = ["".join(rng.choices(pieces, k=rng.randrange(8))) for _ in range(4)]
        if not any(texts):
            continue
        expected = []
        for text in texts:
            ids = encode(text)
            expected += ids if ids[-1:] in ([], [END_ID]) else [*ids, END_ID]
        assert prepared(write(**{f"{i}_txt": text for i, text in enumerate(texts)}), out) == expected


# --- the end of a text, and other special tokens --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("a", [97, END_ID]),
        (f"a{END}", [97, END_ID]),
        (f"a{END}\n", [97, END_ID, 10, END_ID]),
        (f"{END}{END}", [END_ID, END_ID]),
        (f"a{END}b", [97, END_ID, 98, END_ID]),
    ],
)
def test_each_file_ends_with_the_end_of_text_once(write, out, text, ids):
    paths = write(a_txt=text, b_txt="", c_txt=text)
    assert prepared(paths, out) == ids * 2
    assert open_tokens(out).end_of_text == END_ID


def test_without_an_end_of_text(write, out):
    paths = write(a_txt="a", b_txt="b")
    assert prepared(paths, out, end_of_text=None) == [97, 98]
    assert open_tokens(out).end_of_text is None
    assert prepared(paths, out, PLAIN) == [97, 98]  # which has none
    with pytest.raises(ValueError, match=r"holds the special token '<\|endoftext\|>'"):
        prepared(write(a_txt=f"a{END}"), out, end_of_text=None)


def test_another_end_of_text(write, out):
    paths = write(a_txt=f"a{OTHER}b", b_txt="b")
    other = TOKENIZER.special_tokens[OTHER]
    assert prepared(paths, out, end_of_text=OTHER) == [97, other, 98, other, 98, other]
    with pytest.raises(ValueError, match="no special token '<eos>' to end a text with: there is '<"):
        prepared(paths, out, end_of_text="<eos>")
    with pytest.raises(ValueError, match="no special token '<eos>' to end a text with: there is none"):
        prepared(paths, out, PLAIN, end_of_text="<eos>")


@pytest.mark.parametrize("num_workers", [1, 2])
def test_other_special_tokens_are_refused_unless_allowed(write, out, num_workers):
    (path,) = write(a_txt="a " * 2000 + OTHER)
    match = re.escape(f"{path} holds the special token {OTHER!r}: allow it (allow_special)")
    with pytest.raises(ValueError, match=match):
        prepared(path, out, num_workers=num_workers)
    assert os.listdir(out.parent) == []
    allowed = prepared(path, out, num_workers=num_workers, allow_special=[OTHER])
    assert allowed[-2:] == [TOKENIZER.special_tokens[OTHER], END_ID]
    as_text = prepared(path, out, num_workers=num_workers, special_as_text=True)
    assert as_text == [*TOKENIZER.encode_ordinary("a " * 2000 + OTHER), END_ID]
    with pytest.raises(ValueError, match="'<x>' is allowed, but it is no special token"):
        prepared(path, out, num_workers=num_workers, allow_special=["<x>"])


# --- dtype and sidecar ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("greatest", "dtype"), [(65_535, "uint16"), (65_536, "uint32")])
def test_the_dtype_fits_the_vocabulary(write, out, greatest, dtype):
    tokenizer = Tokenizer(*TRAINED, {END: greatest})
    tokens = prepare_tokens(write(a_txt="a"), tokenizer, out, progress=False)
    assert tokens.ids.tolist() == [97, greatest]
    assert (tokens.ids.dtype, tokens.vocab_size) == (dtype, greatest + 1)
    assert tokens.path.stat().st_size == 2 * tokens.ids.dtype.itemsize


def test_a_dtype_that_is_asked_for(write, out):
    tokens = prepare_tokens(write(a_txt="a"), TOKENIZER, out, dtype="uint32", progress=False)
    assert (tokens.ids.dtype, tokens.ids.tolist()) == ("uint32", [97, END_ID])
    with pytest.raises(ValueError, match="vocabulary of 65,537 ids does not fit uint16, which ends at 65,535"):
        prepared(write(a_txt="a"), out, Tokenizer(*TRAINED, {END: 65_536}), dtype="uint16")
    with pytest.raises(ValueError, match="ids are integers"):
        prepared(write(a_txt="a"), out, dtype="float16")


def test_the_sidecar(write, out):
    ids = prepared(write(a_txt=TEXT), out)
    assert json.loads(sidecar_path(out).read_text()) == {
        "dtype": "uint16",
        "count": len(ids),
        "vocab_size": TOKENIZER.vocab_size,
        "fingerprint": fingerprint(np.array(ids, "<u2")),
        "tokenizer_sha256": tokenizer_sha256(TOKENIZER),
        "end_of_text": END_ID,
    }
    open_tokens(out, check="all").check_tokenizer(TOKENIZER)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("texts", [{}, {"a_txt": ""}, {"a_txt": "", "b_txt_gz": ""}])
def test_no_text(write, out, texts, num_workers):
    with pytest.raises(ValueError, match="There is no text"):
        prepared(write(**texts), out, num_workers=num_workers)
    assert os.listdir(out.parent) == []


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize(
    ("content", "name", "error", "match"),
    [
        (b"ab\xe9" * 3000, "a.txt", ValueError, "a.txt' is not UTF-8"),
        (gzip.compress(os.urandom(9000).hex().encode())[:-50], "a.gz", OSError, "a.gz' is damaged"),
        (None, "a.txt", FileNotFoundError, "No such file"),
    ],
)
def test_a_file_that_cannot_be_read(write, out, content, name, error, match, num_workers):
    (first,) = write(first_txt=TEXT)
    path = first.with_name(name)
    if content is not None:
        path.write_bytes(content)
    out.write_bytes(b"old")
    with pytest.raises(error, match=match):
        prepared([first, path], out, num_workers=num_workers)
    assert (os.listdir(out.parent), out.read_bytes()) == (["train.bin"], b"old")


@pytest.mark.parametrize("num_workers", [0, -1, 1.5, "two", True, 1025, 10**9])
def test_a_number_of_workers_that_cannot_be(write, out, num_workers, monkeypatch):
    monkeypatch.setattr(prepare, "map_in_processes", None)  # so that no test starts them
    with pytest.raises(ValueError, match="num_workers must be a whole number from 1 to 1024"):
        prepared(write(a_txt="a"), out, num_workers=num_workers)


def test_tokens_that_are_open_outlive_new_ones(write, out):
    """A file that was cut off in place would end the process that reads it."""
    ids = prepared(write(a_txt="abc" * 10_000), out)
    old = open_tokens(out)
    assert len(prepared(write(a_txt="c"), out)) < len(old)
    assert old.ids.tolist() == ids


def test_what_cannot_be_written_to(write, out):
    (path,) = write(a_txt="a")
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        prepared(path, out.parent / "nowhere" / "train.bin")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        prepared(path, out.parent)
    for device in ["/dev/null", "/dev/stdout"]:
        with pytest.raises(ValueError, match="is no file on disk"):
            prepared(path, device)
    os.mkfifo(out)
    with pytest.raises(ValueError, match="is no file on disk"):
        prepared(path, out)
    link = path.with_name("link")
    link.symlink_to(path)
    with pytest.raises(ValueError, match="link is text to be read"):
        prepared(path, link)
    assert path.read_text() == "a"
    out.unlink()
    path = path.rename(sidecar_path(out))
    with pytest.raises(ValueError, match=r"train\.bin\.json is text to be read"):
        prepared(path, out)
    assert path.read_text() == "a"
    path = path.rename(out.parent / "a.txt")
    sidecar_path(out).mkdir()
    with pytest.raises(IsADirectoryError, match=r"train\.bin\.json is a folder"):
        prepared(path, out)
    assert not out.exists()


def test_text_whose_ids_look_like_wider_ones(write, out):
    assert len(prepared(write(a_txt="a!" * 1000), out, Tokenizer.from_pretrained("gpt2"))) == 2001


@pytest.mark.parametrize("content", ["{}", '{"model": {"type": "BPE"}}', "[" * 100_000, "{"], ids=lambda text: text[:9])
def test_a_file_that_is_no_sidecar_is_not_replaced(write, out, content):
    (path,) = write(a_txt="a")
    sidecar_path(out).write_text(content)
    with pytest.raises(ValueError, match=r"train\.bin\.json would be replaced, and does not describe tokens"):
        prepared(path, out)
    assert os.listdir(out.parent) == ["train.bin.json"]
    assert sidecar_path(out).read_text() == content


# --- nothing half-written -------------------------------------------------------------------------------------------


def old_files(write, out):
    """A token file that is to be replaced, and what it looks like before."""
    prepared(write(old_txt="old"), out)
    return out.read_bytes(), sidecar_path(out).read_bytes()


def assert_unchanged(out, old):
    assert sorted(os.listdir(out.parent)) == ["train.bin", "train.bin.json"]
    assert (out.read_bytes(), sidecar_path(out).read_bytes()) == old
    open_tokens(out, check="all")


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_disk_that_is_full_at_any_write_leaves_the_old_files(write, out, monkeypatch, num_workers):
    old = old_files(write, out)
    paths = write(a_txt=TEXT)
    disk = Disk()
    monkeypatch.setattr(lmlib_files, "_open", disk.open)
    prepared(paths, out.with_name("all.bin"), num_workers=num_workers)
    num_writes = disk.writes  # the last is that of the sidecar
    assert num_writes > 10
    for name in ["all.bin", "all.bin.json"]:
        out.with_name(name).unlink()
    for room in [0, 1, 5, num_writes - 2, num_writes - 1]:
        disk.writes, disk.room = 0, room
        with pytest.raises(OSError, match=r"No space left on device: .*train\.bin"):
            prepared(paths, out, num_workers=num_workers)
        assert disk.writes == room + 1
        assert_unchanged(out, old)


class Disk:
    """Has room for a number of writes, and then is full."""

    open_file = staticmethod(lmlib_files._open)

    def __init__(self):
        self.writes, self.room = 0, float("inf")

    def open(self, path, mode):
        file = self.open_file(path, mode)
        return SimpleFile(file, self)


class SimpleFile:
    """A file whose writes count on a disk."""

    def __init__(self, file, disk):
        self.file, self.disk = file, disk

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, data):
        self.disk.writes += 1
        if self.disk.writes > self.disk.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(data)


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_at_any_part_leaves_the_old_files(write, out, monkeypatch, error, num_workers):
    old = old_files(write, out)
    paths = write(a_txt=TEXT)
    read_text = prepare.read_text
    for stop in (0, 3):

        def interrupted(*arguments, stop=stop, **options):
            for i, text in enumerate(read_text(*arguments, **options)):
                if i == 0:
                    yield from (text[k : k + 2000] for k in range(0, 2000 * stop, 2000))
                raise error

        monkeypatch.setattr(prepare, "read_text", interrupted)
        with pytest.raises(error):
            prepared(paths, out, num_workers=num_workers)
        assert_unchanged(out, old)


def test_a_full_disk_of_the_kernel_and_its_workers(tmp_path, write):
    """A limit on the size of files: the kernel refuses to write on."""
    write(a_txt=TEXT * 20)
    TOKENIZER.save(tmp_path / "tokenizer.json")

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    with start(tmp_path, "in/a.txt", preexec_fn=small_files) as process:
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (2, b"")
    assert stderr == b"error: out.bin: File too large\n"
    assert sorted(os.listdir(tmp_path)) == ["in", "tokenizer.json"]


def test_workers_that_cannot_all_be_started(tmp_path, write):
    """Those that were started would be waited for."""
    write(a_txt=TEXT)
    TOKENIZER.save(tmp_path / "tokenizer.json")

    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))

    with start(tmp_path, "in/a.txt", num_workers=60, preexec_fn=few_files) as process:
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (2, b"")
    assert stderr.startswith(b"error: A worker could not be started: Too many open files. Say a smaller number")
    assert stderr.count(b"\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["in", "tokenizer.json"]


@contextmanager
def start(folder, *arguments, num_workers=2, **options):
    """Run ``lmlib data prepare`` in a process, with two workers unless told."""
    command = [sys.executable, "-m", "lmlib", "data", "prepare", *arguments]
    command += ["--tokenizer", "tokenizer.json", "--out", "out.bin", "--num-workers", str(num_workers)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, env=environment, **pipes, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def children(process):
    listing = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return list(map(int, listing.split()))


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to find the workers")
@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (signal.SIGINT, 130, rb"interrupted\n"),
        (signal.SIGTERM, 143, b""),
        (signal.SIGKILL, -9, b""),
        ("worker", 2, rb"error: A worker died \(exit code -9\): with fewer workers .*\n"),
    ],
)
def test_a_signal_leaves_no_tokens_and_no_workers(tmp_path, number, code, message):
    TOKENIZER.save(tmp_path / "tokenizer.json")
    with start(tmp_path, "-", num_workers=3, start_new_session=True) as process:
        process.stdin.write(MOBY_DICK.encode() * 8)
        process.stdin.flush()
        wait_until(lambda: any(p.stat().st_size for p in tmp_path.glob(".lmlib-*.tmp")) or process.poll() is not None)
        workers = children(process)
        assert len(workers) == 2
        if number == "worker":
            os.kill(workers[0], signal.SIGKILL)
        elif number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == code
    assert re.fullmatch(message, stderr)
    wait_until(lambda: not any(map(alive, workers)))
    left = {path.name for path in tmp_path.iterdir()} - {"tokenizer.json"}
    assert all(name.startswith(".lmlib-") for name in left) if number == signal.SIGKILL else not left


# --- in bounded memory, with progress -------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_text(write, out, monkeypatch):
    monkeypatch.setattr(prepare, "_PART", 2**12)

    def peak(text):
        paths = write(a_txt_gz=text)
        tracemalloc.start()
        prepare_tokens(paths, TOKENIZER, out, progress=False)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    piece = MOBY_DICK[:60_000]
    peak(piece)  # fills the tokenizer's cache
    assert peak(piece * 10) < 1.5 * peak(piece)


def test_the_bar_moves_with_what_is_written(write, out, monkeypatch):
    paths = write(a_txt=TEXT, b_txt_gz=TEXT)
    seen = []
    write_ids = prepare._write

    def spied(file, encoded, end, bar):
        assert bar.total == sum(path.stat().st_size for path in paths)
        update = bar.update
        bar.update = lambda n: seen.append((file.tell(), update(n), bar.n)[::2])
        write_ids(file, encoded, end, bar)

    monkeypatch.setattr(prepare, "_write", spied)
    err = io.StringIO()
    err.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", err)
    tokens = prepare_tokens(paths, TOKENIZER, out, num_workers=2)
    assert re.search(r"encoding: +\d+%.*B/s", err.getvalue())
    written, shown = zip(*seen, strict=True)
    assert len(seen) > 10
    assert list(shown) == sorted(shown)
    assert shown[-1] == sum(path.stat().st_size for path in paths)
    assert written[-1] == tokens.ids.nbytes


def test_progress_can_be_left_out(write, out, monkeypatch):
    err = io.StringIO()
    err.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", err)
    prepare_tokens(write(a_txt=TEXT), TOKENIZER, out, progress=False)
    assert err.getvalue() == ""
