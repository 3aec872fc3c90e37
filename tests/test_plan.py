"""lmlib.plan: how long a run takes, what it costs, and whether it fits."""

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
import torch

from lmlib.config import MODEL_SHAPES, ModelConfig, named_config
from lmlib.flops import count_flops, estimated_step_flops, mfu, step_flops
from lmlib.hardware import ACCELERATORS, get_accelerator
from lmlib.memory import RECIPES, Ledger, measured_ledger, sharded_ledger, step_memory
from lmlib.model import TransformerLM
from lmlib.plan import TrainingPlan

ROOT = Path(__file__).parents[1]
NAPKIN = TrainingPlan(params=70e9, tokens=15e12, device="h100", devices=1024, mfu=0.5)


# --- the two questions that open the book ---------------------------------------


def test_how_long_does_it_take():
    assert NAPKIN.flops == 63 * 10**23
    days = NAPKIN.seconds / 86400
    assert days == pytest.approx(6 * 70e9 * 15e12 / (1024 * 989.5e12 * 0.5) / 86400)
    assert round(days) == 144


def test_the_largest_model_that_fits():
    plan = TrainingPlan(device="h100", devices=8)
    by_bytes = {fit.bytes_per_parameter: fit.largest_model for fit in plan.fits_by_recipe.values()}
    assert {each: round(n / 1e9) for each, n in by_bytes.items()} == {8: 80, 12: 53, 16: 40, 18: 36, 20: 32}
    assert plan.largest_model == 40 * 10**9
    assert replace(plan, recipe="fp32").largest_model == 40 * 10**9
    assert replace(plan, recipe="bf16").largest_model == 80 * 10**9


# --- work and time --------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny", "gpt2-124m"])
def test_a_shape_costs_what_is_counted(name):
    config = named_config(name)
    with torch.device("meta"):
        model = TransformerLM(config)
        tokens = torch.zeros(1, config.context_length, dtype=torch.long)
    counted = count_flops(lambda: model(tokens).sum().backward())
    plan = TrainingPlan(shape=name, tokens=7 * config.context_length)
    assert plan.flops == 7 * counted
    assert plan.num_parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", MODEL_SHAPES)
def test_a_shape_has_the_estimate_beside_it(name):
    config = named_config(name)
    plan = TrainingPlan(shape=config, tokens=1)
    assert plan.flops_per_token * config.context_length == step_flops(config).total
    assert plan.estimated_flops_per_token == estimated_step_flops(config, 1)
    assert plan.estimated_flops_per_token == pytest.approx(plan.flops_per_token, rel=0.01)
    assert TrainingPlan(params=plan.num_parameters).estimated_flops_per_token is None


def test_a_longer_context_costs_more():
    config = named_config("llama-3-8b")
    longer = TrainingPlan(shape=replace(config, context_length=131_072))
    assert longer.num_parameters == config.num_parameters
    assert longer.flops_per_token > 2 * TrainingPlan(shape=config).flops_per_token


def test_time_is_what_the_utilisation_says():
    peak = get_accelerator("a100-80gb").peak("tf32").value
    plan = TrainingPlan(shape="gpt2-355m", tokens=1e9, device="a100-80gb", devices=3, mfu=0.37, dtype="tf32")
    assert mfu(plan.flops, plan.seconds, 3 * peak) == pytest.approx(0.37)
    assert plan.device_seconds == pytest.approx(3 * plan.seconds)
    assert replace(plan, devices=6).seconds == pytest.approx(plan.seconds / 2)


def test_cost_is_by_the_hour_and_device():
    plan = replace(NAPKIN, price_per_hour=2)
    assert plan.cost == pytest.approx(NAPKIN.seconds / 3600 * 1024 * 2)
    assert replace(plan, devices=512).cost == pytest.approx(plan.cost)  # half the devices, twice as long
    assert replace(plan, price_per_hour=0).cost == 0


def test_h100_is_the_one_with_sxm():
    assert NAPKIN.device.name == "H100 SXM"
    assert replace(NAPKIN, device="h100-pcie").seconds > 1.3 * NAPKIN.seconds


# --- memory ---------------------------------------------------------------------


