"""Token files: ids one after another, mapped into memory and never loaded.

Opening one costs the same for a megabyte and a terabyte: pages are read from disk
when their tokens are looked at. What raw ids cannot say stands in a sidecar; a file
without one, such as nanoGPT's ``train.bin``, is opened by what the caller says.
"""

import hashlib
import json
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import DTypeLike

from lmlib.bpe import Tokenizer
from lmlib.checks import check_size, is_number
from lmlib.data.sidecar import Sidecar, id_dtype, sidecar_path

__all__ = [
    "Check",
    "TokenFile",
    "check_ids",
    "fingerprint",
    "open_tokens",
    "tokenizer_sha256",
]

Check = Literal["sample", "all", "none"]

_SAMPLED = 64  # blocks of a sample
_SAMPLE = 2**11  # tokens in each of them: one page of uint16
_BLOCK = 2**22  # tokens looked at together where all are
_NO_VOCABULARY = 2**24  # ids: the largest known vocabularies have under 2**20
_NPY = b"\x93NUMPY"  # how a file of np.save begins


@dataclass(frozen=True, eq=False)
class TokenFile:
    """The ids of a file, and what is known about them.

    ``ids`` is a read-only array over the mapped file: slice it as any other.
    ``vocab_size``, ``end_of_text`` and ``tokenizer_sha256`` are None if not known.

    The system ends a process (SIGBUS) that reads where the file was cut off since.
    ``prepare_tokens`` never does that: it puts another file in the old one's place.
    """

    path: Path
    ids: np.ndarray
    vocab_size: int | None = None
    end_of_text: int | None = None
    tokenizer_sha256: str | None = None
    mapping: mmap.mmap | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __str__(self) -> str:
        return str(self.path)

    @cached_property
    def fingerprint(self) -> str:
        """What tells these ids from others; see ``fingerprint``."""
        return fingerprint(self.ids)

    def split(self, validation: float) -> tuple[Self, Self]:
        """Return the first tokens, to train on, and the last, to validate with.

        The last are about that share of all. Where the id is known that ends a
        document, the cut is after the first one from there on, if there is any.
        Nothing is copied, and no window of one is a window of the other.

        Raises ValueError unless ``validation`` is between 0 and 1 and leaves tokens
        on both sides.
        """
        if not is_number(validation) or not 0 < validation < 1:
            raise ValueError(
                f"validation is a share between 0 and 1, not {validation!r}."
            )
        cut = self._document_end(round(len(self) * (1 - validation)))
        if not 0 < cut < len(self):
            raise ValueError(
                f"{self} has {len(self):,} tokens, of which {validation} is none, "
                "or all: choose another share."
            )
        return replace(self, ids=self.ids[:cut]), replace(self, ids=self.ids[cut:])

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise ValueError if it is known that another tokenizer made the file."""
        known = self.tokenizer_sha256
        if known is not None and known != tokenizer_sha256(tokenizer):
            raise ValueError(
                f"{self} was made by another tokenizer than {tokenizer}: pass the "
                "one that made it, or prepare the tokens again."
            )

    def release(self) -> None:
        """Take what was read out of this process's memory; the page cache keeps it.

        Else all that was ever looked at counts as resident, up to the whole file.
        """
        if self.mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapping.madvise(mmap.MADV_DONTNEED)

    def _document_end(self, cut: int) -> int:
        """Return the end of the document that a place is in, or the place."""
        if self.end_of_text is None:
            return cut
        for start in range(max(cut - 1, 0), len(self), _BLOCK):
            found = self.ids[start : start + _BLOCK] == self.end_of_text
            if found.any():
                end = start + int(found.argmax()) + 1
                return end if end < len(self) else cut
        return cut


def open_tokens(
    path: str | os.PathLike,
    *,
    dtype: DTypeLike | None = None,
    vocab_size: int | None = None,
    check: Check = "sample",
) -> TokenFile:
    """Map a token file into memory, read-only.

    ``dtype`` and ``vocab_size`` come from the sidecar, and must be equal to it if
    they are passed. Without a sidecar, ``dtype`` is uint16 unless it is passed, as
    nanoGPT writes it.

    The length must be that of the sidecar. ``check`` says how many ids must be in
    the vocabulary, which is of under 2**24 ids if it is not known: those of 64
    blocks evenly spaced over the file (``"sample"``: it reads 256 KB of uint16),
    ``"all"`` of them (it reads the file), or ``"none"``. A sample is also compared
    with the fingerprint in the sidecar. Without one, ids of 16 bits are refused
    where every second one is below 16 and others are not: so look ids of 32 bits.
    So is a ``.npy`` file, whose header would be read as ids.

    Raises ValueError, which says what to do, if anything of this does not hold, the
    file is empty or no file on disk, or ``dtype`` is said to be big-endian;
    FileNotFoundError if there is none.
    """
    if check not in ("sample", "all", "none"):
        raise ValueError(f"check is {check!r}: choose 'sample', 'all' or 'none'.")
    path = Path(path)
    if vocab_size is not None:
        check_size("vocab_size", vocab_size)
    sidecar = Sidecar.read(path)
    if sidecar is not None:
        _compare(path, sidecar, dtype, vocab_size)
        dtype, vocab_size = sidecar.dtype, sidecar.vocab_size
    mapping, ids = _map(path, id_dtype("uint16" if dtype is None else dtype))
    tokens = TokenFile(path, ids, vocab_size, mapping=mapping)
    if sidecar is not None:
        _check_length(tokens, sidecar)
        tokens = replace(
            tokens,
            end_of_text=sidecar.end_of_text,
            tokenizer_sha256=sidecar.tokenizer_sha256,
        )
    if check != "none":
        _check_content(tokens, sidecar, check)
    return tokens


def fingerprint(ids: np.ndarray) -> str:
    """Return what tells ids from others: a hash of their type, number and a sample.

    The sample is 64 blocks of 2,048 ids, evenly spaced, the first and the last
    among them: a change between two blocks goes unnoticed.
    """
    digest = hashlib.sha256(f"{ids.dtype.str} {len(ids)}".encode())
    for _, block in _blocks(ids, "sample"):
        digest.update(np.ascontiguousarray(block))
    return digest.hexdigest()


def tokenizer_sha256(tokenizer: Tokenizer) -> str:
    """Return a hash of vocabulary, merges, special tokens and pattern."""
    spec = tokenizer.spec
    # What json.dumps would make of them, in half of its time
    vocab = [f'[{i}, "{token.hex()}"]' for i, token in sorted(spec.vocab.items())]
    merges = [f'["{left.hex()}", "{right.hex()}"]' for left, right in spec.merges]
    rest = json.dumps([sorted(spec.special_tokens.items()), spec.pattern])
    content = f"[[{', '.join(vocab)}], [{', '.join(merges)}], {rest[1:]}"
    return hashlib.sha256(content.encode()).hexdigest()


def check_ids(ids: np.ndarray, vocab_size: int | None, name: object) -> None:
    """Raise ValueError if an id is not in the vocabulary.

    Without a ``vocab_size``, the vocabulary is taken to be under 2**24 ids.
    """
    end = _NO_VOCABULARY if vocab_size is None else vocab_size
    if ids.size and ids.max() >= end:
        wrong = ids.max()
    elif ids.size and ids.dtype.kind == "i" and ids.min() < 0:
        wrong = ids.min()
    else:
        return
    known = "" if vocab_size is None else f" of {vocab_size:,}"
    raise ValueError(
        f"{name} holds the id {wrong:,}, which is not in a vocabulary{known}: is "
        f"it a file of {ids.dtype.name}, and of this tokenizer?"
    )


# --- opening ----------------------------------------------------------------------


def _compare(
    path: Path, sidecar: Sidecar, dtype: DTypeLike | None, vocab_size: int | None
) -> None:
    """Raise ValueError if the caller says something else than the sidecar."""
    where = sidecar_path(path)
    if dtype is not None and id_dtype(dtype) != id_dtype(sidecar.dtype):
        raise ValueError(
            f"dtype is {id_dtype(dtype).name}, but {where} says {sidecar.dtype}: "
            "leave it out."
        )
    if vocab_size is not None and vocab_size != sidecar.vocab_size:
        raise ValueError(
            f"vocab_size is {vocab_size:,}, but {where} says "
            f"{sidecar.vocab_size:,}: leave it out."
        )


def _map(path: Path, dtype: np.dtype) -> tuple[mmap.mmap, np.ndarray]:
    """Map a file as ``np.memmap`` with mode ``"r"`` does, and keep the mapping."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(  # opening a pipe would wait for somebody to write
            f"{path} is no file on disk, and only such a one can be mapped."
        )
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise ValueError(f"{path} is empty: it holds no tokens.")
        if size % dtype.itemsize:
            raise ValueError(
                f"{path} ends inside a token: {size:,} bytes are no multiple of "
                f"the {dtype.itemsize} of {dtype.name}. It was cut off, or has "
                "another dtype."
            )
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return mapping, np.frombuffer(mapping, dtype)


