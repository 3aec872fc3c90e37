"""Weights as a safetensors file: names and bytes, and nothing that could run."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["read_weights", "write_weights"]


def write_weights(path: Path, state: Mapping[str, Tensor]) -> None:
    """Write a state dict; what has two names, as tied weights do, once."""
    first_names: dict[tuple, str] = {}
    weights: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    for name, tensor in state.items():
        first = first_names.setdefault(_place(tensor), name)
        if first == name:
            weights[name] = _own_memory(tensor)
        else:
            tied[name] = first
    metadata = {"format": "pt", "tied": json.dumps(tied)}
    save_file(weights, path, metadata=metadata)


def read_weights(path: Path, device: str | torch.device) -> dict[str, Tensor]:
    """Read a state dict, on a CPU without a copy of the mapped file."""
    with safe_open(path, framework="pt", device=str(device)) as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        tied = json.loads((file.metadata() or {}).get("tied", "{}"))
    return weights | {name: weights[first] for name, first in tied.items()}


def _place(tensor: Tensor) -> tuple:
    """What two tensors share that are one, each element of which is the other's."""
    if not tensor.numel():
        return (object(),)  # has no memory that could be shared
    return (
        tensor.device,
        tensor.data_ptr(),
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
    )


def _own_memory(tensor: Tensor) -> Tensor:
    """The tensor in one piece, which is no part of a larger one."""
    whole = tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor.contiguous() if whole else tensor.clone().contiguous()
