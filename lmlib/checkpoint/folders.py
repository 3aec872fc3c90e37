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
    temporary = _temporary_name(path)
    with _parents_made(path), _opened(path.parent) as parent:
        with suppress(OSError):  # where the file system knows no locks
            fcntl.flock(parent, fcntl.LOCK_SH)  # several may write at once
        try:
            temporary.mkdir()
            yield temporary
            for file in temporary.rglob("*"):
                sync(file)
            sync(temporary)
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        os.fsync(parent)


@contextmanager
def _parents_made(path: Path) -> Iterator[None]:
    """Make the folders around a path; after any exception take back those made."""
    made = [parent for parent in path.parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with suppress(OSError):  # somebody else may have put something there
            for parent in made:
                parent.rmdir()
        raise


def remove_folder(path: Path) -> None:
    """Remove a folder so that its name never stands for a part of it."""
    temporary = _temporary_name(path)
    os.rename(path, temporary)
    shutil.rmtree(temporary, ignore_errors=True)  # what is left is stale


def remove_stale(parent: Path) -> None:
    """Remove what processes that were killed have left in ``parent``.

    While any process writes there, nothing is removed. The kernel knows: it frees
    a lock when a process ends, however that does. The number of a process would
    tell less, for in a container it may be the same each time.
    """
    with suppress(OSError), _opened(parent) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for folder in parent.iterdir():
            if _TEMPORARY.fullmatch(folder.name):
                shutil.rmtree(folder, ignore_errors=True)


def sync(path: Path) -> None:
    """Return once a file's bytes, or a folder's names, have reached the disk."""
    with _opened(path) as descriptor:
        os.fsync(descriptor)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp-{secrets.token_hex(8)}")


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
