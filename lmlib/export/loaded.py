"""A model that was read from files, and the tokenizer beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lmlib.bpe import Tokenizer
from lmlib.config import ModelConfig
from lmlib.export.files import DTYPES, TOKENIZER
from lmlib.export.fit import check_depth, check_fit, empty_model
from lmlib.model import TransformerLM

__all__ = ["Loaded", "build_model", "read_tokenizer"]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What a folder held; if ``tokenizer`` is None, ``no_tokenizer`` says why."""

    model: TransformerLM
    tokenizer: Tokenizer | None
    no_tokenizer: str | None

    @property
    def config(self) -> ModelConfig:
        """The config of the model."""
        return self.model.config


def build_model(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    dtype: torch.dtype | None = None,
) -> TransformerLM:
    """A model around these weights, ready to evaluate, in their dtype if None.

    They are copied, once: what was read may be a view of a file, which somebody
    else could change.

    Raises ValueError if they are not those of the config, or not in fp32, bf16 or
    fp16.
    """
    check_depth(config, weights, "blocks")
    model = empty_model(config)
    check_fit(weights, model.state_dict())
    for name, weight in weights.items():
        if weight.dtype not in DTYPES:
            raise ValueError(
                f"{name!r} is {weight.dtype}: only weights in fp32, bf16 or fp16 "
                "can be read."
            )
    copies = {
        name: weight.to(
            dtype or weight.dtype, copy=True, memory_format=torch.contiguous_format
        )
        for name, weight in weights.items()
    }
    model.load_state_dict(copies, assign=True)
    return model.eval()


def read_tokenizer(folder: Path) -> tuple[Tokenizer | None, str | None]:
    """The tokenizer in a folder, or the reason that there is none."""
    try:
        return Tokenizer.from_pretrained(folder / TOKENIZER), None
    except FileNotFoundError:
        return None, f"there is no {TOKENIZER}"
    except ValueError as error:
        return None, str(error)
