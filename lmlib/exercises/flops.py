"""Exercises of chapter 5: a reporting line, a batch, a run, two odd products."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import ceil
from typing import Any

import torch
from torch import Tensor

from lmlib.config import named_config
from lmlib.exercises import (
    NOT_ANSWERED,
    Exercise,
    Remark,
    function_exercise,
    value_exercise,
)
from lmlib.flops import (
    count_flops,
    estimated_step_flops,
    linear_flops,
    linear_intensity,
    mfu,
    step_flops,
    working_parameters,
)
from lmlib.hardware import get_accelerator

DAY = 24 * 60 * 60


def _reporting_line() -> Exercise:
    peak = get_accelerator("h100").peak("bf16").value

    def devices(utilisation: float = 0.4, speed: float = peak) -> int:
        return ceil(1e26 / (100 * DAY * utilisation * speed))

    return value_exercise(
        expected=devices(),
        mistakes=[
            (devices(speed=2 * peak), "that takes the peak with sparsity."),
            (devices(utilisation=1), "no run reaches the peak; apply the MFU."),
            (
                devices(utilisation=1 / 0.4),
                "you divided the speed by the MFU; a low one asks for more.",
            ),
            (
                100 * devices(),
                "that many would do it in a day; you have a hundred.",
            ),
        ],
        hint="FLOPs over the FLOP/s that one of them reaches, "
        "over the seconds of a hundred days.",
        rel_tol=0.005,  # rounding, up or not
    )


def _rows() -> Exercise:
    width = 8192
    h100, h200 = (get_accelerator(name).roofline() for name in ("h100", "h200"))

    def fewest(ridge: float, bytes_per_element: int = 2) -> int:
        return next(
            rows
            for rows in count(1)
            if linear_intensity(rows, width, width, bytes_per_element) >= ridge
        )

    return value_exercise(
        expected=fewest(h100.ridge),
        mistakes=[
            (
                ceil(h100.ridge),
                "close: one FLOP per byte for each row holds while the weights are "
                "all that moves; count the input and the output too.",
            ),
            (
                int(h100.ridge),
                "close: that is the ridge, rounded down; count the bytes of the "
                "input and the output too, and round up.",
            ),
            (
                fewest(2 * h100.ridge),
                "twice the ridge: you took the peak with sparsity, or elements of "
                "four bytes.",
            ),
            (
                fewest(h100.ridge, bytes_per_element=1),
                "you counted elements, not bytes.",
            ),
            (fewest(h200.ridge), "that is right for an H200; here it is an H100."),
            (
                fewest(h100.ridge) - 1,
                "one row more: with that many it still waits for memory.",
            ),
        ],
        hint="write the intensity of B rows as 2·B·D² over 2·(2·B·D + D²), set it "
        "equal to the ridge, and solve for B.",
    )


def _llama3_mfu() -> Exercise:
    config, tokens = named_config("llama-3-405b"), 15.6e12
    seconds = 30.84e6 * 60 * 60
    sxm, pcie = get_accelerator("h100"), get_accelerator("h100-pcie")
    peak = sxm.peak("bf16").value

    def share(flops_per_token: float, peak: float = peak) -> float:
        return mfu(tokens * flops_per_token, seconds, peak)

    step = estimated_step_flops(config, 1)
    halved = step_flops(config, causal=True).total / config.context_length
    return value_exercise(
        expected=share(step),
        mistakes=[
            (
                share(6 * working_parameters(config)),
                "that is 6·N alone; attention's 12·L·H·K·T belongs to it.",
            ),
            (
                share(halved),
                "you halved attention for its mask; MFU by convention does not.",
            ),
            (
                share(step / 3),
                "that is the forward pass; a step is three times it.",
            ),
            (share(step, 2 * peak), "that takes the H100's peak with sparsity."),
            (
                share(step, pcie.peak("bf16").value),
                "that takes the peak of the PCIe card.",
            ),
            (100 * share(step), "give a share between 0 and 1, not percent."),
            (3600 * share(step), "a GPU hour has 3600 seconds."),
        ],
        hint="tokens × (6·N + 12·L·H·K·T), over the seconds of all GPUs together "
        "times the peak of one.",
        rel_tol=0.01,  # two digits are enough
    )


def _hidden() -> Exercise:
    def probes() -> list[tuple[Tensor, Tensor]]:
        generator = torch.Generator("cpu").manual_seed(5)

        def matrix(rows: int, columns: int) -> Tensor:
            kind = {"dtype": torch.float64, "device": "cpu"}  # whatever is default
            return torch.randn(rows, columns, generator=generator, **kind)

        return [(matrix(3, 4), matrix(4, 5)), (matrix(1, 7), matrix(7, 1))]

    def observed(function: Callable, x: Tensor, w: Tensor) -> tuple[Any, int]:
        results = []
        flops = count_flops(lambda: results.append(function(x, w)))
        return results[0], flops

    def right_and_hidden(function: Any) -> tuple[bool, bool]:
        if not callable(function):
            raise Remark("Not yet: answer with a function.")
        seen = [(x @ w, *observed(function, x, w)) for x, w in probes()]
        if all(result is None or result is ... for _, result, _ in seen):
            raise Remark(NOT_ANSWERED)
        is_right = all(
            isinstance(result, Tensor)
            and result.shape == product.shape
            and torch.allclose(result.to(product), product)
            for product, result, _ in seen
        )
        return is_right, all(flops == 0 for _, _, flops in seen)

    return Exercise(
        solution=lambda x, w: (x[:, :, None] * w).sum(1),
        mistakes=[
            (
                lambda x, w: x @ w,
                "the product is right, and the counter sees it: whatever torch "
                "runs as a matrix product is counted.",
            ),
            (
                lambda x, w: x[:, :, None] * w,
                "nothing is counted, but it is not yet the product: "
                "add up over the dimension that both share.",
            ),
        ],
        hint="multiply element by element in three dimensions, then sum one away.",
        read=right_and_hidden,
    )


def _experts() -> Exercise:
    def moe(num_rows, d_model, d_ff, num_experts, active):
        router = linear_flops(num_rows, d_model, num_experts)
        return router + active * 3 * linear_flops(num_rows, d_model, d_ff)

    def all_of_them(num_rows, d_model, d_ff, num_experts, active):
        return moe(num_rows, d_model, d_ff, num_experts, num_experts)

    def no_router(num_rows, d_model, d_ff, num_experts, active):
        return active * 3 * linear_flops(num_rows, d_model, d_ff)

    def two_matrices(num_rows, d_model, d_ff, num_experts, active):
        router = linear_flops(num_rows, d_model, num_experts)
        return router + active * 2 * linear_flops(num_rows, d_model, d_ff)

    def small_router(num_rows, d_model, d_ff, num_experts, active):
        router = linear_flops(num_rows, d_model, active)
        return router + active * 3 * linear_flops(num_rows, d_model, d_ff)

    def half(*sizes):
        return moe(*sizes) // 2

    return function_exercise(
        moe,
        probes=lambda: [(64, 32, 48, 8, 2), (1, 512, 128, 4, 1), (7, 5, 3, 6, 6)],
        mistakes=[
            (
                all_of_them,
                "only the experts that a token is sent to do any work for it.",
            ),
            (no_router, "the scores of the experts are a product too."),
            (two_matrices, "a SwiGLU expert has three matrices."),
            (
                small_router,
                "the router scores every expert, to choose the best of them.",
            ),
            (half, "a multiplication and an addition are two FLOPs."),
        ],
        hint="one small linear layer gives a score for each expert; then each of "
        "the chosen ones is an MLP of three linear layers.",
    )


EXERCISES = {
    "reporting_line": _reporting_line(),
    "rows": _rows(),
    "llama3_mfu": _llama3_mfu(),
    "hidden": _hidden(),
    "experts": _experts(),
}
