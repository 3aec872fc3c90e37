"""lmlib.train: our default shape learns no less than a plain GPT-2 of as many parameters, in the same loop."""

from dataclasses import replace

import pytest

from lmlib.config import ModelConfig
from lmlib.train import PRESETS, TrainConfig, Trainer, open_dataset
from tests.training import CPU

OURS = TrainConfig.from_dict({**PRESETS["tiny"], "device": "cpu"})
SIZES = ("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "tie_embeddings")
PLAIN = ModelConfig(
    **{name: getattr(OURS.model, name) for name in SIZES},
    norm="layernorm",
    mlp="gelu",
    position="learned",
    bias=True,
    d_ff=560,  # instead of 4·128: RMSNorm and SwiGLU share their parameters out otherwise
    dropout=0.0,
)


def test_both_have_as_many_parameters():
    assert OURS.model.dropout == 0
    assert PLAIN.num_parameters == pytest.approx(OURS.model.num_parameters, rel=0.02)


@pytest.mark.slow
def test_at_equal_tokens_it_is_no_worse(tmp_path):
    data = open_dataset(OURS, tmp_path, CPU, vocab_size=OURS.model.vocab_size)
    losses = {}
    for name, model in {"ours": OURS.model, "plain": PLAIN}.items():
        run = Trainer(replace(OURS, model=model), data, tmp_path / name, quiet=True)
        losses[name] = run.run().validation_loss
    assert losses["ours"] <= losses["plain"] < 5  # a guess has 6.9