def test_memory_is_what_torch_holds():
    model = TransformerLM(named_config("tiny"))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
    optimizer.step()
    steps = 4 * len(list(model.parameters()))  # AdamW's counters, which the plan leaves out
    held = measured_ledger(model, optimizer)
    planned = TrainingPlan(shape="tiny", recipe="fp32").memory
    assert planned == replace(held, optimizer_state=held.optimizer_state - steps)


def test_devices_share_evenly():
    assert NAPKIN.memory == Ledger(140 * 10**9, 140 * 10**9, 560 * 10**9, 280 * 10**9)
    assert NAPKIN.memory_per_device.total * 1024 == NAPKIN.memory.total
    uneven = TrainingPlan(params=10, devices=4, recipe="fp32")
    assert uneven.memory.total == 160
    assert uneven.memory_per_device == Ledger(12, 12, 24, 0)  # 3 parameters, since 4 · 2 < 10


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("devices", [1, 7, 8])
def test_the_largest_model_fits_and_no_larger_one(recipe, devices):
    for accelerator in ACCELERATORS:
        empty = TrainingPlan(device=accelerator, devices=devices, recipe=recipe)
        plan = replace(empty, params=empty.largest_model)
        assert plan.fits
        assert plan.memory_per_device.total <= accelerator.memory_bytes
        larger = replace(empty, params=empty.largest_model + 1)
        assert not larger.fits
        assert larger.memory_per_device.total > accelerator.memory_bytes


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_zero_stage_says_what_devices_share(stage):
    plan = TrainingPlan(params=7.5e9, device="a100-80gb", devices=64, zero_stage=stage)
    assert plan.memory_per_device == sharded_ledger(7_500_000_000, "bf16-master", 64, stage)
    assert plan.fits == (stage > 0)  # 120 GB a device in all
    at_most = replace(plan, params=plan.largest_model)
    assert at_most.fits
    assert not replace(at_most, params=plan.largest_model + 1).fits
    words = ["Each device holds all", "ZeRO stage 1", "ZeRO stage 2", "ZeRO stage 3"]
    assert [word in " ".join(plan.assumptions) for word in words] == [word == words[stage] for word in words]


# --- activations ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "dtype", "precision"),
    [
        ("fp32", "fp32", "fp32"),
        ("fp32", "tf32", "fp32"),
        ("fp32", "bf16", "bf16-autocast"),
        ("fp32", "fp16", "bf16-autocast"),
        ("bf16", "bf16", "bf16"),
        ("bf16-master", "bf16", "bf16"),
    ],
)
def test_a_batch_brings_its_activations(recipe, dtype, precision):
    shape = named_config("gpt2-124m")
    plan = TrainingPlan(shape=shape, recipe=recipe, dtype=dtype, device="l4", batch_size=3, seq_len=100)
    assert plan.precision == precision
    step = step_memory(shape, 3, 100, precision=precision)
    assert plan.step_memory == step
    assert plan.bytes_per_device == plan.memory_per_device.total + step.total
    assert replace(plan, batch_size=None).bytes_per_device == plan.memory_per_device.total


def test_options_reach_the_activations():
    plan = TrainingPlan(shape="small", batch_size=4, attention="math", checkpointing=True)
    expected = step_memory(named_config("small"), 4, attention="math", precision="bf16", checkpointing=True)
    assert plan.step_memory == expected
    assert expected.activations.block_inputs > 0


def test_what_fits_depends_on_the_batch():
    plan = TrainingPlan(shape="gpt2-124m", device="rtx-4090", recipe="fp32", batch_size=1)
    assert plan.fits
    larger = replace(plan, batch_size=32)
    assert not larger.fits
    assert replace(larger, batch_size=None).fits  # before activations
    assert larger.fits_by_recipe["bf16"].fits  # half the bytes a number
    assert larger.largest_model == plan.largest_model
    sizes = [n for n in range(1, 33) if replace(plan, batch_size=n).fits]
    assert sizes == list(range(1, len(sizes) + 1))
    most = replace(plan, batch_size=len(sizes))
    assert most.bytes_per_device <= plan.device.memory_bytes < replace(plan, batch_size=len(sizes) + 1).bytes_per_device


def test_a_shorter_sequence_costs_less():
    plan = TrainingPlan(shape="gpt2-124m", seq_len=100)
    assert plan.flops_per_token == step_flops(plan.shape, 1, 100).total // 100
    assert plan.estimated_flops_per_token == estimated_step_flops(plan.shape, 1, 100)
    assert "sequences of 100 tokens" in " ".join(plan.assumptions)


