"""Reading text files block by block: plain, ``.gz``, ``.xz``, or standard input."""

import codecs
import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["STANDARD_INPUT", "OnBytes", "can_be_split", "read_blocks", "read_text"]

OnBytes = Callable[[int], object]

STANDARD_INPUT = "-"
_BLOCK = 2**16
_OPENERS = {".gz": gzip.open, ".xz": lzma.open}


def read_text(
    path: str | os.PathLike,
    start: int = 0,
    stop: int | None = None,
    progress: OnBytes = lambda num_bytes: None,
) -> Iterator[str]:
    """Yield the text of a file, or of a range of its bytes; see ``read_blocks``.

    Line endings stay as they are.

    Raises ValueError if it is not UTF-8, which says at which byte of the text.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    position = start
    for block in read_blocks(path, start, stop, progress):
        yield _decode(decoder, block, False, position, path)
        position += len(block)
    yield _decode(decoder, b"", True, position, path)


def read_blocks(
    path: str | os.PathLike,
    start: int = 0,
    stop: int | None = None,
    progress: OnBytes = lambda num_bytes: None,
) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked, or of a range of them, block by block.

    ``-`` is standard input. ``progress`` is called with the number of bytes read,
    compressed ones where they are.

    Raises OSError, which names the file, if it cannot be read or unpacked.
    """
    left = float("inf") if stop is None else stop - start
    try:
        with _open(path) as (unpacked, stored):
            if start:
                unpacked.seek(start)
            before = start
            while left and (block := unpacked.read(int(min(_BLOCK, left)))):
                left -= len(block)
                yield block
                after = stored.tell() if stored.seekable() else before + len(block)
                progress(after - before)
                before = after
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise OSError(f"{os.fspath(path)!r} is damaged: {error}.") from error


def can_be_split(path: str | os.PathLike) -> bool:
    """Whether parts of a file can be read alone: not of a pipe, nor compressed."""
    return os.path.isfile(path) and Path(path).suffix not in _OPENERS


@contextmanager
def _open(path: str | os.PathLike) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file; give it as it unpacks, and as it is stored."""
    if os.fspath(path) == STANDARD_INPUT:
        yield sys.stdin.buffer, sys.stdin.buffer
        return
    with open(path, "rb") as stored:
        opener = _OPENERS.get(Path(path).suffix)
        if opener is None:
            yield stored, stored
            return
        with opener(stored) as unpacked:
            yield unpacked, stored


def _decode(decoder, block: bytes, final: bool, position: int, path) -> str:
    held = len(decoder.getstate()[0])
    try:
        return decoder.decode(block, final)
    except UnicodeDecodeError as error:
        at = position - held + error.start
        raise ValueError(
            f"{os.fspath(path)!r} is not UTF-8: {error.reason} at byte {at} "
            f"(0x{error.object[error.start]:02x})."
        ) from None
