"""Which checkpoints a folder holds, and in which order they are to be tried."""

import re
from pathlib import Path
from typing import Literal

from lmlib.checkpoint.errors import CorruptCheckpoint
from lmlib.checkpoint.records import Meta, read_meta

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
    folders = (path for path in folder.iterdir() if path.is_dir())
    found = ((_NAME.fullmatch(path.name), path) for path in folders)
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def validation_losses(folder: Path) -> dict[int, float]:
    """The validation losses that are known, by step, the lowest first."""
    metas = _metas(folder)
    losses = {k: x.validation_loss for k, x in metas.items() if x is not None}
    known = [(step, loss) for step, loss in losses.items() if loss is not None]
    return dict(sorted(known, key=lambda item: item[1]))


def _metas(folder: Path) -> dict[int, Meta | None]:
    """What is known of each checkpoint; None of one where that is damaged."""
    metas: dict[int, Meta | None] = {}
    for step, path in step_paths(folder).items():
        try:
            metas[step] = read_meta(path)
        except CorruptCheckpoint:
            metas[step] = None
    return metas


def candidates(folder: Path, which: Which) -> list[Path]:
    """The checkpoints that may stand for the one asked for, the first choice first.

    Raises FileNotFoundError if there is none.
    """
    steps = list(step_paths(folder))
    if which == "latest":
        paths = [step_path(folder, step) for step in reversed(steps)]
        missing = f"There is no checkpoint in {folder}."
    elif which == "best":
        # One of which nothing is known may be the best: who loads it will say so.
        unknown = [step for step, meta in _metas(folder).items() if meta is None]
        known = validation_losses(folder)
        paths = [step_path(folder, step) for step in (*unknown, *known)]
        missing = f"No checkpoint in {folder} has a validation loss."
    else:
        is_step = isinstance(which, int)
        paths = [step_path(folder, which) if is_step else Path(which)]
        known = ", ".join(map(str, steps)) or "none"
        missing = f"There is no checkpoint {paths[0]}; steps in {folder}: {known}."
    paths = [path for path in paths if path.is_dir()]  # a run may have removed it
    if not paths:
        raise FileNotFoundError(missing)
    return paths
