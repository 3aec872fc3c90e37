"""lmlib export and lmlib import: from a run to transformers and back, and what goes wrong is said in one line."""

import json
import os
import pickle
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from lmlib.bpe import Tokenizer
from lmlib.checkpoint import CheckpointStore, TrainingState
from lmlib.cli import app, main
from lmlib.cli.hugging_face import exporting, importing
from lmlib.cli.hugging_face.options import FolderOptions
from lmlib.config import ModelConfig
from lmlib.export import load_trained, save_hugging_face
from lmlib.model import TransformerLM

pytestmark = pytest.mark.usefixtures("one_thread")

END = "<|endoftext|>"
TOKENIZER = Tokenizer({i: bytes([i]) for i in range(256)}, [], [END, "<|other|>"])
CONFIG = ModelConfig(vocab_size=264, context_length=8, d_model=16, num_layers=1, num_heads=2)
COMMANDS = [
    ("export", exporting, exporting.ExportOptions),
    ("import", importing, FolderOptions),
]


def save_run(folder, config=CONFIG, tokenizer=TOKENIZER):
    store = CheckpointStore(Path(folder, "checkpoints"))
    for step, loss in [(10, 2.0), (20, 2.5)]:
        model = TransformerLM(config, generator=torch.Generator().manual_seed(step))
        state = TrainingState(model.state_dict(), {})
        store.save(state, step=step, validation_loss=loss, config={"model": config.to_dict()})
    if tokenizer:
        tokenizer.save(Path(folder, "tokenizer.json"))


def run_in(folder, capfd, monkeypatch):
    monkeypatch.chdir(folder)

    def run(*arguments):
        capfd.readouterr()
        code = main([*map(str, arguments)])
        out, err = capfd.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    """Run a command in a folder that holds a run."""
    save_run(tmp_path / "run")
    return run_in(tmp_path, capfd, monkeypatch)


def succeed(done):
    assert (done.code, done.err) == (0, "")
    return done


def size_of(folder):
    return sum(os.path.getsize(os.path.join(place, name)) for place, _, names in os.walk(folder) for name in names)


# --- help ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "module", "options"), COMMANDS)
def test_help_is_complete(run, command, module, options):
    help = succeed(run(command, "--help")).out
    for name in options.__dataclass_fields__:
        assert re.search(rf"--{name.replace('_', '-')}\b.*? [A-Z]?[a-z]+ [a-z]+", help), name
    assert module.USAGE in help
    assert module.NOTES in help
    assert module.EXAMPLES.rstrip() in help
    assert max(map(len, help.splitlines())) <= 80
    assert "False" not in help
    assert command in succeed(run("--help")).out


@pytest.mark.parametrize(("command", "module", "options"), COMMANDS)
def test_examples_of_the_help_are_right(command, module, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"lmlib (.*)", module.EXAMPLES)
    assert len(examples) == module.EXAMPLES.count(f"lmlib {command} ") > 0
    for example in examples:
        app.parse_args(shlex.split(example), exit_on_error=False, print_error=False)


def test_help_does_not_load_torch():
    code = (
        "import sys; sys.modules['torch'] = None; from lmlib.cli import main\n"
        "codes = [main([command, '--help']) for command in ('export', 'import')]\n"
        "sys.exit(codes != [0, 0])"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.DEVNULL)


# --- there and back -----------------------------------------------------------------------------------------------


def test_export_then_transformers_then_import(run):
    report = succeed(run("export", "run", "--out", "model")).out
    trained = load_trained("run")
    assert report == (
        "read        step 10, validation loss 2.0000\nmodel       LlamaForCausalLM\n"
        f"            {CONFIG.num_parameters:,} parameters\n            {size_of('model'):,} bytes\n"
        "vocabulary  264 ids\ntokenizer   258 ids\nwritten to  model\n"
    )
    ids = torch.arange(8)[None] + 100
    with torch.no_grad():
        theirs = AutoModelForCausalLM.from_pretrained("model")(ids).logits
        torch.testing.assert_close(trained.model(ids), theirs, rtol=0, atol=1e-5)
    facts = {"architecture": "LlamaForCausalLM", "parameters": CONFIG.num_parameters, "vocab_size": 264}
    facts |= {"tokenizer_size": 258, "no_tokenizer": None}
    done = json.loads(succeed(run("import", "model", "--out", "again", "--json")).out)
    assert done == {"folder": "model", **facts, "bytes": size_of("again"), "out": "again"}
    again = load_trained("again")
    ours, others = trained.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(ours[name], others[name]) for name in ours)
    assert again.config == CONFIG
    assert again.tokenizer.spec == TOKENIZER.spec
    report = succeed(run("import", "model", "--out", "third")).out
    assert report.startswith("read        model\nmodel       LlamaForCausalLM\n")
    done = json.loads(succeed(run("export", "again", "--out", "fourth", "--json")).out)
    assert done == {"run": "again", "step": 0, "validation_loss": None, **facts} | {
        "bytes": size_of("fourth"),
        "out": "fourth",
    }
    assert succeed(run("export", "again", "--out", "fifth", "--quiet")).out == ""
    for name in os.listdir("model"):
        assert Path("model", name).read_bytes() == Path("fifth", name).read_bytes()


