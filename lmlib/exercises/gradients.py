"""Exercises of chapter 6: two points, frozen layers, clipping, ranks, blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import torch
from torch import nn

from lmlib.config import ModelConfig, named_config
from lmlib.exercises import Exercise, function_exercise, value_exercise
from lmlib.flops import count_flops, forward_flops, linear_flops, step_flops


def _two_points() -> Exercise:
    points = [((2.0, -1.0, 4.0), 7.0), ((1.0, 0.0, 1.0), 1.0)]

    def added(factor: float, used: slice = slice(None)) -> list[float]:
        options = {"dtype": torch.float64, "device": "cpu"}
        w = torch.ones(3, requires_grad=True, **options)
        for x, target in points[used]:
            loss = factor * (torch.tensor(x, **options) @ w - target) ** 2
            loss.backward()
        return w.grad.tolist()

    expected = added(0.5)
    inputs = [sum(column) for column in zip(*(x for x, _ in points), strict=True)]
    return value_exercise(
        expected=expected,
        mistakes=[
            (
                added(0.5, slice(1, None)),
                "that is the second point's alone; "
                "nobody cleared what the first had left.",
            ),
            (
                added(0.5, slice(1)),
                "that is the first point's alone; the second adds to it.",
            ),
            (
                [value / 2 for value in expected],
                "that is the mean over the two points; backward adds.",
            ),
            (added(1.0), "twice too long: what does the ½ do to the square?"),
            (
                [-value for value in expected],
                "the signs are turned: the residual is prediction minus target.",
            ),
            (inputs, "these are the inputs; each is scaled by its residual."),
        ],
        hint="write down the residual of each point, multiply them, and add.",
    )


def _frozen() -> Exercise:
    def products(trained: Sequence[int]) -> int:
        layers = [nn.Linear(4, 4, bias=False, device="meta") for _ in range(8)]
        for number, layer in enumerate(layers):
            layer.requires_grad_(number in trained)
        net, x = nn.Sequential(*layers), torch.empty(3, 4, device="meta")
        # an exercise may be imported where somebody has switched gradients off
        with torch.enable_grad():
            step = count_flops(lambda: net(x).sum().backward())
        return step // linear_flops(3, 4, 4)

    last, first = products(range(4, 8)), products(range(4))
    everything = products(range(8))
    return value_exercise(
        expected=(last, first),
        mistakes=[
            (
                (first, last),
                "the other way round: in which case does the gradient have to pass "
                "the frozen layers?",
            ),
            (
                (8 + 2 * 4, 8 + 2 * 4),
                "two products for each trained layer and none for a frozen one? "
                "Look for gradients of inputs: who needs each?",
            ),
            (
                (last + 1, first + 1),
                "one too many in both: the lowest trained layer passes nothing on.",
            ),
            (
                (8 + 4, 8 + 4),
                "only the gradients of weights? They are made from gradients that "
                "were passed down through the layers above.",
            ),
            (
                (last, last),
                "right for the last four; to reach the first four, "
                "what must the gradient pass?",
            ),
            (
                (everything, everything),
                "that is the step with nothing frozen; "
                "a frozen weight needs no gradient.",
            ),
            (
                (last - 8, first - 8),
                "that is backward alone; a step runs forward, too.",
            ),
        ],
        hint="go through the layers from the last to the first, and ask twice: "
        "is the gradient of its weights wanted, is that of its input needed below?",
    )


def _turned() -> Exercise:
    def is_vector(vector: object) -> bool:
        return (
            isinstance(vector, (tuple, list))
            and len(vector) > 0
            and all(isinstance(v, Real) and math.isfinite(v) for v in vector)
        )

    def what_happens(answer: object) -> str | None:
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            return None
        if not all(is_vector(vector) for vector in answer):
            return None
        norms = [math.hypot(*vector) for vector in answer]
        factors = {min(1, 1 / norm) for norm in norms if norm > 0}
        if not factors or factors == {1}:
            return "nothing is clipped"
        same = math.isclose(min(factors), max(factors), rel_tol=1e-9)
        return "clipped alike" if same else "turned"

    return Exercise(
        solution=([3.0, 0.0], [0.0, 0.5]),
        mistakes=[
            (
                ([0.8, 0.0], [0.0, 0.5]),
                "neither is longer than 1, so that neither is clipped.",
            ),
            (
                ([2.0, 0.0], [0.0, 2.0]),
                "both shrink by the same factor, and the direction stays.",
            ),
        ],
        hint="answer with two lists of numbers, one for each gradient.",
        read=what_happens,
    )


def _rank_factors() -> Exercise:
    def rank_factors(counts: Sequence[int]) -> list[float]:
        return [len(counts) * count / sum(counts) for count in counts]

    def not_averaged(counts: Sequence[int]) -> list[float]:
        return [count / sum(counts) for count in counts]

    def left_alone(counts: Sequence[int]) -> list[float]:
        return [1.0 for _ in counts]

    def averaged_twice(counts: Sequence[int]) -> list[float]:
        return [1 / len(counts) for _ in counts]

    def for_sums(counts: Sequence[int]) -> list[float]:
        return [len(counts) / sum(counts) for _ in counts]

    def upside_down(counts: Sequence[int]) -> list[float]:
        return [sum(counts) / (len(counts) * count) for count in counts]

    def probes() -> list[tuple]:
        return [([128, 128, 128, 8],), ([5, 5],), ([1, 2, 3],), ([7],)]

    return function_exercise(
        rank_factors,
        probes,
        mistakes=[
            (
                not_averaged,
                "right if the ranks' gradients were added; they are averaged.",
            ),
            (left_alone, "that is the mean of means, with its unequal tokens."),
            (
                averaged_twice,
                "the ranks are averaged anyway; a token in a short part still "
                "counts more.",
            ),
            (
                for_sums,
                "right for sums of losses; each rank here has a mean over its own "
                "tokens.",
            ),
            (upside_down, "upside down: more tokens, more say."),
        ],
        hint="what must each rank's mean be multiplied with, so that the average "
        "over ranks is one sum over all tokens, divided by their number?",
        observe=lambda result, counts: [float(factor) for factor in result],
    )


def _partial_checkpointing() -> Exercise:
    def flops(
        config: ModelConfig, num_checkpointed: int, batch_size: int, seq_len: int
    ) -> int:
        forward = forward_flops(config, batch_size, seq_len)
        block = (forward.total - forward.head) // config.num_layers
        last = linear_flops(batch_size * seq_len, config.d_ff, config.d_model)
        return 3 * forward.total + num_checkpointed * (block - last)

    def to_the_end(config, num_checkpointed, batch_size, seq_len):
        forward = forward_flops(config, batch_size, seq_len)
        block = (forward.total - forward.head) // config.num_layers
        return 3 * forward.total + num_checkpointed * block

    def every_block(config, num_checkpointed, batch_size, seq_len):
        return flops(config, config.num_layers, batch_size, seq_len)

    def every_block_to_the_end(config, num_checkpointed, batch_size, seq_len):
        return step_flops(config, batch_size, seq_len, checkpointing=True).total

    def with_the_head(config, num_checkpointed, batch_size, seq_len):
        forward = forward_flops(config, batch_size, seq_len)
        share = num_checkpointed / config.num_layers
        return round((3 + share) * forward.total)

    def one_sequence(config, num_checkpointed, batch_size, seq_len):
        return flops(config, num_checkpointed, 1, seq_len)

    def never(config, num_checkpointed, batch_size, seq_len):
        return step_flops(config, batch_size, seq_len).total

    def probes() -> list[tuple]:
        return [
            (named_config("gpt2-124m"), 6, 2, 1024),
            (named_config("llama-2-70b"), 20, 1, 4096),
            (named_config("small"), 1, 8, 100),
            (named_config("tiny"), 0, 3, 64),
        ]

    return function_exercise(
        flops,
        probes,
        mistakes=[
            (
                to_the_end,
                "that runs each block to its end; which product does backward "
                "not need again?",
            ),
            (every_block, "that checkpoints every block, and not some of them."),
            (
                every_block_to_the_end,
                "that is step_flops, which runs every block again, to its end.",
            ),
            (with_the_head, "the head is in no block, and is not run again."),
            (one_sequence, "right for a single sequence; where is batch_size?"),
            (never, "that is a step without any checkpoint."),
        ],
        hint="three forwards, and for each checkpointed block one more of its own, "
        "without its last product.",
    )


EXERCISES = {
    "two_points": _two_points(),
    "frozen": _frozen(),
    "turned": _turned(),
    "rank_factors": _rank_factors(),
    "partial_checkpointing": _partial_checkpointing(),
}
