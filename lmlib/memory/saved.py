"""What PyTorch saves for backward, measured; torch is loaded when it is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["SavedBytes", "gpu_bytes", "saved_tensor_bytes"]


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


def gpu_bytes(function: Callable[..., object], *arguments: Any) -> int:
    """Run a function and return by how much more of the GPU is allocated after it.

    What it returns is held meanwhile: return the loss to see what its graph saves.
    PyTorch's allocator deals in multiples of 512 bytes: compare this with
    ``SavedTensor.allocated_nbytes``. A large tensor may get a block that was larger
    and is not worth splitting.

    Raises RuntimeError where PyTorch sees no GPU.
    """
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(
            "PyTorch sees no GPU, and a CPU has no such allocator: "
            "measure with saved_tensor_bytes."
        )
    before = torch.cuda.memory_allocated()
    result = function(*arguments)
    after = torch.cuda.memory_allocated()
    del result
    return after - before
