"""How the processes that share a checkpoint agree on what became of it."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from lmlib.distributed import World

__all__ = ["Ranks"]

T = TypeVar("T")


class Ranks:
    """The processes of a world, with a line of their own to speak to each other.

    A thread that writes a checkpoint does not mix up what it says there with what
    training says. All processes must make theirs, and then call the same methods in
    the same order. A single one, or None, has nobody to agree with.
    """

    def __init__(self, world: World | None) -> None:
        self.rank = world.rank if world else 0
        self.size = world.size if world else 1
        self.is_main = self.rank == 0
        self.group = dist.new_group(backend="gloo") if self.size > 1 else None

    def gather(self, value: T) -> list[T]:
        """What each rank passes, on every rank; pickled, so it should be small."""
        if self.group is None:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def together(self, action: Callable[[], T]) -> T:
        """Do it on every rank; what the first to fail raises, all raise.

        If an action speaks to the other ranks, nothing in it may fail on one alone
        unless that, too, is done together: the others would wait for what it says.
        """
        if self.group is None:
            return action()
        result, error = None, None
        try:
            result = action()
        except Exception as raised:
            error = raised
        for rank, other in enumerate(self.gather(error)):
            if other is not None:
                raise error if rank == self.rank else other
        return result

    def on_main(self, action: Callable[[], T]) -> T:
        """Do it on rank 0; its result, or what it raises, comes to every rank."""
        result = self.together(lambda: action() if self.is_main else None)
        return self.gather(result)[0]
