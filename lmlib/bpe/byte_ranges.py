"""Splitting files for several processes, without changing any pre-token."""

import codecs
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

from lmlib.bpe.cuts import Cutter
from lmlib.bpe.text_files import is_compressed

__all__ = ["ByteRange", "share_files", "split_file"]

_MOST = 2**25  # bytes in a share, so that progress shows and memory stays small
_LEAST = 2**20  # a process takes as long to start as to count that
_WINDOW = 2**16  # bytes to look for a cut in, at first


@dataclass(frozen=True)
class ByteRange:
    """A part of a file: from ``start`` up to, but not including, ``stop``."""

    path: str | os.PathLike
    start: int
    stop: int | None

    def __str__(self) -> str:
        """Name the bytes and the file."""
        stop = "the end" if self.stop is None else self.stop
        return f"bytes {self.start} to {stop} of {os.fspath(self.path)!r}"


def share_files(
    paths: Sequence[str | os.PathLike], cutter: Cutter, num_shares: int
) -> Iterator[list[ByteRange]]:
    """Yield about ``num_shares`` shares of about one size, more of large files."""
    total = sum(map(os.path.getsize, paths))
    most = max(_LEAST, min(_MOST, total // num_shares))
    share: list[ByteRange] = []
    size = 0
    for path in paths:
        for part in split_file(path, cutter, most):
            share.append(part)
            size += (part.stop or os.path.getsize(path)) - part.start
            if size >= most:
                yield share
                share, size = [], 0
    if share:
        yield share


def split_file(
    path: str | os.PathLike, cutter: Cutter, size: int
) -> list[ByteRange]:
    """Split a file into ranges of about ``size`` bytes, as far as it can be cut.

    A compressed file is one range.
    """
    if is_compressed(path):
        return [ByteRange(path, 0, None)]
    bounds = [0]
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        target = size
        while target < end:
            cut = _cut_after(file, target, cutter)
            if cut is None:  # then there is none further on
                break
            bounds.append(cut)
            target = max(target, cut) + size
    bounds = sorted({*bounds, end})
    return [ByteRange(path, start, stop) for start, stop in pairwise(bounds)]


def _cut_after(file: BinaryIO, target: int, cutter: Cutter) -> int | None:
    """Return the first safe cut near a byte or after it, or None."""
    begin = max(0, target - 4 * cutter.characters_before)
    window = _WINDOW
    while True:
        file.seek(begin)
        before, after = file.read(target - begin), file.read(window)
        inner = _skip_continuation(before)
        text = _decode(inner + after)
        cut = cutter.first_cut(text, len(_decode(inner)))
        if cut is not None:
            skipped = len(before) - len(inner)
            return begin + skipped + len(text[:cut].encode("utf-8", _ANY_BYTES))
        if len(after) < window:
            return None
        window *= 2


_ANY_BYTES = "surrogateescape"  # what is not UTF-8 is reported when it is counted


def _decode(data: bytes) -> str:
    """Decode, leaving out a character that ends beyond the data."""
    return codecs.getincrementaldecoder("utf-8")(_ANY_BYTES).decode(data)


def _skip_continuation(data: bytes) -> bytes:
    """Leave out the rest of a character that began before the data."""
    return data.lstrip(bytes(range(0x80, 0xC0)))
