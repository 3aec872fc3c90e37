"""What a model says of the token that follows each of several texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmlib.kv_cache import KVCache
from lmlib.modes import evaluating

__all__ = ["Reader"]

PADDING = 0  # any id would do: no token that counts sees it


class Reader:
    """A model that reads texts which grow, each token once where it can.

    A text is read as far as the model sees: its last ``context_length`` tokens, the
    first of which has position 0. Of a text that fits, the cache holds what was
    read, for ``capacity`` tokens each; one that is longer is read anew each time.
    """

    def __init__(self, model: nn.Module, capacity: int, use_cache: bool) -> None:
        self.model = model
        self.context_length = model.config.context_length
        self.capacity = min(capacity, self.context_length)
        self.use_cache = use_cache
        self._cache: KVCache | None = None
        self._cached: list[int] = []  # whose texts its rows are

    def next_logits(
        self, texts: Mapping[int, Sequence[int]]
    ) -> dict[int, Float[Tensor, " vocab_size"]]:
        """The logits of what follows each text, by its number.

        Each has grown by what the model has not read, or is new in the first call;
        what is missing has ended. Nothing is dropped out, and afterwards each
        module is in the mode that it was in.
        """
        fit = []
        if self.use_cache:
            fit = [k for k, ids in texts.items() if len(ids) <= self.context_length]
        others = [k for k in texts if k not in fit]
        with torch.no_grad(), evaluating(self.model):
            self._keep(fit)
            found = {}
            if fit:
                found |= self._read_on({k: texts[k] for k in fit})
            if others:
                found |= self._read_anew({k: texts[k] for k in others})
        return {k: found[k] for k in texts}

    def _keep(self, numbers: list[int]) -> None:
        """Hold in the cache these texts alone."""
        if not numbers:
            self._cache = None
        elif self._cache is None:
            config = self.model.config
            self._cache = KVCache(config, len(numbers), self.capacity)
        elif numbers != self._cached:
            self._cache.select([self._cached.index(k) for k in numbers])
        self._cached = numbers

    def _read_on(self, texts: Mapping[int, Sequence[int]]) -> dict[int, Tensor]:
        """Read what the cache does not hold yet."""
        read = zip(texts.values(), self._cache.lengths, strict=True)
        new = [ids[length:] for ids, length in read]
        logits = _last_logits(self.model, new, self._cache)
        self._cache.truncate([len(ids) for ids in texts.values()])  # no padding
        return dict(zip(texts, logits, strict=True))

    def _read_anew(self, texts: Mapping[int, Sequence[int]]) -> dict[int, Tensor]:
        """Read as far as the model sees."""
        windows = [ids[-self.context_length :] for ids in texts.values()]
        return dict(zip(texts, _last_logits(self.model, windows), strict=True))


def _last_logits(
    model: nn.Module, texts: Sequence[Sequence[int]], cache: KVCache | None = None
) -> Float[Tensor, "batch vocab_size"]:
    """Read texts of unequal length, padded on the right where no token looks."""
    device = next(model.parameters()).device
    lengths = [len(ids) for ids in texts]
    longest = max(lengths)
    padded = [[*ids, *[PADDING] * (longest - len(ids))] for ids in texts]
    ids = torch.tensor(padded, device=device)  # (B, T)
    logits = model(ids) if cache is None else model(ids, cache)  # (B, T, V)
    last = torch.tensor(lengths, device=device) - 1  # (B)
    rows = torch.arange(len(texts), device=device)  # (B)
    return logits[rows, last].cpu()  # (B, V), where tokens are drawn
