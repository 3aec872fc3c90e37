"""The tokenizer that people use: text to ids and back, from and to files."""

from __future__ import annotations

import codecs
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike

from lmlib.bpe.cuts import Cutter
from lmlib.bpe.formats import (
    read_gpt2,
    read_tiktoken,
    read_tokenizer_json,
    read_vocab_bpe,
    to_hugging_face,
    to_tiktoken,
    tokenizer_json,
)
from lmlib.bpe.patterns import GPT2_PATTERN
from lmlib.bpe.spec import Pair, TokenizerSpec, numbered
from lmlib.bpe.special_tokens import special_token_finder
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.bpe.text_encoder import TextEncoder
from lmlib.corpora import load_corpus
from lmlib.files import write_atomically

if TYPE_CHECKING:
    import tiktoken
    import tokenizers

__all__ = ["SpecialTokenError", "Tokenizer"]

AllowedSpecial = Literal["all"] | Collection[str]


class SpecialTokenError(ValueError):
    """A text holds a special token that is disallowed; ``name`` says which."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"The text holds the special token {self.name!r}. To encode it as one, "
            f"pass allowed_special={{{self.name!r}}}; to encode it as ordinary "
            "text, pass disallowed_special=()."
        )


class Tokenizer:
    """A byte-level BPE tokenizer, whose ids are tiktoken's for every text.

    ``vocab`` maps ids to bytes, ``merges`` are in order. ``special_tokens`` are
    names, which get the id that the vocabulary has for them or the next free one,
    or a mapping from names to ids. Without a ``pattern``, a text is one pre-token.

    Raises ValueError if they do not fit together; ``TokenizerSpec`` says when.
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Sequence[Pair],
        special_tokens: Iterable[str] | Mapping[str, int] | None = None,
        pattern: str | None = GPT2_PATTERN,
    ) -> None:
        special = numbered(special_tokens or (), vocab, merges)
        named = {i: name.encode() for name, i in special.items()}
        self._set_up(TokenizerSpec({**named, **vocab}, merges, special, pattern))

    @classmethod
    def from_spec(cls, spec: TokenizerSpec) -> Self:
        """Make the tokenizer that a specification describes."""
        tokenizer = cls.__new__(cls)
        tokenizer._set_up(spec)
        return tokenizer

    def _set_up(self, spec: TokenizerSpec) -> None:
        self.spec = spec
        self._encoder = TextEncoder(spec)
        is_dense = self.vocab_size <= 2 * len(spec.vocab)
        self._as_list = _IdLists(self.vocab_size) if is_dense else _as_list

    # --- from and to files ----------------------------------------------------

    @classmethod
    def from_pretrained(cls, name_or_path: str | os.PathLike) -> Self:
        """Load ``"gpt2"``, which comes with lmlib, or a ``tokenizer.json``.

        A path leads to the file, or to a folder that holds one. Nothing is
        downloaded.

        Raises FileNotFoundError if there is neither, and ValueError if the file
        holds something else than a byte-level BPE tokenizer.
        """
        if name_or_path == "gpt2":  # a folder of that name is "./gpt2"
            vocab, merges = read_vocab_bpe(load_corpus("gpt2_merges"))
            return cls(vocab, merges, {"<|endoftext|>": len(vocab)})
        path = Path(name_or_path)
        if path.is_dir():
            path /= "tokenizer.json"
        if path.exists():
            return cls.from_spec(read_tokenizer_json(path))
        raise FileNotFoundError(
            f"There is no tokenizer {os.fspath(name_or_path)!r}: pass 'gpt2', or "
            "the path of a tokenizer.json or of its folder. Nothing is downloaded."
        )

    @classmethod
    def from_files(
        cls,
        vocab: str | os.PathLike,
        merges: str | os.PathLike,
        special_tokens: Iterable[str] | Mapping[str, int] | None = None,
        pattern: str | None = GPT2_PATTERN,
    ) -> Self:
        """Load GPT-2's own two files, ``vocab.json`` and ``merges.txt``.

        Raises OSError if one cannot be read, and ValueError, which says where, if
        one is broken or they do not fit together.
        """
        spec = read_gpt2(vocab, merges, special_tokens or (), pattern)
        return cls.from_spec(spec)

    @classmethod
    def from_tiktoken(
        cls,
        ranks: str | os.PathLike,
        pattern: str | None,
        special_tokens: Mapping[str, int] | None = None,
    ) -> Self:
        """Load a ``.tiktoken`` file of ranks, which names no pattern itself.

        Raises OSError if it cannot be read, and ValueError, which names the line,
        if it is broken.
        """
        return cls.from_spec(read_tiktoken(ranks, pattern, special_tokens or {}))

    def save(self, path: str | os.PathLike) -> None:
        """Write a ``tokenizer.json`` for lmlib and for Hugging Face's libraries.

        Raises OSError if it cannot be written; what stood there stays then.
        """
        write_atomically(path, tokenizer_json(self.spec))

    def to_tiktoken(self, name: str = "lmlib") -> tiktoken.Encoding:
        """Return tiktoken's tokenizer of this vocabulary (needs tiktoken)."""
        return to_tiktoken(self.spec, name)

    def to_hugging_face(self) -> tokenizers.Tokenizer:
        """Return Hugging Face's tokenizer of this vocabulary (needs tokenizers)."""
        return to_hugging_face(self.spec)

    # --- what it is made of ---------------------------------------------------

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """The bytes of every id, special tokens included."""
        return self.spec.vocab

    @property
    def merges(self) -> Sequence[Pair]:
        """The merges in order."""
        return self.spec.merges

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """The id of every special token."""
        return self.spec.special_tokens

    @property
    def pattern(self) -> str | None:
        """The pattern that cuts text into pre-tokens."""
        return self.spec.pattern

    @property
    def vocab_size(self) -> int:
        """One more than the greatest id: as many rows as an embedding needs."""
        return self.spec.greatest_id + 1

    def __repr__(self) -> str:
        name, special = type(self).__name__, len(self.special_tokens)
        return f"{name}(vocab_size={self.vocab_size}, special_tokens={special})"

    def __reduce__(self) -> tuple:
        return type(self).from_spec, (self.spec,)

    # --- encoding -------------------------------------------------------------

    def encode(
        self,
        text: str,
        *,
        allowed_special: AllowedSpecial = frozenset(),
        disallowed_special: AllowedSpecial = "all",
    ) -> list[int]:
        """Return the ids of a text.

        A special token in the text is encoded as one if it is allowed. If it is
        disallowed, which all others are by default, it is an error, so that no
        text from outside smuggles one in; pass ``disallowed_special=()`` to encode
        it as ordinary text. ``"all"`` stands for all of them. Where several start
        at one place, the longest wins.

        Raises SpecialTokenError, a ValueError, for a disallowed special token in
        the text, and ValueError for an allowed one that is none of this tokenizer.
        """
        [ids] = self._encode([text], allowed_special, disallowed_special)
        return self._as_list(ids)

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens are ordinary text."""
        return self.encode(text, disallowed_special=())

    def encode_iterable(
        self,
        pieces: Iterable[str],
        *,
        allowed_special: AllowedSpecial = frozenset(),
        disallowed_special: AllowedSpecial = "all",
    ) -> Iterator[int]:
        """Yield the ids of the text that pieces make together, wherever it is cut.

        Memory is bounded for the patterns of GPT-2, cl100k and o200k, unless the
        text itself goes on without a place to cut, such as a million letters in a
        row. For other patterns, it grows with the text between special tokens.

        Raises as ``encode`` does, when it comes to the special token.
        """
        policy = self._policy_of(allowed_special, disallowed_special)
        parts = policy.cutter.parts(map(_checked, pieces))
        each_part = ([policy.refuse(part)] for part in parts)
        encoded = chain.from_iterable(
            self._encoder.encode(part, policy.allowed, policy.cutter)
            for part in each_part
        )
        return chain.from_iterable(map(self._as_list, encoded))

    def encode_batch(
        self, texts: Iterable[str], **special: AllowedSpecial
    ) -> list[list[int]]:
        """Return the ids of every text; ``special`` is as in ``encode``."""
        encoded = self._encode(_several(texts), **special)
        return [*map(self._as_list, encoded)]

    def encode_to_array(
        self, text: str, dtype: DTypeLike = np.uint16, **special: AllowedSpecial
    ) -> np.ndarray:
        """Return the ids of a text as an array; ``special`` is as in ``encode``.

        Raises ValueError if ``dtype`` cannot hold every id of the vocabulary.
        """
        self._check_dtype(dtype)
        [ids] = self._encode([text], **special)
        return np.array(ids, dtype)

    def encode_batch_to_arrays(
        self,
        texts: Iterable[str],
        dtype: DTypeLike = np.uint16,
        **special: AllowedSpecial,
    ) -> list[np.ndarray]:
        """Return the ids of every text as an array; see ``encode_to_array``."""
        self._check_dtype(dtype)
        encoded = self._encode(_several(texts), **special)
        return [np.array(ids, dtype) for ids in encoded]

    def _encode(
        self,
        texts: Iterable[str],
        allowed_special: AllowedSpecial = frozenset(),
        disallowed_special: AllowedSpecial = "all",
    ) -> Iterator[np.ndarray | list[int]]:
        """Yield the ids of each text."""
        policy = self._policy_of(allowed_special, disallowed_special)
        clean = (replace_surrogates(_checked(text)) for text in texts)
        refused = map(policy.refuse, clean)
        return self._encoder.encode(refused, policy.allowed, policy.cutter)

    def _policy_of(
        self, allowed: AllowedSpecial, disallowed: AllowedSpecial
    ) -> _Policy:
        known = self.special_tokens.keys()
        allowed_names = _names(allowed, frozenset(known))
        for name in sorted(allowed_names - known):
            raise ValueError(
                f"{name!r} is allowed, but it is no special token here: "
                f"there is {', '.join(map(repr, known)) or 'none'}."
            )
        disallowed_names = _names(disallowed, known - allowed_names)
        return _policy(self.pattern, allowed_names, disallowed_names)

    def _check_dtype(self, dtype: DTypeLike) -> None:
        dtype, greatest = np.dtype(dtype), self.spec.greatest_id
        if not np.issubdtype(dtype, np.integer):
            raise ValueError(f"Ids are integers: {dtype} is no integer type.")
        if greatest > np.iinfo(dtype).max:
            raise ValueError(
                f"The greatest id is {greatest}, but {dtype} ends at "
                f"{np.iinfo(dtype).max}: pass dtype={np.min_scalar_type(greatest)}."
            )

    # --- decoding -------------------------------------------------------------

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; bytes that are not UTF-8 become U+FFFD.

        Raises KeyError, which names the id, if the vocabulary does not have it.
        """
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes that ids stand for; raises as ``decode`` does."""
        return b"".join(self.decode_tokens_bytes(ids))

    def decode_tokens_bytes(self, ids: Iterable[int]) -> list[bytes]:
        """Return the bytes of each id; raises as ``decode`` does."""
        return list(map(self.vocab.__getitem__, ids))

    def decode_with_offsets(self, ids: Iterable[int]) -> tuple[str, list[int]]:
        """Return the text of ids, and which of its characters each token starts in.

        A token that starts inside a character has the index of that character.

        Raises KeyError as ``decode`` does.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text, offsets = "", []
        for token in self.decode_tokens_bytes(ids):
            text += decoder.decode(token[:1])
            inside_last = decoder.getstate()[0] == b""
            offsets.append(len(text) - inside_last)
            text += decoder.decode(token[1:])
        return text + decoder.decode(b"", True), offsets


