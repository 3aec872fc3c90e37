"""Exercises of chapter 7: overflow, a default, symmetry, the first loss, gain."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from lmlib.config import named_config
from lmlib.dtypes import FP16, FP32
from lmlib.exercises import Exercise, function_exercise, value_exercise
from lmlib.init import kaiming_normal_
from lmlib.model import INIT_STD

Activation = Callable[[Tensor], Tensor]

# A reader may have changed torch's defaults.
_wide = {"dtype": torch.float64, "device": "cpu"}


def _overflow() -> Exercise:
    width = 1024

    def layers_until(largest: float, factor: float) -> int:
        return math.ceil(math.log(largest) / math.log(factor))

    factor = math.sqrt(width)
    expected = layers_until(FP32.max, factor)
    return value_exercise(
        expected=expected,
        mistakes=[
            (
                layers_until(FP32.max, width),
                "a layer multiplies the variance by the width; "
                "by what does it multiply the scale?",
            ),
            (
                expected - 1,
                "after that layer the scale still fits; name the first "
                "after which it does not.",
            ),
            (layers_until(FP16.max, factor), "that is where fp16 ends."),
            (
                layers_until(sys.float_info.max, factor),
                "that is where fp64 ends; fp32 has 8 bits for the exponent.",
            ),
        ],
        hint="write the factor of a layer and the largest fp32 number as powers "
        "of two.",
    )


def _default_linear() -> Exercise:
    depth, width = 24, 256
    linear = nn.Linear(width, width, bias=False, device="meta")
    bound = 1 / math.sqrt(linear.in_features)  # as its reset_parameters draws

    def left(std: float) -> float:
        return (std * math.sqrt(width)) ** depth

    std = bound / math.sqrt(3)
    return value_exercise(
        expected=left(std),
        mistakes=[
            (
                left(bound),
                "the bound is not the standard deviation of a uniform number.",
            ),
            (left(std) ** 2, "that is what is left of the variance."),
            (std * math.sqrt(width), "that is the factor of a single layer."),
            (
                left(bound / math.sqrt(12)),
                "a uniform number between ±b spreads over 2b, not over b.",
            ),
            (
                left(2 * bound / math.sqrt(3)),
                "on an interval of length c the variance is c²/12; from −b to b, "
                "c is 2b and not 4b.",
            ),
        ],
        hint="the variance of a uniform number between ±b is b²/3; what is the "
        "factor of a layer, and that of all of them?",
        rel_tol=0.01,
    )


def _constant() -> Exercise:
    inputs, hidden = 8, 64

    def rank_after_training(draw: Callable[[Tensor], Tensor]) -> int:
        """Rank of the first weight matrix after some steps of gradient descent."""
        generator = Generator(device="cpu").manual_seed(0)
        x = torch.randn(128, inputs, generator=generator, **_wide)
        y = x.square().sum(1)
        first = draw(torch.empty(hidden, inputs, **_wide)).requires_grad_()
        second = draw(torch.empty(1, hidden, **_wide)).requires_grad_()
        for _ in range(20):
            predicted = (torch.relu(x @ first.T) @ second.T)[:, 0]
            loss = (predicted - y).square().mean()
            slopes = torch.autograd.grad(loss, (first, second))
            with torch.no_grad():
                first -= 1e-3 * slopes[0]
                second -= 1e-3 * slopes[1]
        return int(torch.linalg.matrix_rank(first.detach()))

    def constant(weight: Tensor) -> Tensor:
        return weight.fill_(weight.shape[1] ** -0.5)

    generator = Generator(device="cpu").manual_seed(0)
    return value_exercise(
        expected=rank_after_training(constant),
        mistakes=[
            (
                rank_after_training(partial(kaiming_normal_, generator=generator)),
                "a random start would reach that; here all units began alike.",
            ),
            (hidden, "that counts the hidden units; what tells them apart?"),
            (0, "the weights do move: look at what one unit's gradient is."),
        ],
        hint="two units with the same weights see the same inputs and, from above, "
        "the same gradient. What will ever tell them apart?",
    )


def _first_loss() -> Exercise:
    config = named_config("llama-3-8b")
    uniform = math.log(config.vocab_size)
    variance = config.d_model * INIT_STD**2
    return value_exercise(
        expected=uniform + variance / 2,
        mistakes=[
            (uniform, "that is for equal logits; how much do these vary?"),
            (uniform + variance, "half of the variance is added, not all of it."),
            (
                uniform + math.sqrt(variance) / 2,
                "that adds half of the standard deviation; take the variance.",
            ),
            (
                uniform + math.sqrt(config.d_model) * INIT_STD,
                "that adds the standard deviation; take half of the variance.",
            ),
            (math.log2(config.vocab_size) + variance / 2, "that is in bits."),
            (
                uniform + 768 * INIT_STD**2 / 2,
                "that is the width of GPT-2's smallest model.",
            ),
        ],
        hint="ln V, and half of the variance of a logit: D products, each of a "
        "number of variance 1 and a weight.",
        rel_tol=1e-3,
    )


def _gain() -> Exercise:
    z = torch.linspace(-10, 10, 20_001, **_wide)
    density = torch.exp(-(z**2) / 2)
    density /= density.sum()

    def mean(values: Tensor) -> float:
        return float((density * values).sum())

    def gain(activation: Activation) -> float:
        return mean(activation(z).square()) ** -0.5

    def of_variance(activation: Activation) -> float:
        return 1 / mean(activation(z).square())

    def upside_down(activation: Activation) -> float:
        return mean(activation(z).square()) ** 0.5

    def around_the_mean(activation: Activation) -> float:
        values = activation(z)
        return mean((values - mean(values)) ** 2) ** -0.5

    def of_absolute_values(activation: Activation) -> float:
        return 1 / mean(activation(z).abs())

    def unchanged(values: Tensor) -> Tensor:
        return values

    probes = [unchanged, torch.relu, F.gelu, torch.tanh, torch.sigmoid, F.silu]
    return function_exercise(
        gain,
        lambda: [(activation,) for activation in probes],
        mistakes=[
            (of_variance, "that is the gain of the variance; take the root."),
            (
                upside_down,
                "that is what the activation leaves; the gain makes up for it.",
            ),
            (
                around_the_mean,
                "the next layer multiplies all of it, its mean included: take the "
                "mean square, not the variance.",
            ),
            (
                of_absolute_values,
                "products add their squares: take the mean square, then the root.",
            ),
        ],
        hint="draw many standard normal numbers, apply the activation, and ask by "
        "what their root mean square has to be multiplied to be 1 again.",
        observe=lambda result, activation: float(result),
        rel_tol=0.01,
    )


EXERCISES = {
    "overflow": _overflow(),
    "default_linear": _default_linear(),
    "constant": _constant(),
    "first_loss": _first_loss(),
    "gain": _gain(),
}
