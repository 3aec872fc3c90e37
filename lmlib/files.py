"""Writing files so that they are whole or not there, never half-written."""

import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

__all__ = ["atomic_write", "name_what_is_full", "write_atomically"]


def write_atomically(path: str | os.PathLike, data: bytes | str) -> None:
    """Write a whole file, text as UTF-8; see ``atomic_write``."""
    with atomic_write(path, "w" if isinstance(data, str) else "wb") as file:
        file.write(data)


@contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    r"""Open a file to write, which takes its name only once all of it is on disk.

    ``mode`` is ``"wb"``, or ``"w"`` for text in UTF-8, where ``\n`` stays ``\n``.
    Until the end, and after any exception, Ctrl-C and a full disk included, what
    stood there before still does. What is replaced passes its permissions on, and
    a symbolic link stays one: the file that it leads to is replaced. A process
    that is killed leaves a file ``.lmlib-….tmp`` in the folder.

    Devices and pipes, such as ``/dev/stdout``, are written to directly.

    Raises FileNotFoundError if the folder does not exist, IsADirectoryError if the
    path is one, PermissionError if the file that stands there is read-only, and
    ValueError for another mode.
    """
    if mode not in ("w", "wb"):
        raise ValueError(f"mode is {mode!r}: choose 'wb' or 'w'.")
    descriptor = _own_descriptor(path)
    with name_what_is_full(path):
        if descriptor is not None:
            sys.stdout.flush()  # what was printed before comes before
            with _open(os.dup(descriptor), mode) as file:
                yield file
        elif _is_device_or_pipe(path):
            with _open(path, mode) as file:
                yield file
        else:
            with _open_to_replace(path, mode) as file:
                yield file


@contextmanager
def name_what_is_full(path: str | os.PathLike) -> Iterator[None]:
    """Put into an error of writing, such as a full disk, what was written to."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            error.filename = os.fspath(path)
        raise


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


_OWN = re.compile(r"/dev/(?:std(?P<name>out|err)|fd/(?P<number>\d+))")


def _own_descriptor(path: str | os.PathLike) -> int | None:
    """Return the number of the open file that ``/dev/stdout`` and the like mean.

    It may be a regular file that the shell has opened, and goes on writing to.
    """
    match = _OWN.fullmatch(os.path.abspath(path))
    if not match:
        return None
    return int(match["number"] or {"out": 1, "err": 2}[match["name"]])


def _is_device_or_pipe(path: str | os.PathLike) -> bool:
    try:
        kind = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)


@contextmanager
def _open_to_replace(path: str | os.PathLike, mode: str) -> Iterator[IO]:
    target = Path(os.path.realpath(path))
    old_mode = _check_target(target)
    temporary = target.with_name(f".lmlib-{secrets.token_hex(8)}.tmp")
    try:
        with _open(temporary, mode.replace("w", "x")) as file:
            if old_mode is not None:
                os.fchmod(file.fileno(), old_mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def _open(path: str | os.PathLike | int, mode: str) -> IO:
    if "b" in mode:
        return open(path, mode)
    return open(path, mode, encoding="utf-8", newline="")


def _check_target(target: Path) -> int | None:
    """Return the permissions of the file to replace, None if there is none."""
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{target.parent} is not a folder: create it, or name another place."
        )
    try:
        status = target.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(f"{target} is a folder: name a file in it.")
    if not os.access(target, os.W_OK):
        raise PermissionError(f"{target} is read-only: name another file.")
    return stat.S_IMODE(status.st_mode)


def _sync_folder(folder: Path) -> None:
    """Let the new name survive a loss of power, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
