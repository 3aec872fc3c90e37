"""Exercises of chapter 9: coasting, a leap, half-lives, a factored state, Lion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from lmlib.config import named_config
from lmlib.exercises import (
    NOT_ANSWERED,
    Exercise,
    Remark,
    function_exercise,
    value_exercise,
)
from lmlib.model import TransformerLM
from lmlib.optim.optimizers import Adam, SingleTensorOptimizer


def _coasting() -> Exercise:
    beta1, beta2 = betas = 0.9, 0.99
    weight = nn.Parameter(torch.zeros((), dtype=torch.float64, device="cpu"))
    optimizer = Adam([weight], lr=1.0, betas=betas, eps=0.0)
    places = []
    for gradient in (1.0, 0.0):
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
        places.append(weight.item())
    m = beta1 * (1 - beta1) / (1 - beta1**2)
    v = beta2 * (1 - beta2) / (1 - beta2**2)
    return value_exercise(
        expected=places[0] - places[1],
        mistakes=[
            (0, "the gradient is 0, but the step goes along its average."),
            (1, "both averages have faded since the first step, m more than v."),
            (
                beta1 / math.sqrt(beta2),
                "the correction is missing, or that of the first step: by now the "
                "weights of each average add up to 1 − β².",
            ),
            (m / v, "a root is missing: v averages squares."),
            (m, "that is m̂; it is divided by √v̂."),
            (places[1] - places[0], "that is a direction; give the length."),
            (places[1], "that is where the weight is; how far did it go last?"),
        ],
        hint="after two steps m is 0.9 · 0.1 and v is 0.99 · 0.01; correct both.",
        rel_tol=0.005,  # two digits are enough
    )


def _leap() -> Exercise:
    def first_step(answer: object) -> float:
        is_pair = isinstance(answer, (tuple, list)) and len(answer) == 2
        if not is_pair or not all(
            isinstance(beta, Real) and 0 <= beta < 1 for beta in answer
        ):
            raise Remark(
                "Not yet: answer with two numbers from 0 to below 1, β₁ and β₂."
            )
        beta1, beta2 = answer
        return (1 - beta1) / math.sqrt(1 - beta2)

    return Exercise(
        solution=(0.0, 0.9999),
        mistakes=[
            ((0.9999, 0.0), "the other way round: which average stands below?"),
            (
                (0.9, 0.999),
                "that is Adam's usual pair, and about 3 learning rates.",
            ),
            ((0.0, 0.99), "ten learning rates; where does the root stand?"),
            ((0.99, 0.9999), "that is one learning rate: the two biases cancel."),
        ],
        hint="after the first step m is (1 − β₁)·g, and v is (1 − β₂)·g².",
        read=first_step,
        rel_tol=0.01,
    )


def _half_life() -> Exercise:
    def decay_for(factors: Sequence[float], peak: float) -> float:
        return math.log(2) / (peak * sum(factors))

    def constant_rate(factors: Sequence[float], peak: float) -> float:
        return math.log(2) / (peak * len(factors))

    def without_rate(factors: Sequence[float], peak: float) -> float:
        return math.log(2) / sum(factors)

    def to_one_over_e(factors: Sequence[float], peak: float) -> float:
        return 1 / (peak * sum(factors))

    def half_of_the_way(factors: Sequence[float], peak: float) -> float:
        return 0.5 / (peak * sum(factors))

    def like_the_loss(factors: Sequence[float], peak: float) -> float:
        return math.log(2) / (2 * peak * sum(factors))

    def probes() -> list[tuple]:
        steps = range(2000)
        cosine = [(1 + math.cos(math.pi * step / 2000)) / 2 for step in steps]
        return [
            (cosine, 1e-3),
            ([min(1.0, (step + 1) / 500) for step in steps], 3e-4),
            ([1.0] * 1000, 1e-2),
        ]

    return function_exercise(
        decay_for,
        probes,
        mistakes=[
            (
                constant_rate,
                "right for a constant rate; with small factors a step decays less.",
            ),
            (without_rate, "AdamW multiplies λ by the learning rate, too."),
            (to_one_over_e, "that leaves 1/e of the weight, and not a half."),
            (
                half_of_the_way,
                "a weight does not shrink by the same amount at each step, but by "
                "the same share.",
            ),
            (like_the_loss, "a half, not its root: where does your 2 come from?"),
        ],
        hint="the logarithms of what each step multiplies with add up to −ln 2.",
        observe=lambda result, *_: float(result),
        rel_tol=0.01,
    )


def _factored() -> Exercise:
    with torch.device("meta"):
        shapes = [
            p.shape for p in TransformerLM(named_config("gpt2-124m")).parameters()
        ]
    matrices = sum(sum(shape) for shape in shapes if len(shape) == 2)
    vectors = sum(shape.numel() for shape in shapes if len(shape) == 1)
    everything = sum(shape.numel() for shape in shapes)
    expected = 4 * (matrices + vectors)
    return value_exercise(
        expected=expected,
        mistakes=[
            (matrices + vectors, "that counts numbers; how many bytes is each?"),
            (4 * matrices, "the vectors are missing: they keep all of v."),
            (4 * everything, "that keeps v whole; a matrix keeps sums of it."),
            (8 * everything, "that is AdamW's state."),
            (
                expected + 4 * everything,
                "that keeps m as well; the question does without.",
            ),
            (
                4 * (matrices + 2 * vectors),
                "a vector keeps v once; it has no rows and columns to sum.",
            ),
            (expected / 10**6, "that looks like MB; give plain bytes."),
            (expected / 2**20, "that looks like MiB; give plain bytes."),
        ],
        hint="a matrix of shape (a, b) has a sums of rows and b sums of columns.",
    )


def _lion() -> Exercise:
    class Lion(SingleTensorOptimizer):
        keeps = ("exp_avg",)

        def update(
            self, param: Tensor, grad: Tensor, group: dict[str, Any]
        ) -> None:
            beta1, beta2 = group["betas"]
            (m,) = self.kept(param)
            param.mul_(1 - group["lr"] * group["weight_decay"])
            param.add_(m.lerp(grad, 1 - beta1).sign(), alpha=-group["lr"])
            m.lerp_(grad, 1 - beta2)

    class MovesFirst(Lion):
        def update(
            self, param: Tensor, grad: Tensor, group: dict[str, Any]
        ) -> None:
            beta1, beta2 = group["betas"]
            (m,) = self.kept(param)
            param.mul_(1 - group["lr"] * group["weight_decay"])
            m.lerp_(grad, 1 - beta2)
            param.add_(m.lerp(grad, 1 - beta1).sign(), alpha=-group["lr"])

    class OneBeta(Lion):
        def update(
            self, param: Tensor, grad: Tensor, group: dict[str, Any]
        ) -> None:
            (m,) = self.kept(param)
            param.mul_(1 - group["lr"] * group["weight_decay"])
            m.lerp_(grad, 1 - group["betas"][0])
            param.add_(m.sign(), alpha=-group["lr"])

    class NoSign(Lion):
        def update(
            self, param: Tensor, grad: Tensor, group: dict[str, Any]
        ) -> None:
            beta1, beta2 = group["betas"]
            (m,) = self.kept(param)
            param.mul_(1 - group["lr"] * group["weight_decay"])
            param.add_(m.lerp(grad, 1 - beta1), alpha=-group["lr"])
            m.lerp_(grad, 1 - beta2)

    class Coupled(Lion):
        def update(
            self, param: Tensor, grad: Tensor, group: dict[str, Any]
        ) -> None:
            grad = grad.add(param, alpha=group["weight_decay"])
            super().update(param, grad, group | {"weight_decay": 0.0})

    class NoDecay(Lion):
        def update(
            self, param: Tensor, grad: Tensor, group: dict[str, Any]
        ) -> None:
            super().update(param, grad, group | {"weight_decay": 0.0})

    class KeepsMore(Lion):
        keeps = ("exp_avg", "exp_avg_sq")

        def update(
            self, param: Tensor, grad: Tensor, group: dict[str, Any]
        ) -> None:
            beta1, beta2 = group["betas"]
            m, _ = self.kept(param)
            param.mul_(1 - group["lr"] * group["weight_decay"])
            param.add_(m.lerp(grad, 1 - beta1).sign(), alpha=-group["lr"])
            m.lerp_(grad, 1 - beta2)

    def probes() -> list[tuple]:
        generator = torch.Generator("cpu").manual_seed(9)
        options = {"generator": generator, "dtype": torch.float64, "device": "cpu"}
        weights = [nn.Parameter(torch.randn(6, 5, **options)) for _ in range(2)]
        group = {"lr": 0.1, "betas": (0.8, 0.95), "weight_decay": 0.4}
        other = {"lr": 0.01, "betas": (0.95, 0.5), "weight_decay": 0.0}
        return [
            ([{"params": [weights[0]]} | group],),
            ([{"params": [weights[1]]} | other],),
        ]

    def behaviour(optimizer: object, groups: list[dict[str, Any]]) -> tuple | None:
        """Where a weight is after some steps, and how many tensors it keeps."""
        if not isinstance(optimizer, SingleTensorOptimizer):
            return None
        if type(optimizer).update is SingleTensorOptimizer.update:
            raise Remark(NOT_ANSWERED)
        (weight,) = groups[0]["params"]
        generator = torch.Generator("cpu").manual_seed(10)
        for _ in range(8):
            options = {"dtype": weight.dtype, "device": weight.device}
            weight.grad = torch.randn(6, 5, generator=generator, **options)
            optimizer.step()
        state = optimizer.state[weight].values()
        kept = sum(value.numel() for value in state if isinstance(value, Tensor))
        return weight.flatten().tolist(), kept // weight.numel()

    return function_exercise(
        Lion,
        probes,
        mistakes=[
            (MovesFirst, "m moves on after the sign was taken, not before."),
            (
                OneBeta,
                "there are two mixtures: one for the sign, with β₁, made anew, and "
                "one that is kept, with β₂.",
            ),
            (NoSign, "the step has to be a sign, whatever the scale of g."),
            (
                Coupled,
                "with λθ in the gradient, decay passes through the sign; "
                "it shrinks θ directly.",
            ),
            (NoDecay, "the weight decay is missing."),
            (
                KeepsMore,
                "its steps are right; it keeps a tensor that it never uses.",
            ),
        ],
        hint="compare with the three equations, in their order; the options are in "
        "`group`, and m comes from `self.kept(param)`.",
        observe=behaviour,
    )


EXERCISES = {
    "coasting": _coasting(),
    "leap": _leap(),
    "half_life": _half_life(),
    "factored": _factored(),
    "lion": _lion(),
}
