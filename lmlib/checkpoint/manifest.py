"""A list of the files of a folder with size and SHA-256, which shows damage."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from lmlib.checkpoint.errors import NO_JSON, NOT_THERE, CorruptCheckpoint

__all__ = ["MANIFEST", "describe", "verify", "write_manifest"]

MANIFEST = "manifest.json"

# Of each file by name: {"size": bytes, "sha256": digits}
Entries = dict[str, dict[str, int | str]]


def describe(folder: Path, files: Iterable[Path]) -> Entries:
    """The size and the SHA-256 of files in a folder, by their path in it."""
    return {
        file.relative_to(folder).as_posix(): {
            "size": file.stat().st_size,
            "sha256": _sha256(file),
        }
        for file in files
    }


def write_manifest(folder: Path, entries: Entries) -> None:
    """Write what ``describe`` returned for all files of a folder."""
    text = json.dumps({"files": entries}, indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def verify(
    folder: Path, required: set[str], rank: int = 0, size: int = 1
) -> list[str]:
    """Return what is listed; CorruptCheckpoint unless all is as it was written.

    So it is, too, if a ``required`` file is not listed: nothing may be read that
    was not verified. Of ``size`` ranks, each reads its share of the files.
    """
    entries = _read_entries(folder)
    if missing := sorted(required - entries.keys()):
        raise CorruptCheckpoint(f"{MANIFEST} does not list {missing[0]}")
    for name in list(entries)[rank::size]:
        _verify_file(folder, name, *entries[name])
    return list(entries)


def _verify_file(folder: Path, name: str, size: int, digest: str) -> None:
    path = folder / name
    if not path.is_file():
        raise CorruptCheckpoint(f"{name} is missing")
    if path.stat().st_size != size:
        found = path.stat().st_size
        raise CorruptCheckpoint(f"{name} has {found} bytes instead of {size}")
    if _sha256(path) != digest:
        raise CorruptCheckpoint(f"the SHA-256 of {name} differs")


def _read_entries(folder: Path) -> dict[str, tuple[int, str]]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return {
            str(name): (entry["size"], entry["sha256"])
            for name, entry in manifest["files"].items()
        }
    except NOT_THERE:
        raise CorruptCheckpoint(f"{MANIFEST} is missing") from None
    except (*NO_JSON, TypeError, KeyError, AttributeError):
        raise CorruptCheckpoint(f"{MANIFEST} is no list of files") from None


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
