"""Settings to start from, by name; fields left out have their defaults."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["PRESETS"]

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # A minute on two CPU cores. Of tokenizers tried with this shape, this many
        # tokens needed the fewest bits for a byte of text.
        "tiny": {
            "model": {
                "vocab_size": 1024,
                "context_length": 64,
                "d_model": 128,
                "num_layers": 4,
                "num_heads": 4,
                "tie_embeddings": True,
            },
            "steps": 800,
            "batch_size": 16,
            "lr": 3e-3,
            "eval_every": 200,
            "eval_windows": 256,
            "save_every": 200,
        },
        # A book or two in an hour on a CPU, or minutes on a GPU.
        "small": {
            "model": "small",
            "steps": 2000,
            "batch_size": 32,
            "lr": 1e-3,
            "eval_every": 200,
            "save_every": 200,
        },
        # For --init-from, whose model it trains on. Few steps at a low rate, which
        # leave most of what the model knows; a few windows at a time, because such
        # models are large.
        "finetune": {
            "steps": 200,
            "batch_size": 32,
            "micro_batch_size": 4,
            "lr": 5e-5,
            "eval_every": 50,
            "save_every": 50,
        },
        # GPT-3 of that size (Brown et al. 2020, table 2.1) with GPT-2's tokenizer:
        # half a million tokens a step, 10 billion in all.
        "gpt2-124m": {
            # as many ids as a GPU multiplies fast with; no dropout, within an epoch
            "model": {"shape": "gpt2-124m", "vocab_size": 50_304},
            "tokenizer": "gpt2",
            "steps": 19_073,
            "batch_size": 512,
            "micro_batch_size": 16,
            "lr": 6e-4,
            "precision": "bf16-autocast",
            "log_every": 10,
            "eval_every": 250,
            "eval_windows": 1024,
            "save_every": 1000,
            "tensorboard": True,
        },
    }
)
"""Settings by the names that ``lmlib train --preset`` takes."""
