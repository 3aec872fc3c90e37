"""lmlib.bpe.text_files and lmlib.bpe.byte_ranges: files block by block, and cut for several processes."""

import gzip
import io
import lzma
import os
import sys
from itertools import pairwise

import pytest

from lmlib.bpe import byte_ranges, text_files
from lmlib.bpe.byte_ranges import ByteRange, share_files, split_file
from lmlib.bpe.cuts import Cutter
from lmlib.bpe.patterns import GPT2_PATTERN
from lmlib.bpe.reference import pretokenize, split_at_special_tokens
from lmlib.bpe.text_files import read_text
from lmlib.corpora import load_corpus

TEXT = "\r\nOne 🌍\r two\u2028 — 你好 \ufeff" * 50 + load_corpus("udhr")["jpn"].text
END = "<|end of text|>"
WRITERS = {".txt": open, ".gz": gzip.open, ".xz": lzma.open}


@pytest.fixture(params=WRITERS)
def file(request, tmp_path):
    path = tmp_path / f"text{request.param}"
    with WRITERS[request.param](path, "wb") as opened:
        opened.write(TEXT.encode())
    return path


@pytest.mark.parametrize("block", [1, 2, 3, 100, 2**16])
def test_text_is_what_is_in_the_file(file, block, monkeypatch):
    monkeypatch.setattr(text_files, "_BLOCK", block)
    assert "".join(read_text(file)) == TEXT
    assert "".join(read_text(str(file))) == TEXT


def test_progress_counts_the_bytes_of_the_file(file):
    counted = []
    list(read_text(file, progress=counted.append))
    assert sum(counted) == os.path.getsize(file)


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert "".join(read_text("-")) == TEXT


@pytest.mark.parametrize("block", [1, 2, 5, 100])
@pytest.mark.parametrize("bad", [b"\xff", b"\xe4\xbd", b"\xed\xa0\x80", b"\xf0\x9f\x8c", b"\xc0\x80"])
@pytest.mark.parametrize("after", ["", " and more"])
def test_what_is_not_utf8_is_found_at_its_byte(tmp_path, monkeypatch, bad, after, block):
    monkeypatch.setattr(text_files, "_BLOCK", block)
    path = tmp_path / "bad.txt"
    path.write_bytes("é good ".encode() + bad + after.encode())
    with pytest.raises(ValueError, match=rf"bad\.txt' is not UTF-8: .* at byte 8 \(0x{bad[0]:02x}\)"):
        list(read_text(path))
    with pytest.raises(ValueError, match="at byte 8 "):
        list(read_text(path, start=3))


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_damaged_file_is_named(tmp_path, ending):
    path = tmp_path / f"text{ending}"
    with WRITERS[ending](path, "wb") as opened:
        opened.write(TEXT.encode())
    whole = path.read_bytes()
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 255
    for content in [whole[:-9], bytes(broken), b"no such file", b"", whole + b"more", whole + bytes(broken)]:
        path.write_bytes(content)
        with pytest.raises(OSError, match=rf"text\{ending}"):
            list(read_text(path))


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_streams_may_follow_one_another(tmp_path, ending):
    pack = {".gz": gzip.compress, ".xz": lzma.compress}[ending]
    path = tmp_path / f"text{ending}"
    path.write_bytes(pack(b"one ") + pack(b"") + bytes(8) + pack(b"two") + bytes(4))
    assert "".join(read_text(path)) == "one two"


def test_missing_file_and_folder_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        list(read_text(tmp_path / "nowhere"))
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        list(read_text(tmp_path))


# --- ranges -----------------------------------------------------------------------------------------------------


def pretokens(text):
    pieces = split_at_special_tokens(text, [END])
    return [pretoken for piece in pieces for pretoken in pretokenize(piece)]


@pytest.mark.parametrize("size", [1, 7, 100, 300])
@pytest.mark.parametrize("window", [1, 10, 2**16])
def test_ranges_cover_a_file_and_end_at_safe_cuts(tmp_path, monkeypatch, size, window):
    monkeypatch.setattr(byte_ranges, "_WINDOW", window)
    path = tmp_path / "text.txt"
    text = (TEXT[:200] + END) * 3
    path.write_text(text, newline="")
    cutter = Cutter(GPT2_PATTERN, [END])
    ranges = split_file(path, cutter, size)
    assert ranges[0].start == 0
    assert ranges[-1].stop == os.path.getsize(path)
    assert all(before.stop == after.start for before, after in pairwise(ranges))
    assert "".join("".join(read_text(path, r.start, r.stop)) for r in ranges) == text
    parts = ["".join(read_text(path, part.start, part.stop)) for part in ranges]
    assert [pretoken for part in parts for pretoken in pretokens(part)] == pretokens(text)
    assert len(ranges) > 3


def test_a_cut_is_found_beyond_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"\x80\x80 a\xff b" * 100)
    ranges = split_file(path, Cutter(GPT2_PATTERN), 100)
    assert b"".join(path.read_bytes()[r.start : r.stop] for r in ranges) == path.read_bytes()


def test_shares_have_about_the_same_size(tmp_path, monkeypatch):
    monkeypatch.setattr(byte_ranges, "_LEAST", 1)
    sizes = [0, 10, 20_000, 300, 0, 5000, 1, 40_000]
    paths = [tmp_path / str(i) for i in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_text("abcd " * (size // 5) + "x" * (size % 5))
    shares = list(share_files(paths, Cutter(GPT2_PATTERN), 4))
    assert 3 <= len(shares) <= 5
    assert max(sum(r.stop - r.start for r in share) for share in shares) < sum(sizes) / 4 + 1.1 * sum(sizes) / 4
    read = [(r.path, r.start, r.stop) for share in shares for r in share]
    assert sum(stop - start for _, start, stop in read) == sum(sizes)


def test_a_compressed_file_is_one_range(tmp_path):
    path = tmp_path / "text.gz"
    with gzip.open(path, "wb") as opened:
        opened.write(TEXT.encode())
    assert split_file(path, Cutter(GPT2_PATTERN), 10) == [ByteRange(path, 0, None)]
    assert str(ByteRange("a.gz", 0, None)) == "bytes 0 to the end of 'a.gz'"
