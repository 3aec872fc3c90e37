"""lmlib plan: it answers in text and in JSON, says what it assumes, and what is wrong in one line."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from lmlib.cli import main
from lmlib.cli import plan as command
from lmlib.config import MODEL_SHAPES, ModelConfig, named_config
from lmlib.hardware import ACCELERATORS
from lmlib.memory import RECIPES
from lmlib.plan import TrainingPlan
from tests.reports import squeezed

ROOT = Path(__file__).parents[1]
DAYS = "--params 70e9 --tokens 15e12 --device h100 --devices 1024 --mfu 0.5"
COST = "--shape gpt2-124m --tokens 10e9 --device h100 --devices 8 --mfu 0.4 --price-per-hour 2.5"
SIZES = "--vocab-size 32000 --context-length 512 --d-model 256 --num-layers 3 --num-heads 8"

BATCH = "--shape llama-3-405b --device h100 --devices 1000 --batch-size 1000 --checkpointing --attention math"


@pytest.fixture
def run(capsys):
    """Run the command; return its exit code and what it wrote."""

    def run(words=""):
        capsys.readouterr()
        code = main(["plan", *shlex.split(words)])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


@pytest.fixture
def text(run):
    """The report's lines, without the spaces between columns."""

    def text(words):
        done = run(words)
        assert (done.code, done.err) == (0, "")
        return squeezed(done.out)

    return text


@pytest.fixture
def facts(run):
    """The report for programs."""

    def facts(words):
        done = run(f"{words} --json")
        assert (done.code, done.err) == (0, "")
        return json.loads(done.out)

    return facts


def test_how_long_does_it_take(facts, text):
    found = facts(DAYS)
    assert round(found["seconds"] / 86400) == 144
    assert (found["flops"], found["parameters"], found["tokens"]) == (63 * 10**23, 70 * 10**9, 15 * 10**12)
    assert found["device"]["name"] == "H100 SXM"
    assert found["memory"]["total"] == 1120 * 10**9
    assert found["fits"] is True
    lines = text(DAYS)
    assert "model 70,000,000,000 parameters (70B)" in lines
    assert "devices 1,024 × H100 SXM, 80 GB each" in lines
    assert "6.300e+24 FLOPs in all" in lines
    assert "time 143.9 days, 3.537M device-hours" in lines
    assert "optimizer state 8 560 GB 546.9 MB" in lines
    assert "activations NOT included" in lines
    assert "fits yes, before activations: 1.094 GB of 80 GB on each device" in lines


def test_the_largest_model_that_fits(facts, text):
    found = facts("--device h100 --devices 8")
    assert found["largest_model"] == 40 * 10**9
    by_bytes = {each["bytes_per_parameter"]: each["largest_model"] for each in found["recipes"].values()}
    assert {each: round(n / 1e9) for each, n in by_bytes.items()} == {8: 80, 12: 53, 16: 40, 18: 36, 20: 32}
    lines = text("--device h100 --devices 8 --recipe fp32")
    assert "largest 40,000,000,000 parameters (40B) by this recipe" in lines
    assert "* fp32 16 - 40B" in lines
    assert "bf16-master-both-gradients 20 - 32B" in lines
    assert "time needs --params or --shape, and --tokens" in lines


def test_a_shape_and_a_price(facts, text):
    plan = TrainingPlan(shape="gpt2-124m", tokens=10e9, device="h100", devices=8, mfu=0.4, price_per_hour=2.5)
    assert facts(COST) == plan.as_dict()
    lines = text(COST)
    assert "model 124,439,808 parameters (124.4M)" in lines
    assert "FLOPs 854.4 MFLOPs per token" in lines
    assert "855.2 MFLOPs by 6·N + 12·L·H·K·T, 100.09% of that" in lines
    assert "time 44.97 minutes, 5.997 device-hours" in lines
    assert "cost 14.99 at 2.5 per device-hour" in lines


def test_what_does_not_fit_is_said(text):
    lines = text("--params 70e9 --device h100 --devices 8")
    assert "fits no: 140 GB of 80 GB on each device" in lines
    assert "time needs --tokens" in lines


