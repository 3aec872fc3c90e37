"""All that a training run is told, in one frozen object.

A TOML file, the command line and a checkpoint hold the same fields under the same
names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args, get_type_hints

from lmlib.checks import (
    check,
    check_count,
    check_number,
    check_positive,
    check_size,
    check_switch,
    check_unicode,
    is_nonnegative,
    is_share,
    unknown_name,
)
from lmlib.config import ModelConfig, named_config

__all__ = [
    "CORPORA",
    "MAY_DIFFER",
    "TOKENIZERS",
    "TOKENS",
    "TrainConfig",
    "file_names",
    "model_config",
]

CORPORA = ("moby_dick",)  # the texts of lmlib.corpora that one can train on
TOKENS = ".bin"  # how the name of a token file ends
TOKENIZERS = ("bytes", "gpt2", "train")  # those that are in no file
MOST_SEEDS = 2**63  # what torch takes, with room for a step and a rank to be added

MAY_DIFFER = (
    "data",  # the loader knows the tokens themselves
    "validation_data",
    "steps",
    "micro_batch_size",
    "device",
    "compile",
    "parallel",
    "non_finite",
    "log_every",
    "eval_every",
    "eval_windows",
    "sample_prompt",
    "sample_tokens",
    "sample_temperature",
    "save_every",
    "keep_last",
    "async_save",
    "tensorboard",
)
"""Fields in which a run may differ from the checkpoint that it goes on from."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A training run; its batch is the same on any number of devices.

    Raises ValueError, with what to change, for a value outside its range and for
    values that do not fit together.
    """

    model: ModelConfig
    """The shape of the model."""

    data: tuple[str, ...] = ("moby_dick",)
    """Text files, or one token file (.bin); moby_dick comes with lmlib."""
    validation_data: tuple[str, ...] = ()
    """The same to validate with; the end of the training data if left out."""
    validation_share: float = 0.1
    """Share of the training tokens to validate with, if there are no others."""
    tokenizer: str = "train"
    """A tokenizer.json or its folder; gpt2; bytes; or train, on the text itself."""

    init_from: str | None = None
    """A model to start from: the folder of a run, a checkpoint or Hugging Face.

    On the command line its shape and its tokenizer come with it.
    """

    steps: int = 1000
    """Steps of the optimizer, in all."""
    batch_size: int = 32
    """Windows of context_length tokens in a step, over all devices."""
    micro_batch_size: int | None = None
    """Windows that a device takes at a time, if not all: gradients add up."""
    seed: int = 0
    """Random numbers of weights, order of the data, dropout and samples."""

    lr: float = 1e-3
    """Learning rate at its peak: about how far AdamW moves a weight in a step."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Shares of old gradients, and of their squares, that AdamW keeps in a step."""
    eps: float = 1e-8
    """What AdamW adds to the root of the mean square that it divides by."""
    weight_decay: float = 0.1
    """Share of a matrix, times the learning rate, that a step takes off it."""
    max_norm: float = 1.0
    """Norm of all gradients to which longer ones are cut; 0 cuts none."""
    schedule: Literal["cosine", "wsd"] = "cosine"
    """How the learning rate falls after the warm-up."""
    warmup_steps: int | None = None
    """First steps, in which the rate rises; a twentieth of all if left out."""
    decay_steps: int | None = None
    """Last steps, in which it falls, with wsd; a fifth of all if left out."""
    final_lr_factor: float = 0.1
    """Share of the peak that is left of the learning rate in the end."""

    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto for the best that there is."""
    precision: Literal["fp32", "tf32", "bf16-autocast", "fp16-autocast", "bf16"] = (
        "fp32"
    )
    """Format of products; with autocast the weights stay in fp32."""
    compile: bool | None = None
    """Compile model and loss; on a GPU, if left out."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """Several devices: a copy of the model on each, or a part."""
    non_finite: Literal["stop", "skip"] = "stop"
    """Stop at a loss or gradient that is not finite, or skip that step."""

    log_every: int = 1
    """Steps from one line of metrics to the next."""
    eval_every: int = 100
    """Steps from one validation to the next; 0 for none but the last."""
    eval_windows: int = 64
    """Windows of context_length tokens to validate with; 0 for all."""
    sample_prompt: str = ""
    """What the samples at the beginning and the end go on from."""
    sample_tokens: int = 128
    """Tokens of a sample; 0 for none."""
    sample_temperature: float = 0.8
    """What divides their logits: below 1, the likely become likelier."""
    save_every: int = 500
    """Steps from one checkpoint to the next; 0 for none but the last."""
    keep_last: int = 2
    """Checkpoints to keep, besides the best."""
    async_save: bool = True
    """Write checkpoints while training goes on."""
    tensorboard: bool = False
    """Write metrics for TensorBoard too."""

    def __post_init__(self) -> None:
        """Check every field, alone and with others."""
        if not isinstance(self.model, ModelConfig):
            raise ValueError(
                f"model must be a ModelConfig, not {self.model!r:.60}."
            )
        for name in ("data", "validation_data"):
            self._set(name, file_names(name, getattr(self, name)))
        check(bool(self.data), "data", "one file or more", self.data)
        for name in ("tokenizer", "sample_prompt", "device"):
            check(
                isinstance(getattr(self, name), str),
                name,
                "text",
                getattr(self, name),
            )
        if self.init_from is not None:
            holds = isinstance(self.init_from, str)
            check(holds, "init_from", "the name of a folder", self.init_from)
            check_unicode("init_from", self.init_from)
        for name in ("data", "validation_data"):
            for file in getattr(self, name):
                check_unicode(name, file)
        for name in ("tokenizer", "sample_prompt"):
            check_unicode(name, getattr(self, name))
        self._check_sizes()
        self._check_numbers()
        hints = get_type_hints(type(self))
        for name in ("schedule", "precision", "parallel", "non_finite"):
            choices, value = get_args(hints[name]), getattr(self, name)
            check(value in choices, name, " or ".join(map(repr, choices)), value)
        for name in ("async_save", "tensorboard"):
            check_switch(name, getattr(self, name))
        if self.compile is not None:
            check_switch("compile", self.compile)
        self._check_together()

    # --- what follows from it --------------------------------------------------

    def learning_rate(self, step: int) -> float:
        """The rate of the step that is made after ``step`` others."""
        return self.lr * self._schedule(step)

    def micro_batches(self, world_size: int) -> tuple[int, int]:
        """Windows of a device at a time, and how many times in a step.

        Raises ValueError if the batch cannot be shared out evenly.
        """
        size = self.micro_batch_size
        if size is None:
            size, rest = divmod(self.batch_size, world_size)
            if rest:
                raise ValueError(
                    f"batch_size={self.batch_size} windows cannot be shared evenly "
                    f"by {world_size} devices: choose a multiple of {world_size}."
                )
        times, rest = divmod(self.batch_size, size * world_size)
        if rest or not times:
            raise ValueError(
                f"batch_size={self.batch_size} is no multiple of micro_batch_size "
                f"× devices = {size} × {world_size}: change one of them."
            )
        return size, times

    # --- to and from plain values ----------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, as values of TOML and JSON; None is left out."""
        values = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The config with these fields; a field left out has its default.

        ``model`` is a mapping of its fields, to which ``shape`` adds those of a
        named one, or the name alone. Raises ValueError for a key that is no field.
        """
        names = [field.name for field in fields(cls)]
        for key in values:
            if key not in names:
                raise ValueError(unknown_name("setting", key, names))
        check(
            "model" in values, "model", "given: a shape by name, or its sizes", None
        )
        return cls(**{**values, "model": model_config(values["model"])})

    # --- checks ----------------------------------------------------------------

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the way around a frozen dataclass

    def _check_sizes(self) -> None:
        for name in ("steps", "batch_size", "log_every", "keep_last"):
            self._set(name, check_size(name, getattr(self, name)))
        for name in ("micro_batch_size", "decay_steps"):
            if getattr(self, name) is not None:
                self._set(name, check_size(name, getattr(self, name)))
        if self.warmup_steps is None:  # a part: it fits into any number of steps
            self._set("warmup_steps", self.steps // 20)
        for name in (
            "warmup_steps",
            "seed",
            "eval_every",
            "eval_windows",
            "sample_tokens",
            "save_every",
        ):
            self._set(name, check_count(name, getattr(self, name)))

    def _check_numbers(self) -> None:
        for name in ("lr", "eps"):
            self._set(name, check_positive(name, getattr(self, name)))
        for name in ("weight_decay", "max_norm", "sample_temperature"):
            value = getattr(self, name)
            check(is_nonnegative(value), name, "a finite number from 0 on", value)
            self._set(name, float(value))
        betas = self.betas
        holds = isinstance(betas, list | tuple) and len(betas) == 2
        holds = holds and all(map(is_share, betas))
        check(holds, "betas", "two numbers from 0 to below 1", betas)
        self._set("betas", tuple(map(float, betas)))
        factor = check_number("final_lr_factor", self.final_lr_factor)
        check(0 <= factor <= 1, "final_lr_factor", "from 0 to 1", factor)
        self._set("final_lr_factor", factor)
        check(self.seed < MOST_SEEDS, "seed", "below 2**63", self.seed)
        share = check_number("validation_share", self.validation_share)
        check(0 < share < 1, "validation_share", "above 0 and below 1", share)

    def _check_together(self) -> None:
        if self.schedule == "wsd" and self.decay_steps is None:
            self._set("decay_steps", max(1, self.steps // 5))
        if self.schedule == "cosine" and self.decay_steps is not None:
            raise ValueError(
                "decay_steps belongs to schedule='wsd': leave it out, or choose it."
            )
        self._schedule(0)  # says what does not fit into the steps
        self.micro_batches(1)
        if self.parallel == "fsdp" and self.precision == "fp16-autocast":
            raise ValueError(
                "fp16-autocast scales losses, which fsdp cannot: choose "
                "bf16-autocast, or parallel='ddp'."
            )

    def _schedule(self, step: int) -> float:
        from lmlib.optim.schedules import cosine_schedule, wsd_schedule  # torch

        shared = {
            "warmup_steps": self.warmup_steps,
            "final_factor": self.final_lr_factor,
        }
        if self.schedule == "wsd":
            shared["decay_steps"] = self.decay_steps
            return wsd_schedule(step, self.steps, **shared)
        return cosine_schedule(step, self.steps, **shared)


def model_config(values: object) -> ModelConfig:
    """The model that a name says, or a mapping of fields, ``shape`` among them.

    Fields beside ``shape`` take the place of its own.
    """
    if isinstance(values, ModelConfig):
        return values
    if isinstance(values, str):
        return named_config(values)
    check(isinstance(values, Mapping), "model", "a name or a table", values)
    values = dict(values)
    shape = values.pop("shape", None)
    base = {} if shape is None else named_config(shape).to_dict()
    return ModelConfig.from_dict({**base, **values})


def file_names(name: str, value: object) -> tuple[str, ...]:
    """Return the names of files; one may come without a list around it.

    Raises ValueError for anything else, with the name of the setting.
    """
    value = (value,) if isinstance(value, str) else value
    holds = isinstance(value, list | tuple) and all(
        isinstance(each, str) for each in value
    )
    check(holds, name, "a name of a file, or several", value)
    return tuple(value)
