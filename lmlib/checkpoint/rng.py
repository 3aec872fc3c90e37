"""The states of all random number generators that are not objects of the user's."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lmlib.checkpoint.errors import CorruptCheckpoint

__all__ = ["capture_rng", "restore_rng"]


def capture_rng() -> dict[str, Any]:
    """The states of the generators of Python, NumPy and torch, on CPU and GPUs.

    They are tensors and plain values. Where CUDA was not yet used, it has none.
    """
    numpy = np.random.get_state(legacy=False)
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {
        "python": random.getstate(),
        "numpy": {
            "bit_generator": numpy["bit_generator"],
            "key": torch.from_numpy(numpy["state"]["key"].astype(np.int64)),
            "pos": int(numpy["state"]["pos"]),
            "has_gauss": int(numpy["has_gauss"]),
            "gauss": float(numpy["gauss"]),
        },
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if cuda else [],
    }


def restore_rng(state: Mapping[str, Any]) -> None:
    """Let every generator go on where ``capture_rng`` was called.

    Of GPUs, those get their state back that are still there.

    Raises CorruptCheckpoint for what ``capture_rng`` cannot have returned.
    """
    try:
        _restore(state)
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CorruptCheckpoint(
            f"The states of random number generators are none: {error!r:.200}"
        ) from error


def _restore(state: Mapping[str, Any]) -> None:
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    numpy = dict(state["numpy"])
    key = numpy.pop("key").cpu().numpy().astype(np.uint32)
    np.random.set_state({**numpy, "state": {"key": key, "pos": numpy.pop("pos")}})
    torch.set_rng_state(state["torch"].cpu())
    if torch.cuda.is_available():
        for device, cuda in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(cuda.cpu(), device)
