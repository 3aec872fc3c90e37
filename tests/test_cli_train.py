"""lmlib train: it trains, stops and goes on, alone and under torchrun, and says what is wrong in one line."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file

from lmlib.bpe import Tokenizer
from lmlib.cli import main
from lmlib.cli.train import NOTES
from lmlib.cli.train.run import _make_folder
from lmlib.train import PRESETS, RunFolder, TrainConfig, read_metrics
from lmlib.train.settings import draft
from tests.reports import squeezed
from tests.training import TIMES

ROOT = Path(__file__).parents[1]


def small(**changes):
    """Options of a run of seconds."""
    options = {
        "context_length": 8,
        "d_model": 16,
        "num_layers": 2,
        "num_heads": 2,
        "dropout": 0.1,
        "data": "text.txt",
        "tokenizer": "bytes",
        "steps": 6,
        "batch_size": 4,
        "micro_batch_size": 2,
        "warmup_steps": 0,
        "eval_every": 2,
        "eval_windows": 5,
        "save_every": 3,
        "sample_tokens": 8,
    }
    return flags(**{**options, **changes})


def flags(**options):
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where the command runs: a folder with a text."""
    (tmp_path / "text.txt").write_text("Call me Ishmael. Some years ago, never mind how long. " * 40)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run the command; return its exit code and what it wrote."""

    def run(words=""):
        capsys.readouterr()
        code = main(["train", *shlex.split(words)])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


@pytest.fixture
def refused(run, folder):
    """The one line that says what is wrong; no new folder is left behind."""

    def files():
        return sorted(path for path in folder.rglob("*") if path.name != "runs")

    def refused(words):
        before = files()
        done = run(words)
        assert done.code == 2, done.err
        assert re.fullmatch(r"error: .*\n", done.err), done.err
        assert files() == before
        return done.err

    return refused


def curve(folder):
    records = read_metrics(Path(folder) / "metrics.jsonl")
    return [{k: v for k, v in record.items() if k not in TIMES} for record in records]


def weights(folder, step=6):
    tensors = load_file(Path(folder) / f"checkpoints/step-{step:08}/model.safetensors")
    return {name: tensor.tolist() for name, tensor in tensors.items()}


# --- a run ----------------------------------------------------------------------------------------


def test_a_run_leaves_everything_in_its_folder(run, folder):
    done = run(f"{small()} --tensorboard --sample-prompt 'Call me'")
    assert done.code == 0
    path = Path("runs/1")
    assert {each.name for each in path.iterdir()} == {
        "checkpoints",
        "config.toml",
        "data",
        "environment.json",
        "metrics.jsonl",
        "origin.json",
        "samples.txt",
        "tensorboard",
        "tokenizer.json",
    }
    assert [record["step"] for record in curve(path) if "loss" in record] == [1, 2, 3, 4, 5, 6]
    config = TrainConfig.from_dict(tomllib.loads((path / "config.toml").read_text()))
    assert config.model.vocab_size == 257
    assert config.data == (str(folder / "text.txt"),)
    (start,) = json.loads((path / "environment.json").read_text())
    assert {"torch", "python", "command", "device", "world_size"} <= start.keys()
    samples = (path / "samples.txt").read_text()
    assert re.match(r"=== after 0 steps ===\nCall me[^=]*\n=== after 6 steps ===\nCall me", samples)
    lines = squeezed(done.out)
    assert "trained 6 steps, 192 tokens" in lines
    assert "written to runs/1" in lines
    assert lines[0] == "folder runs/1"  # before there is something to wait for
    count = json.loads((path / "data/train.bin.json").read_text())["count"]
    said = re.fullmatch(r"data ([\d,]+) tokens to train on, ([\d,]+) to validate with", lines[1])
    assert sum(int(number.replace(",", "")) for number in said.groups()) == count
    assert "device cpu" in lines
    assert not any(line.startswith("goes on") for line in lines)
    assert "--- after 0 steps ---" in done.out
    assert run(small()).code == 0
    assert Path("runs/2/config.toml").exists()  # the next that is free


def test_the_report_for_programs(run):
    done = run(f"{small()} --json --out here")
    report = json.loads(done.out)
    assert report["folder"] == "here"
    assert (report["steps"], report["tokens"], report["stopped_by"]) == (6, 192, None)
    assert report["validation_loss"] == curve("here")[-2]["validation_loss"]
    assert done.err == ""


def test_quiet_is_quiet(run):
    done = run(f"{small()} --quiet")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_flags_come_before_the_file_and_the_file_before_the_preset(run):
    Path("run.toml").write_text(
        'steps = 2\nlr = 0.5\nbatch_size = 3\ntokenizer = "bytes"\ndata = "text.txt"\n'
        "sample_tokens = 0\nwarmup_steps = 1\n[model]\nd_model = 16\ncontext_length = 8\nnum_layers = 1\n"
    )
    assert run("--lr 0.25 --num-layers 2 --config run.toml --preset tiny --quiet").code == 0
    config = TrainConfig.from_dict(tomllib.loads(Path("runs/1/config.toml").read_text()))
    assert (config.lr, config.steps, config.batch_size) == (0.25, 2, 3)
    assert (config.model.num_layers, config.model.d_model) == (2, 16)
    assert config.model.num_heads == PRESETS["tiny"]["model"]["num_heads"]


def test_the_config_of_a_run_makes_the_same_run(run):
    assert run(f"{small()} --out first --quiet").code == 0
    assert run("--config first/config.toml --out second --quiet").code == 0
    assert curve("second") == curve("first")
    assert weights("second") == weights("first")


def test_a_longer_run_goes_on_from_a_shorter_one(run):
    assert run(f"{small(steps=4, schedule='wsd', decay_steps=1)} --quiet").code == 0
    done = run("--resume runs/1 --steps 6")
    assert done.code == 0
    assert "goes on after step 4 of 6" in squeezed(done.out)
    assert [record["step"] for record in curve("runs/1") if "loss" in record] == [1, 2, 3, 4, 5, 6]
    assert len(json.loads(Path("runs/1/environment.json").read_text())) == 2
    assert "is over after step 6: more --steps go on" in squeezed(run("--resume runs/1").out)
    assert tomllib.loads(Path("runs/1/config.toml").read_text())["steps"] == 6


def test_tokens_whose_tokenizer_is_not_known_are_trained_on_without_samples(run):
    Tokenizer({i: bytes([i]) for i in range(256)}, []).save("bytes.json")
    assert main(["data", "prepare", "text.txt", "--tokenizer", "bytes.json", "--out", "text.bin", "--quiet"]) == 0
    words = small(steps=1, data="text.bin", tokenizer="train")
    done = run(words)
    assert done.code == 0
    assert "samples none: name the tokenizer of the tokens with --tokenizer" in squeezed(done.out)
    assert "samples none" not in squeezed(run(words.replace("tokenizer train", "tokenizer bytes.json")).out)


def test_help_names_every_setting(run):
    done = run("--help")
    for name in (*TrainConfig.__dataclass_fields__, "dropout", "d_model", "resume", "preset"):
        if name != "model":
            assert f"--{name.replace('_', '-')}" in done.out
    assert NOTES in done.out  # with the loss that a slow test looks up
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize("preset", PRESETS)
def test_help_shows_presets_as_flags_that_make_the_same_run(run, preset, monkeypatch):
    shown = run("--help").out.split("The presets, as flags:\n")[1]
    flags = re.search(rf"^  {preset} +((?:--.*\n *)+)", shown, re.MULTILINE)[1]
    asked = []
    monkeypatch.setattr("lmlib.cli.train.run.start", lambda settings, *_: asked.append(settings) or 1 / 0)
    for words in (f"--preset {preset}", f"--config empty.toml {flags}"):
        Path("empty.toml").write_text("" if "model" in PRESETS[preset] else 'model = "tiny"')
        with pytest.raises(ZeroDivisionError):
            run(words)
    assert draft({"model": "tiny", **asked[0]}) == draft(asked[1])


# --- a run that starts from a model ---------------------------------------------------------------


@pytest.fixture
def trained(run):
    """The folder of a short run."""
    assert run(f"{small(steps=4)} --out trained --quiet").code == 0
    return Path("trained")


def tuning(**changes):
    """Options of a run of seconds that has its shape and its tokenizer from elsewhere."""
    options = {
        "data": "text.txt",
        "steps": 6,
        "batch_size": 4,
        "micro_batch_size": 2,
        "warmup_steps": 1,
        "eval_windows": 5,
        "save_every": 0,
        "sample_tokens": 8,
    }
    return flags(**{**options, **changes})


def config_of(folder):
    return TrainConfig.from_dict(tomllib.loads(Path(folder, "config.toml").read_text()))


def test_import_train_on_export(run, trained, folder):
    """From a folder of Hugging Face and back, by way of an imported one."""
    assert main(["export", "trained", "--out", "exported", "--quiet"]) == 0
    assert main(["import", "exported", "--out", "imported", "--quiet"]) == 0
    (folder / "more.txt").write_text("the whale, the white whale. " * 60)
    for source, found in [
        ("trained", "trained/checkpoints/step-00000004"),
        ("exported", "exported"),
        ("imported", "imported/checkpoints/step-00000000"),
    ]:
        done = run(f"--init-from {source} {tuning(data='more.txt')} --dropout 0 --out from-{source}")
        assert done.code == 0, done.err
        assert f"started from {folder}/{found}" in squeezed(done.out)
        config = config_of(f"from-{source}")
        assert config.init_from == f"{folder}/{found}"  # and no other checkpoint that is the best one later
        assert config.tokenizer == f"{folder}/{source}"
        assert config.lr == PRESETS["finetune"]["lr"]
        assert config.model == replace(config_of("trained").model, dropout=0.0)
        assert weights(f"from-{source}", 0) == weights("trained", 4)
        assert curve(f"from-{source}") == curve("from-trained")
        assert Path(f"from-{source}/tokenizer.json").read_text() == Path("trained/tokenizer.json").read_text()
    assert main(["export", "from-exported", "--out", "again", "--quiet"]) == 0


def test_settings_come_before_those_of_finetune_and_its_shape_before_that_of_a_preset(run, trained):
    Path("run.toml").write_text('init_from = "trained"\nlr = 0.5\nsteps = 2')
    for words, lr, batch_size in [
        ("--config run.toml", 0.5, 4),
        ("--config run.toml --lr 0.25", 0.25, 4),
        ("--init-from trained --preset tiny --steps 2", PRESETS["tiny"]["lr"], 4),
    ]:
        assert run(f"{words} --data text.txt --batch-size 4 --sample-tokens 0 --out new --quiet").code == 0
        config = config_of("new")
        assert (config.lr, config.batch_size, config.steps) == (lr, batch_size, 2)
        assert config.model == config_of("trained").model
        shutil.rmtree("new")


def test_a_model_to_start_from_is_refused_where_it_does_not_fit(refused, trained, folder):
    Path("model.toml").write_text('init_from = "trained"\ndata = "text.txt"\n[model]\nd_ff = 100')
    Tokenizer({i: bytes([255 - i]) for i in range(256)}, []).save("other.json")
    assert main(["data", "prepare", "text.txt", "--tokenizer", "other.json", "--out", "other.bin", "--quiet"]) == 0
    before = f"--init-from trained {tuning()}"
    here = f"the model in {folder}/trained/checkpoints/step-00000004"
    for words, message in [
        (f"{before} --num-layers 3", f"num_layers is 3, and {here} has 2: leave num_layers out"),
        (f"{before} --num-heads 3", f"num_heads is 3, and {here} has 2"),
        (f"{before} --shape tiny", f"vocab_size is 1024, and {here} has 257"),
        ("--config model.toml", f"d_ff is 100, and {here} has 64"),
        (f"{before} --tokenizer other.json", "The data were made by another tokenizer than that of the model in "),
        (f"{before} --tokenizer train", "know the ids of one tokenizer alone: name it"),
        (before.replace("text.txt", "other.bin"), f"{folder}/other.bin was made by another tokenizer"),
        (f"--init-from nowhere {tuning()}", "nowhere is no folder: name that of a run"),
        (f"--init-from . {tuning()}", "is neither the folder of a run nor a checkpoint of one"),
        ("--config nothing.toml", "init_from must be the name of a folder, not 3"),
    ]:
        Path("nothing.toml").write_text("init_from = 3")
        assert message in refused(words)


def test_it_goes_on_without_the_model_that_it_started_from(run, trained, refused):
    words = f"--init-from trained {tuning(save_every=3, eval_every=2)} --quiet"
    assert run(f"{words} --out whole").code == 0
    assert run(f"{words} --out again").code == 0
    shutil.rmtree("again/checkpoints/step-00000006")
    assert "init_from: " in refused("--resume again --init-from whole")
    shutil.rmtree("trained")
    assert run("--resume again --quiet").code == 0
    assert curve("again") == curve("whole")
    assert weights("again") == weights("whole")


@pytest.mark.slow
def test_without_options_it_learns_what_its_help_says(run):
    done = run("--help")
    stated = float(re.search(r"validation loss below\s+([\d.]+)", done.out)[1])
    assert run().code == 0
    losses = [record["validation_loss"] for record in curve("runs/1") if "validation_loss" in record]
    assert losses[0] > 6.5
    assert losses[-1] < stated
    assert "after 800 steps" in Path("runs/1/samples.txt").read_text()


# --- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--steps 0", "steps must be a whole number from 1 on"),
        ("--lr fast", "'fast' is no number"),
        ("--schedule cosin", "cosin"),
        ("--leraning-rate 1", "--leraning-rate"),
        ("--num-heads 3", "num_heads=3 does not divide d_model"),
        ("--preset small --num-heads 2", "num_kv_heads=4 does not divide num_heads=2: choose one of 1, 2, so"),
        ("--preset huge", "There is no preset 'huge'"),
        ("--shape huge", "There is no model shape 'huge'"),
        ("--data none.txt", "none.txt"),
        ("--data none.bin", "none.bin"),
        ("--data text.txt --tokenizer none", "There is no tokenizer"),
        ("--data text.txt --tokenizer bytes --context-length 500", "a window takes 501"),  # in validation
        ("--data a\udcff.txt", "data must be text in UTF-8"),
        ("--data text.txt --out text.txt", "text.txt: File exists"),
        ("--data text.txt --tokenizer bytes --vocab-size 100000000000000", "not enough memory: choose a smaller"),
        ("--data text.txt --tokenizer bytes --vocab-size 200", "data have 257 ids, and the model 200"),
        ("--data text.txt --tokenizer bytes --context-length 5000", "a window takes 5,001"),
        ("--config none.toml", "none.toml"),
        ("--resume none", "none holds no run: there is no such folder"),
        ("--resume none --preset tiny", "leave --preset out"),
        ("--device cuda:7", "no device 'cuda:7'"),
        ("--precision tf32", "tf32 is what NVIDIA GPUs"),
    ],
)
def test_bad_input_is_one_line(refused, words, message):
    assert message in refused(words)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = = 3", "bad.toml is no TOML"),
        ("steps = " + "[" * 100_000, "bad.toml is nested too deeply"),
        ("stepz = 3\nmodel = 'tiny'", "There is no setting 'stepz'; did you mean 'steps'"),
        ("steps = '3'\nmodel = 'tiny'", "steps must be a whole number"),
        ("data = 3\nmodel = 'tiny'", "data must be a name of a file"),
        ("data = [3]\nmodel = 'tiny'", "data must be a name of a file"),
        ("validation_data = true\nmodel = 'tiny'", "validation_data must be a name of a file"),
        ("tokenizer = ['bytes']\nmodel = 'tiny'", "tokenizer must be text"),
        ("steps = 3", "The model config lacks context_length"),
        ("[model]\nshape = 'tiny'\nheads = 3", "There is no config key 'heads'"),
    ],
)
def test_a_bad_file_is_one_line(refused, folder, text, message):
    (folder / "bad.toml").write_text(text)
    assert message in refused("--config bad.toml")


def test_a_run_is_neither_overwritten_nor_changed(run, refused):
    assert run(f"{small()} --out here --quiet").code == 0
    assert "here holds a run" in refused(f"{small()} --out here")
    message = refused("--resume here --lr 0.5")
    assert "lr: 0.003 in the checkpoint, 0.5 now" in message
    assert "here were made with data" in refused("--resume here --data other.txt --steps 8")
    assert "has made 6 steps already: steps = 5" in refused("--resume here --steps 5")
    assert tomllib.loads(Path("here/config.toml").read_text())["lr"] == 0.003


def test_a_folder_that_is_no_run_is_named_for_what_it_is(run, refused, folder):
    assert run(f"{small(steps=3)} --out here --quiet").code == 0
    assert main(["export", "here", "--out", "exported", "--quiet"]) == 0
    assert main(["import", "exported", "--out", "imported", "--quiet"]) == 0
    assert "imported holds no run: it holds a model, as lmlib import writes it" in refused("--resume imported")
    assert "exported holds no run: it holds a model for Hugging Face's tools" in refused("--resume exported")
    assert f"Say --resume {folder}/here" in refused("--resume here/checkpoints/step-00000003")
    Path("other").mkdir()
    assert "other holds no run: there is no config.toml in it" in refused("--resume other")


def test_a_folder_with_the_beginning_of_a_run_is_refused(run, refused):
    assert run(f"{small()} --out here --quiet").code == 0
    for name in ("config.toml", "metrics.jsonl", "environment.json", "samples.txt"):
        Path("here", name).unlink()
    shutil.rmtree("here/checkpoints")
    # its tokens would be those of another run, whatever that is told
    assert "here holds tokenizer.json of a run that was ended" in refused(f"{small()} --out here")


def test_two_commands_do_not_train_in_one_folder(run, refused):
    assert run(f"{small(steps=3)} --out here --quiet").code == 0
    with RunFolder(Path("here")).locked():
        assert "Another process trains in here" in refused("--resume here --steps 6")
        assert "Another process trains in here" in refused(f"{small()} --out here")
    assert run("--resume here --steps 6 --quiet").code == 0


def test_two_that_start_at_once_have_folders_of_their_own(monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda self: False)  # as both may find it
    assert [_make_folder(None)[0] for _ in range(3)] == [Path("runs/1"), Path("runs/2"), Path("runs/3")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.toml", "", "model must be given"),
        ("environment.json", "{}", "here/environment.json holds no list"),
        ("environment.json", "{nope", "here/environment.json holds no list"),
        ("metrics.jsonl", "nope\n{}\n", "here/metrics.jsonl, line 1, is no record"),
    ],
)
def test_a_damaged_file_of_a_run_is_named(run, name, text, message):
    assert run(f"{small(steps=3)} --out here --quiet").code == 0
    Path("here", name).write_text(text)
    done = run("--resume here --steps 6 --quiet")
    assert done.code == 2
    assert message in done.err


def test_a_loss_that_is_not_finite_is_an_answer_of_no(run):
    done = run(f"{small(lr=1e30, weight_decay=0, max_norm=0, steps=50)}")
    assert done.code == 1
    assert re.search(r"error: Step \d+ was not made.*learning rate", done.err)


# --- processes ------------------------------------------------------------------------------------


@pytest.fixture
def start(folder):
    """Start the command in a process of its own, which is killed in the end."""
    started = []

    def start(words, prefix=("-m", "lmlib", "train")):
        process = subprocess.Popen(
            [sys.executable, *prefix, *shlex.split(words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for(condition, process, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def has_steps(folder, count):
    path = Path(folder) / "metrics.jsonl"
    return lambda: path.exists() and path.read_bytes().count(b'"loss"') >= count


def test_killed_and_resumed_it_is_one_unbroken_curve(run, start):
    often = {"save_every": 5, "eval_every": 50, "schedule": "wsd", "decay_steps": 1}
    assert run(f"{small(steps=40, **often)} --out whole --quiet").code == 0
    killed = start(f"{small(steps=3000, **often)} --out killed")
    wait_for(has_steps("killed", 12), killed)
    killed.kill()
    killed.communicate()
    assert run("--resume killed --steps 40 --quiet").code == 0
    assert curve("killed") == curve("whole")
    assert weights("killed", 40) == weights("whole", 40)
    assert not list(Path("killed/checkpoints").glob(".*"))


@pytest.mark.slow  # another process; all that goes on is tested above
def test_killed_and_resumed_without_the_model_that_it_started_from(run, start, trained):
    words = f"--init-from trained {tuning(steps=3000, save_every=5, schedule='wsd', decay_steps=1)}"
    killed = start(f"{words} --out killed")
    wait_for(has_steps("killed", 7), killed)
    killed.kill()
    killed.communicate()
    assert run(f"{words.replace('--steps 3000', '--steps 30')} --out whole --quiet").code == 0
    shutil.rmtree("trained")
    assert run("--resume killed --steps 30 --quiet").code == 0
    assert curve("killed") == curve("whole")
    assert weights("killed", 30) == weights("whole", 30)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_tells_how_to_go_on(run, start, number, code):
    process = start(f"{small(steps=3000, save_every=0)} --out here")
    wait_for(has_steps("here", 5), process)
    process.send_signal(number)
    _, err = process.communicate(timeout=240)
    assert process.returncode == code
    assert f"stopped by {number.name}, exit code {code}" in err
    assert "lmlib train --resume here" in err
    (checkpoint,) = Path("here/checkpoints").iterdir()
    step = int(checkpoint.name.removeprefix("step-"))
    assert curve("here")[-1]["step"] == step
    assert run(f"--resume here --steps {step + 2} --quiet").code == 0
    steps = [record["step"] for record in curve("here") if "loss" in record]
    assert steps == list(range(1, step + 3))


def test_under_torchrun_it_is_the_same_command(run, start):
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "lmlib", "train")
    words = small(dropout=0, micro_batch_size=1)
    process = start(f"{words} --out together", prefix=torchrun)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert out.count("written to") == 1
    assert run(f"{words} --out alone --quiet").code == 0
    for mine, theirs in zip(curve("alone"), curve("together"), strict=True):
        for name in {"loss", "validation_loss"} & mine.keys():
            assert theirs[name] == pytest.approx(mine[name], abs=1e-5)
