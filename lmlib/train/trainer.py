"""The loop: take a batch, make a step, look now and then, save, go on."""

from __future__ import annotations

import math
import signal
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import torch
from torch import Tensor

from lmlib.checkpoint import (
    CheckpointStore,
    CorruptCheckpoint,
    TrainingState,
    capture_rng,
    check_config,
    restore_rng,
)
from lmlib.checkpoint.sharded import sharded_checkpoints
from lmlib.data import BatchLoader
from lmlib.data.batches import Batch
from lmlib.distributed import World, any_rank, on_main, replicate, shard
from lmlib.flops import mfu, step_flops
from lmlib.generate import decode_stream, printable, stream
from lmlib.hardware.devices import get_device
from lmlib.hardware.peaks import peak_flops
from lmlib.hardware.process import is_out_of_memory
from lmlib.model import TransformerLM
from lmlib.optim import parameter_groups
from lmlib.precision import (
    get_precision,
    make_scaler,
    precision_context,
    to_precision,
)
from lmlib.train.config import MAY_DIFFER, TrainConfig
from lmlib.train.dataset import Dataset
from lmlib.train.logs import Logs
from lmlib.train.metrics import read_metrics
from lmlib.train.progress import Progress, memory_bytes
from lmlib.train.restored import check_progress, check_scaler, load_optimizer
from lmlib.train.run_folder import RunFolder
from lmlib.train.signals import Stopped, StopSignals
from lmlib.train.starting import random_model, starting_model
from lmlib.train.step import NextTokenLoss, StepReport, train_step
from lmlib.train.validation import evaluate, window_starts

__all__ = ["NonFiniteError", "Trainer", "TrainingResult"]

T = TypeVar("T")

_PIECES = ("batch_size", "world_size")  # of a batch, to the loader

MOST_SKIPPED = 100  # steps in a row: what does not recover by then is broken