class _Policy:
    """Which special tokens a text may hold, and what follows from that."""

    def __init__(
        self,
        pattern: str | None,
        allowed: frozenset[str],
        disallowed: frozenset[str],
    ) -> None:
        self.allowed = special_token_finder(allowed)
        self.cutter = Cutter(pattern, allowed, disallowed)
        self._disallowed = special_token_finder(disallowed)

    def refuse(self, text: str) -> str:
        """Return the text, if it holds nothing disallowed."""
        name = self._disallowed.first(text)
        if name is not None:
            raise SpecialTokenError(name)
        return text


@lru_cache(maxsize=256)
def _policy(
    pattern: str | None, allowed: frozenset[str], disallowed: frozenset[str]
) -> _Policy:
    return _Policy(pattern, allowed, disallowed)


def _names(special: AllowedSpecial, all_names: Set[str]) -> frozenset[str]:
    if not isinstance(special, str):
        return frozenset(special)
    if special == "all":
        return frozenset(all_names)
    raise TypeError(f"{special!r} is one name: pass a set of names, or 'all'.")


class _IdLists:
    """Makes lists of arrays of ids, with integers that are there already.

    To make an integer takes 50 ns and 32 bytes. To take one from a table of all
    takes half the time, and no memory: batches are encoded to lists 10 to 15 %
    faster. The table is made once as many ids as it has were listed without it.
    """

    def __init__(self, num_ids: int) -> None:
        self._num_ids = num_ids
        self._num_listed = 0
        self._integers: np.ndarray | None = None

    def __call__(self, ids: np.ndarray | list[int]) -> list[int]:
        if self._integers is None:
            self._num_listed += len(ids)
            if self._num_listed < self._num_ids:
                return _as_list(ids)
            self._integers = np.arange(self._num_ids).astype(object)
        return ids if isinstance(ids, list) else self._integers.take(ids).tolist()


def _as_list(ids: np.ndarray | list[int]) -> list[int]:
    return ids if isinstance(ids, list) else ids.tolist()


def _checked(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"A text is a str, not {type(text).__name__}.")
    return text


def _several(texts: Iterable[str]) -> Iterable[str]:
    if isinstance(texts, str):
        raise TypeError("Pass a list of texts, even if it holds only one.")
    return texts
