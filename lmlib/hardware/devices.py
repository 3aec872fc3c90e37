"""The devices of the machine at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["available_devices", "get_device"]


def available_devices() -> tuple[str, ...]:
    """Names of the devices torch can use, CPU first: ``("cpu", "cuda:0")``, say."""
    import torch

    gpus = range(torch.cuda.device_count())
    names = ["cpu", *(f"cuda:{index}" for index in gpus)]
    if torch.backends.mps.is_available():
        names.append("mps:0")
    return tuple(names)


def get_device(name: str | torch.device = "auto") -> torch.device:
    """Device of that name; ``"auto"`` is the first accelerator, or else the CPU.

    ``ValueError`` names the devices that exist when ``name`` is not one of them.
    """
    import torch

    devices = available_devices()
    aliases = {
        "auto": devices[min(1, len(devices) - 1)],
        "cpu:0": "cpu",
        "cuda": "cuda:0",
        "mps": "mps:0",
    }
    full_name = str(name).lower()
    full_name = aliases.get(full_name, full_name)
    if full_name not in devices:
        raise ValueError(
            f"There is no device {str(name)!r} on this machine, which has "
            f"{', '.join(devices)}: name one of these, or auto for the best."
        )
    return torch.device(full_name)
