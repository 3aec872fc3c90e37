"""Which checkpoints a folder holds, and in which order they are to be tried."""

import re
from pathlib import Path
from typing import Literal

from lmlib.checkpoint.manifest import CorruptCheckpoint
from lmlib.checkpoint.records import read_meta

__all__ = ["Which", "candidates", "step_path", "step_paths", "validation_losses"]

Which = Literal["latest", "best"] | int | str | Path

_NAME = re.compile(r"step-(\d{8,})")


def step_path(folder: Path, step: int) -> Path:
    """The folder of a step's checkpoint, whether it is there or not."""
    return folder / f"step-{step:08d}"


def step_paths(folder: Path) -> dict[int, Path]:
    """The checkpoints that are there, by step, in order."""
    if not folder.is_dir():
        return {}
    found = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def validation_losses(folder: Path) -> dict[int, float]:
    """The validation losses that are known, by step, the lowest first."""
    losses = {}
    for step, path in step_paths(folder).items():
        try:
            loss = read_meta(path).validation_loss
        except CorruptCheckpoint:
            continue
        if loss is not None:
            losses[step] = loss
    return dict(sorted(losses.items(), key=lambda item: item[1]))


def candidates(folder: Path, which: Which) -> list[Path]:
    """The checkpoints that may stand for the one asked for, the first choice first.

    Raises FileNotFoundError if there is none.
    """
    steps = list(step_paths(folder))
    if which == "latest":
        paths = [step_path(folder, step) for step in reversed(steps)]
        missing = f"There is no checkpoint in {folder}."
    elif which == "best":
        paths = [step_path(folder, step) for step in validation_losses(folder)]
        missing = f"No checkpoint in {folder} has a validation loss."
    else:
        is_step = isinstance(which, int)
        paths = [step_path(folder, which) if is_step else Path(which)]
        known = ", ".join(map(str, steps)) or "none"
        missing = f"There is no checkpoint {paths[0]}; steps in {folder}: {known}."
    if not paths or not paths[0].is_dir():
        raise FileNotFoundError(missing)
    return paths
