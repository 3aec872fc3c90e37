"""What the GPU benchmark computes with: the shapes at full size, and tiny ones to try its path on a CPU."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lmlib.config import ModelConfig, named_config
from lmlib.memory import ledger, step_memory

PRECISION = "bf16-autocast"
GPT2_PARTS = {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True, "tie_embeddings": True}
SHARE_OF_FREE_MEMORY = 0.9  # that a step may ask for by formula: what is left is the allocator's


@dataclass(frozen=True)
class Timed:
    """A model whose steps are timed, and the windows of a step where the memory allows them."""

    config: ModelConfig
    batch_size: int


@dataclass(frozen=True)
class Scale:
    """How large everything is; ``rows`` of ``steps`` are timed, and their median counts."""

    name: str
    compared: Mapping[str, ModelConfig]  # the device against the CPU, a broken run against a whole one
    remembered: Mapping[str, ModelConfig]  # the bytes of a step against the formula
    batch_size: int  # of both
    timed: Mapping[str, Timed]
    rows: int
    steps: int
    compiles: bool


def _both(**sizes: int) -> dict[str, ModelConfig]:
    return {"GPT-2": ModelConfig(**sizes, **GPT2_PARTS), "Llama": ModelConfig(**sizes)}


FULL = Scale(
    name="full",
    compared=_both(vocab_size=512, context_length=256, d_model=128, num_layers=2, num_heads=4),
    # powers of two, of which the allocator's large blocks hold whole numbers
    remembered=_both(vocab_size=2**15, context_length=512, d_model=1024, num_layers=4, num_heads=16, d_ff=4096),
    batch_size=4,
    timed={
        "GPT-2 124M": Timed(replace(named_config("gpt2-124m"), vocab_size=50_304), batch_size=32),
        "Llama 1.3B": Timed(
            ModelConfig(vocab_size=32_000, context_length=2048, d_model=2048, num_layers=24, num_heads=16, d_ff=5504),
            batch_size=8,
        ),
    },
    rows=5,
    steps=5,
    compiles=True,
)

_TINY = _both(vocab_size=256, context_length=32, d_model=64, num_layers=2, num_heads=4)
TINY = Scale(
    name="tiny",
    compared=_TINY,
    remembered=_TINY,
    batch_size=2,
    timed={name: Timed(config, batch_size=4) for name, config in _TINY.items()},
    rows=1,
    steps=3,
    compiles=False,
)


def step_bytes(config: ModelConfig, batch_size: int) -> int:
    """Return the bytes of training with AdamW by formula: what each parameter brings along, and a step in eager mode.

    What is compiled keeps less.
    """
    step = step_memory(config, batch_size, precision=PRECISION)
    return ledger(config.num_parameters, "fp32").total + step.total


def fitting_batch_size(timed: Timed, free_bytes: float) -> int | None:
    """Return the batch size, halved until its step fits into the free memory; None if one window does not."""
    batch_size = timed.batch_size
    while batch_size and step_bytes(timed.config, batch_size) > SHARE_OF_FREE_MEMORY * free_bytes:
        batch_size //= 2
    return batch_size or None
