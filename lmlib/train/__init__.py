"""Training: a config, a trainer, and the rooms of its loop.

``open_dataset`` opens the data that a ``TrainConfig`` names, and ``Trainer`` trains
on them in a folder, from which it can go on. What needs torch loads it when it is
asked for.
"""

from importlib import import_module

from lmlib.train.config import TrainConfig
from lmlib.train.metrics import read_metrics
from lmlib.train.presets import PRESETS

__all__ = [
    "PRESETS",
    "Dataset",
    "NextTokenLoss",
    "NonFiniteError",
    "RunFolder",
    "TrainConfig",
    "Trainer",
    "TrainingResult",
    "evaluate",
    "open_dataset",
    "read_metrics",
    "train_step",
]

_WITH_TORCH = {
    "Dataset": "dataset",
    "NextTokenLoss": "step",
    "NonFiniteError": "trainer",
    "RunFolder": "run_folder",
    "Trainer": "trainer",
    "TrainingResult": "trainer",
    "evaluate": "validation",
    "open_dataset": "dataset",
    "train_step": "step",
}


def __getattr__(name: str) -> object:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
