"""The files of a checkpoint: what each holds, how it is written and read."""

import json
import math
import os
import pickle
import platform
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

import lmlib
from lmlib.checkpoint.manifest import CorruptCheckpoint, verify, write_manifest
from lmlib.checkpoint.snapshot import plain_state
from lmlib.checkpoint.weights import read_weights, write_weights

__all__ = [
    "Checkpoint",
    "Meta",
    "TrainingState",
    "read_checkpoint",
    "read_meta",
    "write_checkpoint",
]

WEIGHTS, TRAINING, META = "model.safetensors", "training.pt", "meta.json"


def _versions() -> dict[str, str]:
    return {
        "lmlib": lmlib.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class Meta:
    """What a reader wants to know of a checkpoint before loading it.

    A ``validation_loss`` that was not measured, or is not finite, is None. ``time``
    is in seconds since 1970.
    """

    step: int
    validation_loss: float | None = None
    best_validation_loss: float | None = None
    config: Any = None
    world_size: int = 1
    versions: Mapping[str, str] = field(default_factory=_versions)
    time: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        """Keep a loss that JSON cannot hold out of it."""
        for name in ("validation_loss", "best_validation_loss"):
            value = getattr(self, name)
            finite = value is not None and math.isfinite(value)
            object.__setattr__(self, name, float(value) if finite else None)


@dataclass(frozen=True)
class TrainingState:
    """All that a run needs to go on as if it had never stopped.

    ``model`` is a state dict. ``training`` is what else there is: the optimizer's
    state, the scheduler's, the scaler's, the loader's. ``rank_state`` is what every
    rank has for itself, such as ``capture_rng()``. They hold tensors, numbers,
    strings, lists and mappings.
    """

    model: Mapping[str, Tensor]
    training: Mapping[str, Any]
    rank_state: Any = None

    def plain(self, *, copy: bool) -> Self:
        """The same in tensors and plain values alone; see ``plain_state``."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        return type(self)(
            **{
                name: plain_state(part, copy=copy, name=name)
                for name, part in parts.items()
            }
        )


@dataclass(frozen=True)
class Checkpoint:
    """What was loaded: the state as it was given to ``save``, and where it stood.

    ``rank_state`` is this rank's own; None if there were more or fewer ranks.
    """

    path: Path
    model: dict[str, Tensor]
    training: dict[str, Any]
    rank_state: Any
    meta: Meta


def write_checkpoint(
    folder: Path, state: TrainingState, rank_states: Sequence[Any], meta: Meta
) -> None:
    """Write all files into an empty folder; the manifest of them comes last."""
    training = {"training": state.training, "rank_states": list(rank_states)}
    with _errors_of_the_disk(folder / TRAINING), open(folder / TRAINING, "wb") as f:
        torch.save(training, f)
    with _errors_of_the_disk(folder / WEIGHTS):
        write_weights(folder / WEIGHTS, state.model)
    text = json.dumps(asdict(meta), indent=2, allow_nan=False)
    (folder / META).write_text(text + "\n", encoding="utf-8")
    write_manifest(folder)


def read_checkpoint(
    path: Path, map_location: str | torch.device = "cpu", rank: int = 0
) -> Checkpoint:
    """Verify and read a folder; CorruptCheckpoint if it is not as it was written.

    On a CPU the tensors stay in the mapped files until they are looked at, so that
    there is no second copy of a state that is loaded.
    """
    verify(path, required={WEIGHTS, TRAINING, META})
    meta = read_meta(path)
    state = _read_training(path / TRAINING, map_location)
    try:
        model = read_weights(path / WEIGHTS, map_location)
    except (SafetensorError, KeyError, ValueError) as error:
        raise CorruptCheckpoint(f"{WEIGHTS} cannot be read: {error}") from error
    ranks = state["rank_states"]
    same_ranks = rank < len(ranks) == meta.world_size
    return Checkpoint(
        path, model, state["training"], ranks[rank] if same_ranks else None, meta
    )


def read_meta(path: Path) -> Meta:
    """Read what is known of a checkpoint; CorruptCheckpoint if it cannot be."""
    try:
        return Meta(**json.loads((path / META).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise CorruptCheckpoint(f"{META} is missing") from None
    except (ValueError, TypeError) as error:
        raise CorruptCheckpoint(f"{META} cannot be read: {error}") from error


def _read_training(path: Path, map_location: str | torch.device) -> dict[str, Any]:
    try:
        state = torch.load(
            path, map_location=map_location, weights_only=True, mmap=True
        )
        if state.keys() == {"training", "rank_states"}:
            return state
    except pickle.UnpicklingError as error:
        raise CorruptCheckpoint(_unpickling_problem(path, error)) from error
    except (RuntimeError, ValueError, AttributeError, EOFError) as error:
        raise CorruptCheckpoint(f"{path.name} cannot be read: {error}") from error
    raise CorruptCheckpoint(f"{path.name} holds no state of a run")


def _unpickling_problem(path: Path, error: pickle.UnpicklingError) -> str:
    if match := re.search(r"GLOBAL ([\w.]+)", str(error)):
        return (
            f"{path.name} asks for {match[1]}, which is no tensor or plain value: "
            "a pickle with code in it can do anything when it is loaded, and is not"
        )
    return f"{path.name} cannot be read: {error!s:.200}"


@contextmanager
def _errors_of_the_disk(path: Path) -> Iterator[None]:
    """Raise as an OSError what torch and safetensors make of a full disk."""
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        if isinstance(error.__context__, OSError):
            number = error.__context__.errno
        elif match := re.search(r"\(os error (\d+)\)", str(error)):
            number = int(match[1])
        else:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error
