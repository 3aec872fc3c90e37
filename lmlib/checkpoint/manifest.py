"""A list of the files of a folder with size and SHA-256, which shows damage."""

import hashlib
import json
from pathlib import Path

__all__ = ["MANIFEST", "CorruptCheckpoint", "verify", "write_manifest"]

MANIFEST = "manifest.json"


class CorruptCheckpoint(ValueError):
    """A checkpoint is not what was saved; the message says what differs."""


def write_manifest(folder: Path) -> None:
    """List the files that are in the folder, at any depth."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    entries = {
        path.relative_to(folder).as_posix(): {
            "size": path.stat().st_size,
            "sha256": _sha256(path),
        }
        for path in files
    }
    text = json.dumps({"files": entries}, indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def verify(folder: Path, required: set[str]) -> None:
    """Read every listed file; CorruptCheckpoint unless all is as it was written.

    So it is, too, if a ``required`` file is not listed: nothing may be read that
    was not verified.
    """
    entries = _read_entries(folder)
    if missing := sorted(required - entries.keys()):
        raise CorruptCheckpoint(f"{MANIFEST} does not list {missing[0]}")
    for name, (size, digest) in entries.items():
        path = folder / name
        if not path.is_file():
            raise CorruptCheckpoint(f"{name} is missing")
        if path.stat().st_size != size:
            raise CorruptCheckpoint(
                f"{name} has {path.stat().st_size} bytes instead of {size}"
            )
        if _sha256(path) != digest:
            raise CorruptCheckpoint(f"the SHA-256 of {name} differs")


def _read_entries(folder: Path) -> dict[str, tuple[int, str]]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return {
            str(name): (entry["size"], entry["sha256"])
            for name, entry in manifest["files"].items()
        }
    except FileNotFoundError:
        raise CorruptCheckpoint(f"{MANIFEST} is missing") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise CorruptCheckpoint(f"{MANIFEST} is no list of files") from None


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
