"""A model from any folder that holds one, of ours or of Hugging Face."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lmlib.config import ModelConfig
from lmlib.export.files import CONFIG
from lmlib.export.loaded import Loaded
from lmlib.export.reading import load_hugging_face, read_config
from lmlib.export.trained import find_checkpoint, load_trained, read_trained_config

__all__ = ["ModelFolder", "find_model", "load_model"]


@dataclass(frozen=True)
class ModelFolder:
    """Where a model is, and what it is, before its weights are read.

    ``path`` is the folder of one checkpoint, or of Hugging Face, and
    ``tokenizer_folder`` the one in which its tokenizer would be.
    """

    path: Path
    config: ModelConfig
    tokenizer_folder: Path


def load_model(
    folder: str | os.PathLike,
    checkpoint: Literal["best", "latest"] | int | None = None,
) -> Loaded:
    """Read a model, and the tokenizer beside it, from any folder that holds one.

    That is one that ``load_trained`` reads, or one that ``load_hugging_face`` does;
    to choose a ``checkpoint`` is to mean the first.

    Raises FileNotFoundError if there is no model in it, and what these two raise.
    """
    folder = _folder(folder)
    if checkpoint is None and (folder / CONFIG).is_file():
        return load_hugging_face(folder)
    return load_trained(folder, checkpoint)


def find_model(folder: str | os.PathLike) -> ModelFolder:
    """Say what ``load_model`` would read from there.

    Raises FileNotFoundError if there is no model in the folder, and ValueError if
    nothing can be known of it.
    """
    folder = _folder(folder).absolute()
    if (folder / CONFIG).is_file():
        return ModelFolder(folder, read_config(folder), folder)
    path, run = find_checkpoint(folder)
    return ModelFolder(path, read_trained_config(path), run)


def _folder(folder: str | os.PathLike) -> Path:
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            f"{folder} is no folder: name that of a run, of a checkpoint in it, or "
            "one that lmlib export wrote. Nothing is downloaded."
        )
    return Path(folder)
