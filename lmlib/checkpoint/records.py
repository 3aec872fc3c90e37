"""What goes into a checkpoint, what comes out, and what is known of it before."""

import json
import math
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import lmlib
from lmlib.checkpoint.errors import NO_JSON, NOT_THERE, CorruptCheckpoint
from lmlib.checks import check_count

__all__ = ["META", "Checkpoint", "Meta", "TrainingState", "read_meta"]

META = "meta.json"


@dataclass(frozen=True)
class TrainingState:
    """All that a run needs to go on as if it had never stopped.

    ``model`` is a state dict. ``training`` is what else there is: the state of the
    optimizer, the schedule, the scaler, the loader. ``rank_state`` is what every
    rank has for itself, such as ``capture_rng()``.

    They hold tensors, numbers, strings, lists and mappings. Tensors may be sharded,
    as FSDP2 does it; the others are those of rank 0.
    """

    model: Mapping[str, Tensor]
    training: Mapping[str, Any]
    rank_state: Any = None


def _versions() -> dict[str, str]:
    return {
        "lmlib": lmlib.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class Meta:
    """What can be known of a checkpoint without loading it.

    ``validation_loss`` is None if it was not measured or is not finite;
    ``best_validation_loss`` is the lowest of this checkpoint and those that were
    there with it. ``time`` is in seconds since 1970.
    """

    step: int
    validation_loss: float | None = None
    best_validation_loss: float | None = None
    config: Any = None
    world_size: int = 1
    versions: Mapping[str, str] = field(default_factory=_versions)
    time: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        """Keep out a loss that JSON cannot hold, and a step that is none."""
        object.__setattr__(self, "step", check_count("step", self.step))
        for name in ("validation_loss", "best_validation_loss"):
            value = getattr(self, name)
            finite = value is not None and math.isfinite(value)
            object.__setattr__(self, name, float(value) if finite else None)


@dataclass(frozen=True)
class Checkpoint:
    """What was loaded.

    ``rank_state`` is this rank's own; None if there were more or fewer ranks.
    """

    path: Path
    model: dict[str, Tensor]
    training: dict[str, Any]
    rank_state: Any
    meta: Meta


def read_meta(path: Path) -> Meta:
    """Read what is known of a checkpoint; CorruptCheckpoint if it cannot be."""
    try:
        return Meta(**json.loads((path / META).read_text(encoding="utf-8")))
    except NOT_THERE:
        raise CorruptCheckpoint(f"{META} is missing") from None
    except (*NO_JSON, TypeError, OverflowError) as error:
        raise CorruptCheckpoint(f"{META} cannot be read: {error}") from error
