"""What there is to see in a tokenizer: longest tokens, compression, merges."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from lmlib.bpe import Tokenizer
from lmlib.bpe.reference import pretokenize
from lmlib.cli.tokenizer.conversion import Counter
from lmlib.corpora import load_corpus

__all__ = [
    "compression",
    "compression_by_language",
    "fit",
    "longest_tokens",
    "merge_steps",
    "merges_of_word",
    "token_facts",
    "visible",
]

Facts = dict[str, Any]  # what JSON can hold


def visible(token: bytes) -> str:
    """Spell a token visibly: a space as ␣, what cannot be printed as an escape."""
    text = token.decode("utf-8", "backslashreplace").replace(" ", "␣")
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1]
        for character in text
    )


def fit(text: str, width: int) -> str:
    """Cut a text that takes more than so many characters."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def token_facts(i: int, token: bytes) -> Facts:
    """Return a token's id, its text (U+FFFD for what is no UTF-8) and its bytes."""
    return {"id": i, "text": token.decode("utf-8", "replace"), "hex": token.hex()}


def longest_tokens(tokenizer: Tokenizer, number: int) -> list[Facts]:
    """Return the ordinary tokens of most bytes, the longest first, then by id."""
    vocab = tokenizer.vocab
    ordinary = vocab.keys() - set(tokenizer.special_tokens.values())
    order = sorted(ordinary, key=lambda i: (-len(vocab[i]), i))
    return [token_facts(i, vocab[i]) for i in order[:number]]


def compression(tokenizer: Tokenizer, texts: Iterable[str]) -> Facts:
    """Count bytes and tokens of the text that ``texts`` make together.

    Special tokens count as ordinary text.
    """
    counter = Counter()
    texts = counter.count_texts(texts)
    ids = tokenizer.encode_iterable(texts, disallowed_special=())
    for _ in counter.count_ids(ids):
        pass
    return counter.facts()


def compression_by_language(tokenizer: Tokenizer) -> list[Facts]:
    """Return the compression of the same 30 articles in each language.

    The language that takes the fewest tokens comes first.
    """
    rows = []
    for code, language in load_corpus("udhr").items():
        facts = compression(tokenizer, [language.text])
        rows.append({"code": code, "language": language.name, **facts})
    return sorted(rows, key=lambda row: (row["tokens"], row["code"]))


def merges_of_word(tokenizer: Tokenizer, word: str) -> list[Facts]:
    """Return, for each pre-token of a word, its tokens and the merges made in it.

    The first merge has rank 256, after the bytes. ``whole`` is
    true if the pre-token is one token, though no merges lead to it.
    """
    pretokens = []
    for pretoken in pretokenize(word, tokenizer.pattern):
        piece = pretoken.encode()
        ids = tokenizer.encode_ordinary(pretoken)
        steps = list(merge_steps(piece, tokenizer.spec.ranks))
        tokens_left = len(steps[-1][1]) if steps else len(piece)
        pretokens.append(
            {
                "pretoken": pretoken,
                "tokens": [token_facts(i, tokenizer.vocab[i]) for i in ids],
                "steps": [
                    {"rank": rank, "after": list(map(visible, after))}
                    for rank, after in steps
                ],
                "whole": len(ids) < tokens_left,
            }
        )
    return pretokens


def merge_steps(
    piece: bytes, ranks: Mapping[bytes, int]
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield each merge in a pre-token: its rank, and the tokens then.

    ``ranks`` numbers the 256 bytes and then the results of the merges. The lowest
    is merged first; of several, the leftmost.
    """
    tokens = [piece[i : i + 1] for i in range(len(piece))]
    while True:
        results = [left + right for left, right in pairwise(tokens)]
        known = [result for result in results if result in ranks]
        if not known:
            return
        merged = min(known, key=ranks.__getitem__)
        at = results.index(merged)
        tokens[at : at + 2] = [merged]
        yield ranks[merged], tokens.copy()