def _check_length(tokens: TokenFile, sidecar: Sidecar) -> None:
    if len(tokens) != sidecar.count:
        raise ValueError(
            f"{tokens} has {tokens.ids.nbytes:,} bytes, {len(tokens):,} tokens of "
            f"{sidecar.dtype}, but {sidecar_path(tokens.path)} says "
            f"{sidecar.count:,} tokens: the file was cut off, or the sidecar is "
            "another's. Prepare the tokens again."
        )


# --- looking at ids ---------------------------------------------------------------


def _check_content(
    tokens: TokenFile, sidecar: Sidecar | None, check: Check
) -> None:
    _refuse_npy(tokens)
    expected = sidecar and sidecar.fingerprint
    if tokens.ids.dtype.itemsize == 2 and expected is None:
        _refuse_wider_ids(tokens)
    for start, block in _blocks(tokens.ids, check):
        check_ids(block, tokens.vocab_size, f"{tokens}, from token {start:,} on,")
        tokens.release()
    if expected is not None and tokens.fingerprint != expected:
        raise ValueError(
            f"{tokens} holds other tokens than {sidecar_path(tokens.path)} was "
            "written for: prepare them again, or remove the sidecar if it is wrong."
        )


def _refuse_npy(tokens: TokenFile) -> None:
    if tokens.mapping[: len(_NPY)] == _NPY:
        raise ValueError(
            f"{tokens} is a .npy file: a header comes before its ids. Write them "
            "without one, by np.load(…).tofile(…)."
        )


