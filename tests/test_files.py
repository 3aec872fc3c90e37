"""lmlib.files: a file is whole or not there, whatever happens while it is written."""

import errno
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from lmlib import files
from lmlib.files import atomic_write, write_atomically


def names(folder):
    return sorted(os.listdir(folder))


@pytest.mark.parametrize(("data", "stored"), [(b"\x00\r\n", b"\x00\r\n"), ("é\n", b"\xc3\xa9\n"), ("a\r\n", b"a\r\n")])
def test_bytes_and_text_are_written_as_they_are(tmp_path, data, stored):
    for _ in range(2):
        write_atomically(tmp_path / "file", data)
        assert (tmp_path / "file").read_bytes() == stored
    assert names(tmp_path) == ["file"]


def test_a_stream_takes_its_name_at_the_end(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_write(path) as file:
        for _ in range(100):
            file.write(b"x" * 1000)
        assert path.read_text() == "old"
        assert len(names(tmp_path)) == 2
        file.seek(0)
        file.write(b"header")
    assert path.read_bytes() == b"header" + b"x" * 99_994
    assert names(tmp_path) == ["file"]


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_atomically("file", "new")
    assert (tmp_path / "file").read_text() == "new"


def test_a_name_as_long_as_the_file_system_takes(tmp_path):
    write_atomically(tmp_path / ("n" * 255), "new")
    assert names(tmp_path) == ["n" * 255]


@pytest.mark.parametrize(
    "error", [ValueError, KeyboardInterrupt, GeneratorExit, OSError(errno.ENOSPC, "No space left")]
)
@pytest.mark.parametrize("old", ["old", None])
def test_after_an_exception_all_is_as_before(tmp_path, error, old):
    path = tmp_path / "file"
    if old:
        path.write_text(old)
    before = names(tmp_path)
    expected = OSError if isinstance(error, OSError) else error
    with pytest.raises(expected), atomic_write(path) as file:  # noqa: PT012
        file.write(b"half")
        raise error
    assert names(tmp_path) == before
    assert not old or path.read_text() == old


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_at_the_end_leaves_the_old_file(tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(files.os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert (names(tmp_path), path.read_text()) == (["file"], "old")


def run(code, *arguments, **options):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=False, **options)


def test_a_full_disk_leaves_the_old_file(tmp_path):
    """A limit on the size of files: the kernel refuses to write on, as on a full disk."""
    path = tmp_path / "file"
    path.write_text("old")
    code = (
        "import resource, sys; from lmlib.files import write_atomically\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "write_atomically(sys.argv[1], b'x' * 1_000_000)"
    )
    ended = run(code, path)
    assert ended.returncode == 1
    assert b"OSError: [Errno 27]" in ended.stderr
    assert (names(tmp_path), path.read_text()) == (["file"], "old")


def test_ctrl_c_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    code = (
        "import sys, time; from lmlib.files import atomic_write\n"
        "with atomic_write(sys.argv[1]) as file:\n"
        "    file.write(b'half'); file.flush(); print('writing', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"writing\n"
        assert len(names(tmp_path)) == 2
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in process.communicate()[1]
    assert (names(tmp_path), path.read_text()) == (["file"], "old")


# --- permissions and links --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("umask", "mode"), [("022", 0o644), ("077", 0o600), ("002", 0o664)])
def test_a_new_file_gets_the_usual_permissions(tmp_path, umask, mode):
    code = (
        "import os, sys; from lmlib.files import write_atomically\n"
        "os.umask(int(sys.argv[2], 8)); write_atomically(sys.argv[1], 'new')"
    )
    assert run(code, tmp_path / "file", umask).returncode == 0
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_a_replaced_file_passes_its_permissions_on(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    write_atomically(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)


def test_a_read_only_file_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o444)
    if os.geteuid() == 0:  # for whom nothing is read-only
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="is read-only: name another file"):
        write_atomically(path, "new")
    assert path.read_text() == "old"


@pytest.mark.parametrize("old", ["old", None])
def test_a_link_stays_a_link(tmp_path, old):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    if old:
        target.write_text(old)
    link.symlink_to("there/file")
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert (names(tmp_path), names(target.parent)) == (["link", "there"], ["file"])


# --- what cannot be written -------------------------------------------------------------------------------------


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder: name a file in it"):
        write_atomically(tmp_path, "new")
    assert names(tmp_path) == []


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder: create it"):
        write_atomically(tmp_path / "nowhere" / "file", "new")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match="file is not a folder"):
        write_atomically(tmp_path / "file" / "file", "new")


@pytest.mark.parametrize("mode", ["r", "a", "rb+", "w+"])
def test_other_modes_are_refused(tmp_path, mode):
    with pytest.raises(ValueError, match="choose 'wb' or 'w'"), atomic_write(tmp_path / "file", mode):
        pass
    assert names(tmp_path) == []


# --- devices and pipes ------------------------------------------------------------------------------------------

TO_STDOUT = "from lmlib.files import write_atomically\nwrite_atomically('/dev/stdout', 'new\\n')"


def test_devices_are_written_to_directly():
    write_atomically("/dev/null", b"new")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(OSError, match="No space left"):
        write_atomically("/dev/full", b"new")


def test_standard_output_may_be_a_pipe():
    assert run(TO_STDOUT).stdout == b"new\n"


@pytest.mark.parametrize("redirection", [">", ">>"])
def test_standard_output_may_be_a_file(tmp_path, redirection):
    path = tmp_path / "file"
    path.write_text("old\n")
    command = f'(echo first; "$1" -c "$2"; echo last) {redirection} "$3"'
    subprocess.run(["sh", "-c", command, "sh", sys.executable, TO_STDOUT, path], check=True)
    assert names(tmp_path) == ["file"]
    assert path.read_text() == ("old\n" if redirection == ">>" else "") + "first\nnew\nlast\n"


def test_what_was_printed_before_comes_before():
    assert run(f"print('first')\n{TO_STDOUT}\nprint('last')").stdout == b"first\nnew\nlast\n"


@pytest.mark.parametrize("path", ["/dev/stderr", "/dev/fd/2", "/dev/../dev/stderr"])
def test_an_open_file_by_its_number(path):
    assert run(TO_STDOUT.replace("/dev/stdout", path)).stderr == b"new\n"


def test_a_named_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        write_atomically(pipe, b"new")
        assert reader.communicate()[0] == b"new"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
