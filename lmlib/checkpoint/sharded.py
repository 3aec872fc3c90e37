"""Tensors of which every rank holds a part, by ``torch.distributed.checkpoint``.

Every rank writes its parts into safetensors files of its own, with the place of
each part in its tensor. Any number of ranks can read them, each what it needs.

What most runs do not need is imported where it is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lmlib.checkpoint.errors import damage_named, errors_of_the_disk
from lmlib.checkpoint.ranks import Ranks
from lmlib.checkpoint.trees import map_leaves
from lmlib.distributed import is_sharded

if TYPE_CHECKING:
    from types import ModuleType

    from torch.distributed.tensor import DTensor

__all__ = [
    "put_back",
    "read_shards",
    "shard_like",
    "sharded_checkpoints",
    "take_out",
    "write_shards",
]

_MARK = "(in shards/)"


def sharded_checkpoints() -> ModuleType:
    """``torch.distributed.checkpoint``; ValueError if torch is too old for ours."""
    import torch.distributed.checkpoint as dcp

    if not hasattr(dcp, "HuggingFaceStorageWriter"):
        raise ValueError(
            f"torch {torch.__version__} cannot write the checkpoints of a sharded "
            "model: install 2.9 or newer, or choose parallel = 'ddp'."
        )
    return dcp


def take_out(tree: Any, name: str) -> tuple[Any, dict[str, DTensor]]:
    """The same with a mark in place of each sharded tensor, and these by name."""
    found = {}

    def mark(name: str, leaf: Any) -> Any:
        if not is_sharded(leaf):
            return leaf
        found[name] = leaf
        return _MARK

    return map_leaves(tree, mark, name), found


def put_back(tree: Any, name: str, tensors: Mapping[str, Tensor]) -> Any:
    """Undo ``take_out`` with tensors of those names."""
    return map_leaves(tree, lambda name, leaf: tensors.get(name, leaf), name)


def shard_like(tree: Any, name: str, examples: Mapping[str, DTensor]) -> Any:
    """The same, with each whole tensor sharded as the one of its name is."""

    def shard(name: str, leaf: Any) -> Any:
        example = examples.get(name)
        if example is None or is_sharded(leaf):
            return leaf
        from torch.distributed.tensor import distribute_tensor

        _check_shape(name, leaf.shape, example.shape)
        # every rank has the whole, and takes its part without asking the others
        return distribute_tensor(
            leaf.to(example.device),
            example.device_mesh,
            example.placements,
            src_data_rank=None,
        )

    return map_leaves(tree, shard, name)


def write_shards(
    folder: Path, tensors: dict[str, DTensor], ranks: Ranks
) -> list[Path]:
    """Write this rank's parts, together with all others; returns its files."""
    dcp = sharded_checkpoints()
    writer = dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True)
    with errors_of_the_disk(folder), _first_error():
        dcp.save(tensors, storage_writer=writer, process_group=ranks.group)
    return sorted(folder.glob(f"shard-{ranks.rank + 1:05d}-*"))


def read_shards(
    folder: Path, into: Mapping[str, Tensor], device: str | torch.device
) -> dict[str, Tensor]:
    """Read all tensors by name: into those given, which may be sharded, or whole.

    No rank waits for another. Raises ValueError if one has another shape.
    """
    dcp = sharded_checkpoints()
    reader = dcp.HuggingFaceStorageReader(str(folder))
    with damage_named(folder), _first_error():
        metadata = reader.read_metadata().state_dict_metadata
    tensors = {}
    for name, saved in metadata.items():
        tensors[name] = into.get(name)
        if tensors[name] is None:
            dtype = saved.properties.dtype
            tensors[name] = torch.empty(saved.size, dtype=dtype, device=device)
        _check_shape(name, saved.size, tensors[name].shape)
    with damage_named(folder), _first_error(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        dcp.load(tensors, storage_reader=reader, no_dist=True)
    return tensors


def _check_shape(name: str, saved: torch.Size, own: torch.Size) -> None:
    if saved != own:
        raise ValueError(
            f"{name} has the shape {tuple(saved)} in the checkpoint, and is to be "
            f"read into {tuple(own)}: use the config that it was saved with."
        )


@contextmanager
def _first_error() -> Iterator[None]:
    """Raise what the first rank that failed raised, as an OSError if it was one.

    ``CheckpointException``, which holds them all, is no ``Exception``.
    """
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        rank, (cause, _) = min(error.failures.items(), key=lambda item: item[0])
        if isinstance(cause, OSError):
            text = f"{cause.strerror} (on rank {rank})"
            raise OSError(cause.errno, text) from error
        kind = type(cause).__name__
        raise RuntimeError(f"rank {rank} failed: {kind}: {cause}") from error
