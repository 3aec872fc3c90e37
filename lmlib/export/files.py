"""What a folder of Hugging Face holds, and what goes together in one."""

import fcntl
import os
from pathlib import Path
from types import MappingProxyType

import torch

from lmlib.bpe import Tokenizer
from lmlib.config import ModelConfig

__all__ = [
    "CONFIG",
    "DTYPES",
    "GENERATION",
    "INDEX",
    "TOKENIZER",
    "TOKENIZER_CONFIG",
    "WEIGHTS",
    "check_dtype",
    "check_free",
    "check_vocabulary",
]

CONFIG = "config.json"
GENERATION = "generation_config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"  # which of several files holds a weight
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"

DTYPES = MappingProxyType(
    {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
)


def check_dtype(dtype: torch.dtype) -> None:
    """ValueError for weights in another dtype than fp32, bf16 or fp16."""
    if dtype not in DTYPES:
        known = ", ".join(map(str, DTYPES))
        raise ValueError(f"Weights cannot be {dtype}: choose one of {known}.")


def check_free(folder: Path) -> None:
    """FileExistsError if there is anything but an empty folder.

    The one that a command is run in cannot be replaced by a whole one.

    BlockingIOError if another process trains in the folder around it: nobody else
    can write there until it ends.
    """
    _check_not_locked(folder.parent)
    if (
        folder.name
        and folder.is_dir()
        and not folder.is_symlink()
        and not any(folder.iterdir())
    ):
        return
    if os.path.lexists(folder):
        raise FileExistsError(
            f"{folder} is there already: name another folder, or remove it."
        )


def _check_not_locked(parent: Path) -> None:
    try:
        descriptor = os.open(parent, os.O_RDONLY)
    except (
        FileNotFoundError,
        NotADirectoryError,
    ):  # it may be made
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(
            f"Another process trains in {parent}: name a folder elsewhere."
        ) from None
    except OSError:
        pass  # no locks here
    finally:
        os.close(descriptor)


def check_vocabulary(config: ModelConfig, tokenizer: Tokenizer | None) -> None:
    """ValueError for a tokenizer that gives ids the model has no embedding for.

    A model may have more: vocabularies are padded to sizes that GPUs like.
    """
    if tokenizer and tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"The tokenizer has ids up to {tokenizer.vocab_size - 1}, and the "
            f"model's vocab_size is {config.vocab_size}: use the tokenizer that "
            "the model was made for."
        )
