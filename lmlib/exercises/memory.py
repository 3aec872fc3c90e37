"""Exercises of chapter 10: a file, ReLU, a leak, a frugal gate, segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from lmlib.config import ModelConfig, named_config
from lmlib.exercises import (
    NOT_ANSWERED,
    Exercise,
    Remark,
    function_exercise,
    value_exercise,
)
from lmlib.memory import (
    RECIPES,
    block_saved_tensors,
    bytes_by_component,
    saved_tensor_bytes,
    saved_tensors,
)


def _file() -> Exercise:
    file = 16  # GB, 2 bytes for each parameter
    each = RECIPES["bf16-master-fp32-gradients"]
    return value_exercise(
        expected=file * each.total // 2,
        mistakes=[
            (file * each.total // 4, "the file is in bf16, not in fp32."),
            (4 * file, "four times the file is fp32's rule, from a file in fp32."),
            (8 * file, "that is 16 bytes a parameter; here gradients are in fp32."),
            (
                file * RECIPES["bf16-master-both-gradients"].total // 2,
                "that keeps gradients in both dtypes.",
            ),
            (
                file * (each.total - each.master_weights) // 2,
                "the master weights are missing.",
            ),
            (each.total, "that is bytes for a parameter; how many are there?"),
            (file * each.total, "16 GB in bf16 are not 16 billion parameters."),
            (file * 10**9 * each.total // 2, "that looks like bytes; give GB."),
        ],
        hint="how many parameters are in the file, and what does each bring along?",
    )


def _relu() -> Exercise:
    config, rows = named_config("gpt2-124m"), 8 * 1024
    one_layer = 4 * rows * config.d_ff
    expected = config.num_layers * one_layer
    return value_exercise(
        expected=expected,
        mistakes=[
            (one_layer, "that is one layer."),
            (2 * expected, "the next layer still needs the result of ReLU."),
            (
                expected // 4,
                "a factor of 4 is missing: inside the MLP a token is F wide, and "
                "each number has bytes.",
            ),
            (expected // 2, "in fp32 a number has 4 bytes."),
            (expected // 8, "that is one sequence of the eight."),
            (expected / 10**9, "that looks like GB; give plain bytes."),
            (round(expected / 1e9, 2), "that looks like rounded GB; give bytes."),
            (expected / 2**30, "that looks like GiB; give plain bytes."),
            (expected / 10**6, "that looks like MB; give plain bytes."),
            (expected / 2**20, "that looks like MiB; give plain bytes."),
        ],
        hint="GELU needs its input, ReLU its result; who else keeps that result?",
    )


class _Kept:
    """What a graph holds of a tensor that it saved."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class _WatchedLoss:
    """A loss, and how many of its graphs are alive."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(torch.ones(5, dtype=torch.float64, device="cpu"))
        self.kept: WeakSet[_Kept] = WeakSet()

    def __call__(self, batch: Tensor) -> Tensor:
        with saved_tensors_hooks(self._keep, lambda kept: kept.tensor):
            return (batch * self.weight).exp().mean()

    def _keep(self, tensor: Tensor) -> _Kept:
        kept = _Kept(tensor.detach())
        self.kept.add(kept)
        return kept

    def graphs(self) -> int:
        """Each saves a batch and the result of ``exp``."""
        return len(self.kept) // 2


def _leak() -> Exercise:
    def total_loss(loss_of: Callable, batches: Sequence[Tensor]) -> Tensor:
        return sum(loss_of(batch) for batch in batches)

    def frugal(loss_of: Callable, batches: Sequence[Tensor]) -> float:
        return sum(loss_of(batch).item() for batch in batches)

    def mean(loss_of: Callable, batches: Sequence[Tensor]) -> Tensor:
        return total_loss(loss_of, batches) / len(batches)

    def last(loss_of: Callable, batches: Sequence[Tensor]) -> Tensor:
        return loss_of(batches[-1])

    def probes() -> list[tuple]:
        generator = torch.Generator("cpu").manual_seed(0)
        options = {"generator": generator, "dtype": torch.float64, "device": "cpu"}
        return [
            (_WatchedLoss(), [torch.randn(4, 5, **options) for _ in range(number)])
            for number in (1, 3, 8)
        ]

    def behaviour(
        result: Any, loss_of: _WatchedLoss, batches: Sequence[Tensor]
    ) -> tuple:
        if isinstance(result, Tensor):
            result = result.detach()
        elif isinstance(result, list | tuple):
            raise Remark("Not yet: return the sum of the losses, a single number.")
        return float(result), loss_of.graphs()

    return function_exercise(
        total_loss,
        probes,
        mistakes=[
            (frugal, "right, and nothing stays: that is the cure, not the leak."),
            (mean, "the sum of the losses is wanted, not their mean."),
            (last, "all batches count, not only the last."),
        ],
        hint="the graph of a loss lives as long as the loss does.",
        observe=behaviour,
    )


def _gate_and_up(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cpu").manual_seed(seed)
    options = {"generator": generator, "dtype": torch.float64, "device": "cpu"}
    gate, up = (torch.randn(6, 4, **options) for _ in range(2))
    return gate.requires_grad_(), up.requires_grad_()


def _watched_call(function: Callable, gate: Tensor, up: Tensor) -> tuple:
    """What a function returns, the bytes that it saves, and its arguments."""
    results: list[Any] = []
    saved = saved_tensor_bytes(lambda: results.append(function(gate, up)))
    return results[0], saved.total, gate, up


def _values_gradients_and_tensors(
    result: Any, saved: int, gate: Tensor, up: Tensor
) -> tuple:
    if not isinstance(result, Tensor) or not result.requires_grad:
        raise Remark("Not yet: return a tensor that gradients can come from.")
    gradients = torch.autograd.grad(
        result, (gate, up), (gate + 2 * up).detach(), allow_unused=True
    )
    lists = [[] if each is None else each.flatten().tolist() for each in gradients]
    return result.flatten().tolist(), *lists, saved // gate.nbytes


def _frugal_gate() -> Exercise:
    def gated(gate: Tensor, up: Tensor) -> Tensor:
        def product(gate: Tensor, up: Tensor) -> Tensor:
            return F.silu(gate) * up

        return checkpoint(product, gate, up, use_reentrant=False)

    def plain(gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate) * up

    def by_hand(gate: Tensor, up: Tensor) -> Tensor:
        return gate * torch.sigmoid(gate) * up

    def detached(gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate).detach() * up

    def swapped(gate: Tensor, up: Tensor) -> Tensor:
        return gated(up, gate)

    def reading(function: object) -> list[tuple]:
        if not callable(function):
            raise Remark("Not yet: answer with a function.")
        calls = [_watched_call(function, *_gate_and_up(seed)) for seed in (1, 2)]
        if all(result is None or result is ... for result, *_ in calls):
            raise Remark(NOT_ANSWERED)
        return [_values_gradients_and_tensors(*call) for call in calls]

    return Exercise(
        solution=gated,
        mistakes=[
            (plain, "right, but it saves three: silu(gate) as well."),
            (by_hand, "right, but each of its steps saves something of its own."),
            (detached, "the gradient of gate is lost."),
            (swapped, "silu is for the gate, not for up."),
        ],
        hint="both inputs are enough: what can backward compute again from them?",
        read=reading,
    )


def _segments() -> Exercise:
    def parts(config: ModelConfig, batch_size: int) -> tuple[int, int, int]:
        """Bytes of one input of a block, of one block, and outside of blocks."""
        kept = bytes_by_component(
            saved_tensors(config, batch_size, checkpointing=True)
        )
        block = bytes_by_component(block_saved_tensors(config, batch_size)).total
        one = kept.block_inputs // config.num_layers
        return one, block, kept.total - kept.block_inputs

    def segmented(config: ModelConfig, batch_size: int, blocks: int) -> int:
        one, block, rest = parts(config, batch_size)
        inputs = -(-config.num_layers // blocks)
        return rest + inputs * one + min(blocks, config.num_layers) * block

    def every_input(config: ModelConfig, batch_size: int, blocks: int) -> int:
        one, block, rest = parts(config, batch_size)
        return rest + config.num_layers * one + blocks * block

    def one_block(config: ModelConfig, batch_size: int, blocks: int) -> int:
        one, block, rest = parts(config, batch_size)
        return rest + -(-config.num_layers // blocks) * one + block

    def rounded_down(config: ModelConfig, batch_size: int, blocks: int) -> int:
        one, block, rest = parts(config, batch_size)
        return rest + config.num_layers // blocks * one + blocks * block

    def blocks_only(config: ModelConfig, batch_size: int, blocks: int) -> int:
        return segmented(config, batch_size, blocks) - parts(config, batch_size)[2]

    def inputs_only(config: ModelConfig, batch_size: int, blocks: int) -> int:
        one, _, rest = parts(config, batch_size)
        return rest + -(-config.num_layers // blocks) * one

    def probes() -> list[tuple]:
        return [
            (named_config(name), batch_size, blocks)
            for name, batch_size, blocks in [
                ("tiny", 2, 1),
                ("gpt2-124m", 3, 4),
                ("gpt2-124m", 1, 5),
                ("llama-7b", 1, 8),
            ]
        ]

    return function_exercise(
        segmented,
        probes,
        mistakes=[
            (
                every_input,
                "a segment keeps only its own input, not each block's.",
            ),
            (one_block, "backward runs a whole segment again, not one block."),
            (rounded_down, "a last segment that is shorter has an input too."),
            (
                blocks_only,
                "what lies outside of the blocks is kept as well: embeddings, the "
                "last norm, head and loss.",
            ),
            (inputs_only, "add what a segment saves while it runs again."),
        ],
        hint="the inputs of all segments, all blocks of one, and what is in no "
        "block.",
    )


EXERCISES = {
    "file": _file(),
    "relu": _relu(),
    "leak": _leak(),
    "gate": _frugal_gate(),
    "segments": _segments(),
}
