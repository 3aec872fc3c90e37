"""lmlib.corpora: the texts are what they should be, and a damaged installation says so."""

import copy
import hashlib
import json
import lzma
import pickle
import shutil
import statistics
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lmlib import corpora
from lmlib.corpora import CorpusError, corpus_names, load_corpus

ROOT = Path(__file__).parents[1]


def run_python(code, **options):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def resources(tmp_path, monkeypatch):
    """A copy of the resources that a test may damage, read afresh."""
    for file in Path(corpora.__file__).parent.glob("*.xz"):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(corpora, "_FOLDER", tmp_path)
    corpora._load.cache_clear()
    yield tmp_path
    corpora._load.cache_clear()


def test_names():
    assert corpus_names() == ("moby_dick", "udhr", "gpt2_merges")


def test_moby_dick():
    text = load_corpus("moby_dick")
    assert text.startswith("CHAPTER 1. Loomings.\n\nCall me Ishmael.")
    assert len(text.encode()) == 1_204_997
    assert len(text) == 1_190_317
    assert len(set(text)) == 83


def test_udhr_holds_the_same_articles_in_every_language():
    languages = load_corpus("udhr")
    assert len(languages) == 34
    assert list(languages)[:3] == ["eng", "deu_1996", "fra"]
    for code, language in languages.items():
        assert language.code == code
        assert language.name
        assert len(set(language.articles)) == 30
        assert all(article.strip() for article in language.articles)
    assert languages["eng"].articles[0].startswith("All human beings are born free and equal")
    assert languages["fra"].articles[0].startswith("Tous les êtres humains naissent libres et égaux")


@pytest.mark.parametrize(
    ("code", "low", "high"), [("eng", 1.0, 1.01), ("rus", 1.8, 1.9), ("hin", 2.5, 2.7), ("jpn", 2.9, 3.0)]
)
def test_udhr_scripts_take_the_bytes_that_utf8_gives_them(code, low, high):
    text = load_corpus("udhr")[code].text
    assert low < len(text.encode()) / len(text) < high


def test_udhr_is_read_only():
    with pytest.raises(TypeError):
        load_corpus("udhr")["eng"] = None
    with pytest.raises(AttributeError):
        load_corpus("udhr")["eng"].name = "Klingon"


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda value: pickle.loads(pickle.dumps(value))])
def test_udhr_can_be_copied_and_sent_to_another_process(copied):
    languages = load_corpus("udhr")
    twin = copied(languages)
    assert twin == languages == dict(languages)
    assert twin["fra"].text == languages["fra"].text


def test_udhr_is_a_mapping():
    languages = load_corpus("udhr")
    assert "eng" in languages
    assert "tlh" not in languages
    assert languages.get("tlh") is None
    with pytest.raises(KeyError, match="tlh"):
        languages["tlh"]


def test_gpt2_merges_make_its_vocabulary():
    version, *lines = load_corpus("gpt2_merges").splitlines()
    assert version == "#version: 0.2"
    tokens = {left + right for left, right in (line.split(" ") for line in lines)}
    assert len(tokens) == len(lines) == 50_000
    assert (lines[0], lines[-1]) == ("Ġ t", "Ġg azed")


def test_a_corpus_is_loaded_once():
    assert all(load_corpus(name) is load_corpus(name) for name in corpus_names())


@pytest.mark.parametrize("name", corpus_names())
def test_threads_that_load_a_corpus_first_get_the_same_one(resources, name):
    start = threading.Barrier(8)

    def load(_):
        start.wait()
        return load_corpus(name)

    with ThreadPoolExecutor(8) as threads:
        loaded = list(threads.map(load, range(8)))
    assert all(text is loaded[0] for text in loaded)


@pytest.mark.parametrize("name", [[], {}, None, 3, b"udhr"])
def test_what_is_no_name_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=r"no corpus .*moby_dick, udhr, gpt2_merges"):
        load_corpus(name)


