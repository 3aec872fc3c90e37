"""lmlib.train.step: the mean over all targets, and no step that is not sound."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from lmlib.model import TransformerLM
from lmlib.precision import make_scaler
from lmlib.train.step import IGNORED, NextTokenLoss, train_step
from tests.training import CPU, MODEL

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = replace(MODEL, dropout=0.0)


@pytest.fixture
def loss():
    return NextTokenLoss(TransformerLM(PLAIN, generator=torch.Generator().manual_seed(0)))


@pytest.fixture
def batch():
    ids = torch.randint(257, (6, 9), generator=torch.Generator().manual_seed(1))
    targets = ids[:, 1:].clone()
    targets[0] = IGNORED  # the pieces of a batch have unequal numbers of targets
    targets[3, 2:] = IGNORED
    return ids[:, :-1], targets


def pieces(batch, size):
    return list(zip(*(part.split(size) for part in batch), strict=True))


def sgd(loss):
    return torch.optim.SGD(loss.parameters(), lr=0.1)


def test_the_loss_is_the_sum_of_cross_entropies_of_fp32_logits(loss, batch):
    inputs, targets = batch
    logits = loss.model(inputs)
    expected = sum(-logits[b, t].log_softmax(-1)[y] for (b, t), y in all_targets(targets))
    torch.testing.assert_close(loss(*batch), expected)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = loss.model(inputs)
        assert rounded.dtype == torch.bfloat16
        expected = F.cross_entropy(rounded.float().flatten(0, 1), targets.flatten(), reduction="sum")
        assert loss(*batch).dtype == torch.float32
        assert loss(*batch) == expected


def test_log_probabilities_are_those_of_fp32_logits(loss, batch, monkeypatch):
    seen, cross_entropy = [], F.cross_entropy

    def spy(logits, *arguments, **options):
        seen.append(logits.dtype)
        return cross_entropy(logits, *arguments, **options)

    monkeypatch.setattr(F, "cross_entropy", spy)
    with torch.autocast("cpu", torch.bfloat16):
        loss(*batch)
    assert seen == [torch.float32]


def all_targets(targets):
    return [((b, t), y) for b, row in enumerate(targets.tolist()) for t, y in enumerate(row) if y != IGNORED]


def test_at_the_start_the_loss_is_that_of_a_guess(loss, batch):
    report = train_step(loss, sgd(loss), [batch], world=CPU)
    assert report.loss == pytest.approx(math.log(257), abs=0.05)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_batch_in_pieces_is_the_whole_batch(loss, batch, size):
    other = NextTokenLoss(TransformerLM(PLAIN))
    other.load_state_dict(loss.state_dict())
    mean = loss(*batch).item() / len(all_targets(batch[1]))
    whole = train_step(loss, sgd(loss), [batch], world=CPU, max_norm=0.5)
    parts = train_step(other, sgd(other), pieces(batch, size), world=CPU, max_norm=0.5)
    assert whole.loss == pytest.approx(mean, rel=1e-6)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    assert parts.grad_norm == pytest.approx(whole.grad_norm, rel=1e-5)
    for mine, theirs in zip(loss.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)


def test_the_gradient_is_that_of_the_mean_and_clipped(loss, batch):
    report = train_step(loss, sgd(loss), [batch], world=CPU, max_norm=0.25)
    gradients = torch.cat([p.grad.flatten() for p in loss.parameters()])
    assert report.grad_norm > 0.25
    assert float(gradients.norm()) == pytest.approx(0.25, rel=1e-4)


def test_one_batch_is_learnt_by_heart(loss, batch):
    optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-2, weight_decay=0.0)
    for _ in range(150):
        report = train_step(loss, optimizer, [batch], world=CPU)
    assert report.loss < 0.01


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_what_is_not_finite_is_no_step(loss, batch, where):
    optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-2)
    train_step(loss, optimizer, [batch], world=CPU)
    before = {name: p.clone() for name, p in loss.named_parameters()}
    moments = [state["exp_avg"].clone() for state in optimizer.state.values()]
    embedding = loss.model.token_embedding.weight
    if where == "loss":
        with torch.no_grad():
            embedding[batch[0][1, 0]] = math.inf
        before["model.token_embedding.weight"] = embedding.clone()
    else:
        embedding.register_hook(lambda gradient: gradient * math.nan)
    report = train_step(loss, optimizer, [batch], world=CPU, max_norm=1.0)
    assert not report.made
    assert not report.overflowed
    assert math.isfinite(report.loss) == (where == "gradient")
    for name, p in loss.named_parameters():
        assert p.equal(before[name]), name
    for state, moment in zip(optimizer.state.values(), moments, strict=True):
        assert state["exp_avg"].equal(moment)


def test_fp16_lowers_its_scale_until_gradients_fit(loss, batch):
    optimizer, scaler = sgd(loss), torch.amp.GradScaler("cpu", init_scale=2.0**30)
    before = loss.model.head.weight.clone()
    arguments = {"world": CPU, "precision": "fp16-autocast", "scaler": scaler}
    report = train_step(loss, optimizer, [batch], **arguments)
    assert (report.made, report.overflowed) == (False, True)
    assert scaler.get_scale() == 2.0**29
    assert loss.model.head.weight.equal(before)
    for _ in range(20):
        report = train_step(loss, optimizer, [batch], **arguments)
    assert report.made
    assert not loss.model.head.weight.equal(before)


@pytest.mark.parametrize("mode", ["bf16-autocast", "fp16-autocast"])
def test_in_16_bits_the_gradients_are_about_those_of_fp32(loss, batch, mode):
    plain = train_step(loss, torch.optim.SGD(loss.parameters(), lr=0.0), pieces(batch, 2), world=CPU)
    expected = loss.model.head.weight.grad.clone()
    scaler = make_scaler(mode)
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.0)
    report = train_step(loss, optimizer, pieces(batch, 2), world=CPU, precision=mode, scaler=scaler)
    assert report.loss == pytest.approx(plain.loss, rel=1e-2)
    assert report.grad_norm == pytest.approx(plain.grad_norm, rel=5e-2)
    assert report.loss != plain.loss
    torch.testing.assert_close(loss.model.head.weight.grad, expected, rtol=0.1, atol=1e-3)


def test_fp16_without_a_scaler_is_refused(loss, batch):
    with pytest.raises(ValueError, match="pass the scaler"):
        train_step(loss, sgd(loss), [batch], world=CPU, precision="fp16-autocast")


def test_compiled_together_the_names_stay_and_the_loss_too(loss, batch):
    names = list(loss.model.state_dict())
    expected = loss(*batch)
    loss.compile(backend="eager")  # traces as any backend does, and needs no C++
    torch.testing.assert_close(loss(*batch), expected)
    assert list(loss.model.state_dict()) == names