def test_assumptions_of_activations():
    plan = TrainingPlan(shape="tiny", batch_size=2)
    text = " ".join(plan.assumptions)
    assert "2 × 64 tokens on each device, in bf16 with fused attention" in text
    assert "nothing is computed twice" in text
    assert "NOT included" not in text
    text = " ".join(replace(plan, checkpointing=True).assumptions)
    assert "runs forward again in backward" in text
    assert "nothing is computed twice" not in text


# --- parts left out -------------------------------------------------------------


def test_without_tokens_there_is_no_time():
    plan = replace(NAPKIN, tokens=None, price_per_hour=2)
    assert (plan.flops, plan.seconds, plan.device_seconds, plan.cost) == (None, None, None, None)
    assert plan.flops_per_token == 420 * 10**9
    assert plan.fits


def test_without_a_device_there_are_bytes_and_flops():
    plan = replace(NAPKIN, device=None, price_per_hour=2)
    assert (plan.flops, plan.memory) == (NAPKIN.flops, NAPKIN.memory)
    assert (plan.seconds, plan.cost, plan.fits, plan.largest_model) == (None, None, None, None)


def test_without_a_model_there_is_the_largest():
    plan = replace(NAPKIN, params=None)
    assert (plan.flops, plan.flops_per_token, plan.seconds) == (None, None, None)
    assert (plan.memory, plan.memory_per_device, plan.fits) == (None, None, None)
    assert plan.largest_model == 1024 * 5 * 10**9


def test_a_peak_that_is_not_known_matters_only_for_time():
    plan = TrainingPlan(params=1e9, device="v100", devices=2)  # which has no bf16
    assert plan.fits
    with pytest.raises(ValueError, match=r"no bf16 peak of the V100.*choose from fp16, fp32"):
        replace(plan, tokens=1e9)
    assert replace(plan, tokens=1e9, dtype="fp16").seconds > 0


# --- reports --------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [
        replace(NAPKIN, price_per_hour=2.5),
        TrainingPlan(shape="tiny", tokens=1e6, device="l4", price_per_hour=1),
        TrainingPlan(shape="tiny"),
        TrainingPlan(shape="tiny", batch_size=4, zero_stage=1, devices=2, device="l4"),
        TrainingPlan(device="h100"),
    ],
)
def test_a_dictionary_survives_json(plan):
    facts = plan.as_dict()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["seconds"] == plan.seconds
    assert facts["cost"] == plan.cost
    assert facts["largest_model"] == plan.largest_model
    assert facts["assumptions"] == list(plan.assumptions)
    if plan.memory:
        assert facts["memory"]["total"] == plan.memory.total
        assert facts["memory_per_device"]["total"] == plan.memory_per_device.total
        assert facts["bytes_per_device"] == plan.bytes_per_device
        assert ModelConfig.from_dict(facts["shape"]) == plan.shape if plan.shape else facts["shape"] is None
    if plan.step_memory:
        step = facts["step_memory_per_device"]
        assert step["total"] == plan.step_memory.total == step["working"] + step["activations"]["total"]


def test_assumptions_say_what_was_assumed():
    text = " ".join(replace(NAPKIN, price_per_hour=2.5).assumptions)
    for words in [
        "Activations are NOT included",
        "6 FLOPs for each parameter",
        "0.5 of its dense bf16 peak, which is 989.5 TFLOP/s (NVIDIA H100 data sheet)",
        "16 bytes: 2 for itself, 2 for its gradient, 8 for two moments and 4 for a master copy",
        "split evenly",
        "80 GB",
        "paid for",
    ]:
        assert words in text


def test_assumptions_are_those_of_the_question():
    text = " ".join(TrainingPlan(shape="gpt2-124m").assumptions)
    assert "sequences of 1,024 tokens" in text
    for words in ["6 FLOPs", "peak", "evenly", "A device", "paid"]:
        assert words not in text
    assert "Activations are NOT included" in text


