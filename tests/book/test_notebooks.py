"""The notebooks are stored executed and normalised, and give the same outputs again and again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from tests.book import store_notebooks
from tests.book.pages import ROOT
from tests.book.samples import code, notebook, printed, text

RUNS = 10


def book_notebooks() -> list[Path]:
    return sorted((ROOT / "book").glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


# --- checks ----------------------------------------------------------------------------------------------


def execution_complaints(name: str, stored: NotebookNode) -> list[str]:
    """Say which code cells are not stored as an execution from top to bottom left them."""
    complaints = []
    cells = [
        (number, cell)
        for number, cell in enumerate(stored.cells, start=1)
        if cell.cell_type == "code" and cell.source.strip()
    ]
    for count, (number, cell) in enumerate(cells, start=1):
        where = f"{name}, cell {number}"
        if cell.execution_count is None:
            complaints.append(f"{where}: it is stored without having been executed: run `make notebooks`.")
        elif cell.execution_count != count:
            complaints.append(f"{where}: it was executed out of order: run `make notebooks`.")
        expected_error = "raises-exception" in cell.metadata.get("tags", [])
        if not expected_error and any(output.output_type == "error" for output in cell.outputs):
            complaints.append(f"{where}: it is stored with an error: correct it and run `make notebooks`.")
    return complaints


def storage_complaints(name: str, stored: str) -> list[str]:
    """Say whether a notebook's file differs from what `make notebooks` writes."""
    if stored != store_notebooks.stored_text(nbformat.reads(stored, as_version=4)):
        return [f"{name}: it holds image bytes or what differs from run to run: run `make notebooks`."]
    return []


def install_complaints(notebooks: dict[str, NotebookNode]) -> list[str]:
    """Say in which notebooks the first code cell does not install lmlib as all others do."""
    complaints = []
    first_cells = {}
    for name, stored in notebooks.items():
        cells = [cell.source for cell in stored.cells if cell.cell_type == "code"]
        first_cells[name] = cells[0] if cells else ""
        if "import lmlib" not in first_cells[name] or "%pip install" not in first_cells[name]:
            complaints.append(f"{name}: its first code cell must be the one that installs lmlib where it is missing.")
    (model, expected), *others = first_cells.items()
    complaints += [
        f"{name}: its install cell differs from that of {model}: copy it from there."
        for name, cell in others
        if cell != expected
    ]
    return complaints


# --- the real book ---------------------------------------------------------------------------------------


def test_notebooks_are_stored_executed_and_normalised():
    assert book_notebooks()
    complaints = []
    for path in book_notebooks():
        complaints += execution_complaints(path.name, read(path))
        complaints += storage_complaints(path.name, path.read_text(encoding="utf-8"))
    assert not complaints, "\n".join(complaints)


def test_every_notebook_begins_with_the_install_cell():
    complaints = install_complaints({path.name: read(path) for path in book_notebooks()})
    assert not complaints, "\n".join(complaints)


@pytest.mark.slow
@pytest.mark.parametrize("run", range(1, RUNS + 1))
def test_outputs_are_the_same_in_every_run(run):
    result = nbval(*book_notebooks())
    assert result.returncode == 0, f"run {run} of {RUNS}:\n{result.stdout[-5000:]}"


