"""A run of the trainer: in a new folder or an old one, on any number of ranks."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import Any

from lmlib.cli.errors import warnings_in_a_line
from lmlib.distributed import World, join_world, on_main
from lmlib.export.loaded import read_tokenizer
from lmlib.export.opening import find_model
from lmlib.train import (
    Dataset,
    RunFolder,
    TrainConfig,
    Trainer,
    TrainingResult,
    open_dataset,
)
from lmlib.train.settings import (
    absolute_paths,
    draft,
    has_vocab_size,
    merged,
    with_model,
)

__all__ = ["Outcome", "go_on", "start"]


@dataclass(frozen=True)
class Outcome:
    """What came of a run, and where it is."""

    folder: Path
    config: TrainConfig
    result: TrainingResult
    is_main: bool


def start(settings: Mapping[str, Any], folder: Path | None, quiet: bool) -> Outcome:
    """Train in a new folder: that one, or the next number under ``runs``.

    If something is wrong with settings or data, no new folder stays behind.
    """
    settings = _with_source(absolute_paths(settings))
    config = draft(settings)
    with join_world(config.device) as world, warnings_in_a_line():
        path, is_new = on_main(world, _make_folder, folder)
        run = RunFolder(path)
        with _locked(run, world):
            with _removed_after_errors(run, is_new and world.is_main):
                on_main(world, run.check_new)
                config, data = _with_data(settings, run, world, quiet)
                trainer = Trainer(config, data, path, world=world, quiet=quiet)
            return _train(trainer, run, quiet)


def go_on(folder: Path, changes: Mapping[str, Any], quiet: bool) -> Outcome:
    """Train on from the latest checkpoint; some settings may differ from it."""
    run = RunFolder(folder)
    saved = TrainConfig.from_dict(run.read_config()).to_dict()
    settings = merged(saved, absolute_paths(changes))
    if not has_vocab_size(settings):
        settings["model"]["vocab_size"] = saved["model"]["vocab_size"]
    device = draft(settings).device
    with (
        join_world(device) as world,
        warnings_in_a_line(),
        _locked(run, world),
    ):
        config, data = _with_data(settings, run, world, quiet)
        has_checkpoint = on_main(world, lambda: any(run.checkpoints.glob("step-*")))
        trainer = Trainer(
            config,
            data,
            run.path,
            world=world,
            resume="latest" if has_checkpoint else None,
            quiet=quiet,
        )
        return _train(trainer, run, quiet)


def _with_source(settings: dict[str, Any]) -> dict[str, Any]:
    """Take from a model to start from its shape, and its tokenizer if it has one.

    What was one folder of a run becomes that of one checkpoint: another may be the
    best one later.
    """
    if "init_from" not in settings:
        return settings
    source = find_model(settings["init_from"])
    own, _ = read_tokenizer(source.tokenizer_folder)
    tokenizer = {} if own is None else {"tokenizer": str(source.tokenizer_folder)}
    settings = with_model(settings, source.config, source.path)
    return {**tokenizer, **settings, "init_from": str(source.path)}


def _with_data(
    settings: Mapping[str, Any], run: RunFolder, world: World, quiet: bool
) -> tuple[TrainConfig, Dataset]:
    """Open the data, which say how many ids there are if the settings do not."""
    config, is_said = draft(settings), has_vocab_size(settings)
    vocab_size = config.model.vocab_size if is_said else None
    data = open_dataset(
        config, run.path, world, vocab_size=vocab_size, progress=not quiet
    )
    if is_said:
        return config, data
    if data.vocab_size is None:
        raise ValueError(
            f"Nothing says how many ids {data.train} can hold: give vocab_size, or "
            "the tokenizer."
        )
    model = replace(config.model, vocab_size=data.vocab_size)
    return replace(config, model=model), data


def _train(trainer: Trainer, run: RunFolder, quiet: bool) -> Outcome:
    def write() -> None:
        run.write_config(trainer.config)
        run.add_environment(trainer.world)

    on_main(trainer.world, write)
    if trainer.world.is_main and not quiet:
        _introduce(trainer)
    result = trainer.run()
    return Outcome(run.path, trainer.config, result, trainer.world.is_main)


def _introduce(trainer: Trainer) -> None:
    """Say what trains, on what and where, before there is something to wait for."""
    world, data = trainer.world, trainer.data
    devices = f"{world.size} × " if world.size > 1 else ""
    print(f"folder      {trainer.folder.path}")
    print(
        f"data        {len(data.train):,} tokens to train on, "
        f"{len(data.validation):,} to validate with"
    )
    print(f"device      {devices}{world.device.type}")
    if trainer.config.init_from is not None:
        print(f"started     from {trainer.config.init_from}")
    if data.tokenizer is None:
        print("samples     none: name the tokenizer of the tokens with --tokenizer")
    if trainer.step == trainer.config.steps:
        print(f"is over     after step {trainer.step:,}: more --steps go on")
    elif trainer.step:
        print(
            f"goes on     after step {trainer.step:,} of {trainer.config.steps:,}"
        )
    print(flush=True)


def _make_folder(folder: Path | None) -> tuple[Path, bool]:
    """Return the folder, and whether it was made now.

    None makes the first of ``runs/1``, ``runs/2``, … that nobody else has made.
    """
    if folder is not None:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        return folder, is_new
    Path("runs").mkdir(exist_ok=True)
    for number in count(1):
        path = Path("runs", str(number))
        with suppress(FileExistsError):
            path.mkdir()
            return path, True


@contextmanager
def _locked(run: RunFolder, world: World) -> Iterator[None]:
    """Let no other command train in the folder."""
    with ExitStack() as stack:

        def lock() -> None:
            stack.enter_context(run.locked())

        on_main(world, lock)
        yield


@contextmanager
def _removed_after_errors(run: RunFolder, is_own: bool) -> Iterator[None]:
    """Remove the folder after an error, if this process has made it."""
    try:
        yield
    except BaseException:
        if is_own:
            rmtree(run.path, ignore_errors=True)
        raise
