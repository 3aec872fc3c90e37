"""Writing a state into the files of a checkpoint."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmlib.checkpoint.errors import errors_of_the_disk
from lmlib.checkpoint.folders import atomic_folder, sync
from lmlib.checkpoint.manifest import Entries, describe, write_manifest
from lmlib.checkpoint.ranks import Ranks
from lmlib.checkpoint.records import META, Meta, TrainingState
from lmlib.checkpoint.sharded import take_out, write_shards
from lmlib.checkpoint.trees import plain_state
from lmlib.checkpoint.weights import write_weights

__all__ = [
    "SHARDS",
    "TRAINING",
    "WEIGHTS",
    "Parts",
    "take_apart",
    "write_checkpoint",
]

WEIGHTS, TRAINING, SHARDS = "model.safetensors", "training.pt", "shards"


@dataclass(frozen=True)
class Parts:
    """A state by where it goes: the first two are written by rank 0 alone."""

    model: dict[str, Tensor]
    training: dict[str, Any]
    rank_state: Any
    shards: dict[str, Tensor]  # of which each rank has a part


def take_apart(state: TrainingState, ranks: Ranks, *, copy: bool) -> Parts:
    """Say what goes where, of copies in CPU memory or of the tensors themselves.

    Raises TypeError for what could not be loaded again, and ValueError for a part
    of a tensor whose other parts nobody else would write.
    """
    for name, leaf in state.model.items():
        if not isinstance(leaf, Tensor):
            raise TypeError(f"model/{name} is no tensor: put it into training.")
    model, model_shards = take_out(state.model, "model")
    training, training_shards = take_out(state.training, "training")
    if model_shards | training_shards and ranks.size == 1:
        raise ValueError("The state is sharded: pass the world to CheckpointStore.")
    copy_whole = copy and ranks.is_main  # the others do not write it
    return Parts(
        model=plain_state(model, "model", copy=copy_whole),
        training=plain_state(training, "training", copy=copy_whole),
        rank_state=plain_state(state.rank_state, "rank_state", copy=copy),
        shards=plain_state(model_shards | training_shards, "shards", copy=copy),
    )


def write_checkpoint(path: Path, parts: Parts, meta: Meta, ranks: Ranks) -> None:
    """Write a folder that is there once all ranks have written their files."""
    with ExitStack() as stack:
        folder = ranks.on_main(lambda: stack.enter_context(atomic_folder(path)))
        entries: Entries = {}
        if parts.shards:
            mine = ranks.together(lambda: _write_shards(folder, parts, ranks))
            for theirs in ranks.gather(mine):
                entries |= theirs
        training = {
            "training": parts.training,
            "rank_states": ranks.gather(parts.rank_state),
        }
        ranks.on_main(
            lambda: _write_whole(folder, parts.model, training, meta, entries)
        )


def _write_shards(folder: Path, parts: Parts, ranks: Ranks) -> Entries:
    files = write_shards(folder / SHARDS, parts.shards, ranks)
    return describe(folder, files)


def _write_whole(
    folder: Path,
    model: Mapping[str, Any],
    training: Mapping[str, Any],
    meta: Meta,
    entries: Entries,
) -> None:
    """Write what all ranks have in common; the manifest of all files comes last."""
    weights = {n: t for n, t in model.items() if isinstance(t, Tensor)}
    files = {
        TRAINING: partial(_write_training, training),
        WEIGHTS: partial(write_weights, weights),
        META: partial(_write_meta, meta),
    }
    with ThreadPoolExecutor() as pool:
        described, synced = [], []
        for name, write in files.items():
            path = folder / name
            with errors_of_the_disk(path):
                write(path)
            # beside the writing of the next one: neither holds Python's lock
            described.append(pool.submit(describe, folder, [path]))
            synced.append(pool.submit(sync, path))
        for job in synced:
            job.result()
        for job in described:
            entries |= job.result()
    write_manifest(folder, entries)


def _write_training(state: Mapping[str, Any], path: Path) -> None:
    with open(path, "wb") as file:
        torch.save(state, file)


def _write_meta(meta: Meta, path: Path) -> None:
    text = json.dumps(asdict(meta), indent=2, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
