"""tiktoken's rank files: a token in base64 and its id, one a line."""

import os
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lmlib.bpe.formats.canonical import split_tokens
from lmlib.bpe.patterns import check_never_empty
from lmlib.bpe.spec import Pair, TokenizerSpec

if TYPE_CHECKING:
    import tiktoken

__all__ = ["read_tiktoken", "tiktoken_ranks", "to_tiktoken"]


def tiktoken_ranks(spec: TokenizerSpec) -> bytes:
    """Return the content of a ``.tiktoken`` file.

    It holds neither special tokens nor the pattern.

    Raises ValueError if ids do not ascend in order of merging, because tiktoken
    takes them for ranks, or if no merge makes a token, which tiktoken would encode
    to nevertheless.
    """
    lines = sorted(
        (i, b64encode(token)) for token, i in _ids_as_ranks(spec).items()
    )
    return b"".join(b"%b %d\n" % (token, i) for i, token in lines)


def to_tiktoken(spec: TokenizerSpec, name: str = "lmlib") -> "tiktoken.Encoding":
    """Build a real ``tiktoken.Encoding`` that gives the same ids.

    The pattern is passed as it is. In one of your own, tiktoken's engine may read
    what is no character class otherwise than ``regex`` does; ``$``, for example.

    Raises ImportError if ``tiktoken`` is not installed, and ValueError as
    ``tiktoken_ranks`` does, or for a pattern that tiktoken refuses or that matches
    the empty text.
    """
    try:
        import tiktoken
    except ImportError as error:
        raise ImportError(
            "A tiktoken encoding needs their library: pip install tiktoken"
        ) from error
    if spec.pattern is not None:
        check_never_empty(spec.pattern)
    return tiktoken.Encoding(
        name,
        pat_str=r"[\s\S]+" if spec.pattern is None else spec.pattern,
        mergeable_ranks=_ids_as_ranks(spec),
        special_tokens=spec.special_tokens,
    )


def _ids_as_ranks(spec: TokenizerSpec) -> dict[bytes, int]:
    if not spec.ids_ascend:
        raise ValueError(
            "A later merge has a smaller id than an earlier one. tiktoken merges "
            "the smallest id first, so it needs ids in order of merging."
        )
    for i, token in spec.unreachable.items():
        raise ValueError(
            f"No merge makes token {i}, {token!r}, but tiktoken would encode to "
            "it: leave it out, or name it as a special token."
        )
    return spec.ids


def read_tiktoken(
    path: str | os.PathLike,
    pattern: str | None,
    special_tokens: Mapping[str, int],
) -> TokenizerSpec:
    """Read ranks, and recover the merges: what lower ranks make of a token.

    For cl100k and o200k that gives two parts for every token, in about one and
    three seconds.

    Raises OSError if the file cannot be read, and ValueError, which names the file
    and the line, if a line is broken, if a token or a rank stands twice, or if
    lower ranks do not make two parts of a token.
    """
    try:
        ranks = _parse(Path(path).read_bytes())
        vocab = {rank: token for token, rank in ranks.items()}
        for name, i in special_tokens.items():
            if i in vocab:
                raise ValueError(
                    f"special token {name!r} has id {i}, which is the rank of "
                    f"{vocab[i]!r}: give it another."
                )
            vocab[i] = name.encode()
        merges = _recover_merges(ranks)
        return TokenizerSpec(vocab, merges, special_tokens, pattern)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _parse(content: bytes) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    lines: dict[int, int] = {}  # rank -> line
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        token, rank = _parse_line(number, line)
        if rank in lines:
            raise ValueError(
                f"line {number} repeats rank {rank} of line {lines[rank]}."
            )
        if token in ranks:
            first = lines[ranks[token]]
            raise ValueError(f"line {number} repeats {token!r} of line {first}.")
        ranks[token] = rank
        lines[rank] = number
    return ranks


def _parse_line(number: int, line: bytes) -> tuple[bytes, int]:
    try:
        token, rank = line.split()
        if not rank.isdigit():
            raise ValueError(rank)
        return b64decode(token, validate=True), int(rank)
    except (ValueError, Base64Error):
        raise ValueError(
            f"line {number} is {line[:80]!r}, not a token in base64 and its rank."
        ) from None


def _recover_merges(ranks: Mapping[bytes, int]) -> list[Pair]:
    tokens = sorted((token for token in ranks if len(token) > 1), key=ranks.get)
    merges: list[Pair] = []
    for token, parts in zip(tokens, split_tokens(tokens), strict=True):
        if len(parts) != 2:
            raise ValueError(
                f"lower ranks make {parts!r} of {token!r}, rank {ranks[token]}, "
                "not two tokens: no merge gives it."
            )
        merges.append((parts[0], parts[1]))
    return merges
