"""What PyTorch saves for backward, measured; torch is loaded when it is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["GpuBytes", "SavedBytes", "gpu_bytes", "saved_tensor_bytes"]


@dataclass(frozen=True)
class SavedBytes:
    """Bytes that autograd keeps for backward, each storage counted once, and whole.

    ``parameters`` are not in ``by_dtype``: they exist whether saved or not.
    """

    by_dtype: dict[str, int]
    parameters: int

    @property
    def total(self) -> int:
        """Bytes of all dtypes, parameters apart."""
        return sum(self.by_dtype.values())


def saved_tensor_bytes(
    function: Callable[..., object],
    *arguments: Any,
    parameters: Iterable[torch.Tensor] = (),
) -> SavedBytes:
    """Run a function, which is a forward pass, and return what it saves.

    A storage that ``parameters`` share counts as theirs, a view of it included.
    The storages are held until the end, so that none takes an earlier one's place.
    What backward saves, as when it runs a checkpointed block again, is not seen.
    """
    from torch.autograd.graph import saved_tensors_hooks

    own = {id(p.untyped_storage()): p.untyped_storage() for p in parameters}
    saved: dict[int, tuple[torch.UntypedStorage, torch.dtype]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved.setdefault(id(storage), (storage, tensor.dtype))
        return tensor.detach()  # itself, it could hold the graph that holds it

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        function(*arguments)
    by_dtype: Counter[str] = Counter()
    in_parameters = 0
    for key, (storage, dtype) in saved.items():
        if key in own:
            in_parameters += storage.nbytes()
        else:
            by_dtype[str(dtype).removeprefix("torch.")] += storage.nbytes()
    return SavedBytes(dict(by_dtype), in_parameters)


@dataclass(frozen=True)
class GpuBytes:
    """Bytes of a GPU that a function took and kept, as PyTorch's allocator counts.

    ``requested`` is what the tensors asked for: the sum of ``SavedTensor.nbytes``.
    ``allocated`` is what they got. Small blocks are multiples of 512 bytes, as in
    ``SavedTensor.allocated_nbytes``; a tensor above 1 MiB may get a block up to
    1 MiB larger than itself, since the allocator splits off no rest so small.
    """

    requested: int
    allocated: int


def gpu_bytes(function: Callable[..., object], *arguments: Any) -> GpuBytes:
    """Run a function and return by how much more of the GPU is in use after it.

    What it returns is held meanwhile: return the loss to see what its graph saves.
    Run it once before, or the workspace of the first matrix product counts too.

    Raises RuntimeError where PyTorch sees no GPU.
    """
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(
            "PyTorch sees no GPU, and a CPU has no such allocator: "
            "measure with saved_tensor_bytes."
        )
    before = _bytes_in_use(torch.cuda.memory_stats())
    result = function(*arguments)
    after = _bytes_in_use(torch.cuda.memory_stats())
    del result
    return GpuBytes(
        requested=after.requested - before.requested,
        allocated=after.allocated - before.allocated,
    )


def _bytes_in_use(stats: Mapping[str, int]) -> GpuBytes:
    """Read the two counters; before the first allocation there are none yet."""
    return GpuBytes(
        requested=stats.get("requested_bytes.all.current", 0),
        allocated=stats.get("allocated_bytes.all.current", 0),
    )