def test_activations(facts, text):
    words = "--shape gpt2-124m --device rtx-4090 --recipe fp32 --batch-size 32"
    plan = TrainingPlan(shape="gpt2-124m", device="rtx-4090", recipe="fp32", batch_size=32)
    assert facts(words) == plan.as_dict()
    lines = text(words)
    assert "activations of 32 × 1,024 tokens per device" in lines
    assert "loss 6.588 GB" in lines
    assert "weight copies 247.1 MB" in lines
    assert "at work in backward 16.47 GB" in lines
    assert f"fits no: {plan.bytes_per_device / 1e9:.4g} GB of 24 GB on each device" in lines
    assert "activations NOT included" not in lines
    assert not any("block inputs" in line for line in lines)
    lines = text("--shape gpt2-124m --device h100 --batch-size 8 --seq-len 512 --checkpointing --attention math")
    assert "activations of 8 × 512 tokens per device" in lines
    assert any(line.startswith("fits yes: ") for line in lines)
    assert any(line.startswith("block inputs ") for line in lines)
    assert any(line.endswith("by this recipe, before activations") for line in lines)


def test_zero_stages(facts, text):
    words = "--params 7.5e9 --device h100 --devices 64 --zero-stage"
    shared = [facts(f"{words} {stage}")["memory_per_device"]["total"] / 1e9 for stage in range(4)]
    assert shared == [pytest.approx(each, abs=0.05) for each in (120, 31.4, 16.6, 1.9)]
    assert "fits no: 120 GB of 80 GB on each device" in text(f"{words} 0")


def test_without_a_device(text):
    lines = text("--params 1e9 --tokens 20e9 --devices 4 --price-per-hour 2")
    assert "devices 4" in lines
    assert "1.200e+20 FLOPs in all" in lines
    assert "time needs --device" in lines
    assert "cost needs the time" in lines
    assert "total 16 16 GB 4 GB" in lines
    assert "fits needs --device" in lines
    assert not any(line.startswith("largest ") for line in lines)


def test_sizes_make_a_shape(facts):
    config = ModelConfig(32_000, 512, 256, 3, 8)
    found = facts(SIZES)
    assert (found["shape"], found["parameters"]) == (config.to_dict(), config.num_parameters)
    switches = "--num-kv-heads 2 --d-ff 1000 --norm layernorm --mlp gelu --position learned --bias --tie-embeddings"
    config = ModelConfig(32_000, 512, 256, 3, 8, 2, 1000, "layernorm", "gelu", "learned", True, True)
    assert facts(f"{SIZES} {switches}")["shape"] == config.to_dict()


def test_sizes_replace_those_of_a_shape(facts):
    found = facts("--shape gpt2-124m --context-length 2048 --no-tie-embeddings --no-bias")
    config = named_config("gpt2-124m").to_dict() | {"context_length": 2048, "tie_embeddings": False, "bias": False}
    assert found["shape"] == config


@pytest.mark.parametrize(
    ("written", "number"),
    [("1e23", 10**23), ("1e30", 10**30), ("70.5e9", 70_500_000_000), ("1_000", 1000), ("8.0", 8), ("+7e0", 7)],
)
def test_a_number_is_exactly_what_is_written(facts, written, number):
    assert facts(f"--params {written}")["parameters"] == number


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.5, "0.5 seconds"), (119, "119 seconds"), (120, "2 minutes"), (7200, "2 hours"), (172_800, "2 days")],
)
def test_a_time_has_a_unit_that_fits(text, seconds, shown):
    tokens = seconds * 242e12 * 0.5 / 6000  # of 1000 parameters, on an L4 with fp8
    lines = text(f"--params 1000 --tokens {round(tokens)} --device l4 --dtype fp8")
    assert any(line.startswith(f"time {shown},") for line in lines)


@pytest.mark.parametrize(
    ("params", "shown"),
    [(999_949_999, "(999.9M)"), (999_950_001, "(1B)"), (999_999_999_999, "(1T)"), (1e12, "(1T)")],
)
def test_what_is_nearly_a_thousand_has_the_next_unit(text, params, shown):
    lines = text(f"--params {params:.0f}")
    assert lines[0].endswith(shown)
    assert not any("1000 " in line or "1000M" in line or "1000B" in line for line in lines)


