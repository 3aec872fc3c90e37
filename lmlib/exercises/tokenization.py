"""Exercises of chapter 1: merges, the weight of a vocabulary, encoding, cutting."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from lmlib.bpe.formats import read_vocab_bpe
from lmlib.bpe.reference import (
    count_pairs,
    count_pretokens,
    encode,
    encode_pretoken,
    merge,
    mergeable_ranks,
    pretokenize,
    train,
)
from lmlib.bpe.spec import Pair
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.corpora import load_corpus
from lmlib.exercises import Exercise, function_exercise, value_exercise


def naive_pretokenize(text: str) -> list[str]:
    """Cut a text as GPT-2 does, written for Python's own ``re``."""
    return re.findall(
        r"'(?:[sdmt]|ll|ve|re)"
        r"| ?[^\W\d_]+"
        r"| ?\d+"
        r"| ?(?:[^\s\w]|_)+"
        r"|\s+(?!\S)|\s+",
        text,
    )


@cache
def _gpt2() -> tuple[dict[int, bytes], list[Pair], dict[bytes, int]]:
    vocab, merges = read_vocab_bpe(load_corpus("gpt2_merges"))
    return vocab, merges, mergeable_ranks(vocab, merges)


def _banana() -> Exercise:
    text = "banana band"

    def learned(choose: Callable[[Counter], Pair]) -> tuple[str, ...]:
        words, tokens = count_pretokens([text], [], None), []
        while len(tokens) < 3:
            pair = choose(count_pairs(words))
            words = {merge(word, pair): count for word, count in words.items()}
            tokens.append((pair[0] + pair[1]).decode())
        return tuple(tokens)

    def as_texts(answer: Any) -> tuple[str, ...] | None:
        if not isinstance(answer, (tuple, list)):
            return None
        parts = [
            part.decode() if isinstance(part, bytes) else part for part in answer
        ]
        return (
            tuple(parts) if all(isinstance(part, str) for part in parts) else None
        )

    _, merges = train([text], 256 + 3, pattern=None)
    counted_once = Counter(map("".join, pairwise(text))).most_common(3)
    return Exercise(
        solution=tuple((left + right).decode() for left, right in merges),
        mistakes=[
            (
                learned(lambda c: min(c, key=lambda pair: (-c[pair], pair))),
                "of equal counts you take the smaller pair; take the greater one.",
            ),
            (
                learned(lambda c: max(c, key=c.get)),
                "of equal counts you take the pair seen first; "
                "compare the two as bytes.",
            ),
            (
                tuple(pair for pair, _ in counted_once),
                "you counted once; count again after each merge, "
                "since a pair may be gone.",
            ),
        ],
        hint="give a tuple of three strings; after each merge, "
        "write the text with bars between its tokens and count neighbours.",
        read=as_texts,
    )


def _embedding() -> Exercise:
    width = 768
    _, merges, ranks = _gpt2()
    ids = len(ranks) + 1  # the special token
    return value_exercise(
        expected=ids * width,
        mistakes=[
            (len(merges) * width, "merges make most ids, but not all of them."),
            (len(ranks) * width, "one id is missing: no merge makes it."),
            ((len(merges) + 1) * width, "what do the merges start from?"),
            (
                (ids + 1) * width,
                "close, but one id too many: which kind has fewer?",
            ),
            (
                (ids + 1024) * width,
                "close, but positions have a matrix of their own; count ids.",
            ),
            (
                50_304 * width,
                "close, but some of these rows are padding for the hardware; "
                "which ids do you count?",
            ),
            (ids, "that is the number of ids; each has a row of numbers."),
            (ids * width * 4, "that looks like bytes in fp32; count parameters."),
            (ids * width * 2, "that looks like bytes in bf16; count parameters."),
        ],
        hint="ids × numbers in a row; how many ids are bytes, merges, special?",
    )


def _stdlib_re() -> Exercise:
    def kind(answer: Any) -> str | None:
        if not isinstance(answer, str):
            return None
        text = replace_surrogates(answer)
        if naive_pretokenize(text) != pretokenize(text):
            return "cut in two ways"
        if any(
            unicodedata.category(character) in ("Nl", "No") for character in text
        ):
            return "the right kind"
        return "only ASCII" if answer.isascii() else "beyond ASCII"

    return Exercise(
        solution="10 m²",
        mistakes=[
            (
                "It's 3 o'clock_",
                "both patterns cut that alike; look beyond ASCII.",
            ),
            (
                "naïve 你好 ٣",
                "both cut that alike: letters and decimal digits of any script "
                "are the same to them. What else counts?",
            ),
            (
                "½",
                "the right kind of character, but alone both cut it alike; "
                "put a letter or a digit directly beside it.",
            ),
        ],
        hint="answer with a text, as a string.",
        read=kind,
    )


