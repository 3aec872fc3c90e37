"""The texts that benchmarks read, stored as files so that every process reads the same."""

import hashlib
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase

from contest import BUILD

MB = 1_000_000
END = "<|endoftext|>"


def moby_dick() -> list[bytes]:
    """Return the novel, as one document."""
    from lmlib.corpora import load_corpus

    return [load_corpus("moby_dick").encode()]


def languages() -> list[bytes]:
    """Return the Universal Declaration of Human Rights in 34 languages, a document each."""
    from lmlib.corpora import load_corpus

    return [language.text.encode() for language in load_corpus("udhr").values()]


def mixed(size: int) -> Iterator[bytes]:
    """Yield so many bytes, or a document more, of source code and documentation: files of the installed packages."""
    return _first(_package_files(), size)


def other() -> Iterator[bytes]:
    """Yield the 50 MB that come after the first 50."""
    files = _package_files()
    for _ in _first(files, 50 * MB):
        pass
    return _first(files, 50 * MB)


def strange(size: int) -> Iterator[bytes]:
    """Yield 50 MB again and again, each time with other letters: words that no cache has seen, without an end."""
    known = list(mixed(50 * MB))
    alphabets = map(_shifted_letters, count(1))
    return _first((document.translate(letters) for letters in alphabets for document in known), size)


def _package_files() -> Iterator[bytes]:
    folder = Path(sysconfig.get_path("purelib"))
    for path in sorted(folder.rglob("*"), key=_shuffled):
        if path.suffix not in {".py", ".pyi", ".md", ".rst", ".txt", ".json", ".h"} or path.stat().st_size > 400_000:
            continue
        try:
            yield path.read_text("utf-8").encode()  # not as bytes: line breaks become those of Unix
        except UnicodeDecodeError:
            continue
    raise SystemExit("The installed packages hold less text than the benchmarks need.")


def _shuffled(path: Path) -> bytes:
    """Return a key that mixes packages, but always in the same way."""
    return hashlib.sha256("/".join(path.parts[-3:]).encode()).digest()


def _first(documents: Iterator[bytes], size: int) -> Iterator[bytes]:
    for document in documents:
        yield document
        size -= len(document)
        if size < 0:
            return


def _shifted_letters(shift: int) -> bytes:
    """Return a table for ``bytes.translate``."""
    shift %= 26
    shifted = (letters[shift:] + letters[:shift] for letters in (ascii_lowercase, ascii_uppercase))
    return bytes.maketrans((ascii_lowercase + ascii_uppercase).encode(), "".join(shifted).encode())


TEXTS: dict[str, Callable[[], Iterable[bytes]]] = {
    "moby_dick": moby_dick,
    "languages": languages,
    "mixed": lambda: mixed(50 * MB),
    "other": other,
} | {f"{text.__name__}_{size}": partial(text, size * MB) for text in (mixed, strange) for size in (1, 10, 100, 1000)}


def text_path(name: str) -> Path:
    """Where a text is stored."""
    return BUILD / f"{name}.txt"


def documents_of(name: str) -> list[str]:
    """Return the documents of a text, as they were stored when the benchmark began."""
    return text_path(name).read_text("utf-8").split(END)


def store_texts(names: Collection[str]) -> dict[str, dict]:
    """Write the texts to files, and return what identifies them."""
    return {name: _store(text_path(name), TEXTS[name]()) for name in sorted(set(names))}


def _store(path: Path, documents: Iterable[bytes]) -> dict:
    digest, number = hashlib.sha256(), 0
    with path.open("wb") as file:
        for number, document in enumerate(documents, 1):
            content = END.encode() + document if number > 1 else document
            file.write(content)
            digest.update(content)
    return {"bytes": path.stat().st_size, "documents": number, "sha256": digest.hexdigest()}
