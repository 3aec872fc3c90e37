"""``lmlib train``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter

from lmlib.cli.errors import out_of_memory_explained
from lmlib.cli.files import Json, Quiet, print_json
from lmlib.cli.numbers import Number
from lmlib.cli.plan import SHAPE, ShapeOptions
from lmlib.cli.streams import complain
from lmlib.cli.tokenizer.options import Flattened
from lmlib.cli.train.fields import given, options_of
from lmlib.config import MODEL_SHAPES
from lmlib.train import PRESETS, TrainConfig
from lmlib.train.settings import merged

if TYPE_CHECKING:
    from lmlib.cli.train.run import Outcome

__all__ = ["EXAMPLES", "NOTES", "USAGE", "RunOptions", "app", "train"]

USAGE = "Usage: lmlib train [OPTIONS]"

NOTES = """Without options it is the preset tiny on Moby-Dick: a minute or two on
two CPU cores, to a validation loss below 4.1 nats per token, where guessing has
6.9. Ctrl-C and SIGTERM save a checkpoint first; --resume goes on after any end.
Where standard error is no terminal, lines of numbers stand for the bar.

The presets, as flags:
"""

EXAMPLES = """Examples:

  lmlib train

  lmlib train --data book.txt --steps 2000 --d-model 256 --num-heads 8

  lmlib train --config run.toml --lr 6e-4 --out runs/faster

  lmlib train --resume runs/1 --steps 2000

  lmlib train --init-from runs/gpt2 --data book.txt --steps 100

  torchrun --nproc-per-node 8 -m lmlib train --preset gpt2-124m --data train.bin
"""

ADVICE = (
    "choose a smaller micro_batch_size, which changes nothing else, or a smaller "
    "model. See lmlib plan."
)

SETTINGS = Group(
    "Settings",
    help="Those of a file have the same names, with _ for -, and a table [model] "
    "for the shape. A flag comes before the file, and the file before the preset. "
    "The defaults are those of a file; presets have their own, shown below.",
)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options that are about the run as a whole."""

    preset: Annotated[
        str | None,
        Parameter(
            help=f"Settings to start from: {', '.join(PRESETS)}. It is tiny if "
            "neither it nor a file is named, or finetune with --init-from, which "
            "takes no shape from a preset."
        ),
    ] = None
    config: Path | None = None
    """A TOML file of settings, such as the config.toml of another run."""
    out: Path | None = None
    """The folder of the run; runs/1, or the next that is free, if left out."""
    resume: Path | None = None
    """The folder of a run to go on with, from its latest checkpoint."""
    json: Json = False
    quiet: Quiet = False

    def __post_init__(self) -> None:
        """Refuse what contradicts ``resume``."""
        for name in ("preset", "config", "out"):
            if self.resume is not None and getattr(self, name) is not None:
                raise ValueError(
                    f"--resume goes on with a run as it was: leave --{name} out."
                )
        if self.preset is not None and self.preset not in PRESETS:
            known = ", ".join(PRESETS)
            raise ValueError(
                f"There is no preset {self.preset!r}: choose one of {known}."
            )


@dataclass(frozen=True, kw_only=True)
class ModelOptions(ShapeOptions):
    """All fields of ``ModelConfig``."""

    dropout: Number | None = None
    """Share of activations that is dropped in training."""
    rope_theta: Number | None = None
    """Base of the angles of rope."""
    norm_eps: Number | None = None
    """What keeps a norm from dividing by 0."""


SettingOptions = options_of(TrainConfig, SETTINGS, without=["model"])


def _flags(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield settings, such as those of a preset, as one writes them in a shell."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flags(value)
        elif value is True:
            yield f"--{name.replace('_', '-')}"
        else:
            flag = "shape" if name == "model" else name.replace("_", "-")
            yield f"--{flag} {value}"


def _presets() -> str:
    """Show every preset as flags, in lines of at most 80 columns."""
    shown = []
    for name, settings in PRESETS.items():
        flags = " ".join(
            flag.replace(" ", "\N{NO-BREAK SPACE}") for flag in _flags(settings)
        )
        shown += wrap(
            flags,
            width=80,
            initial_indent=f"  {name:9}  ",
            subsequent_indent=" " * 13,
            break_on_hyphens=False,
        )
    return "\n".join(shown).replace("\N{NO-BREAK SPACE}", " ")


app = App(
    name="train",
    usage=USAGE,
    help_epilogue=f"{NOTES}\n{_presets()}\n\n{EXAMPLES}",
)


@app.default
def train(
    *,
    run: Flattened[RunOptions] = RunOptions(),
    shape: Annotated[
        str | None,
        Parameter(
            group=SHAPE,
            help=f"Shape of the model: {', '.join(MODEL_SHAPES)}.",
        ),
    ] = None,
    model: Annotated[
        ModelOptions, Parameter(name="*", group=SHAPE)
    ] = ModelOptions(),
    settings: Flattened[SettingOptions] = SettingOptions(),  # noqa: B008
) -> int:
    """Train a language model, and write all that comes of it into a folder."""
    from lmlib.cli.train.run import go_on, start
    from lmlib.train import NonFiniteError

    flags: dict[str, Any] = given(settings)
    if sizes := given(model) | ({"shape": shape} if shape else {}):
        flags["model"] = sizes
    quiet = run.quiet or run.json
    try:
        with out_of_memory_explained(ADVICE):
            if run.resume is not None:
                outcome = go_on(run.resume, flags, quiet)
            else:
                outcome = start(_layered(run, flags), run.out, quiet)
    except NonFiniteError as error:
        complain("error:", error)
        return 1
    return _report(outcome, run)


def _layered(run: RunOptions, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a new run: of its preset, its file and its flags."""
    from lmlib.train.run_folder import read_settings

    file = {} if run.config is None else read_settings(run.config)
    has_source = "init_from" in {**file, **flags}
    preset = run.preset
    if preset is None and run.config is None:
        preset = "finetune" if has_source else "tiny"
    base = dict(PRESETS[preset]) if preset else {}
    if has_source:
        base.pop("model", None)
    return merged(base, file, flags)


def _report(outcome: "Outcome", run: RunOptions) -> int:
    """Print what came of a run, and return its exit code."""
    result, config = outcome.result, outcome.config
    code = 128 + result.stopped_by if result.stopped_by else 0
    if not outcome.is_main:
        return code
    tokens = result.step * config.batch_size * config.model.context_length
    report = {
        "folder": str(outcome.folder),
        "steps": result.step,
        "tokens": tokens,
        "parameters": config.model.num_parameters,
        "validation_loss": result.validation_loss,
        "stopped_by": result.stopped_by and result.stopped_by.name,
    }
    if run.json:
        print_json(report)
    elif not run.quiet:
        print(f"model       {config.model.num_parameters:,} parameters")
        print(f"trained     {result.step:,} steps, {tokens:,} tokens")
        if result.validation_loss is not None:
            print(f"validation  {result.validation_loss:.4f} nats per token")
        print(f"written to  {outcome.folder}")
    if result.stopped_by:
        again = f"lmlib train --resume {outcome.folder}"
        complain(
            f"stopped by {result.stopped_by.name}, exit code {code}: go on with "
            f"{again}"
        )
    return code
