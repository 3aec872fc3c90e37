"""Texts that ship with lmlib: compressed resources, verified when they are loaded.

``PROVENANCE.md`` beside this file says what each one is, where it comes from and
under which licence.
"""

import hashlib
import json
import lzma
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from threading import Lock
from typing import Any, Literal, overload

__all__ = ["CorpusError", "Language", "corpus_names", "load_corpus"]

_FOLDER = resources.files(__name__)
_LOADING = Lock()


class CorpusError(OSError):
    """A text that ships with lmlib is missing or damaged."""


@dataclass(frozen=True)
class Language:
    """The Universal Declaration of Human Rights in one language.

    Article i is the same article in every language.
    """

    code: str
    name: str
    articles: tuple[str, ...]

    @property
    def text(self) -> str:
        """All articles, one a line."""
        return "\n".join(self.articles)


@dataclass(frozen=True, eq=False)  # a mapping equals any other with its items
class _Languages(Mapping[str, Language]):
    """Languages by code, read-only because all callers share them.

    Unlike a ``MappingProxyType``, it can be pickled and copied.
    """

    languages: tuple[Language, ...]

    def __getitem__(self, code: str) -> Language:
        for language in self.languages:
            if language.code == code:
                return language
        raise KeyError(code)

    def __iter__(self) -> Iterator[str]:
        return (language.code for language in self.languages)

    def __len__(self) -> int:
        return len(self.languages)


def _parse_languages(text: str) -> Mapping[str, Language]:
    return _Languages(
        tuple(
            Language(entry["code"], entry["language"], tuple(entry["articles"]))
            for entry in json.loads(text)
        )
    )


@dataclass(frozen=True)
class _Resource:
    file: str
    sha256: str  # of the unpacked file
    parse: Callable[[str], Any] = str


_CORPORA = {
    "moby_dick": _Resource(
        file="moby_dick.txt.xz",
        sha256="fe282a57094ed62e7144fb7c804a9748fc1c909bf3b49d06e7276015f9f67240",
    ),
    "udhr": _Resource(
        file="udhr_34.json.xz",
        sha256="b434fd4507bb970d58c72f7ced46cd78ff5af9f3c391e72af5d1ff56a090aca2",
        parse=_parse_languages,
    ),
    "gpt2_merges": _Resource(
        file="gpt2_vocab.bpe.xz",
        sha256="1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    ),
}


def corpus_names() -> tuple[str, ...]:
    """Return the names that ``load_corpus`` knows."""
    return tuple(_CORPORA)


@overload
def load_corpus(name: Literal["moby_dick", "gpt2_merges"]) -> str: ...
@overload
def load_corpus(name: Literal["udhr"]) -> Mapping[str, Language]: ...
def load_corpus(name: str) -> str | Mapping[str, Language]:
    """Return an embedded text.

    - ``"moby_dick"``: the novel;
    - ``"udhr"``: the Universal Declaration of Human Rights in 34 languages, a
      read-only mapping from a language's code (``"eng"``, …) to a ``Language``;
    - ``"gpt2_merges"``: GPT-2's merges: a version line, then one pair a line.

    Raises ValueError for a name it does not know, and CorpusError if the stored
    file is missing or damaged.
    """
    if name not in corpus_names():
        known = ", ".join(corpus_names())
        raise ValueError(f"There is no corpus {name!r}: choose one of {known}.")
    with _LOADING:  # `cache` alone lets threads load a text twice
        return _load(name)


@cache
def _load(name: str) -> str | Mapping[str, Language]:
    resource = _CORPORA[name]
    return resource.parse(_unpack(resource).decode("utf-8"))


def _unpack(resource: _Resource) -> bytes:
    path = f"lmlib/corpora/{resource.file}"
    try:
        data = lzma.decompress(_FOLDER.joinpath(resource.file).read_bytes())
    except OSError as error:
        raise CorpusError(
            f"{path} is missing or cannot be read: reinstall lmlib."
        ) from error
    except lzma.LZMAError as error:
        raise CorpusError(f"{path} is damaged: reinstall lmlib.") from error
    if hashlib.sha256(data).hexdigest() != resource.sha256:
        raise CorpusError(f"{path} is not the text it should be: reinstall lmlib.")
    return data
