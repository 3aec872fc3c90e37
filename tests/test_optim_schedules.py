"""lmlib.optim.schedules: bounds, ends and joints over random runs, and what a resumed run needs."""

import copy
import math
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import LambdaLR

from lmlib.optim import AdamW, cosine_schedule, wsd_schedule

factors = st.floats(0, 1)


@st.composite
def cosines(draw):
    total = draw(st.integers(1, 10**6))
    warmup = draw(st.integers(0, min(total - 1, 10**4)))
    return partial(cosine_schedule, total_steps=total, warmup_steps=warmup, final_factor=draw(factors))


@st.composite
def wsds(draw):
    total = draw(st.integers(1, 10**6))
    warmup = draw(st.integers(0, min(total - 1, 10**4)))
    options = {
        "decay_steps": draw(st.integers(1, total - warmup)),
        "decay": draw(st.sampled_from(["linear", "1-sqrt"])),
    }
    return partial(wsd_schedule, total_steps=total, warmup_steps=warmup, final_factor=draw(factors), **options)


schedules = st.one_of(cosines(), wsds())


def phases(schedule):
    return [schedule.keywords[name] for name in ("total_steps", "warmup_steps", "final_factor")]


# --- every schedule -------------------------------------------------------------------------------------


@given(schedules)
def test_the_ends_are_exact(schedule):
    total, warmup, final = phases(schedule)
    assert schedule(0) == 1 / (warmup + 1)
    assert schedule(warmup) == 1
    assert schedule(total) == schedule(total + 1) == schedule(10 * total) == final


@given(schedules, st.data())
def test_up_then_down_and_never_out_of_bounds(schedule, data):
    total, warmup, final = phases(schedule)
    step = data.draw(st.integers(0, total - 1))
    factor, following = schedule(step), schedule(step + 1)
    assert 0 < factor <= 1  # no step of a run is made at a rate of 0
    if step < warmup:
        assert factor < following
    else:
        assert factor >= following
        assert factor >= final


@given(schedules, st.data())
def test_continuous_at_the_joints_too(schedule, data):
    total, warmup, _ = phases(schedule)
    joints = [warmup, total, total - schedule.keywords.get("decay_steps", 0)]
    step = data.draw(st.one_of(st.sampled_from(joints), st.integers(0, total)))
    down = schedule.keywords.get("decay_steps", total - warmup)
    slope = math.sqrt(1 / down) if schedule.keywords.get("decay") == "1-sqrt" else math.pi / 2 / down
    steepest = max(1 / (warmup + 1), slope) + 1e-9
    assert abs(schedule(step + 1) - schedule(step)) <= steepest
    assert step == 0 or abs(schedule(step) - schedule(step - 1)) <= steepest


@given(schedules)
def test_the_warm_up_is_a_line(schedule):
    _, warmup, _ = phases(schedule)
    assume(warmup > 0)
    assert schedule(warmup // 2) == pytest.approx((warmup // 2 + 1) / (warmup + 1))


# --- cosine ---------------------------------------------------------------------------------------------


def test_cosine_of_a_run_that_stopped_at_400_000_of_500_000():
    left = cosine_schedule(400_000, 500_000)
    assert round(100 * left, 2) == 9.55
    assert left == pytest.approx((1 - math.cos(math.pi / 5)) / 2)


@pytest.mark.parametrize("final", [0.0, 0.1])
@pytest.mark.parametrize("warmup", [0, 7])
def test_cosine_is_half_a_cosine(warmup, final):
    at = partial(cosine_schedule, total_steps=warmup + 100, warmup_steps=warmup, final_factor=final)
    middle = warmup + 50
    assert at(middle) == pytest.approx((1 + final) / 2)
    assert [at(middle - 17) + at(middle + 17)] == [pytest.approx(1 + final)]  # as much above as below
    assert at(warmup + 25) == pytest.approx(final + (1 - final) * (2 + math.sqrt(2)) / 4)


def test_cosine_is_that_of_pytorch():
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    peer = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40, eta_min=0.05)
    for step in range(41):
        assert 0.5 * cosine_schedule(step, 40, final_factor=0.1) == pytest.approx(peer.get_last_lr()[0])
        optimizer.step()
        peer.step()


# --- warm-up, stable, decay -----------------------------------------------------------------------------


def test_the_three_phases():
    at = partial(wsd_schedule, total_steps=100, warmup_steps=4, decay_steps=20)
    assert [at(step) for step in range(6)] == [0.2, 0.4, 0.6, 0.8, 1, 1]
    assert {at(step) for step in range(4, 81)} == {1}
    assert [at(step) for step in (85, 90, 95, 100)] == pytest.approx([0.75, 0.5, 0.25, 0])
    at = partial(at, decay="1-sqrt")
    assert [at(step) for step in (80, 85, 100)] == pytest.approx([1, 0.5, 0])
    assert at(81) == pytest.approx(1 - math.sqrt(1 / 20))


@given(wsds(), st.integers(0, 10**6), st.data())
def test_until_the_decay_a_run_can_be_prolonged(schedule, more, data):
    begin = schedule.keywords["total_steps"] - schedule.keywords["decay_steps"]
    step = data.draw(st.integers(0, begin))
    longer = partial(schedule, total_steps=schedule.keywords["total_steps"] + more)
    assert longer(step) == schedule(step)


