"""Encoding texts in which special tokens are known: the way is chosen by size.

What is small goes piece by piece, through caches of Python objects. What is large
goes in blocks to ``fast``, if the pattern is one of the three.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from lmlib.bpe.cache import BoundedCache
from lmlib.bpe.cuts import Cutter
from lmlib.bpe.encode import WordEncoder
from lmlib.bpe.fast.encoder import BlockEncoder
from lmlib.bpe.pretokens import KNOWN_PATTERNS, Pretokenizer
from lmlib.bpe.spec import TokenizerSpec
from lmlib.bpe.special_tokens import SpecialTokenFinder

__all__ = ["TextEncoder"]

_CACHE_BYTES = 2**25
_BLOCK = 2**21  # characters that go to `fast` at once
_PART = 2**19  # characters of a part, if one text is more than that
_LARGE = 2**11  # characters: below, a block costs more than it saves

Ids = np.ndarray | list[int]


class TextEncoder:
    """Encodes texts without surrogates, with the vocabulary of a specification."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        words = WordEncoder(spec)
        self._by_pieces = _PieceEncoder(spec.pattern, words)
        self._blocks: BlockEncoder | None = None
        if spec.pattern in KNOWN_PATTERNS:
            self._blocks = BlockEncoder(spec.ids, spec.pattern, words)

    def encode(
        self, texts: Iterable[str], special: SpecialTokenFinder, cutter: Cutter
    ) -> Iterator[Ids]:
        """Yield the ids of each text, special tokens included."""
        for group, size in _groups(texts):
            if self._blocks is None or size < _LARGE:
                yield from (list(self._piece_by_piece(t, special)) for t in group)
            elif len(group) == 1 and size > 2 * _PART:
                groups = _groups(cutter.parts(group, _PART))
                blocks = (self._block(parts, special) for parts, _ in groups)
                yield np.concatenate([*chain.from_iterable(blocks)])
            else:
                yield from self._block(group, special)

    def _piece_by_piece(
        self, text: str, special: SpecialTokenFinder
    ) -> Iterable[int]:
        parts = special.split(text)
        if len(parts) == 1:
            return self._by_pieces.encode(text)
        return chain.from_iterable(
            [self._spec.special_tokens[part]]
            if i % 2
            else self._by_pieces.encode(part)
            for i, part in enumerate(parts)
        )

    def _block(
        self, texts: Sequence[str], special: SpecialTokenFinder
    ) -> Iterator[np.ndarray]:
        """Yield the ids of each text; all of them are encoded at once.

        The texts between special tokens are documents like others. What stands
        between two documents is a special token, or else the end of a text.
        """
        documents: list[bytes] = []
        between: list[int] = []
        for text in texts:
            parts = special.split(text)
            documents += map(str.encode, parts[::2])
            between += map(self._spec.special_tokens.__getitem__, parts[1::2])
            between.append(_END_OF_TEXT)
        ids, places = self._blocks.encode(documents)
        filled = np.array(between[:-1], np.int64)
        is_special = filled != _END_OF_TEXT
        ids[places[is_special]] = filled[is_special]
        start = 0
        for end in [*places[~is_special].tolist(), len(ids)]:
            yield ids[start:end]
            start = end + 1


_END_OF_TEXT = -1


def _groups(texts: Iterable[str]) -> Iterator[tuple[list[str], int]]:
    """Yield texts in groups of about a block, with their number of characters."""
    group: list[str] = []
    size = 0
    for text in texts:
        if group and size + len(text) > _BLOCK:
            yield group, size
            group, size = [], 0
        group.append(text)
        size += len(text)
    if group:
        yield group, size


class _PieceEncoder:
    """Encodes texts piece by piece, with a memory for pieces and for words."""

    def __init__(self, pattern: str | None, words: WordEncoder) -> None:
        self._pretokenizer = Pretokenizer(pattern)
        self._words = words
        self._word_ids = BoundedCache(self._encode_pretoken, _CACHE_BYTES)
        if self._pretokenizer.pieces_are_pretokens:
            self._piece_ids = self._word_ids
        else:
            self._piece_ids = BoundedCache(self._encode_piece, _CACHE_BYTES)

    def encode(self, text: str) -> Iterable[int]:
        """Return the ids of a text in which there are no special tokens."""
        pieces = self._pretokenizer.pieces(text)
        return chain.from_iterable(map(self._piece_ids.__getitem__, pieces))

    def _encode_pretoken(self, pretoken: str) -> tuple[int, ...]:
        return self._words.encode(pretoken.encode())

    def _encode_piece(self, piece: str) -> tuple[int, ...]:
        pretokens = self._pretokenizer.pretokens(piece)
        if len(pretokens) == 1:  # the ids of the piece are kept: those are enough
            return self._encode_pretoken(piece)
        return tuple(
            chain.from_iterable(map(self._word_ids.__getitem__, pretokens))
        )
