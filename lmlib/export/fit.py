"""Whether weights are those that a config asks for, by name and by shape."""

import re
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from lmlib.config import ModelConfig
from lmlib.model import TransformerLM

__all__ = ["check_depth", "check_fit", "empty_model"]

_MOST_PARAMETERS = 2**60  # a tensor has fewer than 2**63 bytes
_ADVICE = "Change the config so that it describes the model that they come from."


def empty_model(config: ModelConfig) -> TransformerLM:
    """A model with names and shapes, and no memory for numbers.

    Raises ValueError for more parameters than any memory has addresses for.
    """
    if config.num_parameters > _MOST_PARAMETERS:
        raise ValueError(
            f"The config asks for {config.num_parameters:.3g} parameters, which is "
            f"more than any weights hold. {_ADVICE}"
        )
    with torch.device("meta"):
        return TransformerLM(config)


def check_depth(config: ModelConfig, names: Iterable[str], blocks: str) -> None:
    """ValueError unless there are weights, by name, for as many layers.

    ``blocks`` is what comes before the number of a layer. It is looked at before
    anything is built: what has a billion layers is never ready.
    """
    number = re.compile(rf"{re.escape(blocks)}\.(\d+)\.")
    depth = len({found[1] for name in names if (found := number.match(name))})
    if depth != config.num_layers:
        raise ValueError(
            f"The config asks for num_layers={config.num_layers}, and there are "
            f"weights of {depth}. {_ADVICE}"
        )


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
