"""Reading the files of a checkpoint, once they are verified."""

import pickle
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmlib.checkpoint.errors import CorruptCheckpoint, damage_named
from lmlib.checkpoint.manifest import verify
from lmlib.checkpoint.ranks import Ranks
from lmlib.checkpoint.records import META, Checkpoint, TrainingState, read_meta
from lmlib.checkpoint.sharded import put_back, read_shards, shard_like, take_out
from lmlib.checkpoint.weights import read_weights
from lmlib.checkpoint.writing import SHARDS, TRAINING, WEIGHTS

__all__ = ["read_checkpoint"]


def read_checkpoint(
    path: Path,
    ranks: Ranks,
    *,
    map_location: str | torch.device = "cpu",
    into: TrainingState | None = None,
) -> Checkpoint:
    """Verify and read a folder; CorruptCheckpoint if it is not as it was written.

    On a CPU whole tensors stay in the mapped files until they are looked at: there
    is no second copy of a state that is loaded. What is sharded in ``into`` comes
    in its parts, however it was saved; all else as a whole.
    """
    listed = ranks.together(lambda: _verify(path, ranks))
    meta = read_meta(path)
    state = _read_training(path / TRAINING, map_location)
    training = state["training"]
    model = _read_model(path / WEIGHTS, map_location)
    examples = _sharded_tensors(into)
    if any(name.startswith(f"{SHARDS}/") for name in listed):
        shards = read_shards(path / SHARDS, examples, map_location)
        model |= {
            name.removeprefix("model/"): tensor
            for name, tensor in shards.items()
            if name.startswith("model/")
        }
        training = put_back(training, "training", shards)
    if examples:
        model = shard_like(model, "model", examples)
        training = shard_like(training, "training", examples)
    states = state["rank_states"]
    own = states[ranks.rank] if len(states) == ranks.size else None
    return Checkpoint(path, model, training, own, meta)


def _verify(path: Path, ranks: Ranks) -> list[str]:
    required = {WEIGHTS, TRAINING, META}
    listed = verify(path, required, ranks.rank, ranks.size)
    for file in (path / SHARDS).glob("*"):  # all of which are read
        if f"{SHARDS}/{file.name}" not in listed:
            raise CorruptCheckpoint(f"{SHARDS}/{file.name} is not listed")
    return listed


def _sharded_tensors(state: TrainingState | None) -> dict[str, Tensor]:
    if state is None:
        return {}
    _, of_model = take_out(state.model, "model")
    _, of_training = take_out(state.training, "training")
    return of_model | of_training


def _read_model(path: Path, device: str | torch.device) -> dict[str, Tensor]:
    with damage_named(path):
        return read_weights(path, device)


def _read_training(path: Path, device: str | torch.device) -> dict[str, Any]:
    with damage_named(path):
        try:
            state = torch.load(
                path, map_location=device, weights_only=True, mmap=True
            )
        except pickle.UnpicklingError as error:
            _check_no_code(path, error)
            raise
        kinds = {name: type(value) for name, value in state.items()}
        if kinds != {"training": dict, "rank_states": list}:
            raise CorruptCheckpoint(f"{path.name} holds no state of a run")
        return state


def _check_no_code(path: Path, error: pickle.UnpicklingError) -> None:
    """CorruptCheckpoint if what was refused is more than tensors and values."""
    if match := re.search(r"GLOBAL ([\w.]+)", str(error)):
        raise CorruptCheckpoint(
            f"{path.name} asks for {match[1]}, which is no tensor or plain value: "
            "a pickle with code in it can do anything when it is loaded, and is not"
        ) from error
