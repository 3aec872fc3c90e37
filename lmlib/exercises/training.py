"""Exercises of chapter 12: bits, a best rate, a mean of means, hours, smoothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

from lmlib.config import named_config
from lmlib.exercises import Exercise, Remark, function_exercise, value_exercise
from lmlib.flops import forward_flops, step_flops
from lmlib.hardware import get_accelerator

HOUR = 60 * 60


def _bits_per_byte() -> Exercise:
    nats, bytes_per_token = 3.3, 4.4
    expected = nats / math.log(2) / bytes_per_token
    return value_exercise(
        expected=expected,
        mistakes=[
            (nats / bytes_per_token, "that is in nats; how many bits is a nat?"),
            (nats / math.log(2), "that is per token; a token is several bytes."),
            (
                nats * math.log(2) / bytes_per_token,
                "a nat is more than a bit: divide by ln 2.",
            ),
            (
                nats / math.log(2) * bytes_per_token,
                "a byte is less than a token, and costs less.",
            ),
        ],
        hint="turn nats into bits, and share those of a token among its bytes.",
        rel_tol=0.005,
    )


def _best_rate() -> Exercise:
    dim, batch = 16, 16
    expected = batch / (2 * (dim + batch + 1))
    before = 4 / (2 * (dim + 4 + 1))
    return value_exercise(
        expected=expected,
        mistakes=[
            (
                2 * expected,
                "that is where the loss stops falling; it is best at half.",
            ),
            (before, "that is the best one for a batch of 4."),
            (4 * before, "four times the batch, but not four times the rate."),
            (2 * before, "not by the root of the batch either: use the formula."),
            (
                1 - batch / (dim + batch + 1),
                "that is what a step leaves of the loss, at the best rate.",
            ),
        ],
        hint="where is the derivative of the factor with respect to lr zero?",
        rel_tol=0.005,
    )


def _unequal() -> Exercise:
    def too_high(answer: object) -> float:
        """By which factor the mean of means is above the mean of all targets."""
        is_pair = isinstance(answer, (tuple, list)) and len(answer) == 2
        if not is_pair or not all(
            isinstance(count, Real) and count > 0 for count in answer
        ):
            raise Remark(
                "Not yet: answer with two counts of targets, both above 0."
            )
        first, second = answer
        return (2 + 4) / 2 / ((2 * first + 4 * second) / (first + second))

    return Exercise(
        solution=(3, 1),
        mistakes=[
            ((1, 1), "with as many targets in each, both means are the same."),
            (
                (1, 3),
                "the other way round: the piece with the low loss is the long one.",
            ),
            (
                (4, 1),
                "then the right mean is 2.4; which one has 3 a fifth above it?",
            ),
        ],
        hint="the mean of means is 3. Of which mean is that 1.2 times as much?",
        read=too_high,
    )


def _gpt2_hours() -> Exercise:
    config, tokens = named_config("gpt2-124m"), 10**10
    h100 = get_accelerator("H100 SXM")
    peak = h100.peak("bf16").value
    per_token = step_flops(config).total / config.context_length
    expected = tokens * per_token / (8 * 0.4 * peak) / HOUR
    forward = forward_flops(config).total / config.context_length
    six_n = 6 * config.num_parameters
    return value_exercise(
        expected=expected,
        mistakes=[
            (8 * expected, "that is one GPU; there are eight."),
            (0.4 * expected, "that is at the peak; a run reaches a share of it."),
            (expected * forward / per_token, "that is the forward pass alone."),
            (
                expected * six_n / per_token,
                "6·N leaves out attention over 1024 tokens, and more than a tenth.",
            ),
            (expected * HOUR, "that is in seconds."),
            (expected * 60, "that is in minutes."),
            (expected / 2, "that is twice the dense peak: the one with sparsity."),
        ],
        hint="FLOPs of all tokens, over GPUs × MFU × peak × seconds of an hour.",
        rel_tol=0.01,
    )


def _smoothed() -> Exercise:
    def smoothed(losses: Sequence[float], beta: float) -> list[float]:
        average, curve = 0.0, []
        for step, loss in enumerate(losses, start=1):
            average = beta * average + (1 - beta) * loss
            curve.append(average / (1 - beta**step))
        return curve

    def uncorrected(losses: Sequence[float], beta: float) -> list[float]:
        average, curve = 0.0, []
        for loss in losses:
            average = beta * average + (1 - beta) * loss
            curve.append(average)
        return curve

    def from_the_first(losses: Sequence[float], beta: float) -> list[float]:
        average, curve = losses[0], []
        for loss in losses:
            average = beta * average + (1 - beta) * loss
            curve.append(average)
        return curve

    def other_way(losses: Sequence[float], beta: float) -> list[float]:
        return smoothed(losses, 1 - beta)

    def last_only(losses: Sequence[float], beta: float) -> float:
        return smoothed(losses, beta)[-1]

    def too_early(losses: Sequence[float], beta: float) -> list[float]:
        curve = uncorrected(losses, beta)
        return [
            value / (1 - beta ** (step + 2)) for step, value in enumerate(curve)
        ]

    return function_exercise(
        smoothed,
        lambda: [
            ([6.0, 5.0, 5.5, 4.0, 4.5], 0.9),
            ([3.0], 0.98),
            ([1.0, 9.0, 1.0, 1.0], 0.6),
        ],
        mistakes=[
            (
                uncorrected,
                "an average that begins at 0 is too low at first: correct it.",
            ),
            (
                from_the_first,
                "begun at the first loss, the average holds on to it for long.",
            ),
            (other_way, "β is what the average keeps, not what the loss gets."),
            (last_only, "answer with the whole curve, a value for each loss."),
            (too_early, "after the first loss the weights add up to 1 − β."),
        ],
        hint="divide the moving average by what its weights add up to.",
    )


EXERCISES = {
    "bits_per_byte": _bits_per_byte(),
    "best_rate": _best_rate(),
    "unequal": _unequal(),
    "gpt2_hours": _gpt2_hours(),
    "smoothed": _smoothed(),
}