# --- bad input ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "nothing to plan: give params or a shape.*or a device"),
        ({"params": 1, "shape": "tiny"}, "give one"),
        ({"params": 0}, "params must be a whole number from 1"),
        ({"params": -70e9}, "params must be"),
        ({"params": 1.5}, "params must be.*not 1.5"),
        ({"params": float("nan")}, "params must be.*not nan"),
        ({"params": float("inf")}, "params must be.*not inf"),
        ({"params": True}, "params must be.*not True"),
        ({"params": "70B"}, "params must be.*not '70B'"),
        ({"params": 1, "tokens": "15T"}, "tokens must be.*such as 64 or 15e12, not '15T'"),
        ({"params": 1, "tokens": 0}, "tokens must be"),
        ({"params": 1, "devices": 0}, "devices must be"),
        ({"params": 1, "devices": None}, "devices must be.*not None"),
        ({"params": 1, "mfu": 0}, "mfu is the share.*above 0"),
        ({"params": 1, "mfu": 50}, "mfu is the share.*at most 1, such as 0.4, not 50"),
        ({"params": 1, "mfu": float("nan")}, "mfu must be a finite number"),
        ({"params": 1, "mfu": 1e-320}, "mfu is the share.*above 0"),
        ({"params": 1, "mfu": 10**400}, "mfu must be a finite number"),
        ({"params": 1, "mfu": "half"}, "mfu must be a finite number, not 'half'"),
        ({"params": 1, "price_per_hour": -1}, "price_per_hour must not be negative"),
        ({"params": 1, "price_per_hour": float("inf")}, "price_per_hour must be a finite"),
        ({"params": 1, "price_per_hour": 1e300}, r"price_per_hour must be at most 1e\+30"),
        ({"params": 1, "price_per_hour": 10**400}, "price_per_hour must be a finite"),
        ({"params": 1, "checkpointing": "no"}, "checkpointing must be True or False, not 'no'"),
        ({"params": 1, "zero_stage": True}, "no ZeRO stage True"),
        ({"params": 1, "recipe": "fp8"}, "no recipe 'fp8': choose one of bf16"),
        ({"params": 1, "zero_stage": 4}, "no ZeRO stage 4: choose 1, 2 or 3"),
        ({"params": 1, "zero_stage": None}, "no ZeRO stage None"),
        ({"params": 1, "attention": "flash"}, "attention must be one of 'math', 'fused'"),
        ({"params": 1, "batch_size": 8}, "batch_size needs a shape"),
        ({"params": 1, "seq_len": 8}, "seq_len needs a shape"),
        ({"shape": "tiny", "batch_size": 0}, "batch_size must be a whole number"),
        ({"shape": "tiny", "seq_len": 65}, "seq_len is 65, beyond the context_length of 64"),
        ({"params": 1, "dtype": "int9"}, "unknown floating dtype 'int9': choose from"),
        ({"device": "a100"}, "unknown accelerator 'a100': choose from v100, a100-40gb"),
        ({"device": 3}, "unknown accelerator '3'"),
        ({"shape": "gpt3"}, "no model shape 'gpt3'; did you mean"),
        ({"shape": 124}, "no model shape '124'"),
    ],
)
def test_it_refuses(values, message):
    with pytest.raises(ValueError, match=message):
        TrainingPlan(**values)


def test_a_context_beyond_any_run_is_refused():
    with pytest.raises(ValueError, match=r"context_length must be a whole number from 1 to 1e\+30"):
        TrainingPlan(shape=replace(named_config("tiny"), context_length=10**31))


def test_n_of_the_estimate_is_named():
    (sentence,) = [s for s in TrainingPlan(shape="llama-3-8b").assumptions if s.startswith("N is")]
    assert f"N is {8_030_261_248 - 128_256 * 4096:,}, " in sentence
    assert not any(s.startswith("N is") for s in TrainingPlan(params=1).assumptions)


def test_the_largest_counts_do_not_overflow():
    plan = TrainingPlan(params=1e30, tokens=1e30, device="l4", devices=1)
    assert plan.seconds == pytest.approx(6e60 / (121e12 * 0.5))
    with pytest.raises(ValueError, match="tokens must be"):
        replace(plan, tokens=1e31)


def test_a_plan_does_not_change():
    with pytest.raises(FrozenInstanceError):
        NAPKIN.devices = 2


def test_it_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; from lmlib.plan import TrainingPlan"
    code += "; print(TrainingPlan(shape='gpt2-124m', tokens=10**9, device='h100').flops)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == TrainingPlan(shape="gpt2-124m", tokens=10**9).flops
