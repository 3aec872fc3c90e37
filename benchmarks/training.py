"""Training beside what this machine can do: a step beside bare products, a checkpoint beside a bare write; two cores.

Run it with `make bench` where nothing else runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

import contest
from contest import BUILD, Measured, Task

if TYPE_CHECKING:
    from lmlib.checkpoint import TrainingState
    from lmlib.config import ModelConfig

CORES = 2
STEPS = 4
BATCH_SIZE = 16
SIDE, PRODUCTS = 2048, 20
SIZES = {"vocab_size": 65, "context_length": 256, "d_model": 384, "num_layers": 6, "num_heads": 6}
SHAPES = {
    "Llama": {},
    "GPT-2": {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True},
}
DTYPES = {"fp32": "float32", "bf16-autocast": "bfloat16"}


# --- steps ------------------------------------------------------------------------------------------------------


def _config(shape: str) -> ModelConfig:
    from lmlib.config import ModelConfig

    return ModelConfig(**SIZES, **SHAPES[shape], tie_embeddings=True)


def steps_lmlib(shape: str, precision: str) -> Measured:
    """Make a step, as the trainer does: forward, backward, clip, AdamW."""
    config, step = _config(shape), _stepper(_config(shape), precision)
    step()
    start = perf_counter()
    for _ in range(STEPS):
        step()
    seconds = (perf_counter() - start) / STEPS
    per_second = round(BATCH_SIZE * config.context_length / seconds)
    return Measured(seconds, None, {"parameters": config.num_parameters, "tokens_per_second": per_second})


def _stepper(config: ModelConfig, precision: str) -> Callable[[], object]:
    """Return a function that makes a step of a new model."""
    import torch

    from lmlib.distributed import World
    from lmlib.model import TransformerLM
    from lmlib.optim import parameter_groups
    from lmlib.train.step import NextTokenLoss, train_step

    generator = torch.Generator().manual_seed(0)
    loss = NextTokenLoss(TransformerLM(config, generator=generator))
    optimizer = torch.optim.AdamW(parameter_groups(loss.model, 0.1), fused=True)
    size = (2, BATCH_SIZE, config.context_length)
    inputs, targets = torch.randint(config.vocab_size, size, generator=generator)
    world = World(torch.device("cpu"))

    def step() -> object:
        return train_step(loss, optimizer, [(inputs, targets)], world=world, precision=precision, max_norm=1.0)

    return step


def products(shape: str, precision: str) -> Measured:
    """Do as many FLOPs as a step has, 6N + 12·L·H·K·T for a token, in bare products of square matrices."""
    import torch

    from lmlib.flops import estimated_step_flops

    a, b = torch.randn(2, SIDE, SIDE).to(getattr(torch, DTYPES[precision]))
    a @ b
    start = perf_counter()
    for _ in range(PRODUCTS):
        a @ b
    rate = PRODUCTS * 2 * SIDE**3 / (perf_counter() - start)
    config = _config(shape)
    flops = estimated_step_flops(config, BATCH_SIZE * config.context_length)
    return Measured(flops / rate, None, {"gflops_per_second": round(rate / 1e9)})


# --- checkpoints ------------------------------------------------------------------------------------------------


def save(asynchronous: bool) -> Measured:
    """Save the state of GPT-2 124M with AdamW; asynchronous, only until the call returns."""
    from lmlib.checkpoint import CheckpointStore

    state = _state()
    with TemporaryDirectory(dir=BUILD) as folder:
        store = CheckpointStore(folder)
        save = store.save_async if asynchronous else store.save
        start = perf_counter()
        save(state, step=1)
        seconds = perf_counter() - start
        store.wait()
        return Measured(seconds, None, {"bytes": _size(Path(folder))})


def write() -> Measured:
    """Write as many bytes to one file, and wait for the disk."""
    import torch

    state = _state()
    tensors = [*state.model.values(), *_moments(state)]
    whole = torch.cat([tensor.flatten() for tensor in tensors]).numpy()
    with TemporaryDirectory(dir=BUILD) as folder:
        start = perf_counter()
        with Path(folder, "state").open("wb") as file:
            file.write(whole)
            file.flush()
            os.fsync(file.fileno())
        return Measured(perf_counter() - start, None, {"bytes": _size(Path(folder))})


def _state() -> TrainingState:
    """Return the state of a run of GPT-2 124M after its first step."""
    import torch

    from lmlib.checkpoint import TrainingState
    from lmlib.config import named_config
    from lmlib.model import TransformerLM
    from lmlib.optim import parameter_groups
    from lmlib.train.trainer import start_optimizer

    model = TransformerLM(named_config("gpt2-124m"))
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), fused=True)
    start_optimizer(optimizer)
    return TrainingState(model.state_dict(), {"optimizer": optimizer.state_dict()})


def _moments(state: TrainingState) -> Iterator:
    for moments in state.training["optimizer"]["state"].values():
        yield from (moments["exp_avg"], moments["exp_avg_sq"])


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# --- tasks ------------------------------------------------------------------------------------------------------


def _steps(shape: str, precision: str) -> Task:
    contenders = {"lmlib": steps_lmlib, f"{SIDE}³ products": products}
    needs = "avx512bw" if precision == "bf16-autocast" else None  # else torch has no fast product in bf16
    return Task(contenders, (shape, precision), clock="wall", cores=CORES, needs=needs)


TASKS = {
    f"a step, 6 × 384, {shape}, {precision}": _steps(shape, precision) for shape in SHAPES for precision in DTYPES
} | {
    "a checkpoint of 124M": Task({"lmlib": lambda: save(False), "a bare write": write}, clock="wall", cores=CORES),
    "an asynchronous one, until the call returns": Task(
        {"lmlib": lambda: save(True), "a step, 6 × 384": lambda: steps_lmlib("Llama", "fp32")},
        clock="wall",
        cores=CORES,
    ),
}


if __name__ == "__main__":
    contest.main(__doc__, TASKS, prepare=lambda _: {}, packages=["lmlib", "torch", "safetensors"])
