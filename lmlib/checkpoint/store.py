"""The checkpoints of a run: which are kept, which is loaded, what errors do."""

import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from lmlib.checkpoint.compatibility import plain_config
from lmlib.checkpoint.errors import NOT_THERE, CorruptCheckpoint
from lmlib.checkpoint.folders import remove_folder, remove_stale
from lmlib.checkpoint.listing import (
    Which,
    candidates,
    step_path,
    step_paths,
    validation_losses,
)
from lmlib.checkpoint.ranks import Ranks
from lmlib.checkpoint.reading import read_checkpoint
from lmlib.checkpoint.records import Checkpoint, Meta, TrainingState
from lmlib.checkpoint.writing import Parts, take_apart, write_checkpoint
from lmlib.checks import check, check_count, check_size
from lmlib.distributed import World

__all__ = ["CheckpointStore", "CheckpointWarning"]


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written, removed or read."""


class CheckpointStore:
    """The folder of a run's checkpoints, each of which is complete or not there.

    The last ``keep_last`` of them stay, and the one with the best validation loss.
    With ``on_error="warn"``, a full disk and the like is a ``CheckpointWarning``:
    the old ones are as they were, and the run can go on.

    With a ``world``, all its ranks make a store of one folder, and then call its
    methods together. They agree on what was saved, and raise what one of them does.
    A sharded model needs that; of others, rank 0 writes all.

    Raises ValueError for a ``keep_last`` that is no whole number from 1 on, and for
    another ``on_error``.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        keep_last: int = 2,
        on_error: Literal["raise", "warn"] = "raise",
        world: World | None = None,
    ) -> None:
        wanted = "'raise' or 'warn'"
        check(on_error in ("raise", "warn"), "on_error", wanted, on_error)
        self.folder = Path(folder)
        self.keep_last = check_size("keep_last", keep_last)
        self.on_error = on_error
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._in_flight: tuple[int, Future[Path]] | None = None
        self._ranks = Ranks(world)
        if self._ranks.is_main:
            remove_stale(self.folder)

    # --- saving -------------------------------------------------------------------

    def save(
        self,
        state: TrainingState,
        *,
        step: int,
        validation_loss: float | None = None,
        config: object = None,
    ) -> Path | None:
        """Write a checkpoint, and return its folder; None after a warning.

        ``config`` is a dataclass or a mapping, which JSON can hold.

        Raises TypeError for a state or a config that could not be loaded again,
        ValueError if there is a checkpoint of that step (see ``discard_after``),
        and OSError if writing fails and ``on_error`` is "raise".
        """
        parts, meta = self._prepare(
            state, step, validation_loss, config, copy=False
        )
        return self._settle(step, lambda: self._write(parts, meta))

    def save_async(
        self,
        state: TrainingState,
        *,
        step: int,
        validation_loss: float | None = None,
        config: object = None,
    ) -> None:
        """Copy the state to CPU memory, and write that copy while the run goes on.

        One is written at a time: this waits for the one before. If writing fails,
        ``wait`` or the next save raises or warns as ``save`` would have.
        """
        parts, meta = self._prepare(state, step, validation_loss, config, copy=True)
        self._in_flight = step, self._thread.submit(self._write, parts, meta)

    def wait(self) -> Path | None:
        """Return once nothing is being written: the folder of what was."""
        if self._in_flight is None:
            return None
        (step, future), self._in_flight = self._in_flight, None
        return self._settle(step, future.result)

    # --- loading ------------------------------------------------------------------

    def load(
        self,
        which: Which = "latest",
        *,
        map_location: str | torch.device = "cpu",
        into: TrainingState | None = None,
    ) -> Checkpoint:
        """Verify and read a checkpoint: the latest, the best, or a step or folder.

        Where the latest or the best is damaged, a ``CheckpointWarning`` says so,
        and the one before it is loaded, or the next best.

        Tensors are whole, wherever they were sharded, unless they are sharded in
        ``into``, the state of the run that is to go on: its parts are filled.

        Raises FileNotFoundError if there is none, OSError if the disk or the system
        does not let one be read, and CorruptCheckpoint, with all that was tried, if
        all are damaged.
        """
        self.wait()
        damaged: list[str] = []
        for path in self._ranks.on_main(lambda: candidates(self.folder, which)):
            read = partial(
                read_checkpoint,
                path,
                self._ranks,
                map_location=map_location,
                into=into,
            )
            try:
                checkpoint = self._ranks.together(read)
            # Another error of the disk proves no damage: whoever went on from an
            # older one would discard this one for it.
            except (CorruptCheckpoint, *NOT_THERE) as error:
                damaged.append(f"  {path.name}: {error}")
            else:
                if damaged:
                    instead = f"{path.name} is loaded instead."
                    lines = ["Damaged checkpoints:", *damaged, instead]
                    self._warn("\n".join(lines), stacklevel=3)
                return checkpoint
        raise CorruptCheckpoint("\n".join(["No checkpoint can be read:", *damaged]))

    # --- what is there ------------------------------------------------------------

    @property
    def steps(self) -> list[int]:
        """The steps of the checkpoints that are there, in order."""
        return list(step_paths(self.folder))

    @property
    def best_step(self) -> int | None:
        """The step with the lowest validation loss; None if there is no loss."""
        return next(iter(validation_losses(self.folder)), None)

    def discard_after(self, step: int) -> None:
        """Remove the checkpoints of later steps.

        A run that goes on from ``step`` will reach them anew, and the latest must
        not be one of those that it no longer descends from.
        """
        self.wait()
        self._ranks.on_main(lambda: self._remove(lambda other: other > step))

    # --- how ----------------------------------------------------------------------

    def _prepare(
        self,
        state: TrainingState,
        step: int,
        validation_loss: float | None,
        config: object,
        *,
        copy: bool,
    ) -> tuple[Parts, Meta]:
        self.wait()
        meta = self._ranks.on_main(
            lambda: self._meta(step, validation_loss, config)
        )
        parts = self._ranks.together(
            lambda: take_apart(state, self._ranks, copy=copy)
        )
        return parts, meta

    def _meta(
        self, step: int, validation_loss: float | None, config: object
    ) -> Meta:
        step = check_count("step", step)
        path = step_path(self.folder, step)
        if path.exists():
            raise ValueError(
                f"{path} is there already: after going back to an earlier step, "
                "call discard_after with it."
            )
        meta = Meta(
            step,
            validation_loss,
            config=plain_config(config),
            world_size=self._ranks.size,
        )
        losses = [*validation_losses(self.folder).values(), meta.validation_loss]
        known = [loss for loss in losses if loss is not None]
        return replace(meta, best_validation_loss=min(known, default=None))

    def _write(self, parts: Parts, meta: Meta) -> Path:
        path = step_path(self.folder, meta.step)
        write = partial(write_checkpoint, path, parts, meta, self._ranks)
        self._ranks.together(write)
        self._ranks.on_main(self._prune)
        return path

    def _prune(self) -> None:
        kept = {*self.steps[-self.keep_last :], self.best_step}
        try:
            self._remove(lambda step: step not in kept)
        except OSError as error:  # the new one is there all the same
            self._warn(f"An old checkpoint could not be removed: {error}", 4)

    def _remove(self, is_surplus: Callable[[int], bool]) -> None:
        for step, path in step_paths(self.folder).items():
            if is_surplus(step):
                remove_folder(path)

    def _settle(self, step: int, write: Callable[[], Path]) -> Path | None:
        """Return what was written, or do about an error what was asked for."""
        try:
            return write()
        except OSError as error:
            if self.on_error == "raise":
                raise
            self._warn(
                f"NO CHECKPOINT was written at step {step}: {error}. The run goes "
                f"on; what is in {self.folder} is as it was. Make room there.",
                stacklevel=4,
            )
            return None

    def _warn(self, message: str, stacklevel: int) -> None:
        if self._ranks.is_main:
            warnings.warn(message, CheckpointWarning, stacklevel)
