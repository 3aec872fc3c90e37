"""Small data, models and runs for the tests of training."""

from pathlib import Path

import numpy as np
import torch

from lmlib.config import ModelConfig
from lmlib.data import TokenFile
from lmlib.distributed import World
from lmlib.train import Dataset, TrainConfig, Trainer, read_metrics
from lmlib.train.dataset import byte_tokenizer

CPU = World(torch.device("cpu"))
TOKENIZER = byte_tokenizer()  # 257 ids
MODEL = ModelConfig(257, 8, 16, num_layers=2, num_heads=2, dropout=0.1)
TIMES = {"seconds", "tokens_per_second", "mfu", "memory_bytes"}  # differ from run to run


def tokens(count, seed=0, vocab_size=257):
    """Random ids."""
    ids = np.random.default_rng(seed).integers(vocab_size, size=count).astype("<u2")
    return TokenFile(Path("random"), ids, vocab_size)


DATA = Dataset(tokens(1000), tokens(300, seed=1), TOKENIZER)


def config(**changes):
    """Six steps of two batches each, a checkpoint in the middle."""
    settings = {
        "model": MODEL,
        "steps": 6,
        "batch_size": 4,
        "micro_batch_size": 2,
        "eval_every": 2,
        "eval_windows": 5,
        "save_every": 3,
        "sample_tokens": 8,
        "device": "cpu",
    }
    return TrainConfig(**{**settings, **changes})


def trainer(folder, *, world=None, resume=None, data=DATA, **changes):
    """A trainer of such a run."""
    return Trainer(config(**changes), data, folder, world=world, resume=resume, quiet=True)


def curve(folder):
    """The metrics of a run, without what a clock says."""
    records = read_metrics(Path(folder) / "metrics.jsonl")
    return [{k: v for k, v in record.items() if k not in TIMES} for record in records]


def state(trainer):
    """Weights and optimizer state as nested lists: equal only if they are so to the bit."""
    from lmlib.distributed import whole

    def listed(value):
        if isinstance(value, torch.Tensor):
            return whole(value).tolist()
        if isinstance(value, dict):
            return {key: listed(each) for key, each in value.items()}
        return [listed(each) for each in value] if isinstance(value, list | tuple) else value

    return listed({"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()})