@pytest.mark.parametrize("name", ["moby dick", "", "Moby_Dick"])
def test_unknown_name_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=rf"'{name}'.*moby_dick, udhr, gpt2_merges"):
        load_corpus(name)


def one_letter_changed(packed):
    return lzma.compress(lzma.decompress(packed).replace(b"e", b"f", 1), preset=0)


@pytest.mark.parametrize("name", corpus_names())
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (one_letter_changed, "is not the text it should be"),
        (lambda packed: packed[: len(packed) // 2], "is damaged"),
        (lambda packed: b"", "is damaged"),
        (lambda packed: b"not an xz file", "is damaged"),
    ],
    ids=["one letter changed", "cut short", "empty", "another format"],
)
def test_damaged_resource(resources, name, damage, complaint):
    path = resources / corpora._CORPORA[name].file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorpusError, match=rf"{path.name} {complaint}: reinstall lmlib"):
        load_corpus(name)


def test_missing_resource(resources):
    (resources / "moby_dick.txt.xz").unlink()
    with pytest.raises(CorpusError, match=r"moby_dick\.txt\.xz is missing .*: reinstall lmlib"):
        load_corpus("moby_dick")
    assert load_corpus("udhr")


def provenance_complaints(provenance, packed_files):
    """What PROVENANCE.md fails to say about the files beside it."""
    complaints = []
    for path in packed_files:
        data = lzma.decompress(path.read_bytes())
        row = f"| `{path.stem}` | {len(data):,} | `{hashlib.sha256(data).hexdigest()}` |"
        if row not in provenance:
            complaints.append(f"PROVENANCE.md: add the line {row}")
        if provenance.count(f"`{path.stem}`") < 2:
            complaints.append(f"PROVENANCE.md: say what {path.stem} is, where it is from, and its licence")
    return complaints


def test_provenance_is_written_for_every_file():
    folder = Path(corpora.__file__).parent
    packed_files = sorted(folder.glob("*.xz"))
    provenance = (folder / "PROVENANCE.md").read_text("utf-8")
    assert sorted(resource.file for resource in corpora._CORPORA.values()) == [p.name for p in packed_files]
    assert provenance_complaints(provenance, packed_files) == []


def test_provenance_check_notices_a_wrong_checksum_and_a_missing_row(tmp_path):
    provenance = (Path(corpora.__file__).parent / "PROVENANCE.md").read_text("utf-8")
    new = tmp_path / "new.txt.xz"
    new.write_bytes(lzma.compress(b"text"))
    assert len(provenance_complaints(provenance, [new])) == 2
    moby = Path(corpora.__file__).parent / "moby_dick.txt.xz"
    assert len(provenance_complaints(provenance.replace("fe282a57", "fe282a58"), [moby])) == 1


def test_corpora_come_with_an_installed_package(tmp_path):
    source, installed = tmp_path / "source", tmp_path / "installed"
    source.mkdir()
    for name in ["pyproject.toml", "README.md", "LICENSE"]:
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "lmlib", source / "lmlib", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
    ]
    subprocess.run([*pip, "--target", installed, source], check=True)
    report = run_python(
        "import json, lmlib.corpora as c\n"
        "print(json.dumps([c.__file__, [len(c.load_corpus(name)) for name in c.corpus_names()]]))",
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
    )
    file, lengths = json.loads(report)
    assert Path(file).is_relative_to(installed)
    assert lengths == [len(load_corpus(name)) for name in corpus_names()]
    assert (installed / "lmlib" / "corpora" / "PROVENANCE.md").exists()


def test_loading_a_corpus_imports_neither_numpy_nor_torch():
    heavy = run_python(
        "import sys, lmlib.corpora as c\n"
        "for name in c.corpus_names(): c.load_corpus(name)\n"
        "print({'numpy', 'torch'} & set(sys.modules))"
    )
    assert heavy == "set()"


def test_import_lmlib_is_quick():
    code = "import time; start = time.perf_counter(); import lmlib; print(time.perf_counter() - start)"
    assert statistics.median(float(run_python(code)) for _ in range(3)) < 0.2
