"""lmlib tokenizer: what it prints and writes is right, and what goes wrong is said in one line."""

import gzip
import io
import json
import lzma
import os
import random
import re
import resource
import shlex
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from lmlib.bpe import CL100K_PATTERN, GPT2_PATTERN, Tokenizer, train_bpe
from lmlib.bpe.reference import mergeable_ranks
from lmlib.bpe.reference import train as reference_train
from lmlib.cli import EXIT_CODES, app, main
from lmlib.cli.tokenizer import compare, decode, encode, inspect, train
from lmlib.cli.tokenizer.comparison import Speed, first_difference
from lmlib.cli.tokenizer.facts import merge_steps, visible
from lmlib.cli.tokenizer.ids import parse_ids, spell_ids
from lmlib.corpora import load_corpus
from tests.bpe_peers import encoding, make_encoding

ROOT = Path(__file__).parents[1]
MOBY_DICK = load_corpus("moby_dick")
TEXT = MOBY_DICK[:30_000] + "\r\nüber 鯨 🐳 \x00\n"
END = "<|endoftext|>"
COMMANDS = ["train", "encode", "decode", "inspect", "compare"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tokenizer.json made by the command, and the text it was made from."""
    folder = tmp_path_factory.mktemp("trained")
    text, out = folder / "book.txt", folder / "tokenizer.json"
    text.write_bytes(TEXT.encode())
    options = ["--vocab-size", "600", "--special-token", END, "--out", str(out), "--quiet"]
    assert main(["tokenizer", "train", str(text), *options]) == 0
    return SimpleNamespace(text=text, json=out)


@pytest.fixture
def run(capfdbinary, monkeypatch, tmp_path):
    """Run a command in an empty folder; return its exit code and what it wrote."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        code = main(["tokenizer", *map(str, arguments)])
        out, err = capfdbinary.readouterr()
        return SimpleNamespace(code=code, out=out, text=out.decode("utf-8", "replace"), err=err.decode())

    return run


@pytest.fixture(scope="module", autouse=True)
def gpt2_is_loaded_once():
    """Most tests need it, and it takes a third of a second."""
    load = Tokenizer.from_pretrained
    gpt2 = load("gpt2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tokenizer, "from_pretrained", lambda name: gpt2 if name == "gpt2" else load(name))
        yield


def succeed(done):
    assert (done.code, done.err) == (0, "")
    return done


def start(*arguments, **options):
    """Run a command in a process of its own."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "lmlib", *map(str, arguments)]
    buffered = {"PYTHONUNBUFFERED": "", "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **buffered, **options.pop("env", {})}
    return subprocess.Popen(command, env=environment, **{**pipes, **options})


# --- help, and what is imported ---------------------------------------------------------------------------------


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom lmlib.cli import main\nassert main(['--help']) == 0\nprint(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "tokenizer" in done.stdout
    loaded = set(done.stderr.split())
    assert "cyclopts" in loaded
    assert not loaded & {"torch", "numpy", "regex", "tqdm", "tiktoken", "tokenizers", "transformers", "lmlib.bpe"}


def test_the_commands_need_no_optional_package():
    code = (
        "import sys\n"
        "for name in ['torch', 'tiktoken', 'tokenizers', 'transformers', 'matplotlib']:\n"
        "    sys.modules[name] = None  # now importing it fails\n"
        "from lmlib.cli import main\n"
        "sys.exit(main(['tokenizer', 'encode']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, input=b"Call me", capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"14134 502\n", b"")


def test_help_lists_the_commands_in_order_and_the_exit_codes(run, capfdbinary):
    help = succeed(run("--help")).text
    assert [line.split()[1] for line in help.splitlines() if re.match(r"│ [a-z]", line)] == COMMANDS
    main(["--help"])
    assert EXIT_CODES.encode() in capfdbinary.readouterr().out  # 80 columns hold its lines


@pytest.mark.parametrize("module", [train, encode, decode, inspect, compare])
def test_help_is_complete(run, module):
    command = module.__name__.rpartition(".")[2]
    help = succeed(run(command, "--help")).text
    options = getattr(module, f"{command.capitalize()}Options")
    for name in options.__dataclass_fields__:
        described = re.search(rf"--{name.replace('_', '-')}\b.*? [A-Z]?[a-z]+ [a-z]+", help)
        assert described, name
    assert module.USAGE in help
    assert module.EXAMPLES.rstrip() in help
    assert max(map(len, help.splitlines())) <= 80
    assert "empty-" not in help
    assert "False" not in help


@pytest.mark.parametrize("module", [train, encode, decode, inspect, compare])
def test_examples_of_the_help_are_right(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"lmlib (tokenizer [^|\n]*(?:\|endoftext\|[^|\n]*)?)", module.EXAMPLES.replace("\\\n", ""))
    assert len(commands) == module.EXAMPLES.count("lmlib tokenizer") > 0
    for command in commands:
        app.parse_args(shlex.split(command.replace(" - ", " ")), exit_on_error=False, print_error=False)


def test_the_example_of_decode_decodes(run):
    ids = re.search(r'echo "([\d ]+)"', decode.EXAMPLES)[1]
    assert succeed(run("decode", stdin=ids.encode())).text == "Call me Ishmael."


def test_version():
    with start("--version") as process:
        assert re.fullmatch(rb"\d+\.\d+\.\d+\n", process.communicate()[0])


# --- train ------------------------------------------------------------------------------------------------------


def test_training_writes_the_tokenizer_that_the_reference_learns(trained):
    vocab, merges = reference_train([TEXT[:3000]], 300, [END])
    folder = trained.json.parent
    short, out = folder / "short.txt", folder / "short.json"
    short.write_bytes(TEXT[:3000].encode())
    options = ["--vocab-size", "300", "--special-token", END, "--out", str(out), "--quiet"]
    assert main(["tokenizer", "train", str(short), *options]) == 0
    tokenizer = Tokenizer.from_pretrained(out)
    assert dict(tokenizer.vocab) == vocab
    assert list(tokenizer.merges) == merges
    assert dict(tokenizer.special_tokens) == {END: 299}
    assert tokenizer.pattern == GPT2_PATTERN


def test_the_report_of_training(run, trained):
    options = ["--vocab-size", 600, "--special-token", END, "--out", "t.json"]
    report = succeed(run("train", trained.text, *options)).text
    assert f"{trained.text}, {len(TEXT.encode()):,} bytes on disk" in report
    assert "merges      343\nvocabulary  600 tokens\n" in report
    assert "written to  t.json" in report
    assert "fewer" not in report
    facts = json.loads(succeed(run("train", trained.text, *options, "--json")).out)
    assert facts.pop("seconds") > 0
    assert facts == {
        "files": [str(trained.text)],
        "bytes_on_disk": len(TEXT.encode()),
        "merges": 343,
        "vocab_size": 600,
        "vocab_size_asked": 600,
        "out": "t.json",
    }
    assert succeed(run("train", trained.text, *options, "--quiet")).out == b""
    assert Path("t.json").read_bytes() == trained.json.read_bytes()
    assert os.listdir() == ["t.json"]


def test_the_report_says_that_no_pair_was_left(run):
    Path("a.txt").write_text("abc abc")
    report = succeed(run("train", "a.txt", "--vocab-size", 1000, "--out", "t.json")).text
    assert "vocabulary  259 tokens\n            fewer than the 1,000 asked for" in report


def test_the_same_comes_from_packed_files_parts_pipes_and_workers(run, trained):
    packed = TEXT.encode()
    cut = packed.index(b"\n\n", 15_000)  # a pre-token ends before and after
    Path("a.txt.gz").write_bytes(gzip.compress(packed[:cut]))
    Path("b.txt.xz").write_bytes(lzma.compress(packed[cut:]))
    options = ["--vocab-size", 600, "--special-token", END, "--quiet", "--out"]
    succeed(run("train", "b.txt.xz", "a.txt.gz", *options, "1.json"))
    succeed(run("train", "-", *options, "2.json", stdin=packed))
    succeed(run("train", trained.text, "--num-workers", 2, *options, "3.json"))
    for name in ["1.json", "2.json", "3.json"]:
        assert Path(name).read_bytes() == trained.json.read_bytes(), name


@pytest.mark.parametrize(("name", "pattern"), [("cl100k", CL100K_PATTERN), ("none", None), (r"\p{L}+|[^\p{L}]+", ...)])
def test_patterns(run, name, pattern):
    Path("a.txt").write_text("ab ab  ab1\n" * 3)
    succeed(run("train", "a.txt", "--vocab-size", 270, "--pattern", name, "--out", "t.json", "--quiet"))
    pattern = name if pattern is ... else pattern
    tokenizer = Tokenizer.from_pretrained("t.json")
    assert tokenizer.pattern == pattern
    assert list(tokenizer.merges) == train_bpe(["ab ab  ab1\n" * 3], 270, pattern=pattern, progress=False)[1]


# --- encode and decode --------------------------------------------------------------------------------------------


def our_peer(trained):
    """tiktoken with the vocabulary that the command learned."""
    tokenizer = Tokenizer.from_pretrained(trained.json)
    special = {END: len(tokenizer.vocab) - 1}
    return make_encoding(mergeable_ranks(tokenizer.vocab, tokenizer.merges), GPT2_PATTERN, special)


def test_ids_are_those_of_tiktoken(run, trained):
    expected = encoding("gpt2").encode(TEXT)
    assert list(map(int, succeed(run("encode", trained.text)).out.split())) == expected
    expected = our_peer(trained).encode(TEXT)
    done = run("encode", trained.text, "--tokenizer", trained.json)
    assert list(map(int, succeed(done).out.split())) == expected
    folder = run("encode", "--tokenizer", trained.json.parent / "t", stdin=b"")
    assert folder.code == 2


def test_a_folder_names_its_tokenizer(run, trained):
    done = succeed(run("encode", "--tokenizer", trained.json.parent, stdin=TEXT.encode()))
    assert list(map(int, done.out.split())) == our_peer(trained).encode(TEXT)


@pytest.mark.parametrize("format", ["text", "lines", "json", "u16", "u32"])
def test_formats_spell_the_ids_and_decode_to_the_same_bytes(run, trained, format):
    ids = encoding("gpt2").encode(TEXT)
    out = succeed(run("encode", trained.text, "--format", format)).out
    spelled = {
        "text": lambda: list(map(int, out.split())),
        "lines": lambda: list(map(int, out.splitlines())),
        "json": lambda: json.loads(out),
        "u16": lambda: list(struct.unpack(f"<{len(out) // 2}H", out)),
        "u32": lambda: list(struct.unpack(f"<{len(out) // 4}I", out)),
    }
    assert spelled[format]() == ids
    if format == "text":
        lines = out.splitlines()
        assert {len(line.split()) for line in lines[:-1]} == {12}
        assert max(map(len, lines)) <= 80
    read = format if format in ("u16", "u32") else "text"
    assert succeed(run("decode", "--format", read, stdin=out)).out == TEXT.encode()


def test_files_follow_one_another(run):
    Path("a.txt.gz").write_bytes(gzip.compress(b"Call me"))
    Path("b.txt.xz").write_bytes(lzma.compress(b" Ishmael"))
    done = run("encode", "a.txt.gz", "-", "b.txt.xz", "--format", "json", stdin=b" you")
    assert succeed(done).text == "[14134, 502]\n[345]\n[1148, 21720, 417]\n"
    Path("ids.gz").write_bytes(gzip.compress(done.out))
    assert succeed(run("decode", "ids.gz", "-", stdin=b"13\n13")).text == "Call me you Ishmael.."


@pytest.mark.parametrize(("format", "nothing"), [("text", b""), ("lines", b""), ("json", b"[]\n"), ("u16", b"")])
def test_no_text_no_ids(run, format, nothing):
    assert succeed(run("encode", "--format", format)).out == nothing
    read = format if format == "u16" else "text"
    assert succeed(run("decode", "--format", read, stdin=nothing)).out == b""


def test_decoding_is_exact_where_a_token_is_no_utf8(run):
    ids = encoding("gpt2").encode("鯨")
    assert len(ids) == 3
    out = succeed(run("decode", stdin=b"%d, %d" % tuple(ids[:2]))).out
    assert out == "鯨".encode()[: len(out)]
    assert len(out) == 2


def test_special_tokens(run):
    text = f"a{END}b".encode()
    one = b"64 50256 65\n"
    assert succeed(run("encode", "--allow-special", END, stdin=text)).out == one
    assert succeed(run("encode", "--allow-special", "all", stdin=text)).out == one
    as_text = succeed(run("encode", "--special-as-text", stdin=text)).out
    assert list(map(int, as_text.split())) == encoding("gpt2").encode_ordinary(text.decode())
    refused = run("encode", stdin=text)
    assert (refused.code, refused.out) == (2, b"")
    assert f"standard input holds the special token '{END}': allow it with --allow-special" in refused.err


def test_the_report_on_a_file_that_was_written(run, trained):
    size, number = len(TEXT.encode()), len(encoding("gpt2").encode(TEXT))
    options = ["--format", "u16", "--out", "ids.u16"]
    report = succeed(run("encode", trained.text, *options)).text
    assert report == (
        f"bytes       {size:,}\ntokens      {number:,}\n"
        f"            {size / number:.2f} bytes per token\nwritten to  ids.u16\n"
    )
    facts = {"bytes": size, "tokens": number, "bytes_per_token": size / number}
    done = run("encode", trained.text, *options, "--json")
    assert json.loads(succeed(done).out) == {"files": [str(trained.text)], **facts, "out": "ids.u16"}
    done = run("decode", "ids.u16", "--format", "u16", "--out", "again.txt", "--json")
    assert json.loads(succeed(done).out) == {"files": ["ids.u16"], **facts, "out": "again.txt"}
    assert Path("again.txt").read_bytes() == TEXT.encode()
    assert succeed(run("decode", "ids.u16", "--format", "u16", "--out", "again.txt", "--quiet")).out == b""
    assert sorted(os.listdir()) == ["again.txt", "ids.u16"]


@pytest.mark.parametrize("size", [*range(1, 12), 1000])
def test_ids_are_read_however_the_blocks_are_cut(size):
    ids = [0, 7, 65535, 12345, 1, 99999, 4294967295, 10, 3]
    for written, read in [("text", "text"), ("lines", "text"), ("json", "text"), ("u32", "u32")]:
        data = b"".join(spell_ids(ids, written))
        blocks = [data[i : i + size] for i in range(0, len(data), size)]
        assert [i for batch in parse_ids(blocks, read, "x") for i in batch] == ids, written


def test_more_ids_than_are_written_at_once():
    ids = [random.Random(0).randrange(50_000) for _ in range(120_001)]
    for written, read in [("text", "text"), ("json", "text"), ("u16", "u16")]:
        blocks = list(spell_ids(ids, written))
        assert len(blocks) > 1
        assert [i for batch in parse_ids(blocks, read, "x") for i in batch] == ids


def test_what_does_not_fit_a_format_is_named():
    with pytest.raises(OverflowError, match="Id 65536 does not fit u16, which ends at 65535"):
        list(spell_ids([1, 65536, 2], "u16"))


# --- inspect --------------------------------------------------------------------------------------------------------


def test_inspect_reports_facts(run, trained):
    done = run("inspect", trained.text, "--tokenizer", trained.json, "--longest", 3, "--json")
    facts = json.loads(succeed(done).out)
    tokenizer, peer = Tokenizer.from_pretrained(trained.json), our_peer(trained)
    assert facts["vocab_size"] == 600
    assert facts["merges"] == 343
    assert facts["special_tokens"] == {END: 599}
    assert facts["pattern"] == GPT2_PATTERN
    ordinary = [token for i, token in tokenizer.vocab.items() if i != 599]
    assert [len(bytes.fromhex(row["hex"])) for row in facts["longest"]] == sorted(map(len, ordinary))[:-4:-1]
    assert all(tokenizer.vocab[row["id"]].hex() == row["hex"] for row in facts["longest"])
    size, number = len(TEXT.encode()), len(peer.encode(TEXT))
    assert facts["files"] == [
        {"file": str(trained.text), "bytes": size, "tokens": number, "bytes_per_token": size / number}
    ]
    languages = {row["code"]: row for row in facts["languages"]}
    assert len(languages) == 34
    for code in ["eng", "jpn", "hin"]:
        text = load_corpus("udhr")[code].text
        assert languages[code]["tokens"] == len(peer.encode(text))
        assert languages[code]["bytes"] == len(text.encode())
    numbers = [row["tokens"] for row in facts["languages"]]
    assert numbers == sorted(numbers)


def test_what_inspect_prints_fits_a_terminal(run, trained):
    words = ["--word", " antidisestablishmentarianism" * 2, "--word", "鯨\n\x1b"]
    report = succeed(run("inspect", trained.text, *words)).text
    assert max(map(len, report.replace(str(trained.text), "book.txt").splitlines())) <= 80
    assert "vocabulary  50,257 ids, 50,000 merges\nspecial     <|endoftext|> = 50256\npattern     gpt2\n" in report
    assert re.search(r"^ +5\.35 +1,549 +8,286  English$", report, re.M)
    assert re.search(r"^   128   35496  (ÃÂ)+$", report, re.M)
    assert "\x1b" not in report
    short = succeed(run("inspect", "--longest", 0, "--no-languages")).text
    assert "English" not in short
    assert "longest" not in short


def test_merges_of_a_word(run):
    done = run("inspect", "--word", " whaling", "--longest", 0, "--no-languages")
    _, _, merges = succeed(done).text.partition("merges of ")
    first_merges = load_corpus("gpt2_merges").splitlines()[1:]
    assert merges.splitlines()[0] == "␣whaling"
    assert merges.splitlines()[-2:] == ["  4272  ␣wh aling", "   ids  348 4272"]
    assert first_merges[4272 - 256] == "al ing"
    assert first_merges[259 - 256] == "i n"
    assert merges.splitlines()[2] == "   259  ␣ w h a l in g"


@pytest.mark.parametrize("word", ["the", " antidisestablishmentarianism", "don't", " 鯨", "    ", "x", "naïve 12345"])
def test_the_last_merge_leads_to_the_ids(run, word):
    done = run("inspect", "--word", word, "--longest", 0, "--no-languages", "--json")
    pretokens = json.loads(succeed(done).out)["words"][0]["pretokens"]
    ids = encoding("gpt2").encode(word)
    assert [token["id"] for pretoken in pretokens for token in pretoken["tokens"]] == ids
    for pretoken in pretokens:
        assert not pretoken["whole"]
        if pretoken["steps"]:
            tokens = [visible(bytes.fromhex(token["hex"])) for token in pretoken["tokens"]]
            assert pretoken["steps"][-1]["after"] == tokens


def test_a_merge_is_the_leftmost_of_the_lowest_rank():
    ranks = {bytes([i]): i for i in range(256)} | {b"aa": 256, b"aaa": 257, b"ba": 258}
    assert list(merge_steps(b"baaa", ranks)) == [(256, [b"b", b"aa", b"a"]), (257, [b"b", b"aaa"])]
    assert list(merge_steps(b"", ranks)) == []


def test_visible():
    assert visible(b" a b") == "␣a␣b"
    assert visible("é鯨\n\u200b".encode()) == "é鯨\\n\\u200b"
    assert visible(b"\xe9\xaf") == "\\xe9\\xaf"


# --- compare --------------------------------------------------------------------------------------------------------


def test_compare_finds_no_difference(run, trained):
    special = trained.json.parent / "special.txt"
    special.write_bytes(f"a{END}b".encode())
    done = succeed(run("compare", trained.text, special, "--runs", 1))
    size, number = len(TEXT.encode()), len(encoding("gpt2").encode(TEXT))
    assert re.search(rf"^ +{size:,} +{number:,}  equal      {trained.text}$", done.text, re.M)
    assert "DIFFERENT" not in done.text
    options = ["--runs", 2, "--allow-special", "all", "--json", "--tokenizer", trained.json]
    facts = json.loads(succeed(run("compare", trained.text, special, *options)).out)
    assert facts["equal"]
    assert [row["tokens"] for row in facts["files"]] == [len(our_peer(trained).encode(TEXT)), 3]
    assert facts["cpu_seconds"]["runs"] == 2


def test_compare_shows_the_first_difference_and_exits_with_1(run, trained):
    text = "".join(f"{word}\n" for word in ["a", "b", "Ishmael", "c"])
    options = ["-", "--tokenizer", trained.json, "--peer", "gpt2", "--runs", 1]
    done = run("compare", *options, stdin=text.encode())
    assert (done.code, done.err) == (1, "")
    assert "DIFFERENT  standard input" in done.text
    facts = json.loads(run("compare", *options, "--json", stdin=text.encode()).out)
    ours, theirs = our_peer(trained).encode(text), encoding("gpt2").encode(text)
    difference = facts["files"][0]["first_difference"]
    at = next(i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1])
    assert difference["token"] == at
    assert [token["id"] for token in difference["ours"]] == ours[at : at + 5]
    assert [token["id"] for token in difference["tiktoken"]] == theirs[at : at + 5]
    assert not facts["equal"]


def test_first_difference():
    token = {1: b"a\n", 2: b"b", 3: b"c"}.__getitem__
    assert first_difference([1, 2], [1, 2], token, token) is None
    found = first_difference([1, 2, 3], [1, 3], token, token)
    assert (found.token, found.byte, found.line, found.before) == (1, 2, 2, b"a\n")
    assert (found.ours, found.theirs) == ([(2, b"b"), (3, b"c")], [(3, b"c")])
    shorter = first_difference([1], [1, 2], token, token)
    assert (shorter.token, shorter.ours, shorter.theirs) == (1, [], [(2, b"b")])


def test_speed_is_a_ratio_where_it_can_be_measured(run, trained):
    assert Speed(cold=2.0, warm=0.5, tiktoken=1.0, runs=3).ratios() == {"cold": 0.5, "warm": 2.0}
    assert Speed(cold=2.0, warm=0.5, tiktoken=0.001, runs=3).ratios() is None
    assert "too little text to measure" in succeed(run("compare", "--runs", 1, stdin=b"a")).text
    long = 3 * MOBY_DICK.encode()
    assert re.search(
        r"speed  \d+\.\d\d × tiktoken's cold, \d+\.\d\d × warm", run("compare", "--runs", 1, stdin=long).text
    )


def test_compare_without_tiktoken_names_the_package(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    done = run("compare", stdin=b"a")
    assert (done.code, done.out) == (2, b"")
    assert "pip install tiktoken" in done.err


# --- what goes wrong --------------------------------------------------------------------------------------------


BAD_FILES = {
    "empty.txt": b"",
    "good.txt": b"Call me Ishmael. " * 9,
    "latin1.txt": b"ab\xe9",
    "cut.gz": gzip.compress(MOBY_DICK[:9000].encode())[:-50],
    "cut.xz": lzma.compress(MOBY_DICK[:9000].encode())[:-50],
    "foreign.json": b'{"hello": 1}',
    "broken.json": b"{",
    "word.ids": b"1 2 three",
    "long.ids": b"1" * 99,
    "odd.u16": b"\1\0\2",
    "unknown.ids": b"5 50257",
}
TO = ["--vocab-size", 300, "--out", "out.json"]
WRONG = [
    (["train", *TO], "Name the files to train on"),
    (["train", "good.txt", "--out", "out.json"], "--vocab-size requires an argument"),
    (["train", "missing.txt", *TO], "missing.txt: No such file"),
    (["train", ".", *TO], ". is a folder: name a file in it."),
    (["train", "empty.txt", *TO], "no text to train on"),
    (["train", "latin1.txt", *TO], "latin1.txt' is not UTF-8: unexpected end of data at byte 2"),
    (["train", "cut.gz", *TO], "cut.gz' is damaged"),
    (["train", "good.txt", "--vocab-size", 255, "--out", "out.json"], "vocab_size is 255"),
    (["train", "good.txt", "--vocab-size", "many", "--out", "out.json"], "--vocab-size: 'many' is no number"),
    (["train", "good.txt", *TO, "--special-token", "x", "--special-token", "x"], "named twice"),
    (["train", "good.txt", *TO, "--special-token", ""], "special token is empty"),
    (["train", "missing.txt", *TO, "--pattern", "("], "missing.txt: No such file"),
    (["train", "good.txt", *TO, "--pattern", "("], "'(' is invalid at position 1"),
    (["train", "good.txt", *TO, "--num-workers", 0], "num_workers must be a whole number from 1 to 1024"),
    (["train", "good.txt", "--vocab-size", 300, "--out", "missing/out.json"], "missing is not a folder"),
    (["train", "good.txt", "--vocab-size", 300, "--out", "."], ". is a folder"),
    (["train", "good.txt", "--vocab-size", 300, "--out", "/proc/out.json"], "No file can be made in /proc"),
    (["train", "good.txt", "--vocab-siz", 300, "--out", "out.json"], "Unknown option: --vocab-siz. Did you mean"),
    (["encode", "missing.txt", "--out", "out"], "missing.txt: No such file"),
    (["encode", "good.txt", "latin1.txt", "--out", "out"], "latin1.txt' is not UTF-8"),
    (["encode", "good.txt", "cut.xz", "--out", "out"], "cut.xz' is damaged"),
    (["encode", "good.txt", "--tokenizer", "gpt3"], "no tokenizer 'gpt3'"),
    (["encode", "good.txt", "--tokenizer", "foreign.json"], "foreign.json cannot be read"),
    (["encode", "good.txt", "--tokenizer", "broken.json"], "broken.json"),
    (["encode", "good.txt", "--format", "u8"], 'Choose from: "text", "lines", "json", "u16", "u32"'),
    (["encode", "good.txt", "--allow-special", "<x>"], "'<x>' is allowed, but it is no special token"),
    (["encode", "good.txt", "--json"], "add --out"),
    (["encode", "good.txt", "--out", "missing/out"], "missing is not a folder"),
    (["encode", "good.txt", "--out", "-"], "'-' is no file to write"),
    (["encode", "-", "--out", "."], ". is a folder"),
    (["train", "good.txt", "--vocab-size", 300, "--out", "good.txt"], "good.txt is to be read: name another file"),
    (["encode", "empty.txt", "./good.txt", "--out", "good.txt"], "good.txt is to be read"),
    (["encode", "good.txt", "--tokenizer", "foreign.json", "--out", "foreign.json"], "foreign.json is to be read"),
    (["decode", "word.ids", "--out", "word.ids"], "word.ids is to be read"),
    (["decode", "word.ids", "--out", "out"], "word.ids: item 3 is 'three'"),
    (["decode", "long.ids", "--out", "out"], "long.ids: item 1 is '11111111111111111111'"),
    (["decode", "odd.u16", "--format", "u16", "--out", "out"], "odd.u16 ends inside an id"),
    (["decode", "unknown.ids", "--out", "out"], "Id 50257 is not in the vocabulary of gpt2"),
    (["decode", "cut.gz", "--out", "out"], "cut.gz"),
    (["decode", "good.txt", "--json"], "add --out"),
    (["inspect", "missing.txt"], "missing.txt: No such file"),
    (["inspect", "latin1.txt"], "latin1.txt' is not UTF-8"),
    (["inspect", "--longest", -1], "--longest is -1"),
    (["compare", "missing.txt"], "missing.txt: No such file"),
    (["compare", "good.txt", "--runs", 0], "--runs is 0"),
    (["compare", "good.txt", "--peer", "gpt3"], "no tokenizer 'gpt3'"),
    (["tarin"], 'Unknown command "tarin"'),
]


@pytest.mark.parametrize(("arguments", "reason"), WRONG, ids=lambda value: " ".join(map(str, value))[:60])
def test_wrong_input_is_one_line_and_writes_nothing(run, arguments, reason):
    for name, content in BAD_FILES.items():
        Path(name).write_bytes(content)
    done = run(*arguments)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert reason in done.err
    assert {name: Path(name).read_bytes() for name in os.listdir()} == BAD_FILES


@pytest.mark.parametrize(
    "refused", [["--pattern", r"\w+$|\s"], ["--special-token", "a"], ["--special-token", "\udcff"]]
)
def test_what_cannot_be_saved_is_refused_before_training(run, monkeypatch, refused):
    monkeypatch.setattr(train, "train_bpe", lambda *_, **__: pytest.fail("it trained"))
    Path("good.txt").write_text("ab ab")
    done = run("train", "good.txt", *TO, *refused)
    assert done.code == 2
    assert done.err.startswith("error: ")


def test_a_failure_keeps_the_file_that_was_there(run):
    Path("out").write_text("before")
    Path("latin1.txt").write_bytes(b"a" * 100_000 + b"\xe9a")
    assert run("encode", "latin1.txt", "--out", "out").code == 2
    assert Path("out").read_text() == "before"
    assert sorted(os.listdir()) == ["latin1.txt", "out"]


# --- progress, pipes and signals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--quiet"]])
def test_progress_is_shown_on_a_terminal_unless_it_is_unwanted(run, monkeypatch, trained, options):
    def run_on_terminal(*arguments):
        err = io.StringIO()
        err.isatty = lambda: True
        monkeypatch.setattr(sys, "stderr", err)
        assert run(*arguments).code == 0
        return err.getvalue()

    shown = run_on_terminal("encode", trained.text, "--out", "ids", *options)
    assert bool(re.search(r"\d.*B/s", shown)) == (not options)
    shown = run_on_terminal("train", trained.text, *TO, *options)
    assert ("merging" in shown) == (not options)
    shown = run_on_terminal("compare", trained.text, "--runs", 1, *options)
    assert ("timing" in shown) == (not options)


def test_ids_come_before_the_text_has_ended():
    """In bounded memory, because it does not wait for the end."""
    with start("tokenizer", "encode") as process:
        too_late = threading.Timer(30, process.kill)
        too_late.start()
        writer = threading.Thread(target=_write, args=(process.stdin, MOBY_DICK.encode()))
        writer.start()  # and standard input stays open
        ids = list(map(int, process.stdout.read(1000).split()[:-1]))
        too_late.cancel()
        process.kill()
        writer.join(30)
        _close(process.stdin)
    assert len(ids) > 100
    assert ids == encoding("gpt2").encode(MOBY_DICK[:3000])[: len(ids)]


def test_a_reader_that_goes_away_ends_it_quietly(trained):
    options = ["--format", "lines", "--tokenizer", trained.json]
    with start("tokenizer", "encode", "-", *options) as process:
        writer = threading.Thread(target=_write, args=(process.stdin, MOBY_DICK.encode()))
        writer.start()
        process.stdout.read(10)
        process.stdout.close()
        writer.join(30)
        _close(process.stdin)
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


def test_a_reader_of_help_may_go_away():
    with start("tokenizer", "train", "--help") as process:
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


def _write(stream, data):
    with suppress(BrokenPipeError):
        stream.write(data)
        stream.flush()


def _close(stream):
    with suppress(BrokenPipeError):
        stream.close()


@pytest.mark.parametrize("how", [(signal.SIGINT, 130, b"interrupted\n"), (signal.SIGTERM, 143, b"")])
@pytest.mark.parametrize("command", ["encode", "train"])
def test_interrupting_leaves_nothing(tmp_path, trained, command, how):
    number, code, message = how
    options = {"encode": ["--tokenizer", trained.json], "train": ["--vocab-size", 300]}[command]
    with start("tokenizer", command, "-", "--out", "out", *options, cwd=tmp_path) as process:
        process.stdin.write(MOBY_DICK.encode())  # returns when most of it is read
        process.stdin.flush()
        time.sleep(0.2)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, message)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path, trained):
    text = tmp_path / "book.txt"
    text.write_bytes(MOBY_DICK.encode())
    limit = (200_000, 200_000)  # bytes in a file

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    arguments = ["book.txt", "--out", "ids", "--tokenizer", trained.json]
    with start("tokenizer", "encode", *arguments, cwd=tmp_path, preexec_fn=small_files) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, b"")
    assert err == b"error: ids: File too large\n"
    assert os.listdir(tmp_path) == ["book.txt"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["encode"], ["inspect", "--no-languages"]])
def test_a_full_standard_output_is_an_error(arguments, trained):
    arguments = ["tokenizer", *arguments, "--tokenizer", trained.json]
    with Path("/dev/full").open("wb") as full, start(*arguments, stdout=full) as process:
        _, err = process.communicate(b"Call me Ishmael.", timeout=60)
    assert process.returncode == 2
    assert re.fullmatch(rb"error: standard output: No space left on device\n", err)


def test_output_is_utf8_in_any_locale(tmp_path):
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    options = ["--longest", 1, "--no-languages"]
    with start("tokenizer", "inspect", *options, env=locale) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert "ÃÂ".encode() in out
    missing = os.fsdecode(b"n\xf6.txt")  # no UTF-8: said as the bytes that it is
    with start("tokenizer", "encode", missing, env=locale) as process:
        _, err = process.communicate()
    assert err.startswith(b"error: n\xf6.txt: No such file")


def test_closed_streams_are_no_crash(trained):
    command = [sys.executable, "-m", "lmlib", "tokenizer", "encode", "--tokenizer", str(trained.json)]
    shell = f"{shlex.join(command)} <&- >&-"
    done = subprocess.run(["sh", "-c", shell], cwd=ROOT, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("number", ["300.7", "many", "1e400"])
def test_a_number_that_is_not_whole_is_refused(run, tmp_path, number):
    """cyclopts alone would cut 300.7 down to 300."""
    done = run("train", "-", "--vocab-size", number, "--out", tmp_path / "out.json", stdin=b"text")
    assert done.code == 2
    assert "--vocab-size" in done.err
    assert os.listdir(tmp_path) == []


def test_a_whole_number_may_be_written_with_an_exponent(run, tmp_path):
    done = run("train", "-", "--vocab-size", "3e2", "--out", tmp_path / "out.json", stdin=MOBY_DICK[:9000].encode())
    assert "300 tokens" in succeed(done).text


def test_too_little_memory(tmp_path, monkeypatch, capsys):
    def allocate(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(train, "train_bpe", allocate)
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("text")
    code = main(["tokenizer", "train", "text.txt", "--vocab-size", "300", "--out", "tokenizer.json"])
    stdout, stderr = capsys.readouterr()
    assert (code, stdout) == (2, "")
    assert stderr == "error: There is not enough memory: use less text or workers.\n"
    assert os.listdir() == ["text.txt"]
