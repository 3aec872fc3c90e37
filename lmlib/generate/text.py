"""Tokens as text while they come."""

import codecs
from collections.abc import Iterable, Iterator

from lmlib.bpe import Tokenizer

__all__ = ["decode_stream", "printable"]

_SHOWN = {code: code + 0x2400 for code in range(0x20)}  # as pictures: ␀ to ␟
_SHOWN |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
del _SHOWN[ord("\n")], _SHOWN[ord("\t")]


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


def printable(text: str) -> str:
    """Return text as a terminal can show it: pictures for control characters.

    A model that has learned little writes them, and they would move the cursor or
    change colours. Line breaks and tabs stay.
    """
    return text.translate(_SHOWN)
