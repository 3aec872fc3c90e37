"""lmlib.generate with a model that two processes hold in parts: each has the text of the whole."""

import pytest
import torch

from lmlib.config import ModelConfig
from lmlib.distributed import join_world, shard
from lmlib.generate import generate_batch
from lmlib.model import TransformerLM
from tests.ranks import run_ranks

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]

CONFIG = ModelConfig(101, 16, 48, num_layers=2, num_heads=6, num_kv_heads=2)
PROMPTS = [[1, 2, 3], [*range(14)], [*range(20)]]  # one outgrows the context on the way, one has before


def make_model():
    generator = torch.Generator().manual_seed(0)
    model = TransformerLM(CONFIG, generator=generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model


def texts(model, use_cache):
    generators = [torch.Generator().manual_seed(seed) for seed in range(3)]
    return generate_batch(model, PROMPTS, 12, generators=generators, use_cache=use_cache)


def generate_on_two(dtype):
    with join_world("cpu") as world:
        model = make_model()
        model = shard(model, model.blocks, world, dtype)
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            return [texts(model, use_cache) for use_cache in (True, False)]


def test_a_sharded_model_has_the_texts_of_the_whole():
    whole = texts(make_model(), use_cache=True)
    assert run_ranks(generate_on_two, None) == [[whole, whole]] * 2


def test_a_sharded_model_in_bf16():
    (cached, uncached), other = run_ranks(generate_on_two, torch.bfloat16)
    assert [cached, uncached] == other  # on every rank alike
    assert [len(text) for text in cached] == [12] * 3