# --- in a run -------------------------------------------------------------------------------------------


def small_optimizer():
    return AdamW([{"params": [torch.zeros(2)]}, {"params": [torch.zeros(3)], "lr": 0.5}], lr=0.01)


def run(optimizer, scheduler, steps):
    rates = []
    for _ in range(steps):
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return rates


SCHEDULE = partial(cosine_schedule, total_steps=50, warmup_steps=5, final_factor=0.1)


@pytest.mark.filterwarnings("error")
def test_lambda_lr_brings_every_group_to_its_own_peak():
    optimizer = small_optimizer()
    rates = run(optimizer, LambdaLR(optimizer, SCHEDULE), 51)
    assert rates == [[0.01 * SCHEDULE(step), 0.5 * SCHEDULE(step)] for step in range(51)]
    assert rates[5] == [0.01, 0.5]


@pytest.mark.filterwarnings("error")
def test_a_resumed_run_needs_only_the_step():
    optimizer = small_optimizer()
    whole = run(optimizer, LambdaLR(optimizer, SCHEDULE), 50)
    stopped = small_optimizer()
    scheduler = LambdaLR(stopped, SCHEDULE)
    assert run(stopped, scheduler, 20) == whole[:20]

    resumed = small_optimizer()
    resumed.load_state_dict(copy.deepcopy(stopped.state_dict()))
    assert run(resumed, LambdaLR(resumed, SCHEDULE, last_epoch=19), 30) == whole[20:]

    resumed = small_optimizer()
    other = LambdaLR(resumed, SCHEDULE)
    resumed.load_state_dict(copy.deepcopy(stopped.state_dict()))
    other.load_state_dict(pickle.loads(pickle.dumps(scheduler.state_dict())))
    assert run(resumed, other, 30) == whole[20:]


def test_a_run_of_one_step():
    assert [cosine_schedule(step, 1) for step in (0, 1)] == [1, 0]
    assert [wsd_schedule(step, 1, decay_steps=1, final_factor=0.5) for step in (0, 1)] == [1, 0.5]


@pytest.mark.parametrize("step", range(12))
def test_a_factor_is_a_float_whatever_the_counts_are(step):
    counts = {"total_steps": np.int64(10), "warmup_steps": np.int32(4), "final_factor": np.float64(0.5)}
    for schedule in (cosine_schedule, partial(wsd_schedule, decay_steps=np.int64(3))):
        factor = schedule(np.int64(step), **counts)
        assert type(factor) is float  # it gets into the state dict of an optimizer
        assert factor == schedule(step, **{name: count.item() for name, count in counts.items()})


# --- bad input ------------------------------------------------------------------------------------------

WSD = partial(wsd_schedule, decay_steps=1)


@pytest.mark.parametrize("schedule", [cosine_schedule, WSD])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": -1}, "step must be a number from 0 on, not -1"),
        ({"step": math.nan}, "step must be a number from 0 on, not nan"),
        ({"step": "3"}, "step must be a number from 0 on, not '3'"),
        ({"step": True}, "step must be a number from 0 on, not True"),
        ({"total_steps": True}, "total_steps must be a whole number from 1 on, not True"),
        ({"total_steps": 0}, "total_steps must be a whole number from 1 on, not 0"),
        ({"total_steps": 10.5}, "total_steps must be a whole number from 1 on, not 10.5"),
        ({"warmup_steps": -1}, "warmup_steps must be a whole number from 0 to below total_steps = 10, not -1"),
        ({"warmup_steps": 10}, "warmup_steps must be a whole number from 0 to below total_steps = 10, not 10"),
        ({"warmup_steps": 0.5}, "warmup_steps must be a whole number from 0 to below total_steps = 10, not 0.5"),
        ({"final_factor": -0.1}, "final_factor must be a number from 0 to 1, not -0.1"),
        ({"final_factor": 1.1}, "final_factor must be a number from 0 to 1, not 1.1"),
        ({"final_factor": math.nan}, "final_factor must be a number from 0 to 1, not nan"),
        ({"final_factor": None}, "final_factor must be a number from 0 to 1, not None"),
    ],
)
def test_options_out_of_range(schedule, options, message):
    with pytest.raises(ValueError, match=f"^{message}\\.$"):
        schedule(**({"step": 3, "total_steps": 10} | options))


@pytest.mark.parametrize("decay_steps", [0, -1, 8, 2.5, None])
def test_a_decay_that_does_not_fit(decay_steps):
    assert wsd_schedule(9, 10, warmup_steps=3, decay_steps=7) > 0
    with pytest.raises(
        ValueError, match=r"decay_steps must be a whole number from 1 to total_steps - warmup_steps = 7"
    ):
        wsd_schedule(3, 10, warmup_steps=3, decay_steps=decay_steps)


def test_an_unknown_decay():
    with pytest.raises(ValueError, match="decay must be 'linear' or '1-sqrt', not 'cosine'"):
        wsd_schedule(3, 10, decay_steps=2, decay="cosine")
