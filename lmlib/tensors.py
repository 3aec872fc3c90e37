"""What makes a tensor: a storage, and the offset, shape and strides to walk it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

__all__ = [
    "TensorLayout",
    "describe",
    "same_storage",
    "storage_indices",
    "storage_nbytes",
    "view_strides",
]


@dataclass(frozen=True)
class TensorLayout:
    """How a tensor finds its elements in its storage.

    Element ``(i, j, …)`` is number ``offset + i·strides[0] + j·strides[1] + …``.
    Shape, strides and offset are in elements, ``element_size`` and
    ``storage_nbytes`` in bytes.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    element_size: int
    storage_nbytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of the elements the shape names: ``numel × element_size``.

        A view may share these elements with other tensors, or repeat some of them.
        """
        return prod(self.shape) * self.element_size

    def index(self, *position: int) -> int:
        """Storage index of the element at ``position``; ``IndexError`` outside."""
        position = tuple(map(operator.index, position))
        inside = len(position) == len(self.shape) and all(
            0 <= i < size for i, size in zip(position, self.shape, strict=True)
        )
        if not inside:
            raise IndexError(
                f"position {position} is not inside shape {self.shape}"
            )
        steps = zip(position, self.strides, strict=True)
        return self.offset + sum(i * stride for i, stride in steps)

    def __str__(self) -> str:
        return (
            f"shape {self.shape}, strides {self.strides}, offset {self.offset}, "
            f"storage of {self.storage_nbytes} bytes"
        )


def describe(tensor: Tensor) -> TensorLayout:
    """Layout of any strided tensor, on any device.

    ``TypeError`` for anything without strides, such as a sparse or a nested tensor.
    """
    storage = _storage(tensor)
    return TensorLayout(
        shape=tuple(tensor.shape),
        strides=tensor.stride(),
        offset=tensor.storage_offset(),
        element_size=tensor.element_size(),
        storage_nbytes=storage.nbytes(),
    )


def same_storage(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors read one storage: each can see what the other writes.

    Storages count as one where their memory overlaps, as it may if NumPy owns it.
    """
    storage_a, storage_b = _storage(a), _storage(b)
    if storage_a is storage_b:  # torch keeps one Python object for each storage
        return True
    (start_a, end_a), (start_b, end_b) = _span(storage_a), _span(storage_b)
    overlap = max(start_a, start_b) < min(end_a, end_b)
    return a.device == b.device and overlap and start_a != 0  # a meta tensor's is 0


def storage_indices(tensor: Tensor) -> Tensor:
    """Storage index of every element, as an int64 CPU tensor of the same shape."""
    layout = describe(tensor)
    indices = torch.tensor(layout.offset, device="cpu")
    for size, stride in zip(layout.shape, layout.strides, strict=True):
        indices = indices[..., None] + stride * torch.arange(size, device="cpu")
    return indices


def storage_nbytes(tensors: Iterable[Tensor]) -> int:
    """Bytes that some tensors keep alive: each distinct storage once, and whole."""
    if isinstance(tensors, Tensor):
        raise TypeError("give a list of tensors: storage_nbytes([x])")
    by_identity = {id(s): s for s in map(_storage, tensors)}
    spans = [(str(s.device), *_span(s)) for s in by_identity.values()]
    total, reached = 0, ("", 0)
    for device, start, end in sorted(spans):
        if start == 0:  # a meta tensor's, which overlaps no other
            total += end
        else:  # what lies behind the end of the spans before it
            start = max(reached, (device, start))[1]
            total += max(0, end - start)
            reached = max(reached, (device, end))
    return total


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    """The tensor's storage; ``TypeError`` where there is none to speak of."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"expected a torch tensor, not {type(tensor).__name__}")
    try:
        if tensor.layout == torch.strided and tensor.stride() is not None:
            return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError, ValueError):
        pass  # nested, not yet initialised, or inside a transform such as vmap
    raise TypeError(
        "only a strided tensor has a storage and strides, "
        f"not a {type(tensor).__name__} of layout {tensor.layout}"
    )


def _span(storage: torch.UntypedStorage) -> tuple[int, int]:
    """First address of a storage, and the one behind its last."""
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def view_strides(
    shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int]
) -> tuple[int, ...] | None:
    """Strides of ``tensor.view(new_shape)``, or None where no strides can do it.

    One entry of ``new_shape`` may be -1. ``ValueError`` where the shapes differ in
    their number of elements. The rule is that of ``torch.Tensor.view``: dimensions
    that follow one another evenly form a run with a single step, and every new
    dimension has to lie within one run. (The stride of a dimension of size 1 means
    nothing, and may be another one than torch's.)
    """
    shape, strides = _checked_dimensions(shape, strides)
    new_shape = _without_wildcard(
        prod(shape), tuple(map(operator.index, new_shape))
    )
    if prod(shape) == 0:
        return strides if new_shape == shape else _row_major_strides(new_shape)

    runs = _even_runs(shape, strides)
    new_strides: list[int] = []
    left, step = runs.pop() if runs else (1, 1)
    for size in reversed(new_shape):
        if left == 1 and size > 1 and runs:
            left, step = runs.pop()
        if left % size:
            return None  # this dimension would begin in one run and end in the next
        new_strides.append(step)
        left, step = left // size, step * size
    return tuple(reversed(new_strides))


def _even_runs(
    shape: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """Fuse dimensions that follow one another evenly into runs ``(length, step)``.

    Two fuse when the outer stride is the inner length × the inner step.
    """
    runs: list[tuple[int, int]] = []
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue  # never stepped along, so its stride means nothing
        if runs and stride == runs[-1][0] * runs[-1][1]:
            length, step = runs.pop()
            runs.append((size * length, step))
        else:
            runs.append((size, stride))
    return runs[::-1]


def _checked_dimensions(
    shape: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides as Python integers, which do not overflow."""
    shape, strides = (
        tuple(map(operator.index, shape)),
        tuple(map(operator.index, strides)),
    )
    if len(shape) != len(strides) or min((*shape, *strides), default=0) < 0:
        raise ValueError(
            f"shape {shape} and strides {strides} must be of one length "
            "and not negative"
        )
    return shape, strides


def _without_wildcard(numel: int, new_shape: tuple[int, ...]) -> tuple[int, ...]:
    """``new_shape`` with a -1 filled in so that it has ``numel`` elements."""
    if new_shape.count(-1) == 1:
        known = -prod(new_shape)
        if known and numel % known == 0:
            missing = numel // known
            new_shape = tuple(missing if size == -1 else size for size in new_shape)
    if min(new_shape, default=0) < 0 or prod(new_shape) != numel:
        raise ValueError(f"{numel} elements cannot have shape {new_shape}")
    return new_shape


def _row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor; a size of 0 counts as 1, as in torch."""
    sizes = [max(size, 1) for size in shape]
    return tuple(prod(sizes[axis + 1 :]) for axis in range(len(sizes)))
