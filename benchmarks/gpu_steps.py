"""How fast does a GPU train? Steps as the trainer makes them, and the share of them spent waiting for data."""

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from gpu_checks import Skipped, random_tokens, release_memory
from gpu_shapes import PRECISION, Scale, Timed, fitting_batch_size, step_bytes
from torch import Generator

from lmlib.config import ModelConfig
from lmlib.data import BatchLoader
from lmlib.data.batches import Batch
from lmlib.distributed import World
from lmlib.flops import mfu, step_flops
from lmlib.hardware import identify, measure_matmul_flops, median_seconds
from lmlib.model import TransformerLM
from lmlib.optim import parameter_groups
from lmlib.train import NextTokenLoss, train_step
from lmlib.train.step import StepReport

LEARNING_RATE = 3e-4
WARM_UP = 3  # steps: the first compiles

Peaks = dict[str, float | str | None]


def find_peaks(device: torch.device, scale: Scale) -> Peaks:
    """Return the FLOP/s of bf16 products: of the data sheet, None if there is none, and of the fastest one here.

    Tiny shapes say nothing of a data sheet.
    """
    accelerator = identify(device) if scale.name == "full" else None
    return {
        "data_sheet": accelerator and accelerator.peak_flops.get("bf16"),
        "source": accelerator and accelerator.source,
        "measured": measure_matmul_flops("bf16", device),
    }


class Training:
    """A model in training: compiled together with its loss, with a fused optimizer."""

    def __init__(self, config: ModelConfig, device: torch.device, compiles: bool) -> None:
        self.world = World(device)
        self.loss = NextTokenLoss(TransformerLM(config, generator=Generator().manual_seed(0)).to(device))
        self.optimizer = torch.optim.AdamW(parameter_groups(self.loss, 0.1), lr=LEARNING_RATE, fused=True)
        if compiles:
            self.loss.compile()

    def step(self, batch: Batch) -> StepReport:
        """Make a step; it ends when its loss is known on the CPU."""
        return train_step(self.loss, self.optimizer, [batch], world=self.world, precision=PRECISION, max_norm=1.0)


def measure(timed: Timed, device: torch.device, scale: Scale, peaks: Peaks) -> tuple[bool, dict[str, object]]:
    """Time the steps of a model; passed if every one was made, and the loss of the one batch fell."""
    if scale.compiles:
        torch.compiler.reset()  # lets go of the model before
    release_memory(device)
    batch_size = fitting_batch_size(timed, free_bytes(device))
    if batch_size is None:
        needed = step_bytes(timed.config, 1) / 1e9
        raise Skipped(f"One window takes {needed:.1f} GB, more than {free_bytes(device) / 1e9:.1f} GB of free memory.")
    training = Training(timed.config, device, scale.compiles)
    figures, reports = _time_steps(training, timed.config, batch_size, device, scale)
    figures |= _rates(timed.config, batch_size, figures["seconds"], peaks)
    figures["waiting_for_data"] = _waiting(training, timed.config, batch_size, device, scale)
    passed = all(report.made for report in reports) and reports[-1].loss < reports[0].loss
    return passed, figures


def free_bytes(device: torch.device) -> float:
    """Return what is free of a GPU's memory; tiny models fit a CPU's."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf


def _time_steps(
    training: Training, config: ModelConfig, batch_size: int, device: torch.device, scale: Scale
) -> tuple[dict[str, object], list[StepReport]]:
    """Return how long a step takes, and a report of each that was made."""
    ids = torch.randint(config.vocab_size, (2, batch_size, config.context_length), generator=Generator().manual_seed(1))
    inputs, targets = ids.to(device)
    start = perf_counter()
    reports = [training.step((inputs, targets))]
    first_step_seconds = perf_counter() - start
    reports += [training.step((inputs, targets)) for _ in range(WARM_UP - 1)]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)

    def row() -> None:
        reports.extend(training.step((inputs, targets)) for _ in range(scale.steps))

    seconds = median_seconds(row, scale.rows, device) / scale.steps
    figures = {
        "config": config.to_dict(),
        "parameters": config.num_parameters,
        "precision": PRECISION,
        "compiled": scale.compiles,
        "batch_size": batch_size,
        "seq_len": config.context_length,
        "seconds": seconds,
        "first_step_seconds": first_step_seconds,
        "losses": [reports[0].loss, reports[-1].loss],
        "peak_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        "bytes_by_formula": step_bytes(config, batch_size),
    }
    return figures, reports


def _rates(config: ModelConfig, batch_size: int, seconds: float, peaks: Peaks) -> dict[str, float | None]:
    """Return tokens and FLOPs per second, and these as a share of each peak; FLOPs as MFU counts them."""
    flops = step_flops(config, batch_size).total
    sheet, measured = (mfu(flops, seconds, peak) if peak else None for peak in (peaks["data_sheet"], peaks["measured"]))
    return {
        "tokens_per_second": batch_size * config.context_length / seconds,
        "flops_per_second": flops / seconds,
        "mfu": sheet,
        "mfu_of_measured_peak": measured,
    }


def _waiting(
    training: Training, config: ModelConfig, batch_size: int, device: torch.device, scale: Scale
) -> dict[str, float]:
    """Return the share of the time that steps wait for their batch, by the number of batches read ahead.

    At most: a GPU may meanwhile still be at the optimizer's part of the step before.
    """
    steps = WARM_UP + scale.rows * scale.steps
    shares = {}
    with TemporaryDirectory() as folder:
        count = steps * batch_size * config.context_length + 1
        tokens = random_tokens(Path(folder), config.vocab_size, count)
        for prefetch in (0, 2):
            loader = BatchLoader(tokens, batch_size, config.context_length, device=device, prefetch=prefetch)
            batches = islice(loader, steps)
            for _ in range(WARM_UP):
                training.step(next(batches))
            shares[str(prefetch)] = _waited(training, batches)
    return shares


def _waited(training: Training, batches: Iterator[Batch]) -> float:
    """Train on batches, and return the share of the time that passed before each was there."""
    waited, start = 0.0, perf_counter()
    while True:
        asked = perf_counter()
        batch = next(batches, None)
        if batch is None:
            return waited / (asked - start)
        waited += perf_counter() - asked
        training.step(batch)
