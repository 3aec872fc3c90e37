"""lmlib.modes: inside nothing is dropped out, and afterwards each module is in the mode that it was in."""

from contextlib import nullcontext

import pytest
from torch import nn

from lmlib.modes import evaluating


class Noted(nn.Linear):
    """A module that does more than note its mode."""

    def __init__(self):
        super().__init__(1, 1)
        self.calls = []

    def train(self, mode=True):
        self.calls.append(mode)
        return super().train(mode)


def test_each_module_gets_its_own_mode_back():
    noted = Noted()
    model = nn.Sequential(noted, nn.Sequential(nn.Dropout(), nn.Dropout()))
    model[1].eval()
    model[1][1].train()
    modes = [module.training for module in model.modules()]
    assert modes == [True, True, False, False, True]
    for error in (None, ZeroDivisionError):
        with pytest.raises(error) if error else nullcontext(), evaluating(model):
            assert not any(module.training for module in model.modules())
            if error:
                raise error
        assert [module.training for module in model.modules()] == modes
    assert noted.calls == [False, True] * 2


def test_what_is_evaluated_already_is_left_alone():
    model = Noted()
    model.eval()
    model.calls.clear()
    with evaluating(model):
        assert not model.training
    assert (model.training, model.calls) == (False, [])
