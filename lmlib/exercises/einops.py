"""Exercises of chapter 4: copies, orders, a blind check, grouped heads, pairs."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from einops import einsum, rearrange
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from lmlib.exercises import Exercise, function_exercise, value_exercise
from lmlib.flops import linear_flops
from lmlib.tensors import same_storage

# A reader may have changed torch's defaults.
_zeros = partial(torch.zeros, dtype=torch.float32, device="cpu")


def _which_copy() -> Exercise:
    tensor = _zeros(2, 5, 12)
    patterns = [
        "b t (h k) -> b h k t",
        "b t (h k) -> b (h t) k",
        "b t (h k) -> b (t h) k",
        "b t (h k) -> (b t) k h",
    ]
    return value_exercise(
        expected=tuple(
            not same_storage(tensor, rearrange(tensor, pattern, h=3))
            for pattern in patterns
        ),
        mistakes=[
            (
                (True, True, True, True),
                "swapping axes moves no number; only a merge may have to.",
            ),
            (
                (False, False, False, False),
                "two axes become one only if one stride serves both; "
                "write down the strides of all four axes.",
            ),
            (
                (False, True, True, True),
                "not every merge copies: which of them follow the storage?",
            ),
            (
                (False, True, True, False),
                "one of the two merges of t and h walks the storage in its order.",
            ),
        ],
        hint="x has four axes once h is split off, with strides 60, 12, 4 and 1; "
        "which merges fit the rule of `view`?",
    )


def _low_rank() -> Exercise:
    tokens, width, rank = 4096, 4096, 16
    first_the_matrices = linear_flops(width, rank, width) + linear_flops(
        tokens, width, width
    )
    from_the_left = linear_flops(tokens, width, rank) + linear_flops(
        tokens, rank, width
    )
    expected = first_the_matrices / from_the_left
    return value_exercise(
        expected=expected,
        mistakes=[
            (
                linear_flops(tokens, width, width) / from_the_left,
                "A·B has to be computed, too; it is small, not free.",
            ),
            (
                linear_flops(tokens, width, width)
                / linear_flops(tokens, width, rank),
                "both orders take two products; that is one of each.",
            ),
            (
                first_the_matrices / linear_flops(tokens, width, rank),
                "x·A is only the first of two products.",
            ),
            (1 / expected, "that is cheap over dear; turn it round."),
            (first_the_matrices, "those are the FLOPs of the dear order; divide."),
            (from_the_left, "those are the FLOPs of the cheap order; divide."),
        ],
        hint="a product of (m, n) by (n, p) takes 2·m·n·p FLOPs; "
        "write down both products of both orders.",
    )


def _blind_spot() -> Exercise:
    right = "batch query heads size, batch key heads size -> batch heads query key"
    q = torch.arange(240.0, dtype=torch.float64, device="cpu").view(2, 5, 3, 8)
    k = q[:, :4]

    def passes_and_is_wrong(pattern: Any) -> tuple[bool, bool] | None:
        if not isinstance(pattern, str):
            return None
        scores, found = einsum(q, k, right), einsum(q, k, pattern)
        passes = found.shape == scores.shape
        return passes, not (passes and torch.allclose(found, scores))

    return Exercise(
        solution=right.replace("key heads", "key haeds"),
        mistakes=[
            (right, "these are the scores that `score` promises; none is wrong."),
            (
                right.replace("query key", "key query"),
                "with four keys for five queries the check refuses that.",
            ),
        ],
        hint="give a pattern, in quotes; einsum sums over every name that the "
        "output leaves out, mistyped ones too.",
        read=passes_and_is_wrong,
    )


def _grouped() -> Exercise:
    def attend(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        heads: str = "(groups shared)",
        scale: bool = True,
        causal: bool = True,
    ) -> Tensor:
        groups, seq = k.shape[1:3]
        pattern = f"batch {heads} seq size -> batch groups shared seq size"
        q = rearrange(q, pattern, groups=groups)
        scores = einsum(q, k, "b g n t k, b g s k -> b g n t s")
        if scale:
            scores = scores / q.shape[-1] ** 0.5
        if causal:
            future = torch.ones(seq, seq, dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        mixed = einsum(scores.softmax(-1), v, "b g n t s, b g s k -> b g n t k")
        return rearrange(mixed, f"b g n t k -> b {_short(heads)} t k")

    def _short(heads: str) -> str:
        return heads.replace("groups", "g").replace("shared", "n")

    def solution(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        )

    def probes() -> list[tuple[Tensor, Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(0)
        draw = partial(
            torch.randn, generator=generator, dtype=torch.float64, device="cpu"
        )
        return [
            (draw(2, 6, 5, 4), draw(2, groups, 5, 4), draw(2, groups, 5, 4))
            for groups in (2, 3)
        ]

    return function_exercise(
        solution,
        probes,
        mistakes=[
            (
                partial(attend, heads="(shared groups)"),
                "neighbouring query heads share a key head; "
                "yours share it with every second or third one.",
            ),
            (
                partial(attend, scale=False),
                "divide the scores by the root of the head size.",
            ),
            (
                partial(attend, causal=False),
                "right but for the mask: no token may see a later one.",
            ),
            (
                lambda q, k, v: rearrange(attend(q, k, v), "b h t k -> b t (h k)"),
                "right numbers; return them in the shape of `q`.",
            ),
        ],
        hint="split the query heads into groups, "
        "then write the scores and the mean as two einsums.",
    )


def _pairs() -> Exercise:
    def reorder(pattern: str, weight: Tensor, head_size: int) -> Tensor:
        return rearrange(weight, pattern, two=2, pairs=head_size // 2)

    reorder_rows = partial(
        reorder, "(heads pairs two) width -> (heads two pairs) width"
    )

    def probes() -> list[tuple[Tensor, int]]:
        numbers = partial(torch.arange, dtype=torch.float32, device="cpu")
        return [
            (numbers(24.0 * 24).view(24, 24), 8),
            (numbers(12.0 * 18).view(12, 18), 6),  # key heads: fewer rows
        ]

    return function_exercise(
        reorder_rows,
        probes,
        mistakes=[
            (
                partial(
                    reorder, "(heads two pairs) width -> (heads pairs two) width"
                ),
                "that is the way back, from halves to neighbours.",
            ),
            (
                lambda weight, head_size: rearrange(
                    weight, "(pairs two) width -> (two pairs) width", two=2
                ),
                "each head has pairs of its own; reorder within the heads.",
            ),
            (
                partial(
                    reorder, "width (heads pairs two) -> width (heads two pairs)"
                ),
                "the rows of the weight are what the layer returns; "
                "you reordered the columns.",
            ),
            (
                lambda weight, head_size: weight,
                "the rows are where they were.",
            ),
        ],
        hint="name three axes in the rows: the head, the pair, "
        "and which of the two.",
    )


EXERCISES = {
    "which_copy": _which_copy(),
    "low_rank": _low_rank(),
    "blind_spot": _blind_spot(),
    "grouped": _grouped(),
    "pairs": _pairs(),
}
