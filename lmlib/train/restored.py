"""Whether what was read is a state that a run can go on from.

Files are verified, but anybody can write a whole checkpoint; and what the optimizer
is given, it looks at only in its next step.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lmlib.checks import check, check_number, is_nonnegative

__all__ = ["check_progress", "check_scaler", "load_optimizer"]

_OF_SHAPE = ("exp_avg", "exp_avg_sq")


def load_optimizer(optimizer: torch.optim.AdamW, state: Mapping[str, Any]) -> None:
    """Give the optimizer its moments and rates; all else the config has said.

    Raises ValueError unless there are moments for all parameters, or for none, as
    before the first step.
    """
    own, saved = optimizer.state_dict()["param_groups"], state["param_groups"]
    groups = [
        {**mine, "lr": check_number("lr", other["lr"])}
        for mine, other in zip(own, saved, strict=True)
    ]
    optimizer.load_state_dict({**state, "param_groups": groups})
    _check_moments(optimizer)


def _check_moments(optimizer: torch.optim.AdamW) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, parameter in enumerate(parameters if optimizer.state else []):
        state = optimizer.state.get(parameter)
        shapes = {name: parameter.shape for name in _OF_SHAPE} | {"step": ()}
        found = {
            name: value.shape if isinstance(value, Tensor) else value
            for name, value in dict(state or {}).items()
        }
        check(found == shapes, f"the optimizer's state {number}", shapes, found)


def check_progress(training: Mapping[str, Any], step: int) -> None:
    """ValueError unless it was saved after that step."""
    check(training["step"] == step, "step", step, training["step"])
    seconds = training["seconds"]
    check(is_nonnegative(seconds), "seconds", "a number from 0 on", seconds)


def check_scaler(state: Mapping[str, Any]) -> None:
    """ValueError unless all in the state of a GradScaler are numbers."""
    for name, value in state.items():
        check(is_nonnegative(value), name, "a number from 0 on", value)