@pytest.mark.parametrize(
    "words",
    [
        DAYS,
        COST,
        SIZES,
        BATCH,
        "--device rtx-4090",
        "--params 1",
        "--params 1e30 --tokens 1e30 --device tpu-v4 --devices 7",
    ],
)
def test_a_report_is_narrow_enough_for_a_terminal(run, words):
    out = run(words).out
    assert max(map(len, out.splitlines())) <= 80
    assert ("Activations are NOT included" in out) == ("--batch-size" not in words)
    assert "GiB" not in out


@pytest.mark.parametrize("flag", ["", "--json"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "nothing to plan: give params or a shape"),
        ("--params 70B", "--params: '70B' is no number: write one"),
        ("--params 1e9 --tokens many", "--tokens: 'many' is no number"),
        ("--params nan", "params must be a whole number from 1"),
        ("--params 1e400", "params must be .* not inf"),
        ("--params 0", "params must be"),
        ("--params -3", "params must be .* not -3"),
        ("--params 1e9 --tokens 1.5", "tokens must be .* not 1.5"),
        ("--params 1e9 --devices 0", "devices must be"),
        ("--params 1e9 --devices", "--devices requires"),
        ("--params 1e9 --mfu 50", "mfu is the share"),
        ("--params 1e9 --mfu half", "--mfu: 'half' is no number"),
        ("--params 1e9 --price-per-hour -1", "price_per_hour must not be negative"),
        (f"--params 1e9 --mfu 1{'0' * 400}", "mfu must be a finite number"),
        ("--shape tiny --context-length 1e300 --tokens 1e30 --device h100", "context_length must be"),
        (f"--shape tiny --num-kv-heads 1 --num-heads 1 --d-model 1{'0' * 400}", "number of parameters must be"),
        ("--params 1e9 --recipe 16", "no recipe '16': choose one of bf16"),
        ("--params 1e9 --dtype int9", "unknown floating dtype 'int9'"),
        ("--params 1e9 --device a100", "unknown accelerator 'a100': choose from v100, a100-40gb"),
        ("--params 1e9 --tokens 1e9 --device v100", "no bf16 peak of the V100 SXM2: choose from fp16"),
        ("--params 1e9 --shape tiny", "give one"),
        ("--shape gpt3", "no model shape 'gpt3'; did you mean"),
        ("--shape tiny --num-heads 3", "num_heads=3 does not divide d_model=64"),
        ("--shape tiny --d-model 6.5", "d_model must be a whole number from 1 on, such as 64, not 6.5"),
        ("--shape tiny --num-layers 0", "num_layers must be"),
        ("--shape tiny --mlp relu", "--mlp"),
        ("--d-model 64", "lacks vocab_size, context_length, num_layers, num_heads"),
        ("--params 1e9 --batch-size 8", "batch_size needs a shape"),
        ("--shape tiny --batch-size 1.5", "batch_size must be .* not 1.5"),
        ("--shape tiny --seq-len 65", "seq_len is 65, beyond the context_length of 64"),
        ("--shape tiny --attention flash", "attention must be one of 'math', 'fused'"),
        ("--params 1e9 --zero-stage 4", "no ZeRO stage 4"),
        ("--paramz 1e9", "--paramz"),
        ("1e9", "1e9"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(run, words, message, flag):
    done = run(f"{words} {flag}")
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(rf"error: .*{message}.*\n", done.err)


def test_help_is_complete(run):
    help = run("--help").out
    options = [field.name for field in [*fields(command.PlanOptions), *fields(command.ShapeOptions)]]
    for option in [*options, "no-bias", "no-tie-embeddings"]:
        assert re.search(rf"--{option.replace('_', '-')}\b", help), option
    for name in [*MODEL_SHAPES, *RECIPES]:
        assert name in help, name
    assert command.USAGE in help
    assert all(each.key in help for each in ACCELERATORS)
    assert command.NOTES.rstrip() in help
    assert command.EXAMPLES.rstrip() in help
    assert max(map(len, help.splitlines())) <= 80


def test_the_examples_are_right(run):
    prefix = "  lmlib plan "
    examples = [line.removeprefix(prefix) for line in command.EXAMPLES.splitlines() if line.startswith(prefix)]
    assert len(examples) == 5
    for words in examples:
        assert run(words).code == 0, words


def test_it_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; from lmlib.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "plan", *COST.split()], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "44.97 minutes" in done.stdout
