"""lmlib data: token files are prepared and looked into, and what goes wrong is said in one line."""

import gzip
import io
import json
import os
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lmlib.bpe import Tokenizer, train_bpe
from lmlib.cli import app, main
from lmlib.cli.data import inspect, prepare
from lmlib.corpora import load_corpus
from lmlib.data import open_tokens

TEXT = load_corpus("moby_dick")[:20_000]
END, OTHER = "<|endoftext|>", "<|other|>"
TOKENIZER = Tokenizer(*train_bpe([TEXT], 400, progress=False), [END, OTHER])
IDS = [*TOKENIZER.encode(TEXT), TOKENIZER.special_tokens[END]]
TO = ["--tokenizer", "tokenizer.json", "--out", "train.bin"]


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    """Run a command in a folder that holds a tokenizer and a text."""
    monkeypatch.chdir(tmp_path)
    TOKENIZER.save("tokenizer.json")
    Path("book.txt").write_text(TEXT)

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        code = main(["data", *map(str, arguments)])
        out, err = capfd.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


def succeed(done):
    assert (done.code, done.err) == (0, "")
    return done


# --- help ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [prepare, inspect])
def test_help_is_complete(run, module):
    command = module.__name__.rpartition(".")[2]
    help = succeed(run(command, "--help")).out
    options = getattr(module, f"{command.capitalize()}Options")
    for name in options.__dataclass_fields__:
        assert re.search(rf"--{name.replace('_', '-')}\b.*? [A-Z]?[a-z]+ [a-z]+", help), name
    assert module.USAGE in help
    assert module.EXAMPLES.rstrip() in help
    assert max(map(len, help.splitlines())) <= 80
    assert "empty-" not in help
    assert "False" not in help
    assert command in succeed(run("--help")).out


@pytest.mark.parametrize("module", [prepare, inspect])
def test_examples_of_the_help_are_right(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"lmlib (data [^|\n]*)", module.EXAMPLES.replace("\\\n", ""))
    assert len(commands) == module.EXAMPLES.count("lmlib data") > 0
    for command in commands:
        app.parse_args(shlex.split(command.replace(" - ", " ")), exit_on_error=False, print_error=False)


# --- prepare ------------------------------------------------------------------------------------------------------


def test_prepare_writes_tokens_and_reports(run):
    report = succeed(run("prepare", "book.txt", *TO)).out
    assert open_tokens("train.bin", check="all").ids.tolist() == IDS
    assert re.sub(r"seconds +\d+\.\d", "seconds", report) == (
        f"read        book.txt\ntokens      {len(IDS):,} of uint16\n            {2 * len(IDS):,} bytes\n"
        "vocabulary  402 ids\ndocuments   end with id 400\nseconds\nwritten to  train.bin\n"
    )
    facts = json.loads(succeed(run("prepare", "book.txt", *TO, "--json")).out)
    assert facts.pop("seconds") >= 0
    assert facts == {
        "files": ["book.txt"],
        "tokens": len(IDS),
        "dtype": "uint16",
        "bytes": 2 * len(IDS),
        "vocab_size": 402,
        "end_of_text": 400,
        "out": "train.bin",
    }
    assert succeed(run("prepare", "book.txt", *TO, "--quiet")).out == ""
    assert sorted(os.listdir()) == ["book.txt", "tokenizer.json", "train.bin", "train.bin.json"]


