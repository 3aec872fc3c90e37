"""What a token file cannot say itself: the JSON beside it.

Raw ids carry no type, no vocabulary and no tokenizer. For ``train.bin`` these stand
in ``train.bin.json``.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from lmlib.checks import check_size
from lmlib.files import write_atomically

__all__ = ["Sidecar", "id_dtype", "sidecar_path"]

_UNSUITED = "Prepare the tokens again, or correct it by hand."


@dataclass(frozen=True)
class Sidecar:
    """What is known about a token file.

    ``fingerprint`` is that of its ids, ``tokenizer_sha256`` says which tokenizer
    made them, and ``end_of_text`` is the id that ends every document. A sidecar
    written by hand may leave these three out.

    Raises ValueError for a ``dtype`` that holds no integers, and for a ``count`` or
    a ``vocab_size`` that is no whole number from 1 on.
    """

    dtype: str
    count: int
    vocab_size: int
    fingerprint: str | None = None
    tokenizer_sha256: str | None = None
    end_of_text: int | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        id_dtype(self.dtype)
        check_size("count", self.count)
        check_size("vocab_size", self.vocab_size)
        for name in ("fingerprint", "tokenizer_sha256"):
            if not isinstance(getattr(self, name), str | None):
                raise ValueError(f"{name} must be a text or null.")
        end = self.end_of_text
        is_id = type(end) is int and 0 <= end < self.vocab_size
        if end is not None and not is_id:
            raise ValueError("end_of_text must be an id of the vocabulary or null.")

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the sidecar of a token file; None if it has none.

        Raises ValueError if it is broken.
        """
        path = sidecar_path(path)
        try:
            values = json.loads(path.read_text("utf-8"))
            return cls(**_known(values))
        except FileNotFoundError:
            return None
        except RecursionError:
            reason = "it is nested too deeply."
        except ValueError as error:  # of JSON and UTF-8, too
            reason = _sentence(error)
        raise ValueError(f"{path} does not describe tokens: {reason} {_UNSUITED}")

    def write(self, path: Path) -> None:
        """Write the sidecar of a token file; raises OSError if that fails."""
        text = json.dumps(asdict(self), indent=2) + "\n"
        write_atomically(sidecar_path(path), text)


def sidecar_path(path: str | os.PathLike) -> Path:
    """Return where the sidecar of a token file is: ``train.bin.json``."""
    return Path(f"{os.fspath(path)}.json")


def id_dtype(dtype: DTypeLike) -> np.dtype:
    """Return an integer type as files hold it, little-endian on every machine.

    Raises ValueError for another type, and for one that is said to be big-endian.
    """
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # the last for a text like ","
        found = None
    if found is None or found.kind not in "iu":  # a time span is an integer, too
        raise ValueError(f"dtype is {dtype!r}: ids are integers, such as 'uint16'.")
    if found.byteorder == ">":
        raise ValueError(
            f"dtype is {dtype!r}: token files are little-endian. Swap the bytes of "
            "such a file by np.fromfile(…).astype('<…').tofile(…)."
        )
    return found.newbyteorder("<")


def _sentence(error: Exception) -> str:
    return f"{str(error).rstrip('.')}."


def _known(values: Any) -> Mapping[str, Any]:
    """Return the fields, which must be all that are needed and no others."""
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object.")
    names = [field.name for field in fields(Sidecar)]
    if unknown := [key for key in values if key not in names]:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(names)}.")
    needed = [field.name for field in fields(Sidecar) if field.default is MISSING]
    if missing := [name for name in needed if name not in values]:
        raise ValueError(f"it lacks {', '.join(missing)}.")
    return values
