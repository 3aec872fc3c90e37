"""The validation loss: always over the same windows, on any number of devices."""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import nn

from lmlib.data.batches import Tokens, ids_of, pin, read_windows, to_device
from lmlib.distributed import World, sum_over_ranks
from lmlib.modes import evaluating
from lmlib.precision import precision_context
from lmlib.train.step import IGNORED

__all__ = ["evaluate"]


@torch.no_grad()
def evaluate(
    loss: nn.Module,
    tokens: Tokens,
    *,
    context_length: int,
    num_windows: int = 0,
    batch_size: int = 8,
    world: World,
    precision: str = "fp32",
    watch: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> float:
    """Return the mean loss over windows of ``tokens``, in nats per token.

    They do not overlap and are evenly spaced, ``num_windows`` of them, or all for
    0; the ranks share them. Nothing is dropped out, and no random number is drawn.
    ``loss`` returns a sum, as ``NextTokenLoss`` does. ``watch`` wraps the batches,
    as a progress bar would, and may raise between them.

    Raises ValueError for tokens that do not fill a window.
    """
    starts = window_starts(tokens, context_length, num_windows)
    total = torch.zeros(2, device=world.device)  # loss, targets
    with evaluating(loss):
        for first in watch(range(0, len(starts), batch_size * world.size)):
            # Every rank computes each time, with windows that do not count if need
            # be: a sharded model is put together by all ranks, or by none.
            mine = first + world.rank * batch_size
            shares = np.arange(mine, mine + batch_size)
            real = shares < len(starts)
            inputs, targets = read_windows(
                tokens, starts[np.where(real, shares, 0)], context_length
            )
            targets[torch.from_numpy(~real)] = IGNORED
            batch = to_device(pin((inputs, targets), world.device), world.device)
            with precision_context(precision, world.device):
                total[0] += loss(*batch).float()
            total[1] += int(real.sum()) * context_length
    summed, count = sum_over_ranks(total, world).tolist()
    return summed / count


def window_starts(
    tokens: Tokens, context_length: int, num_windows: int
) -> np.ndarray:
    """Return where the windows begin: all that fit, or evenly spaced ones."""
    fitting = (len(ids_of(tokens, context_length)) - 1) // context_length
    count = min(num_windows, fitting) or fitting
    places = np.linspace(0, fitting - 1, count).round().astype(np.int64)
    return places * context_length
