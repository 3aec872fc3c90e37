"""The folder of a run: what it was told, where, and what came of it."""

import fcntl
import json
import os
import platform
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import tomli_w
import torch

import lmlib
from lmlib.checkpoint.records import META
from lmlib.distributed import World
from lmlib.files import write_atomically
from lmlib.train.config import TrainConfig

__all__ = ["RunFolder", "read_settings"]


@dataclass(frozen=True)
class RunFolder:
    """Where the files of a run are."""

    path: Path

    @property
    def config(self) -> Path:
        """All settings, as resolved; ``--config`` reads it again."""
        return self.path / "config.toml"

    @property
    def environment(self) -> Path:
        """Versions, device and command of each time that it was started."""
        return self.path / "environment.json"

    @property
    def tokenizer(self) -> Path:
        """What turns its tokens into text."""
        return self.path / "tokenizer.json"

    @property
    def tokens(self) -> Path:
        """The folder of token files that were made of text for it."""
        return self.path / "data"

    @property
    def origin(self) -> Path:
        """What the tokenizer and the tokens were made of."""
        return self.path / "origin.json"

    @property
    def metrics(self) -> Path:
        """A line of JSON for each step that was logged."""
        return self.path / "metrics.jsonl"

    @property
    def samples(self) -> Path:
        """Texts of the model, for people."""
        return self.path / "samples.txt"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        """The folder that TensorBoard reads."""
        return self.path / "tensorboard"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training in the folder, which must be there.

        The kernel frees the lock when the process ends, however that does. Where a
        file system knows no locks, there is none.

        Raises BlockingIOError if another process trains in it.
        """
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise BlockingIOError(
                f"Another process trains in {self.path}: wait for it, or name "
                "another folder."
            ) from None
        except OSError:
            pass  # no locks here
        try:
            yield
        finally:
            os.close(descriptor)

    def check_new(self) -> None:
        """Raise FileExistsError if there is a run in it already, or its beginning.

        A run that was killed before its first step leaves tokens, which would be
        those of the next one whatever that is told.
        """
        if self.config.exists():
            raise FileExistsError(
                f"{self.path} holds a run: go on with it by --resume {self.path}, "
                "or name another folder."
            )
        for path in (self.tokenizer, self.tokens, self.checkpoints, self.metrics):
            if path.exists():
                raise FileExistsError(
                    f"{self.path} holds {path.name} of a run that was ended before "
                    "its first step: remove it, or name another folder."
                )

    def check(self) -> None:
        """Raise FileNotFoundError unless there is a run in it."""
        if not self.config.is_file():
            raise FileNotFoundError(
                f"{self.path} holds no run: {self._what_it_is()}."
            )

    def _what_it_is(self) -> str:
        """Say what a folder without settings is, and what to do instead."""
        if not self.path.exists():
            return "there is no such folder"
        if (self.path / META).is_file():
            run = self.path.absolute().parents[1]
            return f"it is a checkpoint of one. Say --resume {run}"
        if self.checkpoints.is_dir():
            return (
                "it holds a model, as lmlib import writes it, and nothing of the "
                "training. lmlib export reads it; to train, start a run"
            )
        if (self.path / "config.json").is_file():
            return (
                "it holds a model for Hugging Face's tools, as lmlib export writes "
                "it. Name the folder of the run that it came from"
            )
        return f"there is no {self.config.name} in it"

    def write_config(self, config: TrainConfig) -> None:
        """Write the settings as TOML."""
        write_atomically(self.config, tomli_w.dumps(config.to_dict()))

    def read_config(self) -> dict[str, Any]:
        """Return the settings as they were written."""
        self.check()
        return read_settings(self.config)

    def add_environment(self, world: World) -> None:
        """Add what this process runs on to those before."""
        starts = []
        if self.environment.exists():
            starts = _read_list(self.environment)
        is_gpu = world.device.type == "cuda"
        starts.append(
            {
                "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "command": sys.argv,
                "lmlib": lmlib.__version__,
                "torch": torch.__version__,
                "numpy": numpy.__version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "device": str(world.device),
                "gpu": torch.cuda.get_device_name(world.device) if is_gpu else None,
                "world_size": world.size,
                "threads": torch.get_num_threads(),
            }
        )
        write_atomically(self.environment, json.dumps(starts, indent=2) + "\n")


def read_settings(path: Path) -> dict[str, Any]:
    """Read a TOML file; ValueError, which names it, if it is none."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML: {error}") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply.") from None


def _read_list(path: Path) -> list[Any]:
    try:
        values = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list):
        raise ValueError(f"{path} holds no list of JSON: move it away.")
    return values
