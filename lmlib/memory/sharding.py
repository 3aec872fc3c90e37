"""ZeRO: what data-parallel devices keep once among them, not each; by formula.

Rajbhandari et al. 2020, section 5: stage 1 shares the optimizer's state, stage 2
the gradients too, stage 3 the parameters too, which PyTorch's FSDP does as well.
"""

from __future__ import annotations

from lmlib.checks import check_count
from lmlib.memory.recipes import Ledger, get_recipe, ledger

__all__ = ["ZERO_STAGES", "largest_sharded_model", "sharded_ledger"]

ZERO_STAGES = (0, 1, 2, 3)  # 0 is plain data parallelism, which shares nothing

# In the paper the fp32 weights of mixed precision belong to the optimizer.
SHARED_FROM_STAGE = {
    "optimizer_state": 1,
    "master_weights": 1,
    "gradients": 2,
    "parameters": 3,
}


def sharded_ledger(
    num_parameters: int, recipe: str = "fp32", devices: int = 1, stage: int = 3
) -> Ledger:
    """Return the bytes of the device that has most, activations apart.

    What the devices share is split evenly, and rounded up to whole parameters. In
    stage 3 a layer's parameters are gathered while it computes, which comes on top.

    Raises ValueError for a recipe or stage that is not known, for a number of
    parameters that is not whole or negative, and for less than one device.
    """
    devices = _check(devices, stage)
    num_parameters = check_count("num_parameters", num_parameters)
    whole = ledger(num_parameters, recipe)
    part = ledger(-(-num_parameters // devices), recipe)
    return Ledger(
        **{
            name: getattr(part if stage >= first else whole, name)
            for name, first in SHARED_FROM_STAGE.items()
        }
    )


def largest_sharded_model(
    memory_bytes: int, recipe: str = "fp32", devices: int = 1, stage: int = 3
) -> int:
    """Return the most parameters for which ``sharded_ledger`` is within the memory.

    Parts of c parameters make a model of c·devices, if its unshared bytes find room
    beside them. This room shrinks as c grows: at the largest c for which it
    suffices, one more parameter in each part leaves room for a few more at best.

    Raises ValueError as ``sharded_ledger`` does.
    """
    devices = _check(devices, stage)
    memory_bytes = check_count("memory_bytes", memory_bytes)
    each = get_recipe(recipe)
    shared = sum(
        getattr(each, name)
        for name, first in SHARED_FROM_STAGE.items()
        if stage >= first
    )
    unshared = each.total - shared
    part = memory_bytes // (shared + unshared * devices)
    beside_larger_part = memory_bytes - shared * (part + 1)
    return max(part * devices, beside_larger_part // unshared if unshared else 0)


def _check(devices: int, stage: int) -> int:
    """Return the number of devices; ValueError if it, or the stage, cannot be."""
    devices = check_count("devices", devices)
    if devices < 1:
        raise ValueError(f"devices is {devices}: it must be 1 or more.")
    if isinstance(stage, bool) or stage not in ZERO_STAGES:
        raise ValueError(
            f"There is no ZeRO stage {stage!r}: choose 1, 2 or 3, or 0 for devices "
            "that share nothing."
        )
    return devices