def _replay() -> Exercise:
    def replay(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
        word = tuple(bytes([byte]) for byte in piece)
        for pair in merges:
            word = merge(word, pair)
        return list(word)

    def first_place_only(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
        word = [bytes([byte]) for byte in piece]
        for pair in merges:
            for i, neighbours in enumerate(pairwise(word)):
                if neighbours == pair:
                    word[i : i + 2] = [pair[0] + pair[1]]
                    break
        return word

    def from_the_right(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
        word = [bytes([byte]) for byte in piece]
        for pair in merges:
            for i in range(len(word) - 2, -1, -1):
                if tuple(word[i : i + 2]) == pair:
                    word[i : i + 2] = [pair[0] + pair[1]]
        return word

    def left_to_right(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
        known = {left + right for left, right in merges}
        word: list[bytes] = []
        for i in range(len(piece)):
            byte = piece[i : i + 1]
            if word and word[-1] + byte in known:
                word[-1] += byte
            else:
                word.append(byte)
        return word

    def longest_match(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
        known = {bytes([i]) for i in range(256)} | {a + b for a, b in merges}
        word = []
        while piece:
            end = next(n for n in range(len(piece), 0, -1) if piece[:n] in known)
            word.append(piece[:end])
            piece = piece[end:]
        return word

    def numbers(piece: bytes, merges: Sequence[Pair]) -> list[int]:
        ranks = {bytes([i]): i for i in range(256)}
        ranks |= {a + b: 256 + i for i, (a, b) in enumerate(merges)}
        return encode_pretoken(piece, ranks)

    def probes() -> list[tuple[bytes, list[Pair]]]:
        _, merges = train(["banana bandana", "aaaa aaa", "the cat in the hat"], 270)
        whales = [(b"a", b"l"), (b" ", b"w"), (b" w", b"h"), (b"al", b"e")]
        whales += [(b" wh", b"ale"), (b"e", b"r"), (b"er", b"s"), (b"r", b"s")]
        return [
            (b"banana", merges),
            (b" bandana", merges),
            (b"aaaaaaa", [(b"a", b"a")]),
            (b" whalers", [*whales[:3], *whales[5:], *whales[3:5]]),
            ("🌍".encode(), merges),
            (b"", merges),
        ]

    return function_exercise(
        replay,
        probes,
        mistakes=[
            (
                first_place_only,
                "a pair may occur several times in a word; "
                "apply each merge wherever it fits.",
            ),
            (
                from_the_right,
                "pairs may overlap, as in a run of one letter; "
                "walk from left to right.",
            ),
            (
                left_to_right,
                "that lets each token grow to the right while it can; "
                "an earlier merge may come first elsewhere.",
            ),
            (
                longest_match,
                "that takes the longest token; the order of the merges decides.",
            ),
            (numbers, "those are ids; return the tokens themselves, as bytes."),
        ],
        hint="start from single bytes; for each merge walk over the tokens, "
        "and after a hit go on behind the new token.",
    )


def _fit() -> Exercise:
    end = "<|endoftext|>"

    def kept(text: str, limit: int) -> bytes:
        vocab, _, ranks = _gpt2()
        return b"".join(vocab[i] for i in encode(text, ranks)[:limit])

    def fit(text: str, limit: int) -> str:
        return kept(text, limit).decode(errors="ignore")

    def with_replacement(text: str, limit: int) -> str:
        return kept(text, limit).decode(errors="replace")

    def stripped(text: str, limit: int) -> str:
        return with_replacement(text, limit).rstrip("\ufffd")

    def encoded_again(text: str, limit: int) -> str:
        _, _, ranks = _gpt2()
        while len(encode(text, ranks)) > limit:
            text = text[:-1]
        return text

    def with_special(text: str, limit: int) -> str:
        vocab, _, ranks = _gpt2()
        ids = encode(text, ranks, {end: len(ranks)})[:limit]
        data = b"".join(vocab.get(i, end.encode()) for i in ids)
        return data.decode(errors="ignore")

    def characters(text: str, limit: int) -> str:
        return text[:limit]

    def whole_tokens(text: str, limit: int) -> str:
        for last in range(limit, 0, -1):
            try:
                return kept(text, last).decode()
            except UnicodeDecodeError:
                continue
        return ""

    def probes() -> list[tuple[str, int]]:
        text = "Hello, 🌍! 你好!"
        cuts = [(text, limit) for limit in (0, 1, 3, 4, 5, 8, 12, 100)]
        split = [("2024", 1), ("Call me Ishmael.", 3), (f"a{end}b", 3)]
        return [*cuts, *split, ("Lost: \ufffd", 100), ("", 5)]

    return function_exercise(
        fit,
        probes,
        mistakes=[
            (
                with_replacement,
                "the last token may end inside a character; "
                "your result then ends in U+FFFD, which the text does not hold.",
            ),
            (
                stripped,
                "a text may hold U+FFFD itself, and you remove that too; "
                "decide before you decode.",
            ),
            (
                encoded_again,
                "you encode again, and a shorter text is cut otherwise; "
                "keep the first ids of the whole text.",
            ),
            (
                with_special,
                "the text may hold the name of a special token; "
                "here it is text like any other.",
            ),
            (characters, "you counted characters; the limit is in tokens."),
            (
                whole_tokens,
                "you drop a whole token where half a character is enough; "
                "one token can hold a space and the first byte of an emoji.",
            ),
        ],
        hint="compare the result with the text: is it a beginning of it, "
        "and the longest one within the limit?",
    )


EXERCISES = {
    "banana": _banana(),
    "embedding": _embedding(),
    "stdlib_re": _stdlib_re(),
    "replay": _replay(),
    "fit": _fit(),
}
