"""Keys and values of tokens that a model has read, kept for those that follow.

The letters are those of ``lmlib.model``; S are the slots of a cache. The token at
position p of a text lies in slot p of its row, whatever the other texts are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lmlib.checks import check_size
from lmlib.config import ModelConfig

__all__ = ["KVCache", "LayerCache"]


class KVCache:
    """What attention needs of all tokens read so far, for a batch of texts.

    ``model(ids, cache)`` reads what follows in each text, and adds it. Texts may
    differ in length: pad the shorter on the right, where no token of theirs looks,
    and ``truncate`` to what was no padding. The memory for all ``capacity`` tokens,
    the config's ``context_length`` if left out, is taken in the first pass, in the
    dtype that the keys then have: ``lmlib.memory.kv_cache_bytes``.

    Raises ValueError for a size that is no whole number from 1 on, or a capacity
    beyond the ``context_length``.
    """

    def __init__(
        self, config: ModelConfig, batch_size: int = 1, capacity: int | None = None
    ) -> None:
        longest = config.context_length
        self.capacity = longest if capacity is None else capacity
        if check_size("capacity", self.capacity) > longest:
            raise ValueError(
                f"The model has positions for {longest} tokens: choose a capacity "
                f"of that or less, not {capacity}."
            )
        self.lengths = [0] * check_size("batch_size", batch_size)
        self.layers = [LayerCache(self.capacity) for _ in range(config.num_layers)]

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values; 0 before the first pass."""
        tensors = [each for x in self.layers for each in (x.keys, x.values)]
        return sum(each.nbytes for each in tensors if each is not None)

    def advance(self, ids: Int[Tensor, "batch seq"]) -> Int[Tensor, "batch seq"]:
        """Count these tokens as read, and return the position of each.

        The model calls it; its layers then write and read where they are told here.

        Raises ValueError if there are more or fewer rows than texts, or if the
        tokens do not fit, and RuntimeError where gradients are recorded.
        """
        rows, seq_len = ids.shape
        self._check(rows, seq_len)
        starts = torch.tensor(self.lengths, device=ids.device)  # (B)
        offsets = torch.arange(seq_len, device=ids.device)  # (T)
        positions = rearrange(starts, "batch -> batch 1") + offsets  # (B, T)
        used = max(self.lengths) + seq_len
        is_even, is_new = len(set(self.lengths)) == 1, used == seq_len
        mask = None
        # Without a mask all is seen that is there, and causally if it is all new.
        if not is_even or (seq_len > 1 and not is_new):
            slots = torch.arange(used, device=ids.device)  # (S)
            mask = slots <= rearrange(positions, "batch seq -> batch 1 seq 1")
        for layer in self.layers:
            layer.place = Place(positions, used, mask)
        self.lengths = [length + seq_len for length in self.lengths]
        return positions

    def truncate(self, lengths: Sequence[int]) -> None:
        """Forget what each text has beyond a length."""
        if len(lengths) != len(self.lengths) or any(
            not 0 <= new <= old
            for new, old in zip(lengths, self.lengths, strict=True)
        ):
            raise ValueError(
                f"The texts have the lengths {self.lengths}: they cannot be cut to "
                f"{[*lengths]}."
            )
        self.lengths = [*lengths]

    def select(self, rows: Sequence[int]) -> None:
        """Keep these texts alone, in this order; the others' memory is freed."""
        if not rows or not {*rows} <= {*range(len(self.lengths))}:
            raise ValueError(
                f"There are texts 0 to {len(self.lengths) - 1}: choose one or more "
                f"of them, not {[*rows]}."
            )
        self.lengths = [self.lengths[row] for row in rows]
        for layer in self.layers:
            layer.select(rows)

    def _check(self, rows: int, seq_len: int) -> None:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Nothing can be learnt through a cache: call the model under "
                "torch.no_grad()."
            )
        if rows != len(self.lengths):
            raise ValueError(
                f"The cache is for {len(self.lengths)} texts, and ids has {rows} "
                "rows: make them as many."
            )
        if max(self.lengths) + seq_len > self.capacity:
            raise ValueError(
                f"The cache has room for {self.capacity} tokens: {seq_len} more do "
                f"not fit behind {max(self.lengths)}."
            )


@dataclass(frozen=True)
class Place:
    """Where a pass writes, up to which slot it reads, and who sees what."""

    positions: Int[Tensor, "batch seq"]
    used: int
    mask: Bool[Tensor, "batch 1 seq slots"] | None


class LayerCache:
    """Keys and values of one layer: (B, G, S, K) each, or None before a pass."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.place: Place | None = None

    def extend(
        self,
        keys: Float[Tensor, "batch kv_heads seq head_size"],
        values: Float[Tensor, "batch kv_heads seq head_size"],
    ) -> tuple[
        Float[Tensor, "batch kv_heads slots head_size"],
        Float[Tensor, "batch kv_heads slots head_size"],
        Bool[Tensor, "batch 1 seq slots"] | None,
    ]:
        """Add those of new tokens; return those of all, and who sees whom.

        Without a mask each sees what there is, up to itself.
        """
        if self.keys is None:
            # Zeros: what no text has written yet is masked, but 0 · NaN is NaN.
            batch, kv_heads, _, head_size = keys.shape
            shape = (batch, kv_heads, self.capacity, head_size)
            self.keys, self.values = keys.new_zeros(shape), values.new_zeros(shape)
        where = rearrange(self.place.positions, "batch seq -> batch 1 seq 1")
        self.keys.scatter_(2, where.expand_as(keys), keys)
        self.values.scatter_(2, where.expand_as(values), values)
        used = self.place.used
        return self.keys[:, :, :used], self.values[:, :, :used], self.place.mask

    def select(self, rows: Sequence[int]) -> None:
        """Keep these rows."""
        if self.keys is not None:
            self.keys, self.values = self.keys[[*rows]], self.values[[*rows]]
