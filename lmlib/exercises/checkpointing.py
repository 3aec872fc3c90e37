"""Exercises of chapter 13: how often to save, what is silent, what is kept."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from safetensors.torch import save
from torch.optim.lr_scheduler import CosineAnnealingLR

from lmlib.config import ModelConfig
from lmlib.exercises import Exercise, Remark, function_exercise, value_exercise
from lmlib.model import TransformerLM

# A small model, and for each field of its config another value.
SMALL: dict[str, Any] = {
    "vocab_size": 256,
    "context_length": 64,
    "d_model": 128,
    "num_layers": 2,
    "num_heads": 8,
}
OTHERWISE: dict[str, Any] = {
    "vocab_size": 512,
    "context_length": 128,
    "d_model": 64,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 4,
    "d_ff": 256,
    "norm": "layernorm",
    "mlp": "gelu",
    "position": "learned",
    "bias": True,
    "tie_embeddings": True,
    "dropout": 0.1,
    "rope_theta": 500_000.0,
    "norm_eps": 1e-6,
}


def _interval() -> Exercise:
    stall, between_failures = 30, 8 * 3600
    expected = math.sqrt(2 * stall * between_failures)
    return value_exercise(
        expected=expected,
        mistakes=[
            (
                math.sqrt(stall * between_failures),
                "on average half an interval is lost, not a whole one.",
            ),
            (
                2 * math.sqrt(stall * between_failures),
                "the half belongs to the loss of a failure, not to the stall.",
            ),
            (expected / 60, "that looks like minutes; give seconds."),
            (
                math.sqrt(2 * stall * 8 * 60),
                "that takes 8 hours for 8 · 60 seconds.",
            ),
            (stall / between_failures, "that is the stall in shares of a failure."),
            (
                math.sqrt(2 * stall / between_failures),
                "that is the share of time which is lost at best.",
            ),
        ],
        hint="write the seconds lost in each second as a sum of two terms: one "
        "falls with the interval, the other rises.",
        rel_tol=0.005,
    )


def _prolonged() -> Exercise:
    total, longer = 5, 6  # in units of 100,000 steps
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    old = CosineAnnealingLR(optimizer, T_max=total)
    optimizer.step()
    for _ in range(total):
        old.step()
    new = CosineAnnealingLR(optimizer, T_max=longer)
    new.load_state_dict(old.state_dict())
    for _ in range(longer - total):
        new.step()
    expected = optimizer.param_groups[0]["lr"]
    return value_exercise(
        expected=expected,
        mistakes=[
            (0, "so it would be if T_max were the new one; print it."),
            (1, "nothing starts over: the step was loaded."),
            (
                (1 + math.cos(math.pi * total / longer)) / 2,
                "that is the rate at step 500,000 of 600,000.",
            ),
            (
                100 * expected,
                "that is in percent; give a share of the peak.",
            ),
        ],
        hint="`load_state_dict` of a scheduler replaces its attributes: all those "
        "that it saved.",
        rel_tol=1e-3,
    )


def _is_silent(field: str) -> bool:
    state = TransformerLM(ModelConfig(**SMALL)).state_dict()
    other = TransformerLM(ModelConfig(**SMALL | {field: OTHERWISE[field]}))
    try:
        other.load_state_dict(state)
    except RuntimeError:
        return False
    return True


def _silent() -> Exercise:
    def names(answer: object) -> list[str]:
        if isinstance(answer, str) or not isinstance(
            answer, list | tuple | set | frozenset
        ):
            raise Remark("Not yet: answer with a list or a set of names.")
        if unknown := [name for name in answer if name not in OTHERWISE]:
            raise Remark(f"Not yet: there is no field {unknown[0]!r:.40}.")
        return sorted(set(answer))

    expected = {name for name in OTHERWISE if _is_silent(name)}
    return Exercise(
        solution=expected,
        mistakes=[
            (
                {"num_heads", "rope_theta"},
                "those two, and there are more: which fields shape no parameter?",
            ),
            (
                expected - {"norm"},
                "one is missing. Which two modules have a single vector each, of "
                "one size, under one name?",
            ),
            (
                expected - {"context_length"},
                "one is missing. Where would the length of a context be seen, if "
                "positions have no parameters?",
            ),
            (
                expected - {"dropout"},
                "one is missing. It changes training only, and is silent too.",
            ),
            (
                expected - {"num_heads"},
                "one is missing. What does another number of heads change about "
                "the matrices?",
            ),
            (
                expected - {"norm_eps"},
                "one is missing: a small number in a formula.",
            ),
            (
                expected | {"tie_embeddings"},
                "one is too many: a tied head has no parameter of its own.",
            ),
            (
                expected | {"num_kv_heads"},
                "one is too many: fewer heads of keys and values are smaller "
                "matrices.",
            ),
            (
                set(OTHERWISE) - expected,
                "those are the loud ones.",
            ),
        ],
        hint="a loop over the fields finds them: build, `load_state_dict`, and see "
        "whether it raises.",
        read=names,
    )


def _keep() -> Exercise:
    def keep(losses: Mapping[int, float], last: int, every: int) -> list[int]:
        steps = sorted(losses)
        best = min(steps, key=lambda step: losses[step])
        milestones = [step for step in steps if step % every == 0]
        return sorted({*steps[-last:], best, *milestones})

    def without_best(losses, last, every):
        steps = sorted(losses)
        return sorted({*steps[-last:], *(s for s in steps if s % every == 0)})

    def highest_loss(losses, last, every):
        worst = max(losses, key=lambda step: losses[step])
        return sorted({*without_best(losses, last, every), worst})

    def without_milestones(losses, last, every):
        steps = sorted(losses)
        return sorted({*steps[-last:], min(losses, key=lambda s: losses[s])})

    def the_first(losses, last, every):
        steps = sorted(losses)
        best = min(steps, key=lambda step: losses[step])
        return sorted({*steps[:last], best, *(s for s in steps if s % every == 0)})

    def latest(losses, last, every):
        return sorted(losses)[-last:]

    def with_doubles(losses, last, every):
        steps = sorted(losses)
        best = min(steps, key=lambda step: losses[step])
        return sorted([*steps[-last:], best, *(s for s in steps if s % every == 0)])

    def each_nth(losses, last, every):
        return sorted({*keep(losses, last, 10**9), *sorted(losses)[::every]})

    def probes() -> list[tuple]:
        losses = {500: 3.0, 1000: 2.0, 1500: 1.5, 2000: 1.75, 2500: 1.9, 3000: 1.8}
        shuffled = {30: 1.0, 10: 3.0, 20: 2.0, 40: 4.0}
        return [
            (losses, 2, 1000),
            (losses, 1, 10_000),
            (shuffled, 1, 20),
            ({7: 1.0}, 3, 2),
        ]

    return function_exercise(
        keep,
        probes,
        mistakes=[
            (without_best, "the best one is missing where it is old."),
            (highest_loss, "the best has the lowest loss."),
            (without_milestones, "the multiples of `every` are missing."),
            (the_first, "those are the earliest ones, not the latest."),
            (latest, "the best one and the multiples of `every` stay too."),
            (with_doubles, "a step may have two reasons to stay; give it once."),
            (each_nth, "`every` counts steps of the run, not checkpoints."),
        ],
        hint="three sets of steps, and their union in order.",
    )


def _tensor_sizes() -> Exercise:
    def header(data: bytes) -> dict[str, Any]:
        length = int.from_bytes(data[:8], "little")
        return json.loads(data[8 : 8 + length])

    def tensors(data: bytes) -> list[tuple[str, dict[str, Any]]]:
        entries = header(data).items()
        return sorted(entry for entry in entries if entry[0] != "__metadata__")

    def tensor_sizes(data: bytes) -> Sequence[tuple[str, int]]:
        return [
            (name, entry["data_offsets"][1] - entry["data_offsets"][0])
            for name, entry in tensors(data)
        ]

    def with_metadata(data):
        extra = [("__metadata__", 0)] if "__metadata__" in header(data) else []
        return extra + tensor_sizes(data)

    def ends(data):
        return [(name, entry["data_offsets"][1]) for name, entry in tensors(data)]

    def elements(data):
        return [(name, prod(entry["shape"])) for name, entry in tensors(data)]

    def all_fp32(data):
        return [(name, 4 * prod(entry["shape"])) for name, entry in tensors(data)]

    def probes() -> list[tuple]:
        # of a device and dtypes that no default of torch's changes
        two = {
            "a.weight": torch.zeros(3, 5, dtype=torch.float32, device="cpu"),
            "b": torch.zeros(7, dtype=torch.bfloat16, device="cpu"),
        }
        return [
            (save(two),),
            (save(two, {"format": "pt"}),),
            (save({"step": torch.tensor(3, device="cpu")}),),
        ]

    return function_exercise(
        tensor_sizes,
        probes,
        mistakes=[
            (with_metadata, "`__metadata__` is no tensor."),
            (ends, "that is where each tensor ends; where does it begin?"),
            (elements, "those are elements; an element has several bytes."),
            (all_fp32, "not every tensor is fp32: see `data_offsets`."),
        ],
        hint="`int.from_bytes(data[:8], 'little')` is the length of the JSON that "
        "follows. Sort by name.",
    )


EXERCISES = {
    "interval": _interval(),
    "prolonged": _prolonged(),
    "silent_fields": _silent(),
    "keep": _keep(),
    "tensor_sizes": _tensor_sizes(),
}
