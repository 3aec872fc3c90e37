"""The texts that benchmarks read, stored as files so that every process reads the same."""

import hashlib
import sysconfig
from collections.abc import Collection
from pathlib import Path

from contest import BUILD

MIXED_BYTES = 50_000_000
END = "<|endoftext|>"


def moby_dick() -> list[str]:
    """Return the novel, as one document."""
    from lmlib.corpora import load_corpus

    return [load_corpus("moby_dick")]


def languages() -> list[str]:
    """Return the Universal Declaration of Human Rights in 34 languages, a document each."""
    from lmlib.corpora import load_corpus

    return [language.text for language in load_corpus("udhr").values()]


def mixed() -> list[str]:
    """Return 50 MB of source code and documentation: the text files of the installed packages."""
    folder = Path(sysconfig.get_path("purelib"))
    documents, size = [], 0
    for path in sorted(folder.rglob("*"), key=_shuffled):
        if path.suffix not in {".py", ".pyi", ".md", ".rst", ".txt", ".json", ".h"} or path.stat().st_size > 400_000:
            continue
        try:
            documents.append(path.read_text("utf-8"))
        except UnicodeDecodeError:
            continue
        size += len(documents[-1].encode())
        if size > MIXED_BYTES:
            return documents
    raise SystemExit(f"The installed packages hold only {size} bytes of text, but {MIXED_BYTES} are needed.")


def _shuffled(path: Path) -> bytes:
    """Return a key that mixes packages, but always in the same way."""
    return hashlib.sha256("/".join(path.parts[-3:]).encode()).digest()


TEXTS = {"moby_dick": moby_dick, "languages": languages, "mixed": mixed}


def text_path(name: str) -> Path:
    """Where a text is stored."""
    return BUILD / f"{name}.txt"


def documents_of(name: str) -> list[str]:
    """Return the documents of a text, as they were stored when the benchmark began."""
    return text_path(name).read_text("utf-8").split(END)


def store_texts(names: Collection[str]) -> dict[str, dict]:
    """Write the texts to files, and return what identifies them."""
    facts = {}
    for name in sorted(set(names)):
        documents = TEXTS[name]()
        content = END.join(documents).encode()
        text_path(name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        facts[name] = {"bytes": len(content), "documents": len(documents), "sha256": digest}
    return facts
