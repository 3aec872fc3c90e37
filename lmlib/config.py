"""The shape of a Transformer: its sizes, its switches, and what they add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, Literal, Self, get_args, get_type_hints

from lmlib.checks import (
    check,
    check_number,
    check_size,
    check_switch,
    unknown_name,
)

__all__ = [
    "MODEL_SHAPES",
    "ModelConfig",
    "ParameterCounts",
    "named_config",
]


@dataclass(frozen=True)
class ModelConfig:
    """One decoder-only Transformer; the defaults of its switches make it a Llama.

    ``num_kv_heads`` left out is ``num_heads``. ``d_ff`` left out is 4·``d_model``
    for a GELU MLP; SwiGLU has a third matrix, so there it is two thirds of that,
    rounded up to a multiple of 64. Both are then stored as numbers, which
    ``dataclasses.replace`` keeps.

    ``bias`` gives one to LayerNorm and to every linear layer but the head; RMSNorm
    never has one. ``tie_embeddings`` makes the token embedding serve as the head.
    ``rope_theta`` counts only with ``position="rope"``.

    Raises ValueError, with what to change, for a size that is no whole number from
    1 on, heads that do not divide, or any value outside its range.
    """

    vocab_size: int
    context_length: int
    d_model: int
    num_layers: int
    num_heads: int
    num_kv_heads: int | None = None
    d_ff: int | None = None
    norm: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    mlp: Literal["gelu", "swiglu"] = "swiglu"
    position: Literal["learned", "rope"] = "rope"
    bias: bool = False
    tie_embeddings: bool = False
    dropout: float = 0.0
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        """Check every field; fill in the two that may be left out."""
        for name in ("vocab_size", "context_length", "d_model", "num_layers"):
            self._set(name, check_size(name, getattr(self, name)))
        self._set("num_heads", check_size("num_heads", self.num_heads))
        self._check_heads()
        d_ff = self._default_d_ff() if self.d_ff is None else self.d_ff
        self._set("d_ff", check_size("d_ff", d_ff))
        for name in ("norm", "mlp", "position"):
            _check_choice(name, getattr(self, name))
        for name in ("bias", "tie_embeddings"):
            check_switch(name, getattr(self, name))
        self._check_numbers()

    @property
    def head_size(self) -> int:
        """Elements of one query, key or value: ``d_model / num_heads``."""
        return self.d_model // self.num_heads

    @property
    def parameter_counts(self) -> ParameterCounts:
        """Number of parameters by component; a tied head counts as none."""
        d_model, layers, biased = self.d_model, self.num_layers, int(self.bias)
        kv_size = self.num_kv_heads * self.head_size
        # query and output, key and value; a bias has the size of the output
        attention = 2 * d_model * (d_model + kv_size)
        attention += biased * 2 * (d_model + kv_size)
        widening = 2 if self.mlp == "swiglu" else 1  # matrices from d_model to d_ff
        mlp = (widening + 1) * d_model * self.d_ff
        mlp += biased * (widening * self.d_ff + d_model)
        norm = d_model * (2 if self.norm == "layernorm" and self.bias else 1)
        embedding = self.vocab_size * d_model
        learned = self.position == "learned"
        return ParameterCounts(
            token_embedding=embedding,
            position_embedding=self.context_length * d_model if learned else 0,
            attention=layers * attention,
            mlp=layers * mlp,
            norms=(2 * layers + 1) * norm,  # two in a block, one before the head
            head=0 if self.tie_embeddings else embedding,
        )

    @property
    def num_parameters(self) -> int:
        """All parameters, embeddings included; tied ones are counted once."""
        return self.parameter_counts.total

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, as plain values that JSON and TOML can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The config with these fields; a field left out has its default.

        Raises ValueError for a key that is no field, and for a missing field.
        """
        names = [field.name for field in fields(cls)]
        for key in values:
            if key not in names:
                raise ValueError(unknown_name("config key", key, names))
        required = [f.name for f in fields(cls) if f.default is MISSING]
        if missing := [name for name in required if name not in values]:
            raise ValueError(
                f"The model config lacks {', '.join(missing)}: add it."
            )
        return cls(**values)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the way around a frozen dataclass

    def _check_heads(self) -> None:
        if self.d_model % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} does not divide "
                f"d_model={self.d_model}: choose a number of heads that does, so "
                "that all are of one size."
            )
        given = self.num_heads if self.num_kv_heads is None else self.num_kv_heads
        self._set("num_kv_heads", check_size("num_kv_heads", given))
        if self.num_heads % self.num_kv_heads:
            some = range(1, min(self.num_heads, 1024) + 1)  # all, of a real model
            fit = ", ".join(str(n) for n in some if self.num_heads % n == 0)
            raise ValueError(
                f"num_kv_heads={self.num_kv_heads} does not divide "
                f"num_heads={self.num_heads}: choose one of {fit}, so that each "
                "serves as many queries as the others."
            )
        if self.position == "rope" and self.head_size % 2:
            raise ValueError(
                f"A head has {self.head_size} elements (d_model={self.d_model} "
                f"over num_heads={self.num_heads}), and rope turns them in pairs: "
                "choose sizes that make it an even number."
            )

    def _default_d_ff(self) -> int:
        if self.mlp == "swiglu":
            return 64 * -(-8 * self.d_model // (3 * 64))  # rounded up
        return 4 * self.d_model

    def _check_numbers(self) -> None:
        for name in ("dropout", "rope_theta", "norm_eps"):
            self._set(name, check_number(name, getattr(self, name)))
        if not 0 <= self.dropout < 1:
            raise ValueError(
                f"dropout is the share that is dropped: it must be at least 0 and "
                f"below 1, not {self.dropout}."
            )
        for name in ("rope_theta", "norm_eps"):
            if getattr(self, name) <= 0:
                raise ValueError(
                    f"{name} must be greater than 0, not {getattr(self, name)}."
                )


@dataclass(frozen=True)
class ParameterCounts:
    """Parameters of a model by component; each counts those of all layers."""

    token_embedding: int
    position_embedding: int
    attention: int
    mlp: int
    norms: int
    head: int

    @property
    def total(self) -> int:
        """The sum of all components."""
        return sum(asdict(self).values())


def named_config(name: str) -> ModelConfig:
    """The config of that name in ``MODEL_SHAPES``; ValueError lists the names."""
    if name not in MODEL_SHAPES:
        raise ValueError(unknown_name("model shape", name, MODEL_SHAPES))
    return MODEL_SHAPES[name]


def _check_choice(name: str, value: object) -> None:
    choices = get_args(get_type_hints(ModelConfig)[name])
    check(value in choices, name, " or ".join(map(repr, choices)), value)


def _gpt2(d_model: int, num_layers: int, num_heads: int) -> ModelConfig:
    """GPT-2 as OpenAI released it, which trained with a dropout of 0.1."""
    return ModelConfig(
        vocab_size=50_257,
        context_length=1024,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        norm="layernorm",
        mlp="gelu",
        position="learned",
        bias=True,
        tie_embeddings=True,
    )


def _llama(d_model: int, num_layers: int, num_heads: int, d_ff: int) -> ModelConfig:
    """Llama 1 (Touvron et al. 2023, Table 2)."""
    return ModelConfig(
        vocab_size=32_000,
        context_length=2048,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        d_ff=d_ff,
        norm_eps=1e-6,
    )


def _llama2(
    d_model: int, num_layers: int, num_heads: int, num_kv_heads: int, d_ff: int
) -> ModelConfig:
    """Llama 2 (Touvron et al. 2023, Table 1)."""
    return ModelConfig(
        vocab_size=32_000,
        context_length=4096,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        d_ff=d_ff,
    )


def _llama3(
    d_model: int, num_layers: int, num_heads: int, d_ff: int
) -> ModelConfig:
    """Llama 3 (Grattafiori et al. 2024, Table 3), before its context grew."""
    return ModelConfig(
        vocab_size=128_256,
        context_length=8192,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=8,
        d_ff=d_ff,
        rope_theta=500_000.0,
    )


MODEL_SHAPES: Mapping[str, ModelConfig] = MappingProxyType(
    {
        # The book's own: one for seconds on a CPU, one for minutes.
        "tiny": ModelConfig(
            vocab_size=1024,
            context_length=64,
            d_model=64,
            num_layers=2,
            num_heads=4,
            num_kv_heads=2,
            tie_embeddings=True,
        ),
        "small": ModelConfig(
            vocab_size=4096,
            context_length=256,
            d_model=256,
            num_layers=4,
            num_heads=8,
            num_kv_heads=4,
            tie_embeddings=True,
        ),
        "gpt2-124m": _gpt2(768, 12, 12),
        "gpt2-355m": _gpt2(1024, 24, 16),
        "gpt2-774m": _gpt2(1280, 36, 20),
        "gpt2-1558m": _gpt2(1600, 48, 25),
        "llama-7b": _llama(4096, 32, 32, 11_008),
        "llama-13b": _llama(5120, 40, 40, 13_824),
        "llama-33b": _llama(6656, 60, 52, 17_920),
        "llama-65b": _llama(8192, 80, 64, 22_016),
        "llama-2-7b": _llama2(4096, 32, 32, 32, 11_008),
        "llama-2-13b": _llama2(5120, 40, 40, 40, 13_824),
        "llama-2-70b": _llama2(8192, 80, 64, 8, 28_672),
        "llama-3-8b": _llama3(4096, 32, 32, 14_336),
        "llama-3-70b": _llama3(8192, 80, 64, 28_672),
        "llama-3-405b": _llama3(16_384, 126, 128, 53_248),
    }
)
"""Shapes of known models, by the names that ``named_config`` takes."""
