"""What a tokenizer is made of, whatever file it comes from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral

from lmlib.bpe.patterns import GPT2_PATTERN, compile_pattern
from lmlib.bpe.pretokens import KNOWN_PATTERNS

__all__ = ["Pair", "TokenizerSpec", "check_special_tokens", "numbered"]

Pair = tuple[bytes, bytes]

_BYTES = [bytes([i]) for i in range(256)]
_MAX_ID = 2**32 - 1  # what tiktoken and Hugging Face keep an id in


@dataclass(frozen=True)
class TokenizerSpec:
    """Vocabulary, merges, special tokens and pattern of a byte-level BPE tokenizer.

    ``vocab`` maps every id to its bytes, special tokens included; ``merges`` are in
    order; ``special_tokens`` maps the text of a special token to its id. Without a
    ``pattern``, a text is one pre-token. The three collections are copied.

    A special token may have the bytes of an ordinary one, but not its id. An
    ordinary token that no merge makes can be decoded, and is never encoded to.

    Raises ValueError if an id is not an integer from 0 to 2³² - 1, if a byte or the
    result of a merge has no id, if two ids of ordinary tokens have the same bytes,
    if a merge uses a token that no earlier one makes or makes a token again, if a
    special token is empty or its id stands for other bytes, or if the pattern is
    invalid.
    """

    vocab: Mapping[int, bytes]
    merges: Sequence[Pair]
    special_tokens: Mapping[str, int]
    pattern: str | None = GPT2_PATTERN

    def __post_init__(self) -> None:
        """Check all that can be wrong in a file."""
        object.__setattr__(self, "vocab", dict(self.vocab))
        object.__setattr__(self, "merges", [*map(tuple, self.merges)])
        object.__setattr__(self, "special_tokens", dict(self.special_tokens))
        check_special_tokens(self.special_tokens)
        _check_vocab(self.vocab)
        self._check_special_tokens()
        self._check_ids()
        if self.pattern not in (None, *KNOWN_PATTERNS):
            compile_pattern(self.pattern)

    @cached_property
    def greatest_id(self) -> int:
        """The greatest id of the vocabulary."""
        return max(self.vocab)

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """The id of every token that encoding gives: bytes, then merges in order.

        Special tokens and tokens that no merge makes are left out.
        """
        made, ids = _made(self.merges), self._ordinary_ids
        try:
            return {token: ids[token] for token in made}
        except KeyError as error:
            raise ValueError(
                f"No ordinary token of the vocabulary is {error.args[0]!r}: every "
                "byte and every result of a merge needs an id."
            ) from None

    @cached_property
    def ranks(self) -> dict[bytes, int]:
        """The same tokens, numbered in order of merging."""
        return {token: rank for rank, token in enumerate(self.ids)}

    @cached_property
    def unreachable(self) -> dict[int, bytes]:
        """The ordinary tokens that no merge makes: only decoding knows them."""
        ordinary = self._ordinary_ids.items()
        return {i: token for token, i in ordinary if token not in self.ids}

    @cached_property
    def ids_ascend(self) -> bool:
        """Whether later merges have greater ids, so that ids can serve as ranks."""
        merged = [*self.ids.values()][256:]
        return merged == sorted(merged)

    @cached_property
    def _ordinary_ids(self) -> dict[bytes, int]:
        special = set(self.special_tokens.values())
        return {token: i for i, token in self.vocab.items() if i not in special}

    def _check_special_tokens(self) -> None:
        for name, i in self.special_tokens.items():
            if self.vocab.get(i) != name.encode():
                meaning = self.vocab.get(i, "no token")
                raise ValueError(
                    f"Special token {name!r} has id {i}, which stands for "
                    f"{meaning!r} in the vocabulary: give it an id of its own."
                )

    def _check_ids(self) -> None:
        num_ordinary = len(self.vocab) - len(self.special_tokens)
        if len(self._ordinary_ids) < num_ordinary:
            raise ValueError(self._shared_bytes())
        _ = self.ids  # raises the other errors

    def _shared_bytes(self) -> str:
        special = set(self.special_tokens.values())
        for i, token in self.vocab.items():
            if i not in special and (other := self._ordinary_ids[token]) != i:
                return (
                    f"Ids {i} and {other} of the vocabulary are both {token!r}: "
                    "leave one out, or name it as a special token."
                )
        raise AssertionError("no two ids share their bytes")


def check_special_tokens(names: Iterable[str]) -> None:
    """Raise ValueError for a special token that is empty, named twice or no text.

    Raises TypeError if one name is passed where several are meant.
    """
    if isinstance(names, str | bytes):
        raise TypeError("Pass a list of special tokens, even if it holds only one.")
    if isinstance(names, set | frozenset):
        raise TypeError("Pass a list of special tokens: a set has no order.")
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"Special token {name!r} is not a str.")
        if not name:
            raise ValueError("A special token is empty: name it, or leave it out.")
        if name in seen:
            raise ValueError(f"Special token {name!r} is named twice.")
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise ValueError(
                f"Special token {name!r} holds a surrogate, which no text has."
            )
        seen.add(name)


def numbered(
    special_tokens: Iterable[str] | Mapping[str, int],
    vocab: Mapping[int, bytes],
    merges: Iterable[Pair],
) -> dict[str, int]:
    """Return the id of each special token: from a mapping, the vocabulary, or new.

    Names without ids get the one that the vocabulary holds for their bytes, unless
    that is the id of a byte or of a merge's result; else, they are numbered after
    all other ids, in the order given.

    Raises ValueError and TypeError as ``check_special_tokens`` does.
    """
    if isinstance(special_tokens, Mapping):
        check_special_tokens(special_tokens)
        return dict(special_tokens)
    if not isinstance(special_tokens, str | bytes):
        special_tokens = list(special_tokens)
    check_special_tokens(special_tokens)
    taken = {*_BYTES, *(left + right for left, right in merges)}
    wanted = {name.encode(): name for name in special_tokens}
    found: dict[str, int] = {}
    for i in sorted(vocab):
        token = vocab[i]
        if token in taken:
            taken.remove(token)  # the first id is its own, and a second one special
        elif token in wanted:
            found.setdefault(wanted[token], i)
    following = max(vocab, default=-1) + 1
    for name in special_tokens:
        if name not in found:
            found[name] = following
            following += 1
    return {name: found[name] for name in special_tokens}


def _is_int(i: object) -> bool:
    return isinstance(i, Integral) and not isinstance(i, bool)


def _check_vocab(vocab: Mapping[int, bytes]) -> None:
    for i, token in vocab.items():
        if not (type(i) is int or _is_int(i)) or not 0 <= i <= _MAX_ID:
            raise ValueError(f"Id {i!r} is not an integer from 0 to {_MAX_ID}.")
        if token == b"":
            raise ValueError(f"Id {i} stands for no bytes: leave it out.")
        if not isinstance(token, bytes):
            raise ValueError(f"Id {i} stands for {token!r}, which is not bytes.")


def _made(merges: Iterable[Pair]) -> dict[bytes, None]:
    """Return the bytes and the results of merges, in order."""
    made = dict.fromkeys(_BYTES)
    for number, (left, right) in enumerate(merges, start=1):
        token = left + right
        if left not in made or right not in made:
            missing = right if left in made else left
            raise ValueError(
                f"Merge {number}, {(left, right)!r}, needs {missing!r}, which no "
                "earlier merge makes."
            )
        if token in made:
            raise ValueError(f"Merge {number} makes {token!r} a second time.")
        made[token] = None
    return made
