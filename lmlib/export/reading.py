"""A folder that ``transformers`` wrote, as a model and its tokenizer."""

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from lmlib.bpe.formats.gpt2 import read_json_object
from lmlib.checkpoint.errors import errors_of_the_disk
from lmlib.checkpoint.weights import read_weights
from lmlib.config import ModelConfig
from lmlib.export.config_json import from_transformers_config
from lmlib.export.files import (
    CONFIG,
    INDEX,
    WEIGHTS,
    check_dtype,
    check_vocabulary,
)
from lmlib.export.loaded import Loaded, build_model, read_tokenizer
from lmlib.export.weights import from_transformers_state_dict

__all__ = ["load_hugging_face", "read_config"]

_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def load_hugging_face(
    folder: str | os.PathLike, *, dtype: torch.dtype | None = None
) -> Loaded:
    """Read a folder with a GPT-2 or a Llama as a model, ready to evaluate.

    Weights are safetensors, in one file or in several with an index, and stay in
    the dtype that they have there, unless one is given. A tokenizer is taken if it
    is byte-level BPE that we can read exactly, which is not a condition. Nothing is
    downloaded, and no pickle is opened: opening one runs what it holds.

    Raises FileNotFoundError for a file that is missing, and ValueError, which names
    the folder and what is wrong, for a model of another kind, for weights that do
    not fit its config, and for a tokenizer with more ids than the model.
    """
    folder = Path(folder)
    if dtype is not None:
        check_dtype(dtype)
    config = read_config(folder)
    files = _weight_files(folder)
    try:
        weights = from_transformers_state_dict(config, _read_weights(files))
        model = build_model(config, weights, dtype)
        tokenizer, problem = read_tokenizer(folder)
        check_vocabulary(config, tokenizer)
    except ValueError as error:
        raise ValueError(f"{folder} cannot be read: {error}") from None
    return Loaded(model=model, tokenizer=tokenizer, no_tokenizer=problem)


def read_config(folder: Path) -> ModelConfig:
    """The config of the model in a folder that ``load_hugging_face`` reads."""
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(
            f"There is no {CONFIG} in {folder}: name a folder that save_pretrained "
            "of transformers wrote. Nothing is downloaded."
        )
    content = read_json_object(folder / CONFIG)
    try:
        return from_transformers_config(content)
    except ValueError as error:
        raise ValueError(f"{folder} cannot be read: {error}") from None


# --- weights ----------------------------------------------------------------------


def _read_weights(files: Mapping[Path, set[str] | None]) -> dict[str, Tensor]:
    """All weights of the files, which must be those that an index names."""
    weights: dict[str, Tensor] = {}
    for path, expected in files.items():
        try:
            with errors_of_the_disk(path):
                state = read_weights(path, "cpu")
        except (SafetensorError, KeyError, RecursionError, ValueError) as error:
            raise ValueError(
                f"{path.name} is damaged, or no safetensors file: {error}"
            ) from None
        if expected is not None and state.keys() != expected:
            name = min(state.keys() ^ expected)
            raise ValueError(
                f"{INDEX} and {path.name} do not agree on whether it holds "
                f"{name!r}."
            )
        weights |= state
    return weights


def _weight_files(folder: Path) -> dict[Path, set[str] | None]:
    """The files with weights; for each the names that an index gives, if any."""
    if (folder / WEIGHTS).is_file():
        return {folder / WEIGHTS: None}
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(_no_weights(folder))
    content = read_json_object(folder / INDEX)
    names = content.get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ValueError(f"{folder / INDEX}: weight_map is missing or empty.")
    files: dict[Path, set[str] | None] = {}
    for weight, name in names.items():
        if not name or not isinstance(name, str) or name != Path(name).name:
            raise ValueError(
                f"{folder / INDEX}: {weight!r} is said to be in {name!r}, which is "
                "no file of this folder."
            )
        files.setdefault(folder / name, set()).add(weight)
    for path in files:
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing, and {INDEX} names it.")
    return files


def _no_weights(folder: Path) -> str:
    for path in sorted(folder.iterdir()):
        if path.suffix in _PICKLES:
            return (
                f"{path} is a pickle, which can run anything when it is opened, "
                f"and there is no {WEIGHTS}. If you trust it, let transformers "
                "open it, and save_pretrained write safetensors."
            )
    return f"There is neither {WEIGHTS} nor {INDEX} in {folder}."
