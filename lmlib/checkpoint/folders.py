"""Writing folders so that they are whole or not there, never half-written."""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["atomic_folder", "remove_folder", "remove_stale", "sync"]

_TEMPORARY = re.compile(r"\..+\.tmp-[0-9a-f]{16}")


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Make a folder to write files into, which takes its name once all is on disk.

    It is made beside ``path``, whose parents are made too. After any exception it
    is removed again. A process that is killed leaves it for ``remove_stale``.

    Raises OSError if ``path`` is there already and is no empty folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(path)
    try:
        temporary.mkdir()
        with _locked(temporary):
            yield temporary
            for file in temporary.rglob("*"):
                sync(file)
            sync(temporary)
            os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder so that its name never stands for a part of it."""
    temporary = _temporary_name(path)
    os.rename(path, temporary)
    shutil.rmtree(temporary, ignore_errors=True)  # the rest is removed as stale


def remove_stale(parent: Path) -> None:
    """Remove what killed processes left in ``parent``, and nobody writes to."""
    with suppress(OSError):
        for folder in parent.iterdir():
            if _TEMPORARY.fullmatch(folder.name) and not _is_locked(folder):
                shutil.rmtree(folder, ignore_errors=True)


def sync(path: Path) -> None:
    """Return once a file's bytes, or a folder's names, have reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp-{secrets.token_hex(8)}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock that the kernel releases when the process ends, however it does.

    A process number in the name would not do: in a container every run may have
    the same. Where the file system knows no locks, none is held.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _is_locked(folder: Path) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
