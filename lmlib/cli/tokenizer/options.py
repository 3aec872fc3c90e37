"""Options that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from lmlib.bpe import CL100K_PATTERN, GPT2_PATTERN, O200K_PATTERN

__all__ = [
    "PATTERNS",
    "AllowSpecial",
    "Flattened",
    "TokenizerName",
    "special_arguments",
    "tokenizer_files",
]

T = TypeVar("T")

Flattened = Annotated[T, Parameter(name="*")]  # fields of a dataclass as options

PATTERNS = {
    "gpt2": GPT2_PATTERN,
    "cl100k": CL100K_PATTERN,
    "o200k": O200K_PATTERN,
    "none": None,
}

TokenizerName = Annotated[
    str,
    Parameter(
        help="gpt2, which comes with lmlib; or a tokenizer.json; or a folder that "
        "holds one."
    ),
]
AllowSpecial = Annotated[
    tuple[str, ...],
    Parameter(
        help="A special token that may stand in the text and becomes its id; "
        "repeatable; all allows all of them."
    ),
]


def special_arguments(
    allowed: Sequence[str], others_as_text: bool
) -> dict[str, Any]:
    """Return what ``Tokenizer.encode`` is to be told about special tokens."""
    return {
        "allowed_special": "all" if "all" in allowed else frozenset(allowed),
        "disallowed_special": () if others_as_text else "all",
    }


def tokenizer_files(name: str) -> list[Path]:
    """Return the file that a tokenizer is read from; none for gpt2."""
    if name == "gpt2":
        return []
    path = Path(name)
    return [path / "tokenizer.json" if path.is_dir() else path]
