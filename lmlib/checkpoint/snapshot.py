"""The state of a run as tensors and plain values, which carry no code."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["plain_state"]

_PLAIN = (type(None), bool, int, float, str, bytes, torch.dtype)


def plain_state(value: Any, *, copy: bool, name: str = "state") -> Any:
    """The same state in new dicts and lists; with ``copy``, in new CPU memory too.

    Later steps cannot touch a copy. Otherwise tensors are those given, detached.

    Raises TypeError, which names the place, for what ``torch.load`` would refuse
    with ``weights_only=True``: a checkpoint that can be saved can be loaded.
    """
    if isinstance(value, Tensor):
        return _plain_tensor(value, copy=copy)
    if isinstance(value, Mapping):
        return {
            plain_state(key, copy=copy, name=f"a key of {name}"): plain_state(
                nested, copy=copy, name=f"{name}[{key!r}]"
            )
            for key, nested in value.items()
        }
    if type(value) in (list, tuple):
        items = enumerate(value)
        return type(value)(
            plain_state(nested, copy=copy, name=f"{name}[{index}]")
            for index, nested in items
        )
    if type(value) in _PLAIN:
        return value
    raise TypeError(
        f"{name} is {value!r:.60}, of type {type(value).__qualname__}: a checkpoint"
        " holds tensors, numbers, strings, lists and mappings. Convert it before,"
        " such as an array to a tensor."
    )


def _plain_tensor(tensor: Tensor, *, copy: bool) -> Tensor:
    tensor = tensor.detach()
    if copy:
        return tensor.to("cpu", copy=True)
    if tensor.untyped_storage().nbytes() > tensor.nbytes:
        return tensor.clone()  # a part of a larger one, all of which would be saved
    return tensor
