"""Training on several devices: one process for each, started by ``torchrun``.

PyTorch does the work: ``DistributedDataParallel`` gives every process a copy of the
model, ``fully_shard`` (FSDP2) a part of it. Here is what a training loop needs
around them, the same for one process without ``torchrun``. Sharding is imported
when it is used: that takes as long as a third of torch.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import sleep
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lmlib.hardware.devices import get_device

__all__ = [
    "World",
    "any_rank",
    "barrier",
    "is_sharded",
    "join_world",
    "mean_over_ranks",
    "on_main",
    "replicate",
    "shard",
    "sum_over_ranks",
    "sync_gradients",
    "whole",
]

T = TypeVar("T")

_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class World:
    """The processes that train together, and which of them this one is.

    ``rank`` counts over all machines from 0 on, ``local_rank`` within this one.
    """

    device: torch.device
    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that prints and writes files."""
        return self.rank == 0


# --- coming together and leaving --------------------------------------------------


@contextmanager
def join_world(device: str | torch.device = "auto") -> Iterator[World]:
    """Join the processes that ``torchrun`` started; without it, be the only one.

    On CUDA each process takes the GPU of its local rank, and they speak by NCCL;
    on a CPU by gloo. At the end, after an error too, the process leaves the group.

    Raises ValueError if only some of the variables that torchrun sets are there, if
    a machine has fewer GPUs than processes, and for a device that is not there or
    cannot be shared.
    """
    environment = _environment()
    if environment is None:
        yield World(get_device(device))
        return
    world = _place(environment, device)
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
        # gloo too, for what stays on the CPU, such as a checkpoint being written
        dist.init_process_group("cpu:gloo,cuda:nccl", device_id=world.device)
    else:
        dist.init_process_group("gloo")
    try:
        yield world
    finally:
        # A thread of gloo may still be letting go of a tensor, for which it waits
        # for Python's lock. Who lets go of the group holds that, and waits for the
        # thread: they would wait for ever.
        sleep(0.1)
        dist.destroy_process_group()


def _environment() -> dict[str, str] | None:
    """Return what torchrun says to this process; None if nothing."""
    found = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    if not found.keys() & {"RANK", "WORLD_SIZE"}:
        return None
    if missing := [name for name in _VARIABLES if name not in found]:
        raise ValueError(
            f"{', '.join(found)} are set, as by torchrun, but not "
            f"{', '.join(missing)}: start with torchrun, or unset them."
        )
    return found


def _place(environment: dict[str, str], device: str | torch.device) -> World:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    try:
        rank, size, local_rank = (int(environment[name]) for name in names)
    except ValueError:
        shown = ", ".join(f"{name}={environment[name]!r}" for name in names)
        raise ValueError(f"{shown}: these must be whole numbers.") from None
    device = _named(device)
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if device.index is not None and size > 1 and device != get_device():
            raise ValueError(
                f"{device} cannot serve {size} processes: say 'cuda', and each "
                "takes its own."
            )
        if local_rank >= count:
            raise ValueError(
                f"This machine has {count} GPUs, and process {local_rank} of it, "
                f"counted from 0, has none: start at most {count}."
            )
        device = torch.device("cuda", local_rank)
    elif device.type != "cpu":
        raise ValueError(
            f"Several processes cannot share {device}: choose cpu or cuda."
        )
    return World(device, rank, size, local_rank)


def _named(device: str | torch.device) -> torch.device:
    """Return the device, which may be one that other processes have a part of."""
    try:
        return get_device() if device == "auto" else torch.device(device)
    except RuntimeError:  # no kind of device: this says which there are
        return get_device(device)


# --- a model on several devices ---------------------------------------------------


def replicate(module: nn.Module, world: World) -> nn.Module:
    """Let every rank compute with a copy (DDP): backward averages the gradients.

    All copies start as rank 0's. For a single process the module itself returns.
    The parameters stay those of ``module``, under its names.
    """
    if world.size == 1:
        return module
    return DistributedDataParallel(
        module,
        device_ids=[world.device] if world.device.type == "cuda" else None,
        gradient_as_bucket_view=True,  # no second copy of all gradients
    )


def shard(
    model: nn.Module,
    blocks: Iterable[nn.Module],
    world: World,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """Let every rank keep a part of each parameter (FSDP2), and return the model.

    A block is put together when it is needed, and taken apart again; so is what
    lies outside ``blocks``. Parameters stay in their dtype, and are put together in
    ``dtype`` if there is one; gradients are averaged in fp32. A single process
    keeps the whole.
    """
    if world.size == 1:
        return model
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = dist.init_device_mesh(world.device.type, (world.size,))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


@contextmanager
def sync_gradients(module: nn.Module, sync: bool) -> Iterator[None]:
    """Average gradients over ranks in the passes inside, or only add them up.

    With accumulation the last backward of a step does it for all: ``sync`` is False
    for those before. Forward and backward both belong inside.
    """
    if isinstance(module, DistributedDataParallel) and not sync:
        with module.no_sync():
            yield
        return
    for part in module.modules():
        # an FSDPModule: the root, which speaks for its blocks
        if hasattr(part, "set_requires_gradient_sync"):
            part.set_requires_gradient_sync(sync)
            break
    yield


# --- numbers and decisions --------------------------------------------------------


def sum_over_ranks(
    values: Float[Tensor, "..."], world: World
) -> Float[Tensor, "..."]:
    """The sum of what the ranks pass, the same on each; its input stays."""
    if world.size == 1:
        return values
    total = values.detach().clone()
    dist.all_reduce(total)
    return total


def mean_over_ranks(
    values: Float[Tensor, "..."], world: World
) -> Float[Tensor, "..."]:
    """The mean of what the ranks pass, the same on each; its input stays."""
    return sum_over_ranks(values, world) / world.size


def any_rank(flag: bool, world: World) -> bool:
    """Whether the flag is up on any rank: what one decides, all do."""
    if world.size == 1:
        return flag
    raised = torch.tensor(float(flag), device=world.device)
    return bool(sum_over_ranks(raised, world) > 0)


def is_sharded(value: object) -> bool:
    """Whether it is a tensor of which each rank holds a part, a DTensor."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def whole(tensor: Tensor) -> Tensor:
    """A tensor of which each rank may hold a part, put together on each."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def barrier(world: World) -> None:
    """Wait until all ranks are here."""
    if world.size > 1:
        dist.barrier()


def on_main(world: World, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function on rank 0 and return its result on every rank.

    What it raises is raised on every rank, so that none waits for ever. The result
    is pickled, and should be small.
    """
    if world.size == 1:
        return function(*arguments)
    outcome: list[Any] = [None, None]
    if world.is_main:
        try:
            outcome[0] = function(*arguments)
        except Exception as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome, src=0)
    result, error = outcome
    if error is not None:
        raise error
    return result
