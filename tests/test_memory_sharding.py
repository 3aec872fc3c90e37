"""lmlib.memory.sharding: the bytes of a device under ZeRO, as in the paper's figure."""

import pytest

from lmlib.memory import RECIPES, Ledger, largest_sharded_model, ledger, sharded_ledger

DEVICES = [1, 2, 3, 7, 64]
STAGES = [0, 1, 2, 3]


def test_the_papers_figure():
    """Rajbhandari et al. 2020, figure 1: 7.5B parameters, 64 devices, 2 + 2 + 12 bytes."""
    gigabytes = [sharded_ledger(7_500_000_000, "bf16-master", 64, stage).total / 1e9 for stage in STAGES]
    assert gigabytes == [pytest.approx(each, abs=0.05) for each in (120, 31.4, 16.6, 1.9)]


def test_what_each_stage_shares():
    whole = ledger(1000, "bf16-master-both-gradients")
    assert whole == Ledger(2000, 6000, 8000, 4000)
    shares = [sharded_ledger(1000, "bf16-master-both-gradients", 4, stage) for stage in STAGES]
    assert shares == [
        whole,
        Ledger(2000, 6000, 2000, 1000),
        Ledger(2000, 1500, 2000, 1000),
        Ledger(500, 1500, 2000, 1000),
    ]


def test_an_uneven_part_is_rounded_up():
    assert sharded_ledger(10, "fp32", 4, 3) == Ledger(12, 12, 24, 0)  # 3 parameters, as 4 · 2 < 10
    assert sharded_ledger(10, "fp32", 4, 1) == Ledger(40, 40, 24, 0)
    assert sharded_ledger(1, "fp32", 64, 3) == ledger(1, "fp32")


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("stage", STAGES)
def test_one_device_shares_with_nobody(recipe, stage):
    assert sharded_ledger(123, recipe, 1, stage) == ledger(123, recipe)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("stage", STAGES)
def test_the_largest_model_fits_and_no_larger_one(recipe, devices, stage):
    for memory in [*range(0, 200, 7), 80_000_000_001]:
        most = largest_sharded_model(memory, recipe, devices, stage)
        assert sharded_ledger(most, recipe, devices, stage).total <= memory
        assert sharded_ledger(most + 1, recipe, devices, stage).total > memory


@pytest.mark.parametrize(
    ("devices", "stage", "message"),
    [
        (0, 3, "devices is 0: it must be 1"),
        (8, 4, "stage 4: choose 1, 2 or 3, or 0"),
        (8, "3", "no ZeRO stage"),
        (8, True, "no ZeRO stage True"),
        (1.5, 3, "devices must be a whole number .*, not 1.5"),
        ("8", 3, "devices must be a whole number .*, not '8'"),
    ],
)
def test_it_refuses(devices, stage, message):
    with pytest.raises(ValueError, match=message):
        sharded_ledger(10, "fp32", devices, stage)
    with pytest.raises(ValueError, match=message):
        largest_sharded_model(10, "fp32", devices, stage)


@pytest.mark.parametrize("memory", [-5, 1.5, float("nan"), "80e9"])
def test_the_largest_model_is_one_of_some_memory(memory):
    with pytest.raises(ValueError, match="memory_bytes must be a whole number from 0 on"):
        largest_sharded_model(memory)
    with pytest.raises(ValueError, match="no recipe 'fp8': choose one of bf16,"):
        largest_sharded_model(80, "fp8")


def test_whole_floats_will_do():
    assert repr(largest_sharded_model(80e9, "bf16-master", 8.0)) == "40000000000"
