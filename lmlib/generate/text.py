"""Tokens as text while they come."""

import codecs
from collections.abc import Iterable, Iterator

from lmlib.bpe import Tokenizer

__all__ = ["decode_stream"]


def decode_stream(tokenizer: Tokenizer, ids: Iterable[int]) -> Iterator[str]:
    """Yield the text of tokens as it comes, each character once it is whole.

    A character of several bytes can be spread over tokens. Bytes that make none
    become U+FFFD, at the latest when the tokens end.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in ids:
        if text := decoder.decode(tokenizer.decode_bytes([token])):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text