def nbval(*paths: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q", "-p", "no:cacheprovider"]
    environment = os.environ | {"JUPYTER_PATH": "", "JUPYTER_PREFER_ENV_PATH": "1"}
    return subprocess.run(
        [*command, *map(str, paths)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


# --- seeded faults ---------------------------------------------------------------------------------------

INSTALL = code("try:\n    import lmlib\nexcept ModuleNotFoundError:\n    %pip install --quiet x")


def test_an_executed_notebook_is_accepted():
    stored = notebook(text("# Title"), code("1 + 1"), code("print(3)", printed("3\n")))
    assert execution_complaints("sample", stored) == []
    assert storage_complaints("sample", store_notebooks.stored_text(stored)) == []
    assert install_complaints({"one": notebook(INSTALL), "two": notebook(INSTALL)}) == []


def test_a_cell_that_was_not_executed():
    stored = notebook(text("# Title"), code("1 + 1"))
    stored.cells[1].execution_count = None
    (complaint,) = execution_complaints("sample", stored)
    assert "cell 2: it is stored without having been executed" in complaint


def test_cells_executed_out_of_order():
    stored = notebook(code("a = 1"), code("b = 2"))
    stored.cells[0].execution_count = 3
    assert "out of order" in execution_complaints("sample", stored)[0]


def test_a_stored_error():
    error = nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])
    assert "with an error" in execution_complaints("sample", notebook(code("f()", error)))[0]
    assert execution_complaints("sample", notebook(code("f()", error, tags=("raises-exception",)))) == []


@pytest.mark.parametrize(
    "fault",
    [
        {"outputs": [nbformat.v4.new_output("display_data", {"image/png": "AAAA", "text/plain": "<Figure>"})]},
        {"metadata": {"execution": {"iopub.execute_input": "2026-01-01T00:00:00Z"}}},
        {"metadata": {"scrolled": True}},
        {"outputs": [printed("a"), printed("b")]},
    ],
)
def test_a_notebook_stored_as_the_editor_left_it(fault):
    stored = notebook(code("f()"))
    stored.cells[0].update(nbformat.from_dict(fault))
    assert storage_complaints("sample", nbformat.writes(stored) + "\n") != []


def test_install_cells_that_differ_or_are_missing():
    other = code(INSTALL.source.replace("--quiet", ""))
    assert "differs from that of one" in install_complaints({"one": notebook(INSTALL), "two": notebook(other)})[0]
    assert "must be the one that installs" in install_complaints({"one": notebook(code("x = 1"))})[0]


# --- store_notebooks -------------------------------------------------------------------------------------

DRAWING = """\
import sys
import matplotlib.pyplot as plt
plt.plot([1, 2])
print("out", flush=True)
plt.show()
print("more")"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """A notebook with a figure, made by a person and executed by the script."""
    path = tmp_path_factory.mktemp("book") / "sample.ipynb"
    cells = notebook(
        text("# Title"),
        code(DRAWING),
        code("import os; print(os.path.basename(os.getcwd()))", tags=("nbval-ignore-output",)),
        code("1 / 0", tags=("raises-exception",)),
    )
    nbformat.write(cells, path)
    assert store_notebooks.main([str(path)]) == 0
    return path


def test_text_outputs_and_counts_are_kept_and_images_dropped(stored):
    _, drawing, folder, error = read(stored).cells
    assert [cell.execution_count for cell in (drawing, folder, error)] == [1, 2, 3]
    assert [output.output_type for output in drawing.outputs] == ["stream", "display_data", "stream"]
    assert list(drawing.outputs[1].data) == ["text/plain"]
    assert drawing.outputs[0].text == "out\n"
    assert folder.outputs[0].text == f"{stored.parent.name}\n"  # executed in the notebook's folder
    assert folder.metadata.tags == ["nbval-ignore-output"]
    assert error.outputs[0].traceback == ["ZeroDivisionError: division by zero"]


def test_metadata_is_reduced_to_what_lasts(stored):
    metadata = json.loads(stored.read_text())["metadata"]
    assert metadata == store_notebooks.NOTEBOOK_METADATA
    assert "execution" not in stored.read_text().replace("execution_count", "")


def test_storing_twice_gives_the_same_bytes(stored):
    before = stored.read_bytes()
    assert store_notebooks.main([str(stored)]) == 0
    assert stored.read_bytes() == before
    assert storage_complaints("sample", stored.read_text(encoding="utf-8")) == []


def test_cells_without_an_id_get_the_same_one_each_time():
    old = notebook(code("1"), code("1"))
    for cell in old.cells:
        del cell["id"]
    ids = [[cell["id"] for cell in json.loads(store_notebooks.stored_text(old))["cells"]] for _ in range(2)]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_a_notebook_that_fails_is_left_as_it_was(tmp_path, capsys):
    path = tmp_path / "failing.ipynb"
    nbformat.write(notebook(code("1"), code("raise ValueError('this one')")), path)
    before = path.read_bytes()
    assert store_notebooks.main([str(path)]) == 1
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["failing.ipynb"]
    error = capsys.readouterr().err
    assert "failing.ipynb was left as it was" in error
    assert "ValueError: this one" in error


@pytest.fixture
def write(tmp_path):
    """Write notebooks into a folder of their own."""
    folder = tmp_path / "book"
    folder.mkdir()

    def write_notebook(name: str, *cells: NotebookNode) -> Path:
        nbformat.write(notebook(*cells), folder / name)
        return folder / name

    return write_notebook


def test_the_environment_does_not_change_what_notebooks_do(write, tmp_path, monkeypatch):
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "one.py").write_text("intruder = 1")
    (tmp_path / "two.py").write_text("intruder = 2")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "two.py"))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    path = write(
        "a.ipynb",
        code(DRAWING),
        code("assert False", tags=("raises-exception",)),
        code("print('intruder' in globals())"),
    )
    assert store_notebooks.main([str(path)]) == 0
    drawing, failing, intruder = read(path).cells
    assert "display_data" in [output.output_type for output in drawing.outputs]
    assert failing.outputs[0].ename == "AssertionError"
    assert intruder.outputs[0].text == "False\n"


def test_an_edit_while_a_notebook_runs_is_kept(write, capsys):
    path = write("edited.ipynb", code("with open('edited.ipynb', 'a') as file:\n    file.write(' ')"))
    edited = path.read_bytes() + b" "
    assert store_notebooks.main([str(path)]) == 1
    assert path.read_bytes() == edited
    error = capsys.readouterr().err
    assert error == "edited.ipynb was edited while it ran and was left as it was: run this again\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ("[]", "is not a notebook"),
        ("{}", "is not a notebook"),
        ('{"nbformat": 4, "nbformat_minor": 5, "cells": [], "metadata": 1}', "is not a notebook"),
        ('{"nbformat": 99}', "is not a notebook"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, capsys, content, reason):
    path = tmp_path / "sample.ipynb"
    if content is not None:
        path.write_text(content)
    assert store_notebooks.main([str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sample.ipynb ")
    assert reason in line


def test_a_notebook_that_cannot_be_stored_does_not_stop_the_others(write, capsys):
    printing = write("printing.ipynb", code(r"print('\ud800')"))
    holding = write("holding.ipynb", text("HALF"))
    holding.write_text(holding.read_text().replace("HALF", r"\ud800"))
    before = printing.read_bytes(), holding.read_bytes()
    good = write("good.ipynb", code("print(1)"))
    assert store_notebooks.main([str(good.parent / "gone.ipynb"), str(printing), str(holding), str(good)]) == 1
    assert (printing.read_bytes(), holding.read_bytes()) == before
    assert read(good).cells[0].outputs[0].text == "1\n"
    assert capsys.readouterr().err.splitlines() == [
        "gone.ipynb was left as it was: No such file or directory",
        "printing.ipynb was left as it was: it prints half a character (a lone surrogate)",
        r"holding.ipynb was left as it was: '\ud800' is half a character",
    ]


def test_a_kernel_that_dies_is_an_error(write, capsys):
    path = write("dying.ipynb", code("import os; os._exit(1)"))
    before = path.read_bytes()
    assert store_notebooks.main([str(path)]) == 1
    assert path.read_bytes() == before
    assert "dying.ipynb was left as it was: Kernel died" in capsys.readouterr().err


def test_a_read_only_folder_is_noticed_before_anything_runs(write, capsys, monkeypatch):
    path = write("sample.ipynb", code("open('it_ran', 'w').close()"))
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    assert store_notebooks.main([str(path)]) == 1
    assert "sample.ipynb was left as it was: its folder is read-only" in capsys.readouterr().err
    assert os.listdir(path.parent) == ["sample.ipynb"]


SLEEPING = """\
import os, time
with open("pid.part", "w") as file:
    file.write(str(os.getpid()))
os.rename("pid.part", "pid")
time.sleep(60)"""


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_everything(write, tmp_path, number, exit_code):
    sleeping = write("sleeping.ipynb", code(SLEEPING))
    before = sleeping.read_bytes()
    other = write("other.ipynb", code("open('it_ran', 'w').close()"))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {"TMPDIR": str(temporary), "JUPYTER_RUNTIME_DIR": str(temporary)}
    process = script(sleeping, other, **environment)
    pid = int(wait_for(sleeping.parent / "pid"))
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (exit_code, "stopped; sleeping.ipynb was left as it was\n")
    assert sleeping.read_bytes() == before
    assert sorted(os.listdir(sleeping.parent)) == ["other.ipynb", "pid", "sleeping.ipynb"]
    assert os.listdir(temporary) == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def script(*paths: Path, **environment: str) -> subprocess.Popen:
    command = [sys.executable, store_notebooks.__file__, *map(str, paths)]
    return subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} was not written"
        time.sleep(0.05)
    return path.read_text()


def test_a_terminal_without_the_dots(tmp_path):
    process = script(tmp_path / "gone.ipynb", PYTHONUTF8="0", LC_ALL="C", PYTHONIOENCODING="")
    output, error = process.communicate(timeout=30)
    assert output.startswith("executing gone.ipynb ")
    assert error.startswith("gone.ipynb was left as it was")


def test_outputs_that_vary_are_kept_while_their_source_is_the_same(write):
    varying = "import uuid; uuid.uuid4()"
    path = write("sample.ipynb", *[code(varying, tags=("nbval-ignore-output",)) for _ in range(2)])

    def run(*options: str) -> list[str]:
        assert store_notebooks.main([*options, str(path)]) == 0
        return [cell.outputs[0].data["text/plain"] for cell in read(path).cells]

    first = run()
    bytes_of_first = path.read_bytes()
    assert run() == first
    assert path.read_bytes() == bytes_of_first

    # an edit and another place: the stored outputs are no longer those of the source, or of the number
    changed = read(path)
    changed.cells[0].source += "  # edited"
    changed.cells.insert(0, code("0"))
    nbformat.write(changed, path)
    _, edited, same = run()
    assert edited != first[0]
    assert same == first[1]
    assert read(path).cells[2].outputs[0].execution_count == 3

    assert not {edited, same} & set(run("--fresh"))


def test_a_stored_error_is_not_kept():
    failed = nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])
    tags = ("nbval-ignore-output",)
    before = notebook(code("f()", failed, tags=tags, outputs_of=store_notebooks.fingerprint("f()")))
    after = notebook(code("f()", printed("yes"), tags=tags, outputs_of=store_notebooks.fingerprint("f()")))
    store_notebooks.keep_varying_outputs(after, before, fresh=False)
    assert after.cells[0].outputs == [printed("yes")]


def test_a_changed_output_fails_nbval(stored, tmp_path):
    assert nbval(stored).returncode == 0
    changed = tmp_path / "changed.ipynb"
    changed.write_text(stored.read_text().replace('"out\\n"', '"in\\n"'), encoding="utf-8")
    assert nbval(changed).returncode == 1