def _refuse_wider_ids(tokens: TokenFile) -> None:
    """Refuse ids of 32 bits that are read as twice as many of 16.

    The lower half of each comes first, and the upper halves are all small: below 16
    in a vocabulary under 2**20.
    """
    sample = np.concatenate([block for _, block in _blocks(tokens.ids, "sample")])
    pairs = sample[: len(sample) // 2 * 2].reshape(-1, 2)
    if len(pairs) < 32:  # too few to tell
        return
    lower, upper = pairs.max(axis=0)
    if upper < 16 <= lower or upper == 0 < lower:
        raise ValueError(
            f"{tokens} looks like ids of 32 bits, not of {tokens.ids.dtype.name}: "
            f"every second one is at most {upper}. Pass dtype='uint32' and remove "
            "a sidecar that says otherwise, or pass check='none' if they are right."
        )


def _blocks(ids: np.ndarray, check: Check) -> Iterator[tuple[int, np.ndarray]]:
    """Yield blocks of ids with their places, all or evenly spaced ones."""
    if check == "all" or len(ids) <= _SAMPLED * _SAMPLE:
        starts, size = range(0, len(ids), _BLOCK), _BLOCK
    else:
        last = len(ids) - _SAMPLE
        starts = [last * i // (_SAMPLED - 1) // 2 * 2 for i in range(_SAMPLED - 1)]
        starts, size = [*starts, last], _SAMPLE
    for start in starts:
        yield start, ids[start : start + size]
