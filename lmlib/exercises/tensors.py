"""Exercises of chapter 2: strides, bytes kept alive, views, windows, overlaps."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from lmlib.exercises import Exercise, function_exercise, value_exercise
from lmlib.tensors import (
    describe,
    same_storage,
    storage_indices,
    storage_nbytes,
    view_strides,
)

# A reader may have changed torch's defaults.
_zeros = partial(torch.zeros, dtype=torch.float32, device="cpu")
_arange = partial(torch.arange, dtype=torch.int64, device="cpu")


def _permute() -> Exercise:
    tensor = _zeros(2, 3, 5)
    permuted = tensor.permute(2, 0, 1)
    return value_exercise(
        expected=permuted.stride(),
        mistakes=[
            (
                tensor.stride(),
                "these are the strides before the permute; "
                "it moves each stride with its dimension.",
            ),
            (
                permuted.contiguous().stride(),
                "a fresh tensor of the new shape would have these strides; "
                "permute moves no element.",
            ),
            (
                tensor.permute(1, 2, 0).stride(),
                "you permuted the other way: "
                "dimension 0 of the result is dimension 2 of the original.",
            ),
            (
                tuple(permuted.shape),
                "that is the shape; how far does one step go in the storage?",
            ),
        ],
        hint="write the strides of the (2, 3, 5) tensor first, "
        "then move each one along with its dimension.",
    )


def _bytes_kept() -> Exercise:
    batches = [_zeros(1024, 256) for _ in range(8)]
    kept = [batch[:, 0] for batch in batches]
    expected = storage_nbytes(kept)
    return value_exercise(
        expected=expected,
        mistakes=[
            (
                sum(describe(view).nbytes for view in kept),
                "that is numel × element_size of the columns; "
                "ask what each column keeps alive.",
            ),
            (
                sum(batch.numel() for batch in batches),
                "that counts elements; the question is for bytes.",
            ),
            (
                storage_nbytes(kept[:1]),
                "that is one batch; the list holds a column of each of them.",
            ),
            (expected / 2**20, "that looks like MiB; give plain bytes."),
            (expected / 10**6, "that looks like MB; give plain bytes."),
        ],
        hint="how many distinct storages does the list refer to, "
        "and how large is each one?",
    )


def _half_a_view() -> Exercise:
    shape = (2, 3, 4)

    def fits(strides, new_shape) -> bool:
        return view_strides(shape, strides, new_shape) is not None

    def is_strides(answer) -> bool:
        return (
            isinstance(answer, (tuple, list))
            and len(answer) == len(shape)
            and all(type(stride) is int and stride >= 0 for stride in answer)
        )

    def which_fit(answer) -> tuple[bool, bool] | None:
        if not is_strides(answer):
            return None
        return fits(answer, (6, 4)), fits(answer, (2, 12))

    # from row to row the steps are even, but each row ends in a gap
    half_rows = _zeros(2, 3, 8)[..., :4]
    three_of_five_rows = _zeros(2, 5, 4)[:, :3]
    backwards = _zeros(4, 3, 2).permute(2, 1, 0)
    return Exercise(
        solution=half_rows.stride(),
        mistakes=[
            (
                _zeros(shape).stride(),
                "with these strides both views work; "
                "leave a gap where the last two dimensions meet.",
            ),
            (
                three_of_five_rows.stride(),
                "the other way round: "
                "these let you merge the last two dimensions, not the first two.",
            ),
            (
                backwards.stride(),
                "neither view works; "
                "dimensions merge when outer stride = inner size × inner stride.",
            ),
        ],
        hint="give a tuple of three non-negative integers, "
        "one stride for each dimension of (2, 3, 4).",
        read=which_fit,
    )


def _windows() -> Exercise:
    def windows(tokens: Tensor, length: int) -> Tensor:
        rows, step = len(tokens) - length + 1, tokens.stride(0)
        start = tokens.storage_offset()
        return tokens.as_strided((rows, length), (step, step), start)

    def copied(tokens: Tensor, length: int) -> Tensor:
        return windows(tokens, length).clone()

    def contiguous_first(tokens: Tensor, length: int) -> Tensor:
        return windows(tokens.contiguous(), length)

    def side_by_side(tokens: Tensor, length: int) -> Tensor:
        rows, step = len(tokens) // length, tokens.stride(0)
        start = tokens.storage_offset()
        return tokens.as_strided((rows, length), (length * step, step), start)

    def one_short(tokens: Tensor, length: int) -> Tensor:
        return windows(tokens, length)[:-1]

    def from_the_start(tokens: Tensor, length: int) -> Tensor:
        rows, step = len(tokens) - length + 1, tokens.stride(0)
        return tokens.as_strided((rows, length), (step, step), 0)

    def step_of_one(tokens: Tensor, length: int) -> Tensor:
        rows, start = len(tokens) - length + 1, tokens.storage_offset()
        return tokens.as_strided((rows, length), (1, 1), start)

    def values_and_sharing(result, tokens: Tensor, length: int):
        if not isinstance(result, Tensor):
            return None
        return result.tolist(), same_storage(result, tokens)

    def probes() -> list[tuple[Tensor, int]]:
        tokens = _arange(100, 140)
        return [
            (tokens, 8),
            (tokens[5:], 3),  # starts inside its storage
            (tokens[::3], 4),  # takes every third element
            (tokens, 40),  # a single window
        ]

    return function_exercise(
        windows,
        probes,
        mistakes=[
            (
                copied,
                "the values are right, but you copied them; "
                "a view would share the storage of `tokens`.",
            ),
            (
                contiguous_first,
                "the values are right; but `contiguous()` copies what has gaps: "
                "its windows no longer share the storage of `tokens`.",
            ),
            (
                side_by_side,
                "your windows do not overlap; "
                "one starts at every token, so both strides are alike.",
            ),
            (
                one_short,
                "the last window is missing; "
                "count the starts for a window as long as the text.",
            ),
            (
                from_the_start,
                "right for a whole tensor; `tokens` may begin inside its storage.",
            ),
            (
                step_of_one,
                "right for a contiguous tensor; "
                "`tokens` may itself take steps longer than one.",
            ),
        ],
        hint="compare with a loop over `tokens[i : i + length]`: "
        "how many rows, and what is in the first and last?",
        observe=values_and_sharing,
    )


def _overlaps() -> Exercise:
    def overlaps(tensor: Tensor) -> bool:
        return len(storage_indices(tensor).unique()) < tensor.numel()

    def has_a_zero_stride(tensor: Tensor) -> bool:
        return 0 in tensor.stride()

    def repeats_a_step(tensor: Tensor) -> bool:
        return len(set(tensor.stride())) < tensor.dim()

    def larger_than_storage(tensor: Tensor) -> bool:
        return describe(tensor).nbytes > describe(tensor).storage_nbytes

    def not_contiguous(tensor: Tensor) -> bool:
        return not tensor.is_contiguous()

    def interleaved(tensor: Tensor) -> bool:
        reach = 0
        for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
            if size > 1 and stride <= reach:
                return True
            reach += stride * (size - 1)
        return False

    def crowded(tensor: Tensor) -> bool:
        reach = storage_indices(tensor).max() - tensor.storage_offset()
        return tensor.numel() > reach + 1

    def equal_values(tensor: Tensor) -> bool:
        return len(tensor.unique()) < tensor.numel()

    def probes() -> list[tuple[Tensor]]:
        numbers = _arange(24)
        tensors = [
            numbers,
            _zeros(4, 6),  # equal values in different places
            numbers.view(4, 6).T,
            numbers[:6].expand(5, 6),
            numbers[:1].expand(1),
            numbers.as_strided((4, 1), (6, 0)),  # stride 0, but no step along it
            numbers[:8].unfold(0, 4, 2),  # overlaps in a larger storage
            numbers.unfold(0, 6, 6),
            numbers.as_strided((2, 2), (1, 1)),
            numbers.as_strided((3, 1), (1, 1)),  # equal strides, no overlap
            numbers.as_strided((3, 3), (2, 3)),  # rows interleave and never meet
            numbers.as_strided((3, 3), (4, 2)),  # rows meet, though there is room
        ]
        return [(tensor,) for tensor in tensors]

    return function_exercise(
        overlaps,
        probes,
        mistakes=[
            (
                has_a_zero_stride,
                "stride 0 is one way to come back; "
                "overlapping windows have none and overlap too.",
            ),
            (
                repeats_a_step,
                "two equal strides are one way to come back; "
                "try the windows of `unfold`.",
            ),
            (
                larger_than_storage,
                "a small view can overlap inside a large storage; "
                "look where each element lies.",
            ),
            (
                not_contiguous,
                "a transpose is not contiguous, yet visits every element once.",
            ),
            (
                interleaved,
                "rows may lie between one another without meeting; "
                "try shape (3, 3) with strides (2, 3).",
            ),
            (
                crowded,
                "elements can meet even where there is room for all; "
                "try shape (3, 3) with strides (4, 2).",
            ),
            (
                equal_values,
                "equal values may lie in different places; "
                "compare places, not values.",
            ),
        ],
        hint="try it on a transpose, on `expand`, and on `unfold` with windows "
        "that overlap or just touch.",
        observe=lambda result, tensor: bool(result),
    )


EXERCISES = {
    "permute": _permute(),
    "bytes_kept": _bytes_kept(),
    "half_a_view": _half_a_view(),
    "windows": _windows(),
    "overlaps": _overlaps(),
}
