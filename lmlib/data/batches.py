"""Windows of tokens as batches: inputs, and for each the token that comes next."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int64
from torch import Generator, Tensor

from lmlib.checks import check_size
from lmlib.data.token_file import TokenFile, check_ids
from lmlib.hardware.devices import get_device

__all__ = [
    "Batch",
    "Tokens",
    "as_device",
    "get_batch",
    "ids_of",
    "pin",
    "read_windows",
    "to_device",
]

Tokens = TokenFile | np.ndarray
Batch = tuple[Int64[Tensor, "B T"], Int64[Tensor, "B T"]]


def get_batch(
    tokens: Tokens,
    batch_size: int,
    context_length: int,
    *,
    generator: Generator | None = None,
    device: str | torch.device = "cpu",
) -> Batch:
    """Return random windows as inputs, and the next token of each as targets.

    Both are int64 of shape ``(batch_size, context_length)``. Of n tokens, every
    start from 0 to n − T − 1 is equally likely, so that the last token is the last
    target of a window. To a GPU, both are copied from pinned memory, and the caller
    need not wait for it. ``device`` may be ``"auto"``, the best that there is.

    Raises ValueError for fewer than T + 1 tokens, for a size that is no whole
    number from 1 on, for an id that is not in the vocabulary, and for a device that
    is not there.
    """
    device = as_device(device)
    check_size("batch_size", batch_size)
    num_starts = len(ids_of(tokens, context_length)) - context_length
    starts = torch.randint(num_starts, (batch_size,), generator=generator)
    windows = read_windows(tokens, starts.numpy(), context_length)
    return to_device(pin(windows, device), device)


def as_device(device: str | torch.device) -> torch.device:
    """The device of that name, or ``"auto"``; ValueError unless it is there.

    ``"cuda"`` stays the GPU that torch is set to, another one in each process.
    """
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):  # no name of torch's
        return get_device(device)
    if found == torch.device("cuda") and torch.cuda.is_available():
        return found
    return get_device(found) if found.type in ("cuda", "mps") else found


def ids_of(tokens: Tokens, context_length: int) -> np.ndarray:
    """Return the array of ids, which must hold a window and the token after it.

    Raises ValueError otherwise, and for an array that is not one row of integers.
    """
    check_size("context_length", context_length)
    ids = tokens.ids if isinstance(tokens, TokenFile) else np.asarray(tokens)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            f"Tokens are a row of integers, not {ids.dtype} of shape {ids.shape}."
        )
    if len(ids) <= context_length:
        name = tokens if isinstance(tokens, TokenFile) else "The array"
        raise ValueError(
            f"{name} holds {len(ids):,} tokens, but a window takes "
            f"{context_length + 1:,}: context_length={context_length}, and the "
            "token that comes next. Choose a shorter one, or take more text."
        )
    return ids


def read_windows(tokens: Tokens, starts: np.ndarray, context_length: int) -> Batch:
    """Return the windows that start there, as ``get_batch`` does, on the CPU."""
    ids = ids_of(tokens, context_length)
    overlapping = np.lib.stride_tricks.sliding_window_view(ids, context_length + 1)
    windows = overlapping[starts]  # the one copy out of the file
    if isinstance(tokens, TokenFile):
        tokens.release()
        check_ids(windows, tokens.vocab_size, tokens)
    else:
        check_ids(windows, None, "The array")
    inputs = torch.from_numpy(windows[:, :-1].astype(np.int64))
    targets = torch.from_numpy(windows[:, 1:].astype(np.int64))
    return inputs, targets


def pin(batch: Batch, device: str | torch.device) -> Batch:
    """Move a batch for a GPU to pinned memory, from where the GPU copies it."""
    device = torch.device(device)
    if device.type != "cuda":
        return batch
    with torch.cuda.device(device):  # a new thread starts out with the first GPU
        inputs, targets = batch
        return inputs.pin_memory(), targets.pin_memory()


def to_device(batch: Batch, device: str | torch.device) -> Batch:
    """Copy a batch to a device; to a GPU without waiting for it."""
    device = torch.device(device)
    inputs, targets = batch
    behind = device.type == "cuda"
    return (
        inputs.to(device, non_blocking=behind),
        targets.to(device, non_blocking=behind),
    )
