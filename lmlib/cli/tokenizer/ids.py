"""Token ids in files and pipes: as text, as JSON, or as little-endian integers."""

import re
import struct
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Literal, TypeVar

__all__ = ["ReadIds", "WrittenIds", "parse_ids", "spell_ids"]

WrittenIds = Literal["text", "lines", "json", "u16", "u32"]
ReadIds = Literal["text", "u16", "u32"]  # lines and json can be read as text

_CODES = {"u16": ("H", 2), "u32": ("I", 4)}  # of struct, and bytes
_BATCH = 12 * 4096
_IDS_IN_A_LINE = 12  # five digits and a space each fit a terminal
_LONGEST_NUMBER = 20  # digits; with more, a file is something else
_BETWEEN_IDS = re.compile(rb"[\s,\[\]]+")

T = TypeVar("T")


def spell_ids(ids: Iterable[int], format: WrittenIds) -> Iterator[bytes]:
    """Yield the bytes that spell the ids, in bounded memory.

    Raises OverflowError, which names the id, if one does not fit the format.
    """
    batches = _batches(iter(ids), _BATCH)
    if format in _CODES:
        return (_pack(batch, format) for batch in batches)
    if format == "json":
        return _spell_json(batches)
    return _spell_lines(batches, 1 if format == "lines" else _IDS_IN_A_LINE)


def parse_ids(
    blocks: Iterable[bytes], format: ReadIds, name: str
) -> Iterator[list[int]]:
    """Yield the ids that the blocks of a file spell, some at a time.

    In text, ids stand between white space, commas and brackets.

    Raises ValueError, which names the file, for what is no id.
    """
    if format in _CODES:
        return _unpack(blocks, format, name)
    return _parse_text(blocks, name)


def _batches(items: Iterator[T], size: int) -> Iterator[list[T]]:
    while batch := list(islice(items, size)):
        yield batch


def _pack(ids: list[int], format: str) -> bytes:
    code, size = _CODES[format]
    greatest = max(ids)
    if greatest >= 256**size:
        raise OverflowError(
            f"Id {greatest} does not fit {format}, which ends at {256**size - 1}: "
            "choose a wider --format."
        )
    return struct.pack(f"<{len(ids)}{code}", *ids)


def _spell_json(batches: Iterable[list[int]]) -> Iterator[bytes]:
    before = "["
    for batch in batches:
        yield (before + ", ".join(map(str, batch))).encode()
        before = ", "
    yield b"[]\n" if before == "[" else b"]\n"


def _spell_lines(
    batches: Iterable[list[int]], ids_in_a_line: int
) -> Iterator[bytes]:
    for batch in batches:
        lines = _batches(map(str, batch), ids_in_a_line)
        yield "".join(f"{' '.join(line)}\n" for line in lines).encode()


def _unpack(blocks: Iterable[bytes], format: str, name: str) -> Iterator[list[int]]:
    code, size = _CODES[format]
    rest = b""
    for block in blocks:
        data = rest + block
        number = len(data) // size
        yield list(struct.unpack_from(f"<{number}{code}", data))
        rest = data[number * size :]
    if rest:
        raise ValueError(
            f"{name} ends inside an id: in {format}, each takes {size} bytes."
        )


def _parse_text(blocks: Iterable[bytes], name: str) -> Iterator[list[int]]:
    number, rest = 0, b""
    for block in chain(blocks, [b" "]):
        *words, rest = _BETWEEN_IDS.split(rest + block)
        words = [word for word in words if word]
        if len(rest) > _LONGEST_NUMBER:  # no need to wait for its end
            words.append(rest)
        for position, word in enumerate(words, number + 1):
            if not word.isdigit() or len(word) > _LONGEST_NUMBER:
                raise _no_id(word, position, name)
        number += len(words)
        yield list(map(int, words))


def _no_id(word: bytes, position: int, name: str) -> ValueError:
    shown = word[:_LONGEST_NUMBER].decode("utf-8", "backslashreplace")
    return ValueError(
        f"{name}: item {position} is {shown!r}, which is no token id. Is --format "
        "text, u16 or u32 the right one?"
    )
