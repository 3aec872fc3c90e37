"""Whether weights are those that a config asks for, by name and by shape."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lmlib.config import ModelConfig
from lmlib.model import TransformerLM

__all__ = ["check_fit", "empty_model"]

_ADVICE = "Change the config so that it describes the model that they come from."


def empty_model(config: ModelConfig) -> TransformerLM:
    """A model with names and shapes, and no memory for numbers."""
    with torch.device("meta"):
        return TransformerLM(config)


def check_fit(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """ValueError, which names a weight, unless names and shapes are as expected."""
    for names, problem in [
        (expected.keys() - state.keys(), "lack a weight that the config asks for"),
        (
            state.keys() - expected.keys(),
            "hold a weight that the config has no place for",
        ),
    ]:
        if names:
            raise ValueError(f"The weights {problem}: {min(names)!r}. {_ADVICE}")
    for name, like in expected.items():
        shape, wanted = tuple(state[name].shape), tuple(like.shape)
        if shape != wanted:
            raise ValueError(
                f"The weights do not fit the config: {name!r} has the shape "
                f"{shape}, and the config asks for {wanted}. {_ADVICE}"
            )
