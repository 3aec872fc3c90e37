"""``lmlib plan``."""

import textwrap
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from cyclopts import App, Group, Parameter

from lmlib.cli.files import Json, print_json
from lmlib.cli.numbers import Number, number
from lmlib.config import MODEL_SHAPES, ModelConfig, named_config
from lmlib.hardware.accelerators import ACCELERATORS
from lmlib.memory import RECIPES
from lmlib.memory.activations import ATTENTIONS
from lmlib.plan import HOUR, TrainingPlan

__all__ = ["EXAMPLES", "USAGE", "PlanOptions", "ShapeOptions", "app", "plan"]

USAGE = "Usage: lmlib plan [OPTIONS]"

NOTES = """Every option may be left out, and with it what depends on it: without
tokens there is no time, without a device neither time nor an answer whether it
fits, and without a model there is the largest one that does. The assumptions
are printed with the answer. GB are 10⁹ bytes; JSON has bytes, FLOPs, seconds.
"""

EXAMPLES = """Examples:

  lmlib plan --params 70e9 --tokens 15e12 --device h100 --devices 1024 --mfu 0.5

  lmlib plan --device h100 --devices 8 --recipe bf16-master

  lmlib plan --shape gpt2-124m --tokens 10e9 --device h100 --price-per-hour 2.5

  lmlib plan --shape llama-3-8b --context-length 32768 --json

  lmlib plan --shape gpt2-1558m --device h100 --batch-size 8 --checkpointing
"""

WIDTH = 80
DAY = 24 * HOUR
NEARLY = 0.99995  # of the next unit: four digits round it up to 1


Count = Annotated[int, Parameter(converter=number)]

SHAPE = Group(
    "Shape",
    help="The sizes of a model: all of them, or those that differ from --shape. "
    "Switches left out are those of --shape, or else of a Llama.",
)


