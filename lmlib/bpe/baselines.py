"""What people used before BPE: a token is a character, a byte or a word.

Each tokenizer has ``encode``, ``decode`` and ``vocab_size``. Unknown ids are a
KeyError that names the id.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from lmlib.bpe.reference import pretokenize
from lmlib.bpe.surrogates import replace_surrogates

__all__ = [
    "UNKNOWN",
    "WORD_PATTERN",
    "ByteTokenizer",
    "CharacterTokenizer",
    "WordTokenizer",
    "compression_ratio",
]

# (?s) so that a newline is a segment too: without it, no text could be restored
WORD_PATTERN = r"(?s)\w+|."
UNKNOWN = "<unk>"


class _Tokenizer(Protocol):
    @property
    def vocab_size(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Iterable[int]) -> str: ...


@dataclass(frozen=True)
class CharacterTokenizer:
    """A token is a character, and its id is its code point."""

    vocab_size: int = field(default=sys.maxunicode + 1, init=False)

    def encode(self, text: str) -> list[int]:
        """Return the code points of a text, surrogates among them."""
        return [ord(character) for character in text]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text; KeyError for an id that is not a code point."""
        return "".join(map(chr, _known(ids, self.vocab_size)))


@dataclass(frozen=True)
class ByteTokenizer:
    """A token is a byte of UTF-8."""

    vocab_size: int = field(default=256, init=False)

    def encode(self, text: str) -> list[int]:
        """Return the bytes of a text; a lone surrogate counts as U+FFFD."""
        return list(replace_surrogates(text).encode())

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text, U+FFFD for what is not UTF-8; KeyError for no byte."""
        return bytes(_known(ids, self.vocab_size)).decode("utf-8", "replace")


@dataclass(frozen=True)
class WordTokenizer:
    """A token is a word of a fixed list; id 0 stands for every other word."""

    words: tuple[str, ...]
    pattern: str = WORD_PATTERN

    @classmethod
    def train(
        cls,
        documents: Iterable[str],
        vocab_size: int | None = None,
        pattern: str = WORD_PATTERN,
    ) -> "WordTokenizer":
        """Make a tokenizer of the most frequent words, or of all.

        Of words that are equally frequent, the smaller comes first.

        Raises ValueError if ``vocab_size`` is less than 1, or if the pattern is
        invalid; TypeError if one text is passed where a list is meant.
        """
        if isinstance(documents, str):
            raise TypeError("Pass a list of texts, even if it holds only one.")
        if vocab_size is not None and vocab_size < 1:
            raise ValueError(
                f"vocab_size is {vocab_size}, but unknown words need one id."
            )
        counts: Counter[str] = Counter()
        for document in documents:
            counts.update(pretokenize(document, pattern))
        words = sorted(counts, key=lambda word: (-counts[word], word))
        last = None if vocab_size is None else vocab_size - 1
        return cls(tuple(words[:last]), pattern)

    @property
    def vocab_size(self) -> int:
        """Words, and one id for all unknown ones."""
        return 1 + len(self.words)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words, start=1)}

    def encode(self, text: str) -> list[int]:
        """Return the ids of the words of a text, 0 for each unknown one."""
        return [self._ids.get(word, 0) for word in pretokenize(text, self.pattern)]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text, ``<unk>`` for an unknown word; KeyError for no id."""
        spelled = (UNKNOWN, *self.words)
        return "".join(spelled[i] for i in _known(ids, self.vocab_size))


def compression_ratio(tokenizer: _Tokenizer, text: str) -> float:
    """Return the bytes of UTF-8 per token.

    Raises ValueError for a text without tokens.
    """
    tokens = len(tokenizer.encode(text))
    if not tokens:
        raise ValueError("A text without tokens has no compression ratio.")
    return len(replace_surrogates(text).encode()) / tokens


def _known(ids: Iterable[int], vocab_size: int) -> list[int]:
    ids = list(ids)
    for i in ids:
        if not 0 <= i < vocab_size:
            raise KeyError(i)
    return ids
