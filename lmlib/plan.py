"""A training run on a napkin: how much work, how long, does it fit, what it costs.

By formula, and without torch. Memory is what every parameter brings along; that of
the activations is not in it yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

from lmlib.config import ModelConfig, named_config
from lmlib.flops import estimated_step_flops, step_flops
from lmlib.hardware.accelerators import Accelerator, get_accelerator, peak_key
from lmlib.memory import RECIPES, Ledger, ledger

__all__ = ["RecipeFit", "TrainingPlan"]

HOUR = 60 * 60
LARGEST_COUNT = 1e30  # beyond any run, and far from where floats overflow


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A training run in numbers; what cannot be told from those given is None.

    The model is given by ``params``, its number of parameters, or by ``shape``, a
    config or a name in ``MODEL_SHAPES``. ``device`` is one of ``ACCELERATORS``, or
    its name, and ``devices`` is how many share the work. Their speed is ``mfu``
    times the dense peak of ``dtype``. ``recipe`` is one of ``RECIPES``;
    ``price_per_hour`` is that of one device, in any currency. Counts may be floats
    such as ``15e12`` if they are whole.

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
    price_per_hour: float | None = None

    def __post_init__(self) -> None:
        """Check what is given; look up what is given by name."""
        if not isinstance(self.shape, ModelConfig | None):
            self._set("shape", named_config(str(self.shape)))
        if not isinstance(self.device, Accelerator | None):
            self._set("device", get_accelerator(str(self.device)))
        self._set("dtype", peak_key(self.dtype))
        self._check_parts()
        for name in ("params", "tokens"):
            if getattr(self, name) is not None:
                self._set(name, _count(name, getattr(self, name)))
        self._set("devices", _count("devices", self.devices))
        if self.num_parameters is not None:
            _count("the number of parameters", self.num_parameters)
        self._check_rates()
        ledger(0, self.recipe)  # which raises for one that is not known

    # --- work, in FLOPs -----------------------------------------------------------

    @property
    def num_parameters(self) -> int | None:
        """Parameters of the model, those of its embeddings included."""
        return self.params if self.shape is None else self.shape.num_parameters

    @property
    def flops_per_token(self) -> int | None:
        """Forward and backward: 6·N, or exact for a shape at its context length."""
        if self.shape is not None:
            return step_flops(self.shape).total // self.shape.context_length
        return None if self.params is None else 6 * self.params

    @property
    def estimated_flops_per_token(self) -> int | None:
        """The same of a shape by the estimate 6·N + 12·L·H·K·T."""
        return None if self.shape is None else estimated_step_flops(self.shape, 1)

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
        """The same for the device that has most, if all share evenly."""
        if self.num_parameters is None:
            return None
        return ledger(self._parameters_per_device, self.recipe)

    @property
    def fits(self) -> bool | None:
        """Whether the devices hold the model, activations apart."""
        return self._fit(self.recipe).fits

    @property
    def largest_model(self) -> int | None:
        """Parameters of the largest model that the devices hold by the recipe."""
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
            "fits": self.fits,
            "largest_model": self.largest_model,
            "recipes": {
                name: asdict(fit) for name, fit in self.fits_by_recipe.items()
            },
            "assumptions": list(self.assumptions),
        }

    # --- parts of the above -------------------------------------------------------

    @property
    def _parameters_per_device(self) -> int:
        return -(-self.num_parameters // self.devices)  # rounded up

    def _fit(self, recipe: str) -> RecipeFit:
        bytes_each = RECIPES[recipe].total
        n, device = self.num_parameters, self.device
        largest = None
        if device is not None:
            largest = self.devices * (device.memory_bytes // bytes_each)
        return RecipeFit(
            bytes_per_parameter=bytes_each,
            memory=None if n is None else n * bytes_each,
            fits=None if n is None or largest is None else n <= largest,
            largest_model=largest,
        )

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
        self._set("mfu", _number("mfu", self.mfu))
        if not 0 < self.mfu <= 1:
            raise ValueError(
                "mfu is the share of the peak that is reached: it must be above 0 "
                f"and at most 1, such as 0.4, not {self.mfu}."
            )
        if self.price_per_hour is not None:
            price = _number("price_per_hour", self.price_per_hour)
            self._set("price_per_hour", price)
            if price < 0:
                raise ValueError(f"price_per_hour must not be negative: {price}.")
        if self.device is not None and self.flops is not None:
            self.device.peak(self.dtype)  # which raises if it is not known

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the way around a frozen dataclass


@dataclass(frozen=True)
class RecipeFit:
    """What a recipe asks of the devices: bytes, and the most parameters it allows.

    ``memory`` is of the whole model. What cannot be told is None.
    """

    bytes_per_parameter: int
    memory: int | None
    fits: bool | None
    largest_model: int | None


def _assumptions(plan: TrainingPlan) -> Iterator[str]:
    if plan.shape is not None:
        yield (
            "FLOPs are those of the matrix products, forward and backward, in "
            f"sequences of {plan.shape.context_length:,} tokens. Attention is not "
            "halved for its causal mask, and nothing is computed twice."
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
    yield (
        "Activations are NOT included in the memory, nor are buffers and "
        "fragmentation: what just fits here does not train."
    )
    if plan.devices > 1:
        yield (
            "Parameters, gradients and optimizer state are split evenly over the "
            "devices, and none is kept twice."
        )
    if plan.device is not None:
        gigabytes = plan.device.memory_bytes / 1e9
        yield (
            f"A device has {gigabytes:g} GB of memory ({plan.device.source}), all "
            "of it free. A GB is 10⁹ bytes."
        )


def _with_total(bytes_by_component: Ledger) -> dict[str, int]:
    return {**asdict(bytes_by_component), "total": bytes_by_component.total}


def _count(name: str, value: object) -> int:
    """``value`` as an int, from 1 on; a whole float such as 15e12 will do."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not 1 <= value <= LARGEST_COUNT or value != int(value):
        raise ValueError(
            f"{name} must be a whole number from 1 to {LARGEST_COUNT:.0e}, such as "
            f"64 or 15e12, not {value!r}."
        )
    return int(value)


def _number(name: str, value: object) -> float:
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, not {value!r}.")
    return float(value)
