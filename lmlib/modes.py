"""Evaluating a model in between, and leaving its modules as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["evaluating"]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Drop nothing out inside; afterwards each module is in its own mode again.

    Some may be in training and others not, as where a part is frozen.
    """
    in_training = {module for module in model.modules() if module.training}
    if not in_training:
        yield
        return
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)  # modules may do more than note it
        for module in model.modules():
            module.training = module in in_training
