"""lmlib.memory.kv_cache: the bytes by formula are those of the tensors."""

from contextlib import nullcontext

import pytest
import torch

from lmlib.config import ModelConfig, named_config
from lmlib.kv_cache import KVCache
from lmlib.memory import kv_cache_bytes
from lmlib.model import TransformerLM

CONFIG = ModelConfig(vocab_size=50, context_length=16, d_model=24, num_layers=3, num_heads=6, num_kv_heads=2)


@pytest.mark.parametrize("precision", ["fp32", "bf16-autocast", "bf16"])
@pytest.mark.parametrize("position", ["rope", "learned"])
def test_the_formula_is_what_a_cache_takes(precision, position):
    config = ModelConfig(**(CONFIG.to_dict() | {"position": position}))
    model = TransformerLM(config).eval()
    if precision == "bf16":
        model.bfloat16()
    autocast = precision == "bf16-autocast"
    for batch_size, capacity in [(1, None), (3, 7)]:
        cache = KVCache(config, batch_size, capacity)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
            model(torch.zeros(batch_size, 2, dtype=torch.long), cache)
        assert cache.nbytes == kv_cache_bytes(config, batch_size, capacity, precision=precision) > 0


def test_known_shapes():
    """GPT-2: 12 layers of 1024 keys and values of 768 elements."""
    assert kv_cache_bytes(named_config("gpt2-124m"), precision="bf16") == 2 * 12 * 1024 * 768 * 2
    assert kv_cache_bytes(CONFIG, 5, 4) == 2 * 3 * 5 * 4 * (2 * 4) * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number from 1 on"),
        ({"num_tokens": 1.5}, "num_tokens must be a whole number from 1 on"),
        ({"num_tokens": 17}, "num_tokens is 17, beyond the context_length of 16: a cache ends there"),
        ({"precision": "fp8"}, "precision must be one of fp32, bf16-autocast, bf16, not 'fp8'"),
    ],
)
def test_what_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        kv_cache_bytes(CONFIG, **arguments)
