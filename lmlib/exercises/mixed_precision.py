"""Exercises of chapter 11: when copies pay, scales, clipping, int8 in two ways."""

from __future__ import annotations

import math
from numbers import Real

import torch
from torch import Tensor

from lmlib.dtypes import FP16
from lmlib.exercises import Exercise, Remark, function_exercise, value_exercise
from lmlib.precision import Int8Linear, make_scaler, quantize_rows


def _break_even() -> Exercise:
    d_in, d_out = 128, 512
    fp32, bf16 = 4, 2  # bytes
    saved_by_token = (fp32 - bf16) * d_in
    weight_copy = bf16 * d_in * d_out
    expected = weight_copy // saved_by_token
    return value_exercise(
        expected=expected,
        mistakes=[
            (d_in, "the width of the input cancels: it is in both products."),
            (
                expected // 2,
                "the input is not free under autocast: its bf16 copy is saved.",
            ),
            (
                2 * expected,
                "that takes the copy of the weight for fp32; how wide is it?",
            ),
            (weight_copy, "those are the bytes of the copy; how many tokens pay?"),
            (d_in + d_out, "set the bytes of both ways equal; nothing is added."),
        ],
        hint="autocast saves 2 bytes less for each number of the input, and 2 "
        "bytes more for each of the weight.",
    )


def _window() -> Exercise:
    smallest, largest = 1e-9, 0.5
    (expected,) = (
        2**power
        for power in range(40)
        if smallest * 2**power >= FP16.smallest_normal
        and largest * 2**power <= FP16.max
    )
    digits_gone = 64  # the first scale with which 1e-9 is not 0
    return value_exercise(
        expected=expected,
        mistakes=[
            (math.log2(expected), "that is the power; answer with the scale."),
            (2 * expected, "with that scale 0.5 becomes infinite."),
            (expected / 2, "with that scale 1e-9 is still subnormal."),
            (
                digits_gone,
                "1e-9 is then the smallest subnormal: one digit is left.",
            ),
            (
                1 / expected,
                "gradients are multiplied by the scale, and these are too small.",
            ),
        ],
        hint="1e-9 has to reach 2⁻¹⁴, and 0.5 must not pass 65504.",
    )


def _moving_threshold() -> Exercise:
    scaler = make_scaler("fp16-autocast")
    clipped = scaler.get_scale()  # to which the scaled gradients are clipped
    scale = clipped * scaler.get_backoff_factor() ** 3
    return value_exercise(
        expected=clipped / scale,
        mistakes=[
            (1, "so it was at first; what is the scale after three overflows?"),
            (
                scale / clipped,
                "the scale fell, and with it the scaled gradients; the clipping "
                "now begins to act later.",
            ),
            (scale, "that is the scale; divide what the clipping sees by it."),
            (clipped, "that is the norm of scaled gradients; what of true ones?"),
            (2, "each of the three steps halves the scale."),
            (3, "an overflow halves the scale, it takes nothing off."),
        ],
        hint="what is the scale after three overflows, and how large is the true "
        "gradient that it makes 65536 of?",
        rel_tol=1e-4,
    )


def _stubborn_row() -> Exercise:
    def is_row(values: object) -> bool:
        if not isinstance(values, (tuple, list)) or not 1 <= len(values) <= 64:
            return False
        return all(
            isinstance(v, Real) and not isinstance(v, bool) and abs(v) < 1e30
            for v in values
        )

    def damage(answer: object) -> str:
        is_pair = isinstance(answer, (tuple, list)) and len(answer) == 2
        if not is_pair or not all(is_row(row) for row in answer):
            raise Remark(
                "Not yet: answer with two lists of numbers, the row and the input."
            )
        if len(answer[0]) != len(answer[1]):
            raise Remark("Not yet: the row and the input differ in length.")
        weight, x = (
            torch.tensor([row], dtype=torch.float64, device="cpu") for row in answer
        )
        exact = (x @ weight.T).item()
        error = abs(Int8Linear(weight)(x).item() - exact)
        if exact == 0:
            return "zero"
        if error < 1e-5 * abs(exact):
            return "exact"
        return "broken" if error > abs(exact) / 2 else "little"

    return Exercise(
        solution=([100, 0.3], [0, 1]),
        mistakes=[
            (
                ([1, 2], [1, -0.5]),
                "the right result is 0; make it something that can be missed.",
            ),
            (
                ([127, 3], [1, 1]),
                "int8 holds these weights exactly: each is a multiple of the step.",
            ),
            (
                ([100, 30.3], [1, 1]),
                "it is off by less than half; what is the smallest weight that "
                "does not become 0?",
            ),
        ],
        hint="one weight sets the step of its row; which ones vanish beside it?",
        read=damage,
    )


def _whole_numbers() -> Exercise:
    def product(x: Tensor, weight: Tensor) -> Tensor:
        return x.double() @ weight.double().T  # exact for these whole numbers

    def multiply(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
        steps, x_scales = quantize_rows(x)
        return (product(steps, weight) * x_scales[:, None] * scales).float()

    def weights_only(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
        return (product(x, weight) * scales).float()

    def narrow(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
        steps, x_scales = quantize_rows(x)
        wrapped = product(steps, weight).long().to(torch.int8)
        return wrapped.float() * x_scales[:, None] * scales

    def one_scale(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
        steps, x_scales = quantize_rows(x.reshape(1, -1))
        steps = steps.reshape(x.shape)
        return (product(steps, weight) * x_scales * scales).float()

    def without_x_scales(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
        steps, _ = quantize_rows(x)
        return (product(steps, weight) * scales).float()

    def without_scales(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
        steps, x_scales = quantize_rows(x)
        return (product(steps, weight) * x_scales[:, None]).float()

    def probes() -> list[tuple[Tensor, Tensor, Tensor]]:
        generator = torch.Generator("cpu").manual_seed(11)
        options = {"generator": generator, "dtype": torch.float32, "device": "cpu"}
        found = []
        for rows, d_in, d_out in ((3, 16, 5), (1, 33, 2), (4, 8, 8)):
            x = torch.randn(rows, d_in, **options)
            for place, row in enumerate(x):
                row *= place + 1  # rows of unlike size
            weight, scales = quantize_rows(torch.randn(d_out, d_in, **options))
            found.append((x, weight, scales))
        return found

    return function_exercise(
        multiply,
        probes,
        mistakes=[
            (weights_only, "x has to become whole numbers too, row by row."),
            (narrow, "sums of products pass 127: add up in int32."),
            (one_scale, "each row of x has a scale of its own."),
            (without_x_scales, "what is a step of x worth?"),
            (without_scales, "what is a step of the weight worth?"),
        ],
        hint="round x with `quantize_rows`, multiply as int32, then give each row "
        "and each column its scale.",
        rel_tol=1e-4,
    )


EXERCISES = {
    "break_even": _break_even(),
    "window": _window(),
    "moving_threshold": _moving_threshold(),
    "stubborn_row": _stubborn_row(),
    "whole_numbers": _whole_numbers(),
}
