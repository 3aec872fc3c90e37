"""From text files to a token file, in several processes and in bounded memory.

One process reads and unpacks all files, cuts their text where no token can cross,
and writes the ids in order. Others encode the parts, and so does this one while
they do. So the bytes are the same for any number of processes, and what cannot be
split, such as a ``.gz``, is shared like any other file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import DTypeLike
from tqdm import tqdm

from lmlib.bpe import SpecialTokenError, Tokenizer
from lmlib.bpe.cuts import Cutter
from lmlib.bpe.text_files import STANDARD_INPUT, is_regular_file, read_text
from lmlib.data.sidecar import Sidecar, id_dtype, sidecar_path
from lmlib.data.token_file import (
    TokenFile,
    fingerprint,
    open_tokens,
    tokenizer_sha256,
)
from lmlib.files import atomic_write
from lmlib.parallel import check_workers, map_in_processes

__all__ = ["END_OF_TEXT", "prepare_tokens"]

END_OF_TEXT = "<|endoftext|>"

# Characters that are encoded together, in a fiftieth of a second. With half or
# twice as many, all of them take a quarter longer.
_PART = 2**19


def prepare_tokens(
    files: str | os.PathLike | Iterable[str | os.PathLike],
    tokenizer: Tokenizer,
    out: str | os.PathLike,
    *,
    end_of_text: str | None = END_OF_TEXT,
    dtype: DTypeLike | None = None,
    allow_special: Collection[str] = (),
    special_as_text: bool = False,
    num_workers: int = 1,
    progress: bool = True,
) -> TokenFile:
    """Encode text files into one token file with its sidecar, and open it.

    Files are UTF-8, may be ``.gz`` or ``.xz``, and may be larger than memory; ``-``
    is standard input. They follow one another. Each is a document, or several with
    the text of ``end_of_text`` between them: that special token is recognised in
    the text, and added after each file that does not end with it. The default is
    left out where the tokenizer does not have it; None leaves it out always.

    Any other special token in a text is an error, unless it is one of
    ``allow_special``, or all that are not are encoded ``special_as_text``.
    ``dtype`` is uint16 where the vocabulary fits it, else uint32. ``num_workers``
    processes encode, this one among them. ``progress`` shows a bar where standard
    error is a terminal.

    Both files appear when they are whole; what stood there before stays until then,
    after any error, Ctrl-C and a full disk too.

    Raises ValueError if there is no text, if a file is not UTF-8 or holds a special
    token that is not allowed, if the tokenizer lacks one that is named, or if the
    vocabulary does not fit ``dtype``, or if text or what is no sidecar would be
    replaced; OSError if a file cannot be read or written;
    and ChildProcessError if a process dies or cannot be started.
    """
    check_workers(num_workers)
    out, paths = Path(out), _paths(files)
    _check_out(out, paths)
    end_of_text = _known_end(tokenizer, end_of_text)
    encoder = _Encoder(
        tokenizer,
        _fitting_dtype(tokenizer, dtype),
        frozenset([*allow_special, *([end_of_text] if end_of_text else [])]),
        special_as_text,
    )
    end_id = tokenizer.special_tokens.get(end_of_text)
    with _bar(paths, progress) as bar, atomic_write(out) as file:
        parts = _parts(paths, encoder.cutter())
        with closing(map_in_processes(encoder, parts, num_workers)) as encoded:
            _write(file, encoded, encoder.end_bytes(end_id), bar)
        sidecar = _describe(file, out, encoder, end_id)
        sidecar.write(out)  # first, so that a disk full by now leaves all as it was
    return open_tokens(out)


# --- what is asked for ------------------------------------------------------------


def _paths(files: str | os.PathLike | Iterable[str | os.PathLike]) -> list[Path]:
    several = [files] if isinstance(files, str | os.PathLike) else files
    return [Path(file) for file in several]


def _check_out(out: Path, paths: Sequence[Path]) -> None:
    """Raise ValueError for what cannot be a token file, or is text to be read."""
    special = out.exists() and not out.is_file() and not out.is_dir()
    if special or os.path.abspath(out).startswith("/dev/"):
        raise ValueError(
            f"{out} is no file on disk, and a token file has a sidecar beside it: "
            "name another."
        )
    if sidecar_path(out).is_dir():
        raise IsADirectoryError(
            f"{sidecar_path(out)} is a folder, where the sidecar goes: name "
            "another file to write."
        )
    for written in (out, sidecar_path(out)):
        if written.exists() and any(
            path.exists() and path.samefile(written) for path in paths
        ):
            raise ValueError(
                f"{written} is text to be read: name another file to write."
            )
    _check_sidecar(sidecar_path(out))


def _check_sidecar(path: Path) -> None:
    """Raise ValueError for a file that is no sidecar, and would be lost."""
    if not path.is_file() or not path.stat().st_size:
        return
    with suppress(ValueError, RecursionError):
        values = json.loads(path.read_text("utf-8"))
        if isinstance(values, dict) and "dtype" in values:
            return
    raise ValueError(
        f"{path} would be replaced, and does not describe tokens: name another "
        "file to write, or remove it."
    )


def _known_end(tokenizer: Tokenizer, name: str | None) -> str | None:
    """Return the special token that ends a document, None for none."""
    if name is None or name in tokenizer.special_tokens:
        return name
    if name == END_OF_TEXT:
        return None
    known = ", ".join(map(repr, tokenizer.special_tokens)) or "none"
    raise ValueError(
        f"The tokenizer has no special token {name!r} to end a text with: "
        f"there is {known}."
    )


def _fitting_dtype(tokenizer: Tokenizer, dtype: DTypeLike | None) -> np.dtype:
    size = tokenizer.vocab_size
    if dtype is None:
        dtype = "uint16" if size <= 2**16 else "uint32"
    dtype = id_dtype(dtype)
    if size > np.iinfo(dtype).max + 1:
        raise ValueError(
            f"A vocabulary of {size:,} ids does not fit {dtype.name}, which ends "
            f"at {np.iinfo(dtype).max:,}: leave dtype out, or choose uint32."
        )
    return dtype


def _bar(paths: Sequence[Path], progress: bool) -> tqdm:
    """Return a bar of bytes as stored; raise FileNotFoundError before it starts."""
    named = [path for path in paths if str(path) != STANDARD_INPUT]
    size = sum(map(os.path.getsize, named))
    return _Bar(
        desc="encoding",
        total=size if all(map(is_regular_file, paths)) else None,
        unit="B",
        unit_scale=True,
        disable=None if progress else True,  # None: unless there is a terminal
        leave=False,
    )


class _Bar(tqdm):
    monitor_interval = 0  # no thread of its own, because workers may be forked


# --- reading and encoding ---------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """Some text of a file; ``bytes_read`` counts those of all files up to here."""

    path: Path
    text: str
    bytes_read: int
    ends_file: bool = False


def _parts(paths: Iterable[Path], cutter: Cutter) -> Iterator[_Part]:
    """Cut files into parts that can be encoded one by one."""
    bytes_read = 0

    def count(num_bytes: int) -> None:
        nonlocal bytes_read
        bytes_read += num_bytes

    for path in paths:
        part = None
        for text in cutter.parts(read_text(path, progress=count), _PART):
            if part is not None:
                yield part
            part = _Part(path, text, bytes_read)
        yield replace(part, ends_file=True)


@dataclass(frozen=True)
class _Encoder:
    """Turns a part into the bytes of its ids."""

    tokenizer: Tokenizer
    dtype: np.dtype
    allowed: frozenset[str]
    special_as_text: bool

    def __call__(self, part: _Part) -> bytes:
        try:
            ids = self.tokenizer.encode_to_array(
                part.text,
                self.dtype,
                allowed_special=self.allowed,
                disallowed_special=() if self.special_as_text else "all",
            )
        except SpecialTokenError as error:
            path = part.path
            name = "Standard input" if str(path) == STANDARD_INPUT else path
            raise ValueError(
                f"{name} holds the special token {error.name!r}: allow it "
                "(allow_special), or encode it as text (special_as_text)."
            ) from None
        return ids.tobytes()

    def cutter(self) -> Cutter:
        """Return what cuts text where these ids do not depend on it."""
        special = self.tokenizer.special_tokens
        return Cutter(self.tokenizer.pattern, self.allowed, special)

    def end_bytes(self, end_id: int | None) -> bytes:
        """Return the bytes that end a document, none without an id."""
        return np.array([] if end_id is None else [end_id], self.dtype).tobytes()


# --- writing ----------------------------------------------------------------------


def _write(
    file: IO, encoded: Iterable[tuple[_Part, bytes]], end: bytes, bar: tqdm
) -> None:
    """Write the ids of all parts, and the end of every document that lacks it."""
    ended = True  # whether what is written so far ends with the end of a document
    for part, ids in encoded:
        if ids:
            file.write(ids)
            ended = ids.endswith(end)
        if part.ends_file and not ended:
            file.write(end)
            ended = True
        bar.update(part.bytes_read - bar.n)


def _describe(
    file: IO, out: Path, encoder: _Encoder, end_id: int | None
) -> Sidecar:
    """Return the sidecar of the ids that were written, once they are on disk."""
    file.flush()
    os.fsync(file.fileno())
    if not file.tell():
        raise ValueError(f"There is no text: nothing to write to {out}.")
    ids = np.memmap(file.name, encoder.dtype, mode="r")
    return Sidecar(
        dtype=encoder.dtype.name,
        count=len(ids),
        vocab_size=encoder.tokenizer.vocab_size,
        fingerprint=fingerprint(ids),
        tokenizer_sha256=tokenizer_sha256(encoder.tokenizer),
        end_of_text=end_id,
    )
