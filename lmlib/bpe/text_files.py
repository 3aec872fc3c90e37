"""Reading text files block by block: plain, ``.gz``, ``.xz``, or standard input."""

import codecs
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "STANDARD_INPUT",
    "OnBytes",
    "is_compressed",
    "is_regular_file",
    "read_blocks",
    "read_text",
]

OnBytes = Callable[[int], object]

STANDARD_INPUT = "-"
_BLOCK = 2**16


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
        with _open(path) as file:
            if start:
                file.seek(start)
            unpack = _DECOMPRESSORS.get(Path(path).suffix, iter)
            yield from unpack(_read(file, left, progress))
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise OSError(f"{os.fspath(path)!r} is damaged: {error}.") from error


def is_regular_file(path: str | os.PathLike) -> bool:
    """Whether a path names a file on disk, and not a pipe or standard input."""
    return os.fspath(path) != STANDARD_INPUT and os.path.isfile(path)


def is_compressed(path: str | os.PathLike) -> bool:
    """Whether a file's name says that it is compressed."""
    return Path(path).suffix in _DECOMPRESSORS


@contextmanager
def _open(path: str | os.PathLike) -> Iterator[BinaryIO]:
    if os.fspath(path) == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with open(path, "rb") as file:
        yield file


def _read(file: BinaryIO, left: float, progress: OnBytes) -> Iterator[bytes]:
    while left and (block := file.read(int(min(_BLOCK, left)))):
        left -= len(block)
        progress(len(block))
        yield block


def _decompress(new: Callable, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what blocks unpack to, stream after stream.

    The modules' own readers take what is damaged after a first stream for padding,
    and an empty file for an empty text.
    """
    stream = new()
    for block in blocks:
        for start in range(0, len(block), _PACKED):
            rest = block[start : start + _PACKED]
            if stream.eof:
                rest = rest.lstrip(b"\0")  # padding
                stream = new() if rest else stream
            while rest:
                yield stream.decompress(rest)
                rest = stream.unused_data.lstrip(b"\0")
                stream = new() if rest else stream
    if not stream.eof:
        raise EOFError("it ends too soon")


_PACKED = 2**12  # bytes at a time: they may unpack to a thousand times as many
_DECOMPRESSORS = {
    ".gz": partial(_decompress, partial(zlib.decompressobj, wbits=31)),
    ".xz": partial(_decompress, lzma.LZMADecompressor),
}


def _decode(decoder, block: bytes, final: bool, position: int, path) -> str:
    held = len(decoder.getstate()[0])
    try:
        return decoder.decode(block, final)
    except UnicodeDecodeError as error:
        at = position - held + error.start
        raise ValueError(
            f"{os.fspath(path)!r} is not UTF-8: {error.reason} at byte {at} "
            f"(0x{error.object[error.start]:02x}). Convert it, as iconv does."
        ) from None