@dataclass(frozen=True, kw_only=True)
class ShapeOptions:
    """Fields of ``ModelConfig``; those that are None are not given."""

    vocab_size: Count | None = None
    """Tokens in the vocabulary."""
    context_length: Count | None = None
    """Tokens in a training sequence."""
    d_model: Count | None = None
    """Elements of the vector that stands for a token."""
    num_layers: Count | None = None
    """Transformer blocks."""
    num_heads: Count | None = None
    """Attention heads."""
    num_kv_heads: Count | None = None
    """Heads of keys and values, if fewer."""
    d_ff: Count | None = None
    """Elements inside the MLP."""
    norm: Literal["layernorm", "rmsnorm"] | None = None
    """Normalisation."""
    mlp: Literal["gelu", "swiglu"] | None = None
    """MLP; swiglu has three matrices, gelu two."""
    position: Literal["learned", "rope"] | None = None
    """Positions; rope has no parameters."""
    bias: Annotated[
        bool | None,
        Parameter(
            negative="--no-bias",
            help="Biases in linear layers and LayerNorm, or none.",
        ),
    ] = None
    tie_embeddings: Annotated[
        bool | None,
        Parameter(
            negative="--no-tie-embeddings",
            help="One matrix as embedding and head, or two.",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return those that are given."""
        return {k: v for k, v in asdict(self).items() if v is not None}


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Options of ``lmlib plan``."""

    params: Count | None = None
    """Number of parameters, such as 70e9, if there is no shape."""
    shape: Annotated[
        str | None,
        Parameter(help=f"Shape of the model: {', '.join(MODEL_SHAPES)}."),
    ] = None
    tokens: Count | None = None
    """Tokens to train on, such as 15e12."""
    device: Annotated[
        str | None,
        Parameter(
            help="Accelerator to train on: "
            + ", ".join(each.key for each in ACCELERATORS)
            + "; h100 is the one with SXM."
        ),
    ] = None
    devices: Count = 1
    """How many of them."""
    mfu: Number = TrainingPlan.mfu
    """Share of their peak that training reaches."""
    dtype: str = TrainingPlan.dtype
    """Whose peak that is: fp32, tf32, bf16, fp16, fp8."""
    recipe: Annotated[
        str,
        Parameter(
            help="Bytes per parameter: "
            + ", ".join(f"{name} ({each.total})" for name, each in RECIPES.items())
            + "."
        ),
    ] = TrainingPlan.recipe
    zero_stage: Count = TrainingPlan.zero_stage
    """What devices share: optimizer state (1), gradients (2), parameters (3)."""
    batch_size: Count | None = None
    """Sequences of a step on each device, which adds activations to the memory."""
    seq_len: Count | None = None
    """Tokens of a training sequence, if fewer than the context length."""
    attention: Annotated[
        str,
        Parameter(help=f"Backend of attention: {', '.join(ATTENTIONS)}."),
    ] = TrainingPlan.attention
    checkpointing: bool = False
    """Keep only the input of each block, and run it again in backward."""
    price_per_hour: Number | None = None
    """Price of one device for an hour, in any currency."""
    json: Json = False


DEFAULTS = PlanOptions()
NO_SIZES = ShapeOptions()

app = App(name="plan", usage=USAGE, help_epilogue=f"{NOTES}\n{EXAMPLES}")


@app.default
def plan(
    *,
    options: Annotated[PlanOptions, Parameter(name="*")] = DEFAULTS,
    sizes: Annotated[ShapeOptions, Parameter(name="*", group=SHAPE)] = NO_SIZES,
) -> None:
    """Plan a training run: FLOPs, days, memory, whether it fits, cost."""
    given = {name: value for name, value in vars(options).items() if name != "json"}
    given["shape"] = _shape(options.shape, sizes.given())
    answer = TrainingPlan(**given)
    if options.json:
        print_json(answer.as_dict())
    else:
        _print(answer)


def _shape(name: str | None, sizes: dict[str, Any]) -> ModelConfig | None:
    """Return the config of that name with those sizes, or None without both."""
    if name is None and not sizes:
        return None
    base = {} if name is None else named_config(name).to_dict()
    return ModelConfig.from_dict(base | sizes)


# --- for people -----------------------------------------------------------------


def _print(answer: TrainingPlan) -> None:
    _print_question(answer)
    _print_work(answer)
    _print_memory(answer)
    _print_recipes(answer)
    print("\nassumptions")
    for sentence in answer.assumptions:
        print(
            textwrap.fill(
                sentence, WIDTH, initial_indent="  - ", subsequent_indent="    "
            )
        )


def _print_question(answer: TrainingPlan) -> None:
    n, device = answer.num_parameters, answer.device
    if n is not None:
        print(f"model      {_parameters(n)}")
    if answer.tokens is not None:
        print(f"tokens     {_short(answer.tokens)}")
    if device is not None:
        memory = _bytes(device.memory_bytes)
        print(f"devices    {answer.devices:,} × {device.name}, {memory} each")
    elif answer.devices > 1:
        print(f"devices    {answer.devices:,}")


def _print_work(answer: TrainingPlan) -> None:
    if answer.flops_per_token is not None:
        print(f"\nFLOPs      {_scaled(answer.flops_per_token)}FLOPs per token")
    if answer.estimated_flops_per_token is not None:
        ratio = answer.estimated_flops_per_token / answer.flops_per_token
        estimate = _scaled(answer.estimated_flops_per_token)
        print(
            f"           {estimate}FLOPs by 6·N + 12·L·H·K·T, {ratio:.2%} of that"
        )
    if answer.flops is not None:
        print(f"           {answer.flops:.3e} FLOPs in all")
    print(f"time       {_time(answer)}")
    if answer.price_per_hour is not None:
        print(f"cost       {_cost(answer)}")


def _time(answer: TrainingPlan) -> str:
    if answer.seconds is not None:
        hours = _short(answer.device_seconds / HOUR)
        return f"{_duration(answer.seconds)}, {hours} device-hours"
    needed = {
        "--params or --shape": answer.num_parameters,
        "--tokens": answer.tokens,
        "--device": answer.device,
    }
    missing = [option for option, value in needed.items() if value is None]
    return f"needs {', and '.join(missing)}"


def _cost(answer: TrainingPlan) -> str:
    if answer.cost is None:
        return "needs the time"
    return f"{answer.cost:,.2f} at {answer.price_per_hour:g} per device-hour"


def _print_memory(answer: TrainingPlan) -> None:
    if answer.memory is not None:
        print(
            f"\n{'memory':18} {'bytes/param':>11} {'in all':>10} {'per device':>10}"
        )
        for name in [*asdict(answer.memory), "total"]:
            each = getattr(RECIPES[answer.recipe], name)
            whole = _bytes(getattr(answer.memory, name))
            share = _bytes(getattr(answer.memory_per_device, name))
            label = name.replace("_", " ")
            print(f"  {label:16} {each:11} {whole:>10} {share:>10}")
        _print_step(answer)
        print(f"fits       {_fits(answer)}")
    if answer.largest_model is not None:
        before = ", before activations" if answer.step_memory else ""
        largest = _parameters(answer.largest_model)
        print(f"largest    {largest} by this recipe{before}")


def _print_step(answer: TrainingPlan) -> None:
    step = answer.step_memory
    if step is None:
        print("  activations      NOT included")
        return
    tokens = f"{answer.batch_size:,} × {answer.sequence_length:,} tokens"
    print(f"\n{f'activations of {tokens}':41} {'per device':>10}")
    rows = {k: v for k, v in asdict(step.activations).items() if v}
    rows |= {"total": step.activations.total, "at work in backward": step.working}
    for name, nbytes in rows.items():
        print(f"  {name.replace('_', ' '):39} {_bytes(nbytes):>10}")


def _fits(answer: TrainingPlan) -> str:
    if answer.device is None:
        return "needs --device"
    need = _bytes(answer.bytes_per_device)
    have = _bytes(answer.device.memory_bytes)
    before = "" if answer.step_memory else ", before activations"
    verdict = f"yes{before}" if answer.fits else "no"
    return f"{verdict}: {need} of {have} on each device"


def _print_recipes(answer: TrainingPlan) -> None:
    print(
        f"\n{'recipe':28} {'bytes/param':>11} {'in all':>10} {'largest model':>14}"
    )
    for name, fit in answer.fits_by_recipe.items():
        mark = "*" if name == answer.recipe else " "
        whole = "-" if fit.memory is None else _bytes(fit.memory)
        largest = "-" if fit.largest_model is None else _short(fit.largest_model)
        each = fit.bytes_per_parameter
        print(f"{mark} {name:26} {each:11} {whole:>10} {largest:>14}")


def _parameters(number: int) -> str:
    short = f" ({_short(number)})" if number >= 1e6 else ""
    return f"{number:,} parameters{short}"


def _short(number: float) -> str:
    """Return a number as people say it: 70B, 124.4M."""
    for suffix, scale in {"T": 1e12, "B": 1e9, "M": 1e6}.items():
        if number >= NEARLY * scale:
            return f"{_digits(number / scale)}{suffix}"
    return _digits(number)


def _bytes(number: int) -> str:
    return f"{_scaled(number)}B"


def _scaled(number: float) -> str:
    """Return a number with a decimal prefix, the unit to follow."""
    prefixes = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}
    for prefix, scale in prefixes.items():
        if number >= NEARLY * scale:
            return f"{_digits(number / scale)} {prefix}"
    return f"{number} "


def _digits(number: float) -> str:
    """Return a number to four digits, or to the unit where it has more."""
    if number >= 1e6:
        return f"{number:.3e}"
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def _duration(seconds: float) -> str:
    for unit, length in {"days": DAY, "hours": HOUR, "minutes": 60}.items():
        if seconds >= 2 * length:
            return f"{_digits(seconds / length)} {unit}"
    return f"{_digits(seconds)} seconds"
