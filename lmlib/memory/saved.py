"""What PyTorch saves for backward, measured; torch is loaded when it is called."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = [
    "GpuBytes",
    "SavedBytes",
    "gpu_bytes",
    "memory_timeline",
    "saved_bytes_by_module",
    "saved_tensor_bytes",
]


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
    What backward saves, as when it runs a checkpointed block again, is not seen.
    """
    own = {id(p.untyped_storage()): p.untyped_storage() for p in parameters}
    saved = _saved_storages(function, arguments, lambda tensor: tensor.dtype)
    by_dtype: Counter[str] = Counter()
    in_parameters = 0
    for key, (storage, dtype) in saved.items():
        if key in own:
            in_parameters += storage.nbytes()
        else:
            by_dtype[str(dtype).removeprefix("torch.")] += storage.nbytes()
    return SavedBytes(dict(by_dtype), in_parameters)


def saved_bytes_by_module(
    function: Callable[..., object], *arguments: Any, model: torch.nn.Module
) -> dict[str | None, int]:
    """Run a forward pass through ``model`` and return what each module saves.

    Names are those of ``model.named_modules()``: "" is the model itself, and None
    stands for what is saved outside of it, as by a loss. A storage counts for the
    module that saves it first, parameters count for none. Like
    ``saved_tensor_bytes`` it does not see what backward saves.
    """
    running: list[str | None] = [None]

    def leave(*_: object) -> None:
        running.pop()

    hooks = []
    for name, module in model.named_modules():
        enter = partial(_enter, running, name)
        hooks.append(module.register_forward_pre_hook(enter))
        hooks.append(module.register_forward_hook(leave))
    try:
        saved = _saved_storages(function, arguments, lambda _: running[-1])
    finally:
        for hook in hooks:
            hook.remove()
    own = {id(p.untyped_storage()): p.untyped_storage() for p in model.parameters()}
    by_module: Counter[str | None] = Counter()
    for key, (storage, name) in saved.items():
        if key not in own:
            by_module[name] += storage.nbytes()
    return dict(by_module)


def _enter(running: list[str | None], name: str, *_: object) -> None:
    running.append(name)


def _saved_storages(
    function: Callable[..., object],
    arguments: Iterable[Any],
    label: Callable[[torch.Tensor], Any],
) -> dict[int, tuple[torch.UntypedStorage, Any]]:
    """Each storage that a function saves, with the label of who saves it first.

    The storages are held until the end, so that none takes an earlier one's place.
    """
    from torch.autograd.graph import saved_tensors_hooks

    saved: dict[int, tuple[torch.UntypedStorage, Any]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved.setdefault(id(storage), (storage, label(tensor)))
        return tensor.detach()  # itself, it could hold the graph that holds it

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        function(*arguments)
    return saved


def memory_timeline(function: Callable[..., object], *arguments: Any) -> list[int]:
    """Run a function; return the bytes of the tensors it holds after each change.

    A change is a storage made or let go. The first entry is 0, the highest the
    peak, the last what the function leaves behind, as gradients. Storages that
    exist before do not count, nor what one operation allocates inside itself. Any
    device will do, "meta" included.
    """
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    timeline, known = [0], set()

    def release(key: int, nbytes: int) -> None:
        known.discard(key)
        if nbytes:
            timeline.append(timeline[-1] - nbytes)

    def see(values: object, is_new: bool) -> None:
        for tensor in filter(
            lambda each: isinstance(each, Tensor), tree_leaves(values)
        ):
            storage = tensor.untyped_storage()
            if id(storage) not in known:
                known.add(id(storage))
                nbytes = storage.nbytes() if is_new else 0
                weakref.finalize(
                    storage, release, id(storage), nbytes
                ).atexit = False
                if nbytes:
                    timeline.append(timeline[-1] + nbytes)

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            see((args, kwargs), is_new=False)
            result = func(*args, **(kwargs or {}))
            see(result, is_new=True)
            return result

    with Watch():
        function(*arguments)
    return list(timeline)


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
