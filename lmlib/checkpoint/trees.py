"""The state of a run as nested mappings and lists of tensors and plain values."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lmlib.distributed import is_sharded

__all__ = ["map_leaves", "plain_state"]

_PLAIN = (type(None), bool, int, float, str, bytes, torch.dtype)


def map_leaves(tree: Any, function: Callable[[str, Any], Any], name: str) -> Any:
    """The same in new dicts and lists, with ``function(name, leaf)`` for each leaf.

    A leaf is whatever is no mapping, list or tuple; its name is the path that leads
    to it, such as ``"training/optimizer/state/0/step"``.
    """
    if isinstance(tree, Mapping):
        return {
            _check_plain(f"a key of {name}", key): map_leaves(
                leaf, function, f"{name}/{key}"
            )
            for key, leaf in tree.items()
        }
    if type(tree) in (list, tuple):
        return type(tree)(
            map_leaves(leaf, function, f"{name}/{index}")
            for index, leaf in enumerate(tree)
        )
    return function(name, tree)


def plain_state(tree: Any, name: str, *, copy: bool) -> Any:
    """The same without gradients, in CPU memory of its own if it is to be a copy.

    What is one tensor under two names, as tied weights are, stays one.

    Raises TypeError, with the name, for what ``torch.load(weights_only=True)``
    would refuse: what can be saved can be loaded.
    """
    done: dict[tuple, Tensor] = {}

    def plain(name: str, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return _check_plain(name, leaf)
        place = _place(leaf)
        if place not in done:
            done[place] = _own_memory(leaf.detach(), copy=copy)
        return done[place]

    return map_leaves(tree, plain, name)


def _place(tensor: Tensor) -> tuple:
    """What two tensors have in common that are one."""
    if is_sharded(tensor) or not tensor.numel():
        return (id(tensor),)  # has no memory that could be shared
    kind = (tensor.device, tensor.dtype, tensor.shape, tensor.stride())
    return (tensor.data_ptr(), *kind)


def _own_memory(tensor: Tensor, *, copy: bool) -> Tensor:
    if copy:
        return tensor.to("cpu", copy=True)
    if is_sharded(tensor):
        return tensor
    # of a part of a larger tensor, torch.save would write all
    is_part = tensor.untyped_storage().nbytes() > tensor.nbytes
    return tensor.clone() if is_part else tensor


def _check_plain(name: str, value: Any) -> Any:
    if type(value) in _PLAIN:  # a NumPy float is a float too, but pickled otherwise
        return value
    raise TypeError(
        f"{name} is {value!r:.60}, of type {type(value).__qualname__}: a checkpoint"
        " holds tensors, numbers, strings, lists and mappings. Convert it before,"
        " such as an array to a tensor."
    )
