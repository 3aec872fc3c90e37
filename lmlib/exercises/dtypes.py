"""Exercises of chapter 3: nudges, order of sums, neighbours, blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmlib.dtypes import BF16, FP8_E4M3FN, FP16, FP32, FloatFormat
from lmlib.exercises import Exercise, function_exercise, value_exercise


def _nudge() -> Exercise:
    weight = float(BF16.round(0.02))
    powers = [2.0**power for power in range(-30, 1)]
    expected = next(each for each in powers if BF16.round(weight + each) != weight)
    return value_exercise(
        expected=expected,
        mistakes=[
            (
                expected / 2,
                "that is half of the spacing exactly: "
                "a tie, which goes to the even pattern. Is the weight's even?",
            ),
            (
                BF16.eps,
                "that moves a weight of 1; near 0.02 the values lie closer.",
            ),
            (
                BF16.eps / 2,
                "that is half of the spacing at 1; near 0.02 it is smaller.",
            ),
            (
                2 * expected,
                "that moves it by two values; half of it suffices.",
            ),
            (
                expected / 4,
                "a quarter of the spacing rounds away; mind the octave of 0.02.",
            ),
            (
                BF16.smallest_subnormal,
                "the range of bf16 is not the question; "
                "what is the distance from the weight to the next value?",
            ),
        ],
        hint="between which powers of two lies 0.02? Divide the lower one by 2^7.",
    )


def _associativity() -> Exercise:
    def is_held(number: Any) -> bool:
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            return False
        return math.isfinite(number) and FP16.round(number) == number

    def which_overflow(answer) -> tuple[bool, bool] | None:
        if not isinstance(answer, (tuple, list)) or len(answer) != 3:
            return None
        if not all(is_held(number) for number in answer):
            return None
        a, b, c = map(float, answer)
        left = FP16.round(FP16.round(a + b) + c)
        right = FP16.round(a + FP16.round(b + c))
        return bool(np.isfinite(left)), bool(np.isfinite(right))

    return Exercise(
        solution=(40_000, 40_000, -40_000),
        mistakes=[
            (
                (1, 2, 3),
                "both sums are finite; make a + b larger than fp16's maximum.",
            ),
            (
                (40_000, 40_000, 40_000),
                "both sums overflow; c has to bring b back first.",
            ),
            (
                (-40_000, 40_000, 40_000),
                "the other way round: here it is b + c that overflows.",
            ),
        ],
        hint="give three finite numbers that fp16 holds exactly, "
        "such as multiples of 32 up to 65504.",
        read=which_overflow,
    )


def _next_up() -> Exercise:
    def next_up(format: FloatFormat, value: float) -> float:
        pattern = int(format.encode(value + 0.0))  # -0.0 + 0.0 is 0.0
        return float(format.decode(pattern + 1 if value >= 0 else pattern - 1))

    def one_zero(format: FloatFormat, value: float) -> float:
        pattern = int(format.encode(value))
        return float(format.decode(pattern + 1 if value >= 0 else pattern - 1))

    def spacing_at_one(format: FloatFormat, value: float) -> float:
        return value + format.eps

    def next_pattern(format: FloatFormat, value: float) -> float:
        return float(format.decode(int(format.encode(value)) + 1))

    def value_plus_spacing(format: FloatFormat, value: float) -> float:
        return float(value + format.spacing(value))

    def relative(format: FloatFormat, value: float) -> float:
        return value * (1 + format.eps)

    def probes() -> list[tuple[FloatFormat, float]]:
        return [
            (FP16, 1.0),
            (FP16, 1 - 2.0**-11),  # its next value is a power of two
            (FP16, 0.0),
            (FP16, -0.0),
            (FP16, 2.0**-14 - 2.0**-24),  # the largest subnormal
            (BF16, 3.0),
            (BF16, -3.0),
            (BF16, -1.0),  # above it the values lie closer than below
            (FP8_E4M3FN, 416.0),
            (FP32, -(2.0**-149)),
        ]

    return function_exercise(
        next_up,
        probes,
        mistakes=[
            (
                one_zero,
                "nearly; there is a second zero, -0.0, and its pattern is not 0.",
            ),
            (
                spacing_at_one,
                "that is the spacing at 1; it doubles with every power of two.",
            ),
            (
                next_pattern,
                "right for positive values; "
                "the pattern of a negative one grows away from zero.",
            ),
            (
                value_plus_spacing,
                "nearly; try -1, above which the values lie closer than below.",
            ),
            (
                relative,
                "the spacing is a share of the power of two, not of the value; "
                "and what comes after 0?",
            ),
        ],
        hint="print patterns of neighbouring values, of both signs, as integers.",
        observe=lambda result, *arguments: float(result),
    )


def _blocks() -> Exercise:
    def rounded(groups: NDArray, levels: int = 127) -> NDArray:
        scale = np.abs(groups).max(axis=-1, keepdims=True) / levels
        scale = np.where(scale == 0, 1, scale)
        return np.rint(groups / scale) * scale

    def quantize_blocks(weight: NDArray, block: int) -> NDArray:
        return rounded(weight.reshape(-1, block)).reshape(weight.shape)

    def one_scale(weight: NDArray, block: int) -> NDArray:
        return rounded(weight.reshape(1, -1)).reshape(weight.shape)

    def scale_per_row(weight: NDArray, block: int) -> NDArray:
        return rounded(weight)

    def down_the_columns(weight: NDArray, block: int) -> NDArray:
        groups = weight.T.reshape(-1, block)
        return rounded(groups).reshape(weight.T.shape).T

    def to_128(weight: NDArray, block: int) -> NDArray:
        groups = weight.reshape(-1, block)
        return rounded(groups, levels=128).reshape(weight.shape)

    def zero_by_zero(weight: NDArray, block: int) -> NDArray:
        groups = weight.reshape(-1, block)
        scale = np.abs(groups).max(axis=-1, keepdims=True) / 127
        with np.errstate(invalid="ignore"):
            return (np.rint(groups / scale) * scale).reshape(weight.shape)

    def codes_only(weight: NDArray, block: int) -> NDArray:
        groups = weight.reshape(-1, block)
        scale = np.abs(groups).max(axis=-1, keepdims=True) / 127
        return np.rint(groups / np.where(scale == 0, 1, scale)).reshape(
            weight.shape
        )

    def probes() -> list[tuple[NDArray, int]]:
        random = np.random.default_rng(0)
        weight = random.standard_normal((16, 32))
        outlier = random.standard_normal((8, 64))
        outlier[2, 40] = 100
        empty = random.standard_normal((2, 16))
        empty[1, :8] = 0
        return [(weight, 16), (outlier, 8), (empty, 8)]

    def with_nan_as_text(result: Any, *arguments: Any) -> Any:
        rows = np.asarray(result, dtype=float).tolist()
        return [
            ["NaN" if math.isnan(value) else value for value in np.atleast_1d(row)]
            for row in rows
        ]

    return function_exercise(
        quantize_blocks,
        probes,
        mistakes=[
            (one_scale, "one scale for the whole matrix; give each block its own."),
            (scale_per_row, "one scale for each row; its blocks have their own."),
            (down_the_columns, "your blocks run down the columns, not along rows."),
            (
                to_128,
                "128 levels: the largest value would be 128, which int8 lacks.",
            ),
            (
                zero_by_zero,
                "a block of zeros has a scale of 0, and 0 / 0 is NaN.",
            ),
            (codes_only, "these are the codes; multiply by the scale again."),
        ],
        hint="cut the rows into blocks with one reshape, "
        "then do to each block what the chapter did to each row.",
        observe=with_nan_as_text,
    )


EXERCISES = {
    "nudge": _nudge(),
    "associativity": _associativity(),
    "next_up": _next_up(),
    "blocks": _blocks(),
}
