"""Batches of every window once per epoch, which resume where they stopped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from numbers import Integral
from typing import Any

import numpy as np
import torch

from lmlib.checks import check_size
from lmlib.data.batches import (
    Batch,
    Tokens,
    as_device,
    ids_of,
    pin,
    read_windows,
    to_device,
)
from lmlib.data.shuffle import Permutation
from lmlib.data.token_file import fingerprint
from lmlib.parallel import map_ahead

__all__ = ["BatchLoader"]

_STREAM = 2**62  # windows: a step beyond them, and int64 still counts


class BatchLoader:
    """Batches of inputs and next tokens, in an order that can be resumed exactly.

    Of n tokens, an epoch has ``windows_per_epoch`` = (n − 1) // T windows, which do
    not overlap, in an order that follows from seed and epoch; without ``shuffle``
    they stay in the order of the text. Where T does not divide n − 1, some tokens
    are left over: even epochs leave them at the end of the text, odd epochs at its
    beginning. So two epochs show every token.

    The epochs follow one another as one stream of windows, of which every batch
    takes the next ``batch_size`` for each of ``world_size`` ranks, so that it is
    always full: one that begins before the end of an epoch may end in the next.
    Iterating gives the batches that begin in the current epoch, ``len()`` of them,
    and iterating again goes on with those of the next. After a ``break`` it goes on
    where it was left. All ranks get the same number of batches, and those of all
    ranks one after another are the batch of a single rank with as many windows.

    Batches are int64 of shape ``(batch_size, T)``. ``prefetch`` of them are read
    ahead by a thread, into pinned memory for a GPU; left out, two for a GPU and
    none otherwise.

    Raises ValueError for a size that is no whole number from 1 on, for a seed or a
    rank out of range, for fewer than T + 1 tokens, and for a device that is not
    there.
    """

    def __init__(
        self,
        tokens: Tokens,
        batch_size: int,
        context_length: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
        device: str | torch.device = "cpu",
        prefetch: int | None = None,
    ) -> None:
        self.device = as_device(device)
        if prefetch is None:
            prefetch = 2 if self.device.type == "cuda" else 0
        self.batch_size = check_size("batch_size", batch_size)
        self.world_size = check_size("world_size", world_size)
        self._step = self.batch_size * self.world_size
        if self._step > _STREAM:
            raise ValueError("batch_size × world_size must be at most 2**62.")
        self.rank = _whole_number("rank", rank, below=world_size)
        self.seed = _whole_number("seed", seed)
        self.prefetch = _whole_number("prefetch", prefetch)
        self.shuffle = bool(shuffle)
        ids = ids_of(tokens, context_length)
        self.tokens = tokens
        self.context_length = int(context_length)
        self.windows_per_epoch, self._left_over = divmod(
            len(ids) - 1, context_length
        )
        self._fingerprint = fingerprint(ids)
        self._windows = 0  # handed out to all ranks, over all epochs

    @property
    def epoch(self) -> int:
        """The epoch of the next window, from 0 on."""
        return self._windows // self.windows_per_epoch

    def __len__(self) -> int:
        """The number of batches that begin in the rest of the current epoch."""
        return len(self._rest_of_epoch())

    def __iter__(self) -> Iterator[Batch]:
        places = self._rest_of_epoch()
        if not self.prefetch:
            yield from self._hand_out(
                (place, self._read(place)) for place in places
            )
            return
        with ThreadPoolExecutor(1) as thread:
            ahead = map_ahead(thread, self._read, places, self.prefetch)
            yield from self._hand_out(ahead)

    # --- resuming -----------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands, as plain values: the same on every rank.

        It counts what was handed out, and nothing that was only read ahead.
        """
        return {
            "windows": self._windows,
            "batch_size": self.batch_size,
            "world_size": self.world_size,
            "context_length": self.context_length,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "fingerprint": self._fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the loader of that state stood.

        On as many ranks, the batches are those that would have come. On another
        number, with any batch size, every window still comes once in each epoch.

        Raises ValueError, which names the field, if the state is that of another
        file, context length, seed or order, or of another batch size on as many
        ranks; and if it is no state of a loader. The loader stays as it was then.
        """
        own = self.state_dict()
        state = _read_state(state, own)
        compared = ["fingerprint", "context_length", "seed", "shuffle"]
        if state["world_size"] == self.world_size:
            compared.append("batch_size")
        for name in compared:
            if state[name] != own[name]:
                raise ValueError(_mismatch(name, state[name], own[name]))
        self._windows = state["windows"]

    # --- which windows ------------------------------------------------------------

    def _rest_of_epoch(self) -> range:
        """Where in the stream of windows the batches of this epoch begin."""
        end = (self.epoch + 1) * self.windows_per_epoch
        return range(self._windows, end, self._step)

    def _read(self, place: int) -> Batch:
        """Read this rank's share of the batch that begins there."""
        first = place + self.rank * self.batch_size
        starts = self._starts(np.arange(first, first + self.batch_size))
        return pin(
            read_windows(self.tokens, starts, self.context_length), self.device
        )

    def _starts(self, places: np.ndarray) -> np.ndarray:
        """Return the first tokens of the windows at some places of the stream."""
        epochs, windows = np.divmod(places, self.windows_per_epoch)
        if self.shuffle:
            for epoch in np.unique(epochs):
                order = Permutation(self.windows_per_epoch, self.seed, epoch)
                windows[epochs == epoch] = order(windows[epochs == epoch])
        return windows * self.context_length + epochs % 2 * self._left_over

    def _hand_out(self, batches: Iterable[tuple[int, Batch]]) -> Iterator[Batch]:
        process = os.getpid()
        for place, batch in batches:
            if place != self._windows:
                raise RuntimeError(
                    "The loader was moved while it was iterated over, by "
                    "load_state_dict or by another loop: start a new one."
                )
            self._windows += self._step
            yield to_device(batch, self.device)
            if os.getpid() != process:  # where the thread that reads ahead is not
                raise RuntimeError(
                    "The process was forked inside a loop over the loader: start "
                    "a new one there."
                )


def _read_state(state: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state as plain values, of the types that a loader's own has."""
    if not isinstance(state, Mapping):
        raise ValueError(f"This is no state of a BatchLoader: {state!r:.40}.")
    if differing := sorted(map(str, state.keys() ^ own.keys())):
        names = ", ".join(differing)
        raise ValueError(f"This is no state of a BatchLoader: see {names}.")
    read = {}
    for name, value in state.items():
        kind = type(own[name])
        if kind is int:
            end = _STREAM if name == "windows" else None
            value = _whole_number(name, value, below=end)
        elif not isinstance(value, kind):
            raise ValueError(
                f"{name} must be a {kind.__name__}, not {value!r:.40}."
            )
        read[name] = value
    return read


def _mismatch(name: str, saved: object, own: object) -> str:
    if name == "fingerprint":
        return (
            "fingerprint: the state belongs to other tokens. Open the file that it "
            "was saved with, or start from the beginning."
        )
    return (
        f"{name} is {own!r}, but {saved!r} in the state: with another one, other "
        "batches would follow. Keep it, or start from the beginning."
    )


def _whole_number(name: str, value: object, below: int | None = None) -> int:
    """Return ``value`` as an int; ValueError unless it is one from 0 on."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < 0 or (below is not None and value >= below):
        end = "on" if below is None else f"to {below - 1}"
        raise ValueError(
            f"{name} must be a whole number from 0 {end}, not {value!r}."
        )
    return int(value)