class NonFiniteError(ArithmeticError):
    """A loss or a gradient is not finite; the weights are those before the step."""


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended: after all steps, or ``stopped_by`` a signal before.

    ``validation_loss`` is None if it was not measured after the last of its steps.
    """

    step: int
    validation_loss: float | None
    stopped_by: signal.Signals | None = None


class Trainer:
    """A model in training, with all that belongs to it, in the folder of a run.

    ``config`` is what it is told, ``data`` what ``open_dataset`` opened for that,
    and ``folder`` where checkpoints, metrics and samples go; it is made if it is
    not there. ``world`` is what ``join_world`` gave: this process alone, on the
    config's device, if None. With ``quiet`` nothing is printed.

    The weights of step 0 follow from the config's ``seed``, or are those of its
    ``init_from``: then they are saved as a checkpoint before anything else, so that
    the run needs their folder no more.

    ``resume`` names a checkpoint of the folder: ``"latest"``, ``"best"`` or a step;
    None starts at step 0. Going on is as if it had never stopped, to the bit, on as
    many devices; on more or fewer, dropout draws other numbers. On GPUs that needs
    kernels that add in a fixed order: ``torch.use_deterministic_algorithms(True)``.

    Raises ValueError for a config that the data, the devices or the model of
    ``init_from`` do not suit, FileNotFoundError if that is not there,
    ConfigMismatch for one that the checkpoint does not, and FileExistsError if a
    run is to start where there are checkpoints of another.
    """

    def __init__(
        self,
        config: TrainConfig,
        data: Dataset,
        folder: str | Path,
        *,
        world: World | None = None,
        resume: str | int | None = None,
        quiet: bool = False,
    ) -> None:
        self.config = config
        self.world = world or World(get_device(config.device))
        self.data = data.with_vocab_size(config.model.vocab_size)
        self.folder = RunFolder(Path(folder))
        self.folder.path.mkdir(parents=True, exist_ok=True)
        self.step = 0
        self.validation_loss: float | None = None
        self._evaluated: int | None = None  # after which step that was
        self._skipped = 0  # in a row
        self._seconds = 0.0  # of all steps, over all processes that made them
        self._quiet = quiet or not self.world.is_main

        self.batch_size, self.num_batches = config.micro_batches(self.world.size)
        is_new = resume is None
        self._build_model(
            starting_model(config, self.data) if is_new else random_model(config)
        )
        self.loader = BatchLoader(
            self.data.train,
            self.batch_size,
            config.model.context_length,
            seed=config.seed,
            rank=self.world.rank,
            world_size=self.world.size,
            device=self.world.device,
        )
        window_starts(self.data.validation, config.model.context_length, 1)  # fit?
        self.store = CheckpointStore(
            self.folder.checkpoints,
            keep_last=config.keep_last,
            on_error="warn",
            world=self.world,
        )
        self._rng_state: Any = None
        if resume is not None:
            self._restore(resume)
        elif on_main(self.world, lambda: self.store.steps):
            raise FileExistsError(
                f"{self.folder.path} holds checkpoints of a run: go on with it by "
                'resume="latest", or name another folder.'
            )

    def _build_model(self, model: TransformerLM) -> None:
        config, world = self.config, self.world
        model = to_precision(model, config.precision).to(world.device)
        if config.parallel == "fsdp":
            if world.size > 1:
                sharded_checkpoints()  # says here if torch is too old for them
            dtype = get_precision(config.precision).autocast
            model = shard(model, model.blocks, world, dtype)
        self.model = (
            model  # its names are those of the state dict, whatever wraps it
        )
        self.loss = NextTokenLoss(model)
        if config.parallel == "ddp":
            self.loss = replicate(self.loss, world)
        is_gpu = world.device.type == "cuda"
        if is_gpu if config.compile is None else config.compile:
            self.loss.compile()
        self.optimizer = torch.optim.AdamW(
            parameter_groups(model, config.weight_decay),
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            fused=True,
        )
        self.scaler = make_scaler(config.precision, world.device)
        with precision_context(config.precision, world.device, self.scaler):
            pass  # says here if the device does not have it

    # --- the loop --------------------------------------------------------------

    def run(self) -> TrainingResult:
        """Train to the last step, or until a signal: then a checkpoint is saved.

        Raises NonFiniteError, which names step and learning rate, for a loss or
        gradient that is not finite, unless the config says to skip it, and OSError
        if the last checkpoint could not be written.
        """
        stopped_by = None
        self._set_random_numbers()
        with self._logging(), StopSignals() as self.signals:
            try:
                self._save_start()
                self._look(self._recorded())
                batches = self._batches()
                while self.step < self.config.steps:
                    self._stop_if_told()
                    self._train(list(islice(batches, self.num_batches)))
                    self._look()
                    if self._is_due(self.config.save_every):
                        self._save()
            except Stopped:
                stopped_by = self.signals.received or signal.SIGTERM
                if self.step not in self._saved_steps():
                    self._save()
            self._check_saved()
        loss = self.validation_loss if self._evaluated == self.step else None
        return TrainingResult(self.step, loss, stopped_by)

    def _is_due(self, every: int) -> bool:
        """Whether this is the step for something; the last one always is."""
        is_last = self.step == self.config.steps
        return is_last or (every > 0 and self.step % every == 0)

    def _stop_if_told(self) -> None:
        """Raise Stopped if a signal has come to this rank or to another."""
        if any_rank(self.signals.received is not None, self.world):
            raise Stopped

    def _watched(self, items: Iterable[T]) -> Iterator[T]:
        """Yield what takes long, one after another, until a signal comes."""
        for item in items:
            self._stop_if_told()
            yield item

    def _batches(self) -> Iterator[Batch]:
        while True:  # one epoch after another
            yield from self.loader

    def _train(self, batches: list[Batch]) -> None:
        start = perf_counter()
        lr = self.config.learning_rate(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        report = train_step(
            self.loss,
            self.optimizer,
            batches,
            world=self.world,
            precision=self.config.precision,
            scaler=self.scaler,
            max_norm=self.config.max_norm or math.inf,
        )
        self._check(report, lr)
        self.step += 1
        self._seconds += perf_counter() - start
        self.progress.advance()
        if self._is_due(self.config.log_every):
            self._log(report, lr)

    def _check(self, report: StepReport, lr: float) -> None:
        """Do about a step that was not made what the config says."""
        self._skipped = 0 if report.made else self._skipped + 1
        if report.made or (report.overflowed and self._skipped <= MOST_SKIPPED):
            return
        skips = self.config.non_finite == "skip" and self._skipped <= MOST_SKIPPED
        message = (
            f"Step {self.step + 1} was not made: its loss is {report.loss:.4g}, "
            f"the norm of its gradients {report.grad_norm:.4g}, at a learning rate "
            f"of {lr:.4g}."
        )
        if not skips:
            raise NonFiniteError(
                f"{message} The weights are those before it. Choose a lower rate "
                "or a longer warm-up, or non_finite = 'skip' if some data are to "
                "blame."
            )
        self.progress.say(message)

    # --- what is written down --------------------------------------------------

    @contextmanager
    def _logging(self) -> Iterator[None]:
        """Open the files of a run that goes on from this step, and close them."""
        config, world = self.config, self.world
        # of rank 0 for all: while several measure on one CPU, none reaches it
        peak = on_main(
            world,
            _peak_flops,
            config.precision,
            world.device,
            torch.get_num_threads(),
        )
        self._peak = world.size * peak
        self._logged = self.step, self._seconds
        self.logs = Logs(
            self.folder,
            last_step=self.step if self.step else -1,
            tensorboard=config.tensorboard,
            is_main=world.is_main,
        )
        self.progress = Progress(config.steps, self.step, self._quiet)
        try:
            yield
        finally:
            self.store.wait()  # for what is being written, after an error too
            self.progress.close()
            self.logs.close()

    def _log(self, report: StepReport, lr: float) -> None:
        steps, seconds = (
            self.step - self._logged[0],
            self._seconds - self._logged[1],
        )
        self._logged = self.step, self._seconds
        model, windows = self.config.model, self.config.batch_size
        flops = steps * step_flops(model, windows).total
        record = {
            "step": self.step,
            "loss": report.loss,
            "lr": lr,
            "grad_norm": report.grad_norm,
            "made": report.made,
            "tokens": self.step * windows * model.context_length,
            "seconds": self._seconds,
            "tokens_per_second": steps * windows * model.context_length / seconds,
            "mfu": mfu(flops, seconds, self._peak),
            "memory_bytes": memory_bytes(self.world.device),
        }
        self.logs.write(record)
        self.progress.show(record)

    def _recorded(self) -> set[str]:
        """What the metrics hold of this step: a signal may have cut it short."""

        def read() -> set[str]:
            records = read_metrics(self.folder.metrics)
            return set().union(*(r for r in records if r["step"] == self.step))

        return on_main(self.world, read)

    def _look(self, recorded: Collection[str] = ()) -> None:
        """Validate if it is time, sample at both ends, unless that is recorded."""
        is_first, is_last = self.step == 0, self.step == self.config.steps
        is_due = is_first or self._is_due(self.config.eval_every)
        if is_due and "validation_loss" not in recorded:
            self._evaluate()
        if (is_first or is_last) and "sample" not in recorded:
            self._sample()

    def _evaluate(self) -> None:
        self.validation_loss = evaluate(
            self.loss,
            self.data.validation,
            context_length=self.config.model.context_length,
            num_windows=self.config.eval_windows,
            batch_size=self.batch_size,
            world=self.world,
            precision=self.config.precision,
            watch=self._watched,
        )
        self._evaluated = self.step
        self.logs.write(
            {"step": self.step, "validation_loss": self.validation_loss}
        )
        self.progress.validated(self.step, self.validation_loss)

    def _sample(self) -> None:
        """Write down how the model goes on from the prompt, on every rank alike."""
        tokenizer, config = self.data.tokenizer, self.config
        if tokenizer is None or not config.sample_tokens:
            return
        prompt = config.sample_prompt or "\n"
        generator = torch.Generator().manual_seed(config.seed)
        ids = stream(
            self.model,
            tokenizer.encode_ordinary(prompt),
            config.sample_tokens,
            temperature=config.sample_temperature,
            vocab_size=tokenizer.vocab_size,
            generator=generator,
        )
        with (
            torch.no_grad(),
            precision_context(config.precision, self.world.device),
        ):
            text = config.sample_prompt + "".join(
                decode_stream(tokenizer, self._watched(ids))
            )
        self.logs.write_sample(self.step, text)
        self.progress.say(
            f"\n--- after {self.step:,} steps ---\n{printable(text)}\n"
        )

    # --- saving and going on ---------------------------------------------------

    def state(self) -> TrainingState:
        """All that the next step depends on."""
        return TrainingState(
            model=self.model.state_dict(),
            training={
                "step": self.step,
                "seconds": self._seconds,
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.scaler.state_dict(),
                "loader": self.loader.state_dict(),
            },
            rank_state=capture_rng(),
        )

    def _save(self) -> None:
        self.logs.sync()  # no metric is missing from what a checkpoint goes on from
        save = self.store.save_async if self.config.async_save else self.store.save
        measured = self._evaluated == self.step
        save(
            self.state(),
            step=self.step,
            validation_loss=self.validation_loss if measured else None,
            config=self.config.to_dict(),
        )

    def _save_start(self) -> None:
        """Keep the weights that the run starts from: their folder may go away."""
        is_start = self.config.init_from is not None and self.step == 0
        if is_start and 0 not in self._saved_steps():
            self._save()

    def _saved_steps(self) -> list[int]:
        self.store.wait()
        return on_main(self.world, lambda: self.store.steps)

    def _check_saved(self) -> None:
        saved = self._saved_steps()
        if self.step not in saved:
            raise OSError(
                "No checkpoint could be written at the end: what was trained after "
                f"step {max(saved, default=0)} is lost. Make room, and go on from "
                "there."
            )

    def _restore(self, which: str | int) -> None:
        into = None
        if self.config.parallel == "fsdp":
            start_optimizer(self.optimizer)
            into = self.state()
        checkpoint = self.store.load(which, into=into)
        check_config(checkpoint.meta.config, self.config.to_dict(), MAY_DIFFER)
        training = checkpoint.training
        if checkpoint.meta.step > self.config.steps:
            raise ValueError(
                f"{checkpoint.path} has made {checkpoint.meta.step} steps already: "
                f"steps = {self.config.steps} must be as many, or more."
            )
        try:
            position = self._load(checkpoint.model, training)
            check_progress(training, checkpoint.meta.step)
        except (
            AttributeError,
            KeyError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            if is_out_of_memory(error):
                raise
            raise CorruptCheckpoint(
                f"{checkpoint.path} holds no state of this trainer: {error!r:.200}"
            ) from error
        self.loader.load_state_dict(position)  # says itself what is wrong
        self.step, self._seconds = training["step"], training["seconds"]
        if checkpoint.meta.validation_loss is not None:
            self.validation_loss = checkpoint.meta.validation_loss
            self._evaluated = self.step
        self._rng_state = checkpoint.rank_state
        self.store.discard_after(self.step)

    def _load(
        self, model: dict[str, Tensor], training: dict[str, Any]
    ) -> dict[str, Any]:
        """Take what was saved, and return where the loader is to go on."""
        self.model.load_state_dict(model)
        load_optimizer(self.optimizer, training["optimizer"])
        check_scaler(training["scaler"])
        self.scaler.load_state_dict(training["scaler"])
        # The batch is the same, in whatever pieces and on however many devices.
        own = {name: getattr(self.loader, name) for name in _PIECES}
        return {**training["loader"], **own}

    def _set_random_numbers(self) -> None:
        """Let dropout draw on where the checkpoint stood, or begin.

        On another number of ranks than the checkpoint's each begins anew.
        """
        if self._rng_state is not None:
            restore_rng(self._rng_state)
        else:
            torch.manual_seed(self.config.seed + self.step + self.world.rank)


def start_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Let the optimizer make its state, which it else does in its first step.

    That is a step at a rate of 0, which leaves the parameters as they are. So there
    is, on every rank, a part of the state for a checkpoint to be read into.
    """
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


@cache
def _peak_flops(precision: str, device: torch.device, threads: int) -> float:
    """FLOP/s that a device could reach, in the dtype of most products.

    It is measured once: on a CPU, with so many threads, that takes a second.
    """
    dtype = {"fp32": "fp32", "tf32": "tf32", "fp16-autocast": "fp16"}
    return peak_flops(dtype.get(precision, "bf16"), device).value
