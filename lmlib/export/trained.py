"""What ``lmlib train`` left in the folder of a run, and a folder like it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lmlib.bpe import Tokenizer
from lmlib.checkpoint import CheckpointStore, TrainingState
from lmlib.checkpoint.folders import atomic_folder
from lmlib.checkpoint.listing import Which, candidates
from lmlib.checkpoint.records import META, Meta, read_meta
from lmlib.config import ModelConfig
from lmlib.export.files import TOKENIZER, check_free, check_vocabulary
from lmlib.export.loaded import Loaded, build_model, read_tokenizer
from lmlib.model import TransformerLM

__all__ = [
    "Trained",
    "find_checkpoint",
    "load_trained",
    "read_trained_config",
    "save_trained",
]

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, kw_only=True)
class Trained(Loaded):
    """A model as it was at a step of a run."""

    step: int
    validation_loss: float | None


def load_trained(
    path: str | os.PathLike,
    checkpoint: Literal["best", "latest"] | int | None = None,
) -> Trained:
    """Read a model from the folder of a run, or from one of its checkpoints.

    Of a run it is the checkpoint of a step, the latest, or the one with the best
    validation loss; if None, the best, or the latest where none was measured. The
    tokenizer is that of the run.

    Raises FileNotFoundError if there is no such thing, CorruptCheckpoint, a
    ValueError, if it is not as it was saved, and ValueError if it does not hold a
    ``TransformerLM``, or if a checkpoint is to be chosen in a checkpoint.
    """
    run, store, which = _choice(Path(path), checkpoint)
    found = store.load(which)
    tokenizer, problem = read_tokenizer(run)
    try:
        model = build_model(_config(found.meta), found.model)
        check_vocabulary(model.config, tokenizer)
    except ValueError as error:
        raise ValueError(f"{found.path} cannot be used: {error}") from None
    return Trained(
        model=model,
        tokenizer=tokenizer,
        no_tokenizer=problem,
        step=found.meta.step,
        validation_loss=found.meta.validation_loss,
    )


def find_checkpoint(path: Path) -> tuple[Path, Path]:
    """The checkpoint that ``load_trained`` tries first, and the folder of its run.

    Raises FileNotFoundError if there is none.
    """
    run, store, which = _choice(path, None)
    return candidates(store.folder, which)[0], run


def read_trained_config(path: Path) -> ModelConfig:
    """The config of the model in a checkpoint; ValueError if it tells of none."""
    try:
        return _config(read_meta(path))
    except ValueError as error:
        raise ValueError(f"{path} cannot be used: {error}") from None


def save_trained(
    folder: str | os.PathLike,
    model: TransformerLM,
    tokenizer: Tokenizer | None = None,
) -> None:
    """Write a model as the checkpoint of step 0 in a folder like that of a run.

    ``load_trained`` reads it. There is no state to go on training from. The folder
    appears when it is whole.

    Raises ValueError for a tokenizer with more ids than the model, and OSError if
    there is something in the folder, or if it cannot be written.
    """
    folder = Path(folder)
    check_free(folder)
    check_vocabulary(model.config, tokenizer)
    state = TrainingState(model.state_dict(), training={})
    config = {"model": model.config.to_dict()}
    with atomic_folder(folder) as temporary:
        if tokenizer:
            tokenizer.save(temporary / TOKENIZER)
        store = CheckpointStore(temporary / CHECKPOINTS)
        store.save(state, step=0, config=config)


def _choice(
    path: Path, checkpoint: Literal["best", "latest"] | int | None
) -> tuple[Path, CheckpointStore, Which]:
    """The folder of a run, its checkpoints, and which of them is asked for."""
    if (path / META).is_file():
        run = path.resolve().parents[1]
        if checkpoint is not None:
            raise ValueError(
                f"{path} is a checkpoint itself: to choose {checkpoint!r} instead, "
                f"name the folder of its run, {run}."
            )
        return run, CheckpointStore(path.parent), path
    if (path / CHECKPOINTS).is_dir():
        store = CheckpointStore(path / CHECKPOINTS)
        best = "latest" if store.best_step is None else "best"
        return path, store, best if checkpoint is None else checkpoint
    raise FileNotFoundError(
        f"{path} is neither the folder of a run nor a checkpoint of one: there "
        f"is no {CHECKPOINTS} and no {META} in it.{_name_another(path)}"
    )


def _name_another(path: Path) -> str:
    """Say which folders in this one could be meant, such as the runs in runs."""
    if not path.is_dir():
        return ""
    for child in sorted(path.iterdir(), reverse=True):
        if (child / CHECKPOINTS).is_dir() or (child / META).is_file():
            return f" Name one that it holds, such as {child}."
    return ""


def _config(meta: Meta) -> ModelConfig:
    """The config of the model, which is a part of that of the run."""
    config: Any = meta.config
    if not isinstance(config, Mapping) or not isinstance(
        config.get("model"), Mapping
    ):
        raise ValueError("its config says nothing of a model.")
    return ModelConfig.from_dict(config["model"])
