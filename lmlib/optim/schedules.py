"""Learning-rate schedules as plain functions of the step.

Each returns the factor by which the peak learning rate is multiplied. ``step``
counts the steps made before, so that the first is step 0, and it is all that a
resumed run has to know. For every group of an optimizer at its own peak:

    from functools import partial
    from torch.optim.lr_scheduler import LambdaLR

    schedule = partial(cosine_schedule, total_steps=5000, warmup_steps=100)
    scheduler = LambdaLR(optimizer, schedule)  # .step() after each optimizer.step()

The warm-up begins above 0 and the end, ``final_factor``, is reached at step
``total_steps``, one after the last: so no step of a run is made at a rate of 0.
"""

import math
from typing import Literal

from lmlib.checks import check, is_nonnegative, is_whole

__all__ = ["cosine_schedule", "wsd_schedule"]


def cosine_schedule(
    step: int,
    total_steps: int,
    *,
    warmup_steps: int = 0,
    final_factor: float = 0.0,
) -> float:
    """Up along a line, then down along half a cosine: flat, steep, and flat again.

    Sources: Loshchilov & Hutter 2017, eq. 5, without restarts; Goyal et al. 2017,
    section 2.2, for the warm-up.

    Raises ValueError for a negative step, a ``warmup_steps`` that leaves nothing of
    ``total_steps``, and a ``final_factor`` that is not from 0 to 1.
    """
    _check(step, total_steps, warmup_steps, final_factor)
    if step < warmup_steps:
        return _warmup(step, warmup_steps)
    done = min(1.0, (step - warmup_steps) / (total_steps - warmup_steps))
    left = (1 + math.cos(math.pi * done)) / 2
    return float(final_factor + (1 - final_factor) * left)


def wsd_schedule(
    step: int,
    total_steps: int,
    *,
    decay_steps: int,
    warmup_steps: int = 0,
    final_factor: float = 0.0,
    decay: Literal["linear", "1-sqrt"] = "linear",
) -> float:
    """Warm-up, stable, decay: up, level, and down in the last ``decay_steps``.

    Until the decay nothing depends on ``total_steps``: a run can be prolonged from
    there. "1-sqrt" falls fast at first. Sources: Hu et al. 2024, section 4, for the
    three phases; Hägele et al. 2024, section 3, for the shapes of the decay.

    Raises ValueError for a negative step, a ``final_factor`` that is not from 0 to
    1, another ``decay``, and phases that do not fit into ``total_steps``.
    """
    _check(step, total_steps, warmup_steps, final_factor)
    most = total_steps - warmup_steps
    fits = is_whole(decay_steps, 1) and decay_steps <= most
    wanted = f"a whole number from 1 to total_steps - warmup_steps = {most}"
    check(fits, "decay_steps", wanted, decay_steps)
    check(decay in ("linear", "1-sqrt"), "decay", "'linear' or '1-sqrt'", decay)
    if step < warmup_steps:
        return _warmup(step, warmup_steps)
    begin = total_steps - decay_steps
    done = min(1.0, max(0.0, (step - begin) / decay_steps))
    left = 1 - (done if decay == "linear" else math.sqrt(done))
    return float(final_factor + (1 - final_factor) * left)


def _warmup(step: int, warmup_steps: int) -> float:
    """A line that is 0 one step before the first, and 1 one after the last."""
    return float((step + 1) / (warmup_steps + 1))


def _check(
    step: int, total_steps: int, warmup_steps: int, final_factor: float
) -> None:
    check(is_nonnegative(step), "step", "a number from 0 on", step)
    wanted = "a whole number from 1 on"
    check(is_whole(total_steps, 1), "total_steps", wanted, total_steps)
    fits = is_whole(warmup_steps, 0) and warmup_steps < total_steps
    wanted = f"a whole number from 0 to below total_steps = {total_steps}"
    check(fits, "warmup_steps", wanted, warmup_steps)
    fits = is_nonnegative(final_factor) and final_factor <= 1
    check(fits, "final_factor", "a number from 0 to 1", final_factor)
