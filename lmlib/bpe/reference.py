"""BPE in the most obvious way: slow, and what every faster way is tested against.

Documents and texts are cut at special tokens first, then into pre-tokens. Pairs are
counted, and merged, inside a pre-token only.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from numbers import Integral

import regex

from lmlib.bpe.patterns import GPT2_PATTERN, compile_pattern
from lmlib.bpe.spec import Pair, check_special_tokens
from lmlib.bpe.surrogates import replace_surrogates

__all__ = [
    "check_training",
    "count_pairs",
    "count_pretokens",
    "decode",
    "encode",
    "encode_pretoken",
    "merge",
    "mergeable_ranks",
    "pretokenize",
    "split_at_special_tokens",
    "train",
]

MAX_VOCAB_SIZE = sys.maxunicode + 1  # `merges` keeps a token in a character
Word = tuple[bytes, ...]  # a pre-token as the tokens it is made of so far


def pretokenize(text: str, pattern: str | None = GPT2_PATTERN) -> list[str]:
    """Cut a text into pre-tokens: the matches of the pattern, in order.

    Text that no match covers is left out, as in tiktoken; the patterns in
    ``patterns`` cover every text. Without a pattern, the text is one pre-token.

    Raises ValueError for an invalid pattern.
    """
    text = replace_surrogates(text)
    if pattern is None:
        return [text] if text else []
    matches = compile_pattern(pattern).finditer(text)
    return [match[0] for match in matches if match[0]]


def split_at_special_tokens(text: str, special_tokens: Iterable[str]) -> list[str]:
    """Cut a text around its special tokens: every second piece is one of them.

    Where several start at one place, the longest wins.
    """
    text = replace_surrogates(text)
    longest_first = sorted(special_tokens, key=len, reverse=True)
    if not longest_first:
        return [text]
    return regex.split(f"({'|'.join(map(regex.escape, longest_first))})", text)


# --- training -----------------------------------------------------------------


def train(
    documents: Iterable[str],
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    pattern: str | None = GPT2_PATTERN,
) -> tuple[dict[int, bytes], list[Pair]]:
    """Learn a vocabulary from documents; return it with the merges in order.

    Ids are the 256 bytes, then one per merge, then the special tokens. The pair
    merged is the most frequent one; of several, the greater as ``(bytes, bytes)``.
    The vocabulary is smaller than asked for if no pair is left.

    Raises ValueError if ``vocab_size`` has no room for the bytes and the special
    tokens, if a special token is empty or named twice, or if the pattern is
    invalid; TypeError if one text is passed where a list is meant.
    """
    if isinstance(documents, str):
        raise TypeError("Pass a list of texts, even if it holds only one.")
    check_training(vocab_size, special_tokens)
    words = count_pretokens(documents, special_tokens, pattern)
    vocab = [bytes([i]) for i in range(256)]
    merges: list[Pair] = []
    while len(vocab) + len(special_tokens) < vocab_size:
        counts = count_pairs(words)
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        words = {merge(word, best): count for word, count in words.items()}
        vocab.append(best[0] + best[1])
        merges.append(best)
    vocab += [token.encode() for token in special_tokens]
    return dict(enumerate(vocab)), merges


def count_pretokens(
    documents: Iterable[str],
    special_tokens: Iterable[str],
    pattern: str | None,
) -> dict[Word, int]:
    """Count how often each pre-token occurs, special tokens apart."""
    counts: Counter[str] = Counter()
    for document in documents:
        for text in split_at_special_tokens(document, special_tokens)[::2]:
            counts.update(pretokenize(text, pattern))
    return {_single_bytes(p.encode()): count for p, count in counts.items()}


def count_pairs(words: Mapping[Word, int]) -> Counter[Pair]:
    """Count how often each pair of neighbours occurs."""
    counts: Counter[Pair] = Counter()
    for word, count in words.items():
        for pair in pairwise(word):
            counts[pair] += count
    return counts


def merge(word: Word, pair: Pair) -> Word:
    """Replace the pair by one token, from left to right."""
    merged: list[bytes] = []
    i = 0
    while i < len(word):
        if word[i : i + 2] == pair:
            merged.append(word[i] + word[i + 1])
            i += 2
        else:
            merged.append(word[i])
            i += 1
    return tuple(merged)


def _single_bytes(piece: bytes) -> Word:
    return tuple(bytes([byte]) for byte in piece)


def check_training(vocab_size: int, special_tokens: Sequence[str]) -> None:
    """Raise ValueError or TypeError if no vocabulary can be what is asked for."""
    check_special_tokens(special_tokens)
    if not isinstance(vocab_size, Integral):
        raise TypeError(f"vocab_size is {vocab_size!r}: it must be an int.")
    if vocab_size > MAX_VOCAB_SIZE:
        raise ValueError(
            f"vocab_size is {vocab_size}: at most {MAX_VOCAB_SIZE} tokens are made."
        )
    least = 256 + len(special_tokens)
    if vocab_size < least:
        raise ValueError(
            f"vocab_size is {vocab_size}, but the 256 bytes and "
            f"{len(special_tokens)} special tokens need {least}."
        )


# --- encoding and decoding ------------------------------------------------------


def mergeable_ranks(
    vocab: Mapping[int, bytes], merges: Sequence[Pair]
) -> dict[bytes, int]:
    """Return the id of every token that is not special, which ranks its merge."""
    return {vocab[i]: i for i in range(256 + len(merges))}


def encode_pretoken(piece: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """Encode the bytes of one pre-token: the lowest rank merges first.

    ``ranks`` maps tokens to ids; a lower id was merged earlier. A piece that is a
    token is that token, even if no order of merges leads to it.

    Raises KeyError for a byte that has no rank.
    """
    if piece in ranks:
        return [ranks[piece]]
    parts = list(_single_bytes(piece))
    while len(parts) > 1:
        pairs = [left + right for left, right in pairwise(parts)]
        lowest = min(pairs, key=lambda pair: ranks.get(pair, float("inf")))
        if lowest not in ranks:
            break
        i = pairs.index(lowest)
        parts[i : i + 2] = [lowest]
    return [ranks[part] for part in parts]


def encode(
    text: str,
    ranks: Mapping[bytes, int],
    special_tokens: Mapping[str, int] | None = None,
    pattern: str | None = GPT2_PATTERN,
) -> list[int]:
    """Encode a text; the special tokens given are recognised in it.

    Raises KeyError for a byte that has no rank, and ValueError for an invalid
    pattern.
    """
    special_tokens = special_tokens or {}
    ids: list[int] = []
    for i, text_piece in enumerate(split_at_special_tokens(text, special_tokens)):
        if i % 2:
            ids.append(special_tokens[text_piece])
        else:
            for pretoken in pretokenize(text_piece, pattern):
                ids += encode_pretoken(pretoken.encode(), ranks)
    return ids


def decode(ids: Iterable[int], vocab: Mapping[int, bytes]) -> str:
    """Decode ids; bytes that are not UTF-8 become U+FFFD.

    Raises KeyError, which names the id, for an id that is not in the vocabulary.
    """
    return b"".join(vocab[i] for i in ids).decode("utf-8", "replace")
