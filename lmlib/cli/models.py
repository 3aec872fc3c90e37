"""Which model a command opens, and with which tokenizer."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from lmlib.bpe import Tokenizer
    from lmlib.export import Loaded

__all__ = [
    "Checkpoint",
    "EndOfText",
    "OtherTokenizer",
    "open_model",
    "which",
    "with_tokenizer",
]

Checkpoint = Annotated[
    str | None,
    Parameter(
        help="Which of a run: best, latest, or a step. The best if left out, or "
        "the latest if none was validated."
    ),
]
OtherTokenizer = Annotated[
    str | None,
    Parameter(
        help="Another tokenizer than the model's own: gpt2; or a tokenizer.json; "
        "or a folder that holds one."
    ),
]

EndOfText = Annotated[
    str | None,
    Parameter(
        help="The special token that ends a text, if it is another than "
        "<|endoftext|>, which need not be there."
    ),
]


def which(checkpoint: str | None) -> Literal["best", "latest"] | int | None:
    """Return what ``load_trained`` is to be told."""
    if checkpoint is None or checkpoint in ("best", "latest"):
        return checkpoint
    with suppress(ValueError):
        if checkpoint.isdecimal():
            return int(checkpoint)  # which takes no more than some 4000 digits
    raise ValueError(
        f"--checkpoint is {checkpoint!r}: say best, latest, or a step."
    )


def open_model(folder: Path, checkpoint: str | None) -> Loaded:
    """Read a model, and the tokenizer beside it, from any folder that holds one.

    Raises FileNotFoundError if there is none, and ValueError for a checkpoint that
    is chosen where there is no choice.
    """
    from lmlib.export import load_model
    from lmlib.export.trained import CHECKPOINTS

    is_run = (folder / CHECKPOINTS).is_dir()
    if checkpoint is not None and folder.is_dir() and not is_run:
        raise ValueError(
            f"--checkpoint chooses among those of a run, and {folder} is not the "
            "folder of one: leave it out."
        )
    return load_model(folder, which(checkpoint))


def with_tokenizer(loaded: Loaded, folder: Path, name: str | None) -> Tokenizer:
    """Return the tokenizer of that name, or else the model's own.

    Raises ValueError if there is none, or if the model has too few ids for it.
    """
    from lmlib.bpe import Tokenizer
    from lmlib.export.files import check_vocabulary

    if name is not None:
        tokenizer = Tokenizer.from_pretrained(name)
        check_vocabulary(loaded.config, tokenizer)
        return tokenizer
    if loaded.tokenizer is None:
        reason = loaded.no_tokenizer.rstrip(".")
        raise ValueError(
            f"{folder} has no tokenizer ({reason}): name one with --tokenizer."
        )
    return loaded.tokenizer
