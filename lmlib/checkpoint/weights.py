"""Weights as a safetensors file: names and bytes, and nothing that could run."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["read_weights", "write_weights"]


def write_weights(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a state dict; a tensor that has two names, as a tied one has, once."""
    names: dict[int, str] = {}  # the first name of each tensor
    tied = {}
    for name, tensor in state.items():
        first = names.setdefault(id(tensor), name)
        if first != name:
            tied[name] = first
    weights = {name: state[name].contiguous() for name in names.values()}
    path.touch()
    mode = path.stat().st_mode
    save_file(weights, path, metadata={"format": "pt", "tied": json.dumps(tied)})
    path.chmod(mode)  # safetensors lets nobody but the owner read it


def read_weights(path: Path, device: str | torch.device) -> dict[str, Tensor]:
    """Read a state dict; on a CPU its tensors lie in the mapped file."""
    with safe_open(path, framework="pt", device=str(device)) as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        tied = json.loads((file.metadata() or {}).get("tied", "{}"))
    if (
        not isinstance(tied, dict)
        or not {*map(str, tied.values())} <= weights.keys()
    ):
        raise ValueError(f"no weights can be tied as it says: {tied!r:.60}")
    return weights | {name: weights[first] for name, first in tied.items()}