def test_options(run):
    for options, step in [
        (["--checkpoint", "latest"], 20),
        (["--checkpoint", "20"], 20),
        (["--checkpoint", "best"], 10),
    ]:
        facts = json.loads(succeed(run("export", "run", "--json", "--out", f"{options[1]}{step}", *options)).out)
        assert facts["step"] == step
    succeed(run("export", "run/checkpoints/step-00000020", "--dtype", "bf16", "--out", "bf16"))
    assert {weight.dtype for weight in load_file("bf16/model.safetensors").values()} == {torch.bfloat16}
    succeed(run("import", "bf16", "--dtype", "fp32", "--out", "fp32"))
    assert next(load_trained("fp32").model.parameters()).dtype == torch.float32
    succeed(run("import", "bf16", "--out", "as-it-is"))
    assert next(load_trained("as-it-is").model.parameters()).dtype == torch.bfloat16
    succeed(run("export", "run", "--end-of-text", "<|other|>", "--out", "other"))
    assert json.loads(Path("other/generation_config.json").read_text())["eos_token_id"] == 257
    Tokenizer({i: bytes([255 - i]) for i in range(256)}, []).save("reversed.json")
    succeed(run("export", "run", "--tokenizer", "reversed.json", "--out", "reversed"))
    assert Tokenizer.from_pretrained("reversed").encode("a") == [255 - 97]


def test_without_a_tokenizer(run):
    save_run("bare", tokenizer=None)
    assert "tokenizer   none: there is no tokenizer.json\n" in succeed(run("export", "bare", "--out", "model")).out
    report = succeed(run("import", "model", "--out", "again", "--json")).out
    assert json.loads(report)["no_tokenizer"] == "there is no tokenizer.json"


# --- what goes wrong ----------------------------------------------------------------------------------------------

WRONG = [
    (["export", "--out", "new"], "RUN"),
    (["export", "run"], "--out"),
    (["export", "nowhere", "--out", "new"], "nowhere is neither the folder of a run nor a checkpoint of one"),
    (["export", "run", "--out", "run"], "run is there already: name another folder, or remove it"),
    (["export", "run", "--out", "new", "--checkpoint", "last"], "--checkpoint is 'last': say best, latest, or a step"),
    (["export", "run", "--out", "new", "--checkpoint", "11"], "There is no checkpoint run/checkpoints/step-00000011"),
    (
        ["export", "run/checkpoints/step-00000010", "--out", "new", "--checkpoint", "20"],
        "is a checkpoint itself: to choo",
    ),
    (["export", "run", "--out", "new", "--dtype", "fp8"], 'Choose from: "fp32", "bf16", "fp16"'),
    (["export", "run", "--out", "new", "--tokenizer", "gpt2"], "ids up to 50256, and the model's vocab_size is 264"),
    (["export", "run", "--out", "new", "--end-of-text", "<x>"], "no special token '<x>' to end a text with"),
    (["export", "run", "--out", "new", "--end-of-text", ""], "no special token '' to end a text with"),
    (["export", "nowhere", "--out", "/proc/new"], "No file can be made in /proc: "),
    (["import", "nowhere", "--out", "/proc/new/new"], "No file can be made in /proc: "),
    (
        ["import", "nowhere", "--out", "mistral/config.json/new/new"],
        "mistral/config.json is not a folder: name another",
    ),
    (["export", "run", "--out", "."], ". is there already: name another folder"),
    (["export", "mixed", "--out", "new"], "neither a GPT-2 nor a Llama: a GPT-2 has norm='layernorm', mlp='gelu'"),
    (["import", "nowhere", "--out", "new"], "no config.json in nowhere"),
    (["import", "pickled", "--out", "new"], "pytorch_model.bin is a pickle, which can run anything"),
    (["import", "pickled", "--out", "run"], "run is there already"),
    (["import", "mistral", "--out", "new"], "mistral cannot be read: model_type is 'mistral'"),
]


@pytest.fixture(scope="module")
def wrong_folders(tmp_path_factory):
    """A run, and what cannot be exported or imported."""
    folder = tmp_path_factory.mktemp("wrong")
    save_run(folder / "run")
    save_run(folder / "mixed", ModelConfig(264, 8, 16, 1, 2, position="learned"))
    for name in ("pickled", "mistral"):
        save_hugging_face(folder / name, TransformerLM(CONFIG))
    (folder / "pickled" / "model.safetensors").unlink()
    (folder / "pickled" / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    (folder / "mistral" / "config.json").write_text('{"model_type": "mistral"}')
    return folder


@pytest.mark.parametrize(("arguments", "reason"), WRONG, ids=lambda value: " ".join(map(str, value))[:60])
def test_wrong_input_is_one_line_and_writes_nothing(wrong_folders, capfd, monkeypatch, arguments, reason):
    before = sorted(wrong_folders.rglob("*"))
    done = run_in(wrong_folders, capfd, monkeypatch)(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert reason in done.err
    assert sorted(wrong_folders.rglob("*")) == before
