"""Settings before they are a config: plain values, in layers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmlib.checks import check
from lmlib.config import ModelConfig, named_config
from lmlib.train.config import (
    CORPORA,
    TOKENIZERS,
    TOKENS,
    TrainConfig,
    file_names,
)

__all__ = [
    "absolute_paths",
    "check_shape",
    "draft",
    "has_vocab_size",
    "merged",
    "with_model",
]

Settings = Mapping[str, Any]

_ANY_SIZE = 1024  # of a vocabulary that only the data will tell


def merged(*layers: Settings) -> dict[str, Any]:
    """Put layers upon each other: what comes later wins.

    The model is merged field by field, but a layer that names a ``shape`` begins it
    anew, and one that names tokens or their tokenizer leaves the size of the
    vocabulary to them, unless a shape has it.
    """
    result: dict[str, Any] = {}
    for layer in layers:
        model = _model(layer)
        base = {} if "shape" in model else dict(result.get("model", {}))
        if _names_tokens(layer) and "shape" not in base:
            base.pop("vocab_size", None)
        result |= layer
        if base or model:
            result["model"] = {**base, **model}
    return result


def draft(settings: Settings) -> TrainConfig:
    """Check settings whose vocabulary may still be open, as a config.

    Raises ValueError for what is wrong with them.
    """
    if not has_vocab_size(settings):
        model = {"vocab_size": _ANY_SIZE, **_model(settings)}
        settings = {**settings, "model": model}
    return TrainConfig.from_dict(settings)


def has_vocab_size(settings: Settings) -> bool:
    """Whether the settings say how many ids the model has, or a shape does."""
    return bool({"vocab_size", "shape"} & _model(settings).keys())


def absolute_paths(settings: Settings) -> dict[str, Any]:
    """Settings that mean the same files wherever they are read.

    Raises ValueError for what can be no name of a file.
    """
    result = dict(settings)
    for name in ("data", "validation_data"):
        if name in settings:
            sources = file_names(name, settings[name])
            result[name] = [_absolute(source, CORPORA) for source in sources]
    if "tokenizer" in settings:
        tokenizer = settings["tokenizer"]
        check(isinstance(tokenizer, str), "tokenizer", "text", tokenizer)
        result["tokenizer"] = _absolute(tokenizer, TOKENIZERS)
    if "init_from" in settings:
        folder = settings["init_from"]
        check(isinstance(folder, str), "init_from", "the name of a folder", folder)
        result["init_from"] = _absolute(folder, ())
    return result


def with_model(
    settings: Settings, source: ModelConfig, folder: object
) -> dict[str, Any]:
    """The same with the shape of the model in a folder, to start from.

    Raises ValueError, which names the field, if they ask for another one.
    """
    asked = _model(settings)
    shape = asked.pop("shape", None)
    named = {} if shape is None else named_config(shape).to_dict()
    check_shape({**named, **asked}, source, folder)
    return {**settings, "model": {**source.to_dict(), **asked}}


def check_shape(asked: Settings, source: ModelConfig, folder: object) -> None:
    """ValueError, which names the field, if weights would not mean the same.

    They do with another dropout, which belongs to training alone.
    """
    for name, value in source.to_dict().items():
        if name != "dropout" and asked.get(name, value) != value:
            raise ValueError(
                f"{name} is {asked[name]!r}, and the model in {folder} has "
                f"{value!r}: leave {name} out, or start without init_from."
            )


def _names_tokens(layer: Settings) -> bool:
    """Whether a layer says which ids there are, and not that they be made."""
    sources = file_names("data", layer.get("data", ()))
    is_file = any(source.endswith(TOKENS) for source in sources)
    return is_file or layer.get("tokenizer", "train") != "train"


def _absolute(source: str, names: tuple[str, ...]) -> str:
    return source if source in names else str(Path(source).absolute())


def _model(layer: Settings) -> dict[str, Any]:
    model = layer.get("model", {})
    if isinstance(model, str):
        return {"shape": model}
    check(isinstance(model, Mapping), "model", "a name or a table", model)
    return dict(model)
