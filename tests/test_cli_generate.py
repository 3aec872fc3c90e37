"""lmlib generate: the texts that the library makes, from any folder with a model, and what goes wrong is one line."""

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lmlib.bpe import Tokenizer
from lmlib.checkpoint import CheckpointStore, TrainingState
from lmlib.cli import app, main
from lmlib.cli import generate as command
from lmlib.cli.files import print_json
from lmlib.config import ModelConfig
from lmlib.export import load_trained, save_hugging_face, save_trained
from lmlib.generate import decode_stream, generate, stream_batch
from lmlib.model import TransformerLM

pytestmark = pytest.mark.usefixtures("one_thread")

END = "<|endoftext|>"
LETTERS = {i: bytes([i]) for i in range(256)}
TOKENIZER = Tokenizer(LETTERS, [], [END, "<|other|>"])
CONFIG = ModelConfig(vocab_size=264, context_length=8, d_model=16, num_layers=1, num_heads=2)
SAMPLED = ["--max-new-tokens", "20", "--device", "cpu", "--seed", "3"]
REPORT = r"[\d,]+ tokens in \d+\.\d\d s: [\d,]+\.\d tokens/s, seed (\d+)\n"


def make_model(config=CONFIG, seed=10):
    """A model so sharp that it draws few tokens, and different ones for each seed."""
    generator = torch.Generator().manual_seed(seed)
    model = TransformerLM(config, generator=generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def save_run(folder, tokenizer=TOKENIZER, steps=(10, 20)):
    store = CheckpointStore(Path(folder, "checkpoints"))
    for step in steps:
        state = TrainingState(make_model(seed=step).state_dict(), {})
        store.save(state, step=step, validation_loss=step / 10, config={"model": CONFIG.to_dict()})
    if tokenizer:
        tokenizer.save(Path(folder, "tokenizer.json"))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A run, the same exported, and what nothing can be generated with."""
    folder = tmp_path_factory.mktemp("models")
    save_run(folder / "run")
    save_run(folder / "bare", tokenizer=None, steps=[10])
    save_hugging_face(folder / "exported", make_model(), TOKENIZER)
    (folder / "empty").mkdir()
    (folder / "not-utf-8").write_bytes(b"\xff")
    save_trained(folder / "long", make_model(replace(CONFIG, context_length=2**50)), TOKENIZER)
    broken = make_model()
    torch.nn.init.constant_(broken.head.weight, torch.nan)
    save_trained(folder / "broken", broken, TOKENIZER)
    return folder


@pytest.fixture
def run(models, capfd, monkeypatch):
    monkeypatch.chdir(models)

    def run(*arguments, stdin=b""):
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(stdin)))
        capfd.readouterr()
        code = main(["generate", *map(str, arguments)])
        out, err = capfd.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


def succeed(done):
    assert done.code == 0, done.err
    return done


def expected_text(model, prompt, seed=3, max_new_tokens=20, **options):
    options = {"temperature": 0.8, "vocab_size": 258, "stop_token": 256} | options
    generator = torch.Generator().manual_seed(seed)
    ids = generate(model, TOKENIZER.encode_ordinary(prompt), max_new_tokens, generator=generator, **options)
    return "".join(decode_stream(TOKENIZER, ids))


# --- help ---------------------------------------------------------------------------------------------------------


def test_help_is_complete(run):
    help = succeed(run("--help")).out
    for name in command.GenerateOptions.__dataclass_fields__:
        assert re.search(rf"--{name.replace('_', '-')}\b.*? [A-Z]?[a-z]+ [a-z]+", help), name
    assert command.USAGE in help
    assert command.NOTES in help
    assert command.EXAMPLES.rstrip() in help
    assert max(map(len, help.splitlines())) <= 80
    assert "False" not in help


def test_examples_of_the_help_are_right():
    examples = re.findall(r"lmlib (.*)", command.EXAMPLES)
    assert len(examples) == 3
    for example in examples:
        words = ["text" if word == "-" else word for word in shlex.split(example)]  # main knows better
        app.parse_args(words, exit_on_error=False, print_error=False)


def test_help_does_not_load_torch():
    code = "import sys; sys.modules['torch'] = None; from lmlib.cli import main; sys.exit(main(['generate', '--help']))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.DEVNULL)


# --- texts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "step"),
    [
        (["run"], 10),  # the best
        (["run", "--checkpoint", "latest"], 20),
        (["run", "--checkpoint", "20"], 20),
        (["run/checkpoints/step-00000020"], 20),
        (["exported"], 10),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else str(value),
)
def test_a_text_from_every_folder_with_a_model(run, folder, step):
    done = succeed(run(*folder, "--prompt", "ab", *SAMPLED))
    assert done.out == f"ab{expected_text(load_trained('run', step).model, 'ab')}\n"
    assert re.fullmatch(REPORT, done.err)[1] == "3"


def test_options(run):
    model = load_trained("run").model
    for changes in [
        {"temperature": 0},
        {"temperature": 2, "top_k": 5},
        {"top_p": 0.5},
        {"max_new_tokens": 7},
        {"seed": 4},
    ]:
        options = {"max_new_tokens": 20, "seed": 3} | changes
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        done = succeed(run("run", "--prompt", "ab", *words, "--quiet"))
        assert (done.out, done.err) == (f"ab{expected_text(model, 'ab', **changes)}\n", "")
    reversed_letters = Tokenizer({i: bytes([255 - i]) for i in range(256)}, [])
    reversed_letters.save("reversed.json")
    done = succeed(run("bare", "--prompt", "b", *SAMPLED, "--tokenizer", "reversed.json", "--temperature", "0"))
    ids = generate(model, [255 - ord("b")], 20, temperature=0, vocab_size=256)
    assert done.out == f"b{''.join(decode_stream(reversed_letters, ids))}\n"


def test_a_prompt_from_standard_input_and_none(run):
    model = load_trained("run").model
    for prompt in ("é\n", "- one\r\ntwo\n\n", f"{END}a"):  # every byte counts, and no special token comes in
        done = succeed(run("run", "--prompt", "-", *SAMPLED, stdin=prompt.encode()))
        assert done.out == f"{prompt}{expected_text(model, prompt)}\n"
    begun = f"{expected_text(model, chr(10))}\n"
    assert succeed(run("run", *SAMPLED)).out == begun
    assert succeed(run("run", "--prompt", "-", *SAMPLED)).out == begun
    assert succeed(run("run", "--prompt=-1", *SAMPLED)).out == f"-1{expected_text(model, '-1')}\n"


def test_the_end_of_a_text(run):
    """A tokenizer in which the end is what the model has written fifth."""
    model = load_trained("run").model
    ids = generate(model, [97], 20, temperature=0)
    end = next(token for place, token in enumerate(ids) if place >= 4 and token < 256)
    letters = {i: letter for i, letter in LETTERS.items() if i != end} | {256: bytes([end])}
    for name, options in [(END, []), ("<|x|>", ["--end-of-text", "<|x|>"])]:
        Tokenizer(letters, [], {name: end}).save("ends.json")
        arguments = ["bare", "--tokenizer", "ends.json", "--prompt", "a", *SAMPLED, "--temperature", "0", "--json"]
        (sample,) = json.loads(succeed(run(*arguments, *options)).out)["samples"]
        assert (sample["tokens"], sample["ended"]) == (ids.index(end), True)
        (sample,) = json.loads(succeed(run(*arguments, "--ignore-end")).out)["samples"]
        assert (sample["tokens"], sample["ended"]) == (20, False)
        assert name in sample["text"]


def test_several_samples(run):
    model = load_trained("run").model
    texts = [expected_text(model, "ab", seed) for seed in (3, 4, 5)]
    assert len({*texts}) == 3
    done = succeed(run("run", "--prompt", "ab", *SAMPLED, "--num-samples", "3"))
    titles = [f"--- sample {number} of 3, seed {number + 2} ---" for number in (1, 2, 3)]
    assert done.out == "".join(f"{title}\nab{text}\n" for title, text in zip(titles, texts, strict=True))
    assert re.fullmatch(REPORT, done.err)
    done = succeed(run("run", "--prompt", "ab", *SAMPLED, "--num-samples", "3", "--json"))
    report = json.loads(done.out)
    assert done.err == ""
    assert report.pop("tokens_per_second") > 0
    samples = report.pop("samples")
    assert report == {"model": "run", "prompt": "ab", "prompt_tokens": 2}
    assert [sample["text"] for sample in samples] == texts
    assert [sample["seed"] for sample in samples] == [3, 4, 5]
    assert all(sample["tokens"] == 20 or sample["ended"] for sample in samples)


def test_without_a_seed_it_is_another_each_time_and_can_be_repeated(run):
    first, second = (succeed(run("run", "--max-new-tokens", "20")) for _ in range(2))
    assert first.out != second.out
    seed = re.fullmatch(REPORT, first.err)[1]
    assert succeed(run("run", "--max-new-tokens", "20", "--seed", seed)).out == first.out


# --- while it is written ------------------------------------------------------------------------------------------


def interrupted_after(count, error):
    """The stream of a model that somebody stops after some tokens."""

    def stream(model, prompt, *arguments, generator, **options):
        pairs = stream_batch(model, [prompt], *arguments, generators=[generator], **options)
        for _, (_, token) in zip(range(count), pairs, strict=False):
            yield token
        raise error

    return stream


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (ValueError("The logits hold a NaN"), 2, "error: The logits hold a NaN\n"),
        (SystemExit(143), 143, ""),  # SIGTERM
    ],
    ids=["ctrl-c", "error", "sigterm"],
)
def test_whatever_stops_a_text_ends_the_line(run, capfd, monkeypatch, error, code, message):
    monkeypatch.setattr("lmlib.cli.generate.samples.stream", interrupted_after(5, error))
    if code == 143:
        with pytest.raises(SystemExit, match="143"):
            run("run", "--prompt", "ab", *SAMPLED)
        out, err = capfd.readouterr()
    else:
        done = run("run", "--prompt", "ab", *SAMPLED)
        assert done.code == code
        out, err = done.out, done.err
    text = expected_text(load_trained("run").model, "ab", max_new_tokens=5)
    assert out == f"ab{text.rstrip(chr(0xFFFD))}\n"  # whose last character was not whole yet
    assert err == message


def test_a_damaged_checkpoint_is_a_warning_of_one_line_and_no_code(run):
    shutil.copytree("run", "damaged")
    Path("damaged/checkpoints/step-00000010/training.pt").write_bytes(b"")
    done = succeed(run("damaged", *SAMPLED, "--quiet"))
    assert re.fullmatch(r"warning: Damaged checkpoints:\n  step-00000010: .*\nstep-00000020 is .*\n", done.err)


def test_a_checkpoint_is_chosen_where_there_is_another_model_beside_them(run):
    shutil.copytree("run", "both")
    shutil.copytree("exported", "both", dirs_exist_ok=True)
    done = succeed(run("both", "--checkpoint", "latest", "--prompt", "ab", *SAMPLED))
    assert done.out == f"ab{expected_text(load_trained('run', 20).model, 'ab')}\n"


def test_a_full_disk_is_named(monkeypatch):
    """As that of a report longer than what Python holds back."""

    def full(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sys.stdout", SimpleNamespace(write=full))
    with pytest.raises(OSError, match="No space left on device: 'standard output'"):
        print_json({})


@pytest.fixture
def endless(models):
    """A process that writes a text without an end."""
    arguments = ["run", "--prompt", "ab", "--max-new-tokens", "1e9", "--ignore-end", "--device", "cpu"]
    with subprocess.Popen(
        [sys.executable, "-m", "lmlib", "generate", *arguments],
        cwd=models,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdout.read(12).startswith(b"ab")
        yield process
        process.kill()


@pytest.mark.slow  # another process; the parts are tested above
def test_text_comes_while_it_is_made_and_the_process_ends_on_ctrl_c(endless):
    endless.send_signal(signal.SIGINT)
    out, err = endless.communicate(timeout=60)
    assert out.endswith(b"\n")
    assert (endless.returncode, err) == (130, b"interrupted\n")


@pytest.mark.slow  # another process, and main is tested with this elsewhere
def test_a_reader_that_goes_away_is_no_error(endless):
    endless.stdout.close()
    assert endless.stderr.read() == b""
    assert endless.wait(timeout=60) == 141


# --- what goes wrong ----------------------------------------------------------------------------------------------

WRONG = [
    ([], "MODEL"),
    (["nowhere"], "nowhere is no folder: name that of a run, of a checkpoint in it, or one that lmlib export wrote"),
    (["not-utf-8"], "not-utf-8 is no folder"),
    (["empty"], "empty is neither the folder of a run nor a checkpoint of one"),
    (["run", "--checkpoint", "last"], "--checkpoint is 'last': say best, latest, or a step"),
    (["run", "--checkpoint", "9" * 5000], "say best, latest, or a step"),
    (["run", "--checkpoint", "11"], "There is no checkpoint run/checkpoints/step-00000011"),
    (["exported", "--checkpoint", "best"], "chooses among those of a run, and exported is not the folder of one"),
    (["bare"], "bare has no tokenizer (there is no tokenizer.json): name one with --tokenizer"),
    (["run", "--tokenizer", "gpt2"], "ids up to 50256, and the model's vocab_size is 264"),
    (["run", "--end-of-text", "<x>"], "no special token '<x>': it has '<|endoftext|>', '<|other|>'"),
    (["run", "--end-of-text", END, "--ignore-end"], "--ignore-end has no end: leave --end-of-text out"),
    (["run", "--max-new-tokens", "0"], "max_new_tokens must be a whole number from 1 on"),
    (["run", "--max-new-tokens", "6.5"], "'6.5' is no whole number"),
    (["run", "--temperature=-1"], "temperature must be a number from 0 on"),
    (["run", "--temperature", "warm"], "'warm' is no number"),
    (["run", "--top-k", "0"], "top_k must be a whole number from 1 on"),
    (["run", "--top-p", "1.5"], "top_p must be above 0 and at most 1"),
    (["run", "--num-samples", "9e18", "--seed", "1"], "not enough memory: make fewer samples at once (--num-samples)"),
    (["long", "--max-new-tokens", "1e13"], "not enough memory: make fewer samples at once (--num-samples), shorter"),
    (["run", "--num-samples", "0"], "num_samples must be a whole number from 1 on"),
    (["run", "--seed=-1"], "seed must be a whole number from 0 to 2^63"),
    (["run", "--seed", "9223372036854775807", "--num-samples", "2"], "seed must be a whole number from 0 to 2^63"),
    (["run", "--device", "abacus"], "no device 'abacus' on this machine"),
    (["run", "--prompt", "-"], "is not UTF-8"),
    (["run", "--prompt", "a\udcff"], "prompt must be text in UTF-8"),
    (["broken"], "The logits hold a NaN or an infinity"),
    (["broken", "--json"], "The logits hold a NaN or an infinity: the model's weights are broken"),
]


@pytest.mark.parametrize(("arguments", "reason"), WRONG, ids=lambda value: " ".join(map(str, value))[:60])
def test_wrong_input_is_one_line(run, arguments, reason):
    done = run(*arguments, stdin=b"\xff")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert reason in done.err
