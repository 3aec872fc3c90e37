"""lmlib.train.validation: the mean over the same windows, however they are batched."""

import pytest
import torch

from lmlib.model import TransformerLM
from lmlib.train import NextTokenLoss, evaluate
from lmlib.train.validation import window_starts
from tests.training import CPU, MODEL, tokens

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENS = tokens(100)  # 12 windows of 8, and 3 tokens over


@pytest.fixture
def loss():
    return NextTokenLoss(TransformerLM(MODEL, generator=torch.Generator().manual_seed(0)))


def test_it_is_the_mean_over_all_windows(loss):
    ids = torch.from_numpy(TOKENS.ids[:97].astype("int64"))
    inputs, targets = ids[:-1].reshape(12, 8), ids[1:].reshape(12, 8)
    expected = loss.eval()(inputs, targets).item() / 96
    loss.train()
    for batch_size in (1, 5, 12, 50):
        found = evaluate(loss, TOKENS, context_length=8, batch_size=batch_size, world=CPU)
        assert found == pytest.approx(expected, rel=1e-6)


def test_it_leaves_no_trace(loss):
    before = torch.get_rng_state()
    evaluate(loss, TOKENS, context_length=8, world=CPU)
    assert loss.training
    assert loss.model.blocks[0].training
    assert torch.get_rng_state().equal(before)
    assert all(parameter.grad is None for parameter in loss.parameters())


def test_a_few_windows_are_evenly_spaced():
    assert window_starts(TOKENS, 8, 0).tolist() == [8 * i for i in range(12)]
    assert window_starts(TOKENS, 8, 3).tolist() == [0, 48, 88]
    assert window_starts(TOKENS, 8, 1).tolist() == [0]
    assert window_starts(TOKENS, 8, 99).tolist() == [8 * i for i in range(12)]


def test_in_bf16_it_is_about_the_same(loss):
    exact = evaluate(loss, TOKENS, context_length=8, world=CPU)
    rounded = evaluate(loss, TOKENS, context_length=8, world=CPU, precision="bf16-autocast")
    assert rounded == pytest.approx(exact, rel=1e-2)
    assert rounded != exact


def test_tokens_that_fill_no_window_are_refused(loss):
    with pytest.raises(ValueError, match="holds 8 tokens, but a window takes 9"):
        evaluate(loss, tokens(8), context_length=8, world=CPU)
