"""GPT-2's printable alphabet for bytes, which Hugging Face writes files in, too."""

from functools import cache

from lmlib.bpe.spec import Pair, TokenizerSpec

__all__ = [
    "gpt2_byte_alphabet",
    "spell",
    "spelled_merges",
    "spelled_vocab",
    "unspell",
]


def gpt2_byte_alphabet() -> dict[int, str]:
    """Return the printable character that stands for each byte in GPT-2's files.

    The order is that of GPT-2's ids: first the bytes that Latin-1 prints, which
    stand for themselves, then the others, which follow from U+0100.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {byte: chr(256 + i) for i, byte in enumerate(others)}
    return {byte: chr(byte) for byte in printable} | shifted


@cache
def _to_alphabet() -> dict[int, str]:
    return gpt2_byte_alphabet()


@cache
def _from_alphabet() -> dict[str, int]:
    return {character: byte for byte, character in gpt2_byte_alphabet().items()}


def spell(token: bytes) -> str:
    """Write a token in the alphabet."""
    return token.decode("latin-1").translate(_to_alphabet())


def unspell(text: str) -> bytes:
    """Return the token that is written in the alphabet.

    Raises ValueError for a character that is not in it.
    """
    try:
        return bytes(map(_from_alphabet().__getitem__, text))
    except KeyError as error:
        raise ValueError(
            f"{text!r} holds {error.args[0]!r}, which is not in the alphabet of "
            "byte-level BPE: only special tokens may."
        ) from None


def spelled_merges(merges: list[Pair]) -> list[str]:
    """Write each merge as its two parts with a space between."""
    return [f"{spell(left)} {spell(right)}" for left, right in merges]


def spelled_vocab(spec: TokenizerSpec) -> dict[str, int]:
    """Return the id of each token as the files name it, special tokens as they are.

    Raises ValueError if a special token has the name of another token: the special
    token ``Ġ``, for one, and the byte that is written so.
    """
    names = {i: name for name, i in spec.special_tokens.items()}
    vocab: dict[str, int] = {}
    for i in sorted(spec.vocab):
        name = names[i] if i in names else spell(spec.vocab[i])
        if name in vocab:
            raise ValueError(
                f"Special token {name!r} is written like the token of the bytes "
                f"{unspell(name)!r}: the file can hold only one, so rename it."
            )
        vocab[name] = i
    return vocab
