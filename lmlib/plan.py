"""A training run on a napkin: how much work, how long, does it fit, what it costs.

By formula, and without torch. Memory is what every parameter brings along and, for
a shape with a batch, what a training step saves and works with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from lmlib.checks import check, check_number, check_switch, is_number
from lmlib.config import ModelConfig, named_config
from lmlib.flops import estimated_step_flops, step_flops, working_parameters
from lmlib.hardware.accelerators import Accelerator, get_accelerator, peak_key
from lmlib.memory import (
    RECIPES,
    Activations,
    Ledger,
    StepMemory,
    largest_sharded_model,
    ledger,
    sharded_ledger,
    step_memory,
)

__all__ = ["RecipeFit", "TrainingPlan"]

HOUR = 60 * 60
FULL_PRECISION = ("fp64", "fp32", "tf32")  # fp32 in memory, whatever multiplies
LARGEST_COUNT = 1e30  # beyond any run, and far from where floats overflow


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A training run in numbers; what cannot be told from those given is None.

    The model is given by ``params``, its number of parameters, or by ``shape``, a
    config or a name in ``MODEL_SHAPES``. ``device`` is one of ``ACCELERATORS``, or
    its name, and ``devices`` is how many share the work. Their speed is ``mfu``
    times the dense peak of ``dtype``. ``recipe`` is one of ``RECIPES``, and
    ``zero_stage`` says which of its bytes the devices share. ``price_per_hour`` is
    that of one device, in any currency. Counts may be floats such as ``15e12`` if
    they are whole.

    With ``batch_size``, the sequences of a device in a step, and a shape, memory
    has activations in it: those of ``step_memory``, which ``attention`` and
    ``checkpointing`` are for. ``seq_len`` left out is the shape's context length.

    Raises ValueError, with what to change, for a value out of its range, an unknown
    name, both ``params`` and ``shape``, or neither a model nor a device.
    """

    params: int | None = None
    shape: ModelConfig | None = None
    tokens: int | None = None
    device: Accelerator | None = None
    devices: int = 1
    mfu: float = 0.5
    dtype: str = "bf16"
    recipe: str = "bf16-master"
    zero_stage: int = 3
    batch_size: int | None = None
    seq_len: int | None = None
    attention: str = "fused"
    checkpointing: bool = False
    price_per_hour: float | None = None

    def __post_init__(self) -> None:
        """Check what is given; look up what is given by name."""
        if not isinstance(self.shape, ModelConfig | None):
            self._set("shape", named_config(str(self.shape)))
        if not isinstance(self.device, Accelerator | None):
            self._set("device", get_accelerator(str(self.device)))
        self._set("dtype", peak_key(self.dtype))
        self._check_parts()
        for name in ("params", "tokens", "batch_size", "seq_len"):
            if getattr(self, name) is not None:
                self._set(name, _count(name, getattr(self, name)))
        self._set("devices", _count("devices", self.devices))
        if self.shape is not None:
            _count("context_length", self.shape.context_length)
        if self.num_parameters is not None:
            _count("the number of parameters", self.num_parameters)
        self._check_rates()
        self._check_memory()

    # --- work, in FLOPs -----------------------------------------------------------

    @property
    def num_parameters(self) -> int | None:
        """Parameters of the model, those of its embeddings included."""
        return self.params if self.shape is None else self.shape.num_parameters

    @property
    def sequence_length(self) -> int | None:
        """Tokens of a sequence: as many as given, or the shape's context length."""
        return self.seq_len or (self.shape and self.shape.context_length)

    @property
    def flops_per_token(self) -> int | None:
        """Forward and backward: 6·N, or exact for a shape and its sequences."""
        if self.shape is not None:
            length = self.sequence_length
            return step_flops(self.shape, 1, length).total // length
        return None if self.params is None else 6 * self.params

    @property
    def estimated_flops_per_token(self) -> int | None:
        """The same of a shape by the estimate 6·N + 12·L·H·K·T."""
        if self.shape is None:
            return None
        return estimated_step_flops(self.shape, 1, self.sequence_length)

    @property
    def flops(self) -> int | None:
        """FLOPs of the whole run."""
        if self.tokens is None or self.flops_per_token is None:
            return None
        return self.tokens * self.flops_per_token

    # --- time and money -----------------------------------------------------------

    @property
    def seconds(self) -> float | None:
        """Seconds that the run takes."""
        if self.flops is None or self.device is None:
            return None
        peak = self.device.peak(self.dtype).value
        return self.flops / (self.devices * peak * self.mfu)

    @property
    def device_seconds(self) -> float | None:
        """Seconds of all devices together, which is what is paid for."""
        return None if self.seconds is None else self.devices * self.seconds

    @property
    def cost(self) -> float | None:
        """Price of the run, in the currency of the price per hour."""
        if self.device_seconds is None or self.price_per_hour is None:
            return None
        return self.device_seconds / HOUR * self.price_per_hour

    # --- memory, in bytes ---------------------------------------------------------

    @property
    def memory(self) -> Ledger | None:
        """Bytes of the whole model by component, activations apart."""
        if self.num_parameters is None:
            return None
        return ledger(self.num_parameters, self.recipe)

    @property
    def memory_per_device(self) -> Ledger | None:
        """The same for the device that has most."""
        return self._memory_per_device(self.recipe)

    @property
    def precision(self) -> str:
        """What a step computes in, by recipe and dtype; see ``step_memory``."""
        return self._precision(self.recipe)

    @property
    def step_memory(self) -> StepMemory | None:
        """Bytes of the activations on each device, and of what works with them."""
        return self._step_memory(self.recipe)

    @property
    def bytes_per_device(self) -> int | None:
        """All of this for the device that has most; its peak, if at one time."""
        return self._bytes_per_device(self.recipe)

    @property
    def fits(self) -> bool | None:
        """Whether each device holds its bytes, activations only with a batch."""
        return self._fit(self.recipe).fits

    @property
    def largest_model(self) -> int | None:
        """Parameters of the largest model by the recipe, before activations."""
        return self._fit(self.recipe).largest_model

    @property
    def fits_by_recipe(self) -> dict[str, RecipeFit]:
        """What each of ``RECIPES`` would need, and the largest model by it."""
        return {recipe: self._fit(recipe) for recipe in RECIPES}

    # --- reports ------------------------------------------------------------------

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the answers rest on, each a sentence or two."""
        return tuple(_assumptions(self))

    def as_dict(self) -> dict[str, Any]:
        """Return what is given and what follows, ready for JSON.

        In bytes, FLOPs and seconds; the price is that of an hour of one device.
        """
        return {
            "parameters": self.num_parameters,
            "shape": self.shape and self.shape.to_dict(),
            "tokens": self.tokens,
            "device": self.device and self._device_facts(),
            "devices": self.devices,
            "mfu": self.mfu,
            "dtype": self.dtype,
            "recipe": self.recipe,
            "zero_stage": self.zero_stage,
            "batch_size": self.batch_size,
            "seq_len": self.sequence_length,
            "attention": self.attention,
            "checkpointing": self.checkpointing,
            "precision": self.precision,
            "price_per_device_hour": self.price_per_hour,
            "flops_per_token": self.flops_per_token,
            "estimated_flops_per_token": self.estimated_flops_per_token,
            "flops": self.flops,
            "seconds": self.seconds,
            "device_seconds": self.device_seconds,
            "cost": self.cost,
            "memory": self.memory and _with_total(self.memory),
            "memory_per_device": self.memory
            and _with_total(self.memory_per_device),
            "step_memory_per_device": self.step_memory and self._step_facts(),
            "bytes_per_device": self.bytes_per_device,
            "fits": self.fits,
            "largest_model": self.largest_model,
            "recipes": {
                name: asdict(fit) for name, fit in self.fits_by_recipe.items()
            },
            "assumptions": list(self.assumptions),
        }

    # --- parts of the above -------------------------------------------------------

    def _memory_per_device(self, recipe: str) -> Ledger | None:
        if self.num_parameters is None:
            return None
        return sharded_ledger(
            self.num_parameters, recipe, self.devices, self.zero_stage
        )

    def _precision(self, recipe: str) -> str:
        """A model in bf16 computes in it; one in fp32 does, or autocast does."""
        if recipe != "fp32":
            return "bf16"
        return "fp32" if self.dtype in FULL_PRECISION else "bf16-autocast"

    def _step_memory(self, recipe: str) -> StepMemory | None:
        if self.batch_size is None:
            return None
        return step_memory(
            self.shape,
            self.batch_size,
            self.seq_len,
            attention=self.attention,
            precision=self._precision(recipe),
            checkpointing=self.checkpointing,
        )

    def _bytes_per_device(self, recipe: str) -> int | None:
        kept = self._memory_per_device(recipe)
        step = self._step_memory(recipe)
        return kept and kept.total + (step.total if step else 0)

    def _fit(self, recipe: str) -> RecipeFit:
        n, device = self.num_parameters, self.device
        needed = self._bytes_per_device(recipe)
        fits = largest = None
        if device is not None:
            fits = None if needed is None else needed <= device.memory_bytes
            largest = largest_sharded_model(
                device.memory_bytes, recipe, self.devices, self.zero_stage
            )
        return RecipeFit(
            bytes_per_parameter=RECIPES[recipe].total,
            memory=None if n is None else n * RECIPES[recipe].total,
            bytes_per_device=needed,
            fits=fits,
            largest_model=largest,
        )

    def _step_facts(self) -> dict[str, Any]:
        step = self.step_memory
        return {
            "activations": _with_total(step.activations),
            "working": step.working,
            "total": step.total,
        }

    def _device_facts(self) -> dict[str, Any]:
        peaks = self.device.peak_flops
        return {
            "key": self.device.key,
            "name": self.device.name,
            "memory": self.device.memory_bytes,
            "peak_flops_per_second": peaks.get(self.dtype),
            "source": self.device.source,
        }

    def _check_parts(self) -> None:
        if self.params is not None and self.shape is not None:
            raise ValueError(
                "params and a shape both say how large the model is: give one."
            )
        if self.params is None and self.shape is None and self.device is None:
            raise ValueError(
                "There is nothing to plan: give params or a shape for the model, "
                "or a device for the largest model that fits."
            )

    def _check_rates(self) -> None:
        self._set("mfu", check_number("mfu", self.mfu))
        if not 1 / LARGEST_COUNT <= self.mfu <= 1:
            raise ValueError(
                "mfu is the share of the peak that is reached: it must be above 0 "
                f"and at most 1, such as 0.4, not {self.mfu}."
            )
        if self.price_per_hour is not None:
            price = check_number("price_per_hour", self.price_per_hour)
            self._set("price_per_hour", price)
            if price < 0:
                raise ValueError(f"price_per_hour must not be negative: {price}.")
            if price > LARGEST_COUNT:
                raise ValueError(
                    f"price_per_hour must be at most {LARGEST_COUNT:.0e}: {price}."
                )
        if self.device is not None and self.flops is not None:
            self.device.peak(self.dtype)  # which raises if it is not known

    def _check_memory(self) -> None:
        for name in ("batch_size", "seq_len"):
            if self.shape is None and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} needs a shape: how many parameters there are does not "
                    "tell what a step saves."
                )
        # Both raise for what is not known, the second with any shape.
        sharded_ledger(0, self.recipe, self.devices, self.zero_stage)
        check_switch("checkpointing", self.checkpointing)
        self._set("zero_stage", int(self.zero_stage))
        shape = self.shape or named_config("tiny")
        step_memory(shape, 1, self.seq_len, attention=self.attention)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the way around a frozen dataclass


@dataclass(frozen=True)
class RecipeFit:
    """What a recipe asks of the devices: bytes, and the most parameters it allows.

    ``memory`` is of the whole model, and ``largest_model`` is before activations;
    the other two include them where there is a batch. What cannot be told is None.
    """

    bytes_per_parameter: int
    memory: int | None
    bytes_per_device: int | None
    fits: bool | None
    largest_model: int | None


def _assumptions(plan: TrainingPlan) -> Iterator[str]:
    if plan.shape is not None:
        again = "and nothing is computed twice"
        if plan.checkpointing:
            again = "and what checkpointing computes twice counts once"
        yield (
            "FLOPs are those of the matrix products, forward and backward, in "
            f"sequences of {plan.sequence_length:,} tokens. Attention is not "
            f"halved for its causal mask, {again}."
        )
        yield (
            f"N is {working_parameters(plan.shape):,}, the parameters that a token "
            "is multiplied with: those that are only looked up are not among them. "
            "L blocks of H heads of K elements attend over T tokens."
        )
    elif plan.params is not None:
        yield (
            "A token costs 6 FLOPs for each parameter: 2 forward, 4 backward. "
            "Attention comes on top, and is not counted."
        )
    if plan.seconds is not None:
        peak = plan.device.peak(plan.dtype)
        yield (
            f"A device reaches {plan.mfu:g} of its dense {plan.dtype} peak, which "
            f"is {peak.value / 1e12:g} TFLOP/s ({peak.source}). Failures, "
            "evaluation and checkpoints take no time beyond that."
        )
    if plan.cost is not None:
        yield "Devices are paid for while they train, and not otherwise."
    recipe = RECIPES[plan.recipe]
    yield (
        f"Trained with AdamW by the recipe {plan.recipe}, a parameter takes "
        f"{recipe.total} bytes: {recipe.parameters} for itself, {recipe.gradients} "
        f"for its gradient, {recipe.optimizer_state} for two moments and "
        f"{recipe.master_weights} for a master copy."
    )
    yield from _memory_assumptions(plan)
    if plan.device is not None:
        gigabytes = plan.device.memory_bytes / 1e9
        yield (
            f"A device has {gigabytes:g} GB of memory ({plan.device.source}), all "
            "of it free. A GB is 10⁹ bytes."
        )


def _memory_assumptions(plan: TrainingPlan) -> Iterator[str]:
    if plan.batch_size is None:
        yield (
            "Activations are NOT included in the memory, nor are buffers and "
            "fragmentation: what just fits here does not train."
        )
    else:
        block = "a block that runs again, or " if plan.checkpointing else ""
        yield (
            f"A step has {plan.batch_size:,} × {plan.sequence_length:,} tokens on "
            f"each device, in {plan.precision} with {plan.attention} attention and "
            f"without torch.compile. It works with {block}the logits and two "
            "gradients of their size. All is counted as if there at one time; "
            "buffers, fragmentation and what an operation needs while it runs come "
            "on top."
        )
    if plan.checkpointing:
        yield (
            "Each block keeps only its input, and runs forward again in backward, "
            "which the MFU has to allow for."
        )
    if plan.devices > 1:
        yield SHARED_BY_STAGE[plan.zero_stage]


SHARED_BY_STAGE = (
    "Each device holds all parameters, gradients and optimizer state.",
    "Optimizer state and master copies are split evenly over the devices; each "
    "holds all parameters and gradients (ZeRO stage 1).",
    "Gradients, optimizer state and master copies are split evenly over the "
    "devices; each holds all parameters (ZeRO stage 2).",
    "Parameters, gradients and optimizer state are split evenly over the devices, "
    "and none is kept twice (ZeRO stage 3); what is gathered to compute a layer "
    "comes on top.",
)


def _with_total(bytes_by_component: Ledger | Activations) -> dict[str, int]:
    return {**asdict(bytes_by_component), "total": bytes_by_component.total}


def _count(name: str, value: object) -> int:
    """``value`` as an int, from 1 on; a whole float such as 15e12 will do."""
    is_count = is_number(value) and 1 <= value <= LARGEST_COUNT
    wanted = f"a whole number from 1 to {LARGEST_COUNT:.0e}, such as 64 or 15e12"
    check(is_count and value == int(value), name, wanted, value)
    return int(value)