def test_the_same_comes_from_packed_files_pipes_and_workers(run):
    Path("book.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    for arguments in [["book.txt.gz"], ["-"], ["book.txt", "--num-workers", 2], ["book.txt", "--num-workers", "1e0"]]:
        succeed(run("prepare", *arguments, *TO, stdin=TEXT.encode()))
        assert open_tokens("train.bin").ids.tolist() == IDS
    succeed(run("prepare", "book.txt", "book.txt.gz", *TO))
    assert open_tokens("train.bin").ids.tolist() == 2 * IDS
    assert "read        2 files" in run("prepare", "book.txt", "book.txt.gz", *TO).out


def test_options_of_prepare(run):
    Path("a.txt").write_text(f"a{OTHER}b")
    other = TOKENIZER.special_tokens[OTHER]

    def ids(*options):
        succeed(run("prepare", "a.txt", *TO, *options))
        return open_tokens("train.bin").ids.tolist()

    assert ids("--allow-special", OTHER) == ids("--allow-special", "all") == [97, other, 98, 400]
    assert ids("--end-of-text", OTHER) == [97, other, 98, other]
    assert ids("--special-as-text") == [*TOKENIZER.encode_ordinary(f"a{OTHER}b"), 400]
    assert ids("--special-as-text", "--no-end-of-text") == TOKENIZER.encode_ordinary(f"a{OTHER}b")
    report = run("prepare", "a.txt", *TO, "--special-as-text", "--no-end-of-text", "--dtype", "uint32").out
    assert "of uint32" in report
    assert "documents   not marked" in report


@pytest.mark.parametrize("options", [[], ["--quiet"]])
def test_progress_is_shown_on_a_terminal_unless_it_is_unwanted(run, monkeypatch, options):
    err = io.StringIO()
    err.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", err)
    assert run("prepare", "book.txt", *TO, *options).code == 0
    assert bool(re.search(r"encoding.*\d.*B/s", err.getvalue())) == (not options)


# --- inspect ------------------------------------------------------------------------------------------------------


def test_inspect_reports_facts(run):
    succeed(run("prepare", "book.txt", *TO))
    report = succeed(run("inspect", "train.bin", "--tokenizer", "tokenizer.json")).out
    assert "sidecar     agrees\n" in report
    assert f"tokens      {len(IDS):,} of uint16\n" in report
    assert "CHAPTER␣1.␣Loomings" in report
    assert max(map(len, report.splitlines())) <= 80
    facts = json.loads(succeed(run("inspect", "train.bin", "--first", 3, "--check", "all", "--json")).out)
    tokens = open_tokens("train.bin")
    assert facts == {
        "file": "train.bin",
        "sidecar": True,
        "tokens": len(IDS),
        "dtype": "uint16",
        "bytes": 2 * len(IDS),
        "vocab_size": 402,
        "end_of_text": 400,
        "tokenizer_sha256": tokens.tokenizer_sha256,
        "fingerprint": tokens.fingerprint,
        "first": IDS[:3],
        "text": None,
    }


def test_inspect_opens_a_file_of_nanogpt(run):
    np.array(IDS, "uint16").tofile("nanogpt.bin")
    report = succeed(run("inspect", "nanogpt.bin")).out
    assert "sidecar     none\n" in report
    assert "vocabulary  not known\n" in report
    assert "tokenizer   not known\n" in report
    facts = json.loads(succeed(run("inspect", "nanogpt.bin", "--vocab-size", 402, "--json")).out)
    assert (facts["vocab_size"], facts["tokens"], facts["sidecar"]) == (402, len(IDS), False)
    np.array(IDS, "int32").tofile("wide.bin")
    assert f"{len(IDS):,} of int32" in succeed(run("inspect", "wide.bin", "--dtype", "int32")).out


# --- what goes wrong ------------------------------------------------------------------------------------------------

BAD_FILES = {
    "empty.txt": b"",
    "latin1.txt": b"ab\xe9",
    "special.txt": f"a{OTHER}".encode(),
    "cut.gz": gzip.compress(TEXT.encode())[:-50],
    "empty.bin": b"",
    "odd.bin": b"\1\0\2",
    "wide.bin": np.arange(1000, dtype="<i4").tobytes(),
    "good.bin": np.arange(1000, dtype="<u2").tobytes(),
    "lying.bin": np.arange(1000, dtype="<u2").tobytes(),
    "lying.bin.json": b'{"dtype": "uint16", "count": 999, "vocab_size": 1000}',
    "broken.bin": np.arange(1000, dtype="<u2").tobytes(),
    "broken.bin.json": b"{",
    "nested.bin": np.arange(1000, dtype="<u2").tobytes(),
    "nested.bin.json": b"[" * 100_000,
}
WRONG = [
    (["prepare", *TO], "Name the files to encode"),
    (["prepare", "book.txt", "--tokenizer", "tokenizer.json"], "--out requires an argument"),
    (["prepare", "missing.txt", *TO], "missing.txt: No such file"),
    (["prepare", ".", *TO], ". is a folder: name a file in it."),
    (["prepare", "empty.txt", *TO], "There is no text"),
    (["prepare", "book.txt", "latin1.txt", *TO], "latin1.txt' is not UTF-8"),
    (["prepare", "book.txt", "cut.gz", *TO], "cut.gz' is damaged"),
    (["prepare", "special.txt", *TO], "special.txt holds the special token '<|other|>'"),
    (["prepare", "-", *TO], "There is no text"),
    (["prepare", "book.txt", *TO, "--end-of-text", "<eos>"], "no special token '<eos>'"),
    (["prepare", "book.txt", *TO, "--allow-special", "<x>"], "'<x>' is allowed, but it is no special token"),
    (["prepare", "book.txt", *TO, "--dtype", "uint8"], 'Choose from: "uint16", "uint32"'),
    (["prepare", "book.txt", *TO, "--num-workers", 0], "num_workers must be a whole number from 1 to 1024"),
    (["prepare", "book.txt", "--tokenizer", "none.json", "--out", "train.bin"], "no tokenizer 'none.json'"),
    (["prepare", "book.txt", "--out", "missing/train.bin"], "missing is not a folder"),
    (["prepare", "book.txt", "--out", "."], ". is a folder"),
    (["prepare", "book.txt", "--out", "-"], "'-' is no file to write"),
    (["prepare", "book.txt", "--tokenizer", "tokenizer.json", "--out", "book.txt"], "book.txt is text to be read"),
    (["prepare", "book.txt", "--tokenizer", "tokenizer.json", "--out", "/dev/null"], "is no file on disk"),
    (["prepare", "book.txt", "--tokenizer", ".", "--out", "tokenizer.json"], "tokenizer.json is to be read"),
    (
        ["prepare", "book.txt", "--tokenizer", "tokenizer.json", "--out", "tokenizer"],
        "tokenizer.json would be replaced",
    ),
    (["inspect"], "FILE"),
    (["inspect", "missing.bin"], "missing.bin: No such file"),
    (["inspect", "no\nsuch.bin"], "no such.bin: No such file"),
    (["inspect", "empty.bin"], "empty.bin is empty"),
    (["inspect", "/dev/null"], "/dev/null is no file on disk"),
    (["inspect", "good.bin", "--dtype", ">u2"], "token files are little-endian"),
    (["inspect", "odd.bin"], "odd.bin ends inside a token"),
    (["inspect", "wide.bin"], "wide.bin looks like ids of 32 bits"),
    (["inspect", "good.bin", "--vocab-size", 999], "the id 999, which is not in a vocabulary of 999"),
    (["inspect", "good.bin", "--dtype", "float32"], "ids are integers"),
    (["inspect", "good.bin", "--check", "some"], 'Choose from: "sample", "all", "none"'),
    (["inspect", "good.bin", "--first", -1], "--first is -1"),
    (["inspect", "good.bin", "--first", 1000, "--tokenizer", "tokenizer.json"], "Id 402 is not in the vocabulary"),
    (["inspect", "lying.bin"], "says 999 tokens"),
    (["inspect", "broken.bin"], "broken.bin.json does not describe tokens"),
    (["inspect", "nested.bin"], "nested.bin.json does not describe tokens: it is nested too deeply. Prepare"),
]


@pytest.mark.parametrize(("arguments", "reason"), WRONG, ids=lambda value: " ".join(map(str, value))[:60])
def test_wrong_input_is_one_line_and_writes_nothing(run, arguments, reason):
    for name, content in BAD_FILES.items():
        Path(name).write_bytes(content)
    before = sorted(os.listdir())
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert reason in done.err
    assert sorted(os.listdir()) == before


def test_another_tokenizer_is_refused(run):
    succeed(run("prepare", "book.txt", *TO))
    Tokenizer(TOKENIZER.vocab, TOKENIZER.merges, TOKENIZER.special_tokens, None).save("other.json")
    done = run("inspect", "train.bin", "--tokenizer", "other.json")
    assert done.code == 2
    assert "train.bin was made by another tokenizer" in done.err


def test_all_cpus_work_unless_told(run, monkeypatch):
    told = []
    monkeypatch.setattr(prepare, "prepare_tokens", lambda *_, num_workers, **__: told.append(num_workers) or 1 / 0)
    for options in [[], ["--num-workers", 3]]:
        with pytest.raises(ZeroDivisionError):
            run("prepare", "book.txt", *TO, *options)
    assert told == [len(os.sched_getaffinity(0)), 3]
