"""Files that hold a tokenizer: so far, GPT-2's list of merges."""

import re

__all__ = ["gpt2_byte_alphabet", "read_vocab_bpe"]

Merges = list[tuple[bytes, bytes]]

_TOKEN = "[!-~¡-¬®-\u0143]+"  # U+0143 is the last character of the alphabet
_PAIR = re.compile(f"({_TOKEN}) ({_TOKEN})")


def gpt2_byte_alphabet() -> dict[int, str]:
    """Return the printable character that stands for each byte in GPT-2's files.

    The order is that of GPT-2's ids: first the bytes that Latin-1 prints, which
    stand for themselves, then the others, which follow from U+0100.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {byte: chr(256 + i) for i, byte in enumerate(others)}
    return {byte: chr(byte) for byte in printable} | shifted


def read_vocab_bpe(text: str) -> tuple[dict[int, bytes], Merges]:
    """Return the vocabulary and the merges that a ``vocab.bpe`` file lists.

    Ids are GPT-2's: the bytes in the order of its alphabet, then one per merge.
    Special tokens are not part of the file.

    Raises ValueError, which names the line, for a line that is not two tokens in
    GPT-2's alphabet.
    """
    alphabet = gpt2_byte_alphabet()
    byte_of = {character: byte for byte, character in alphabet.items()}
    vocab = {i: bytes([byte]) for i, byte in enumerate(alphabet)}
    merges: Merges = []
    for number, line in enumerate(text.splitlines(), start=1):
        if number == 1 and line.startswith("#version"):
            continue
        pair = _PAIR.fullmatch(line)
        if not pair:
            raise ValueError(
                f"Line {number} is {line!r}, not two tokens in GPT-2's alphabet."
            )
        left, right = (bytes(map(byte_of.get, token)) for token in pair.groups())
        vocab[len(vocab)] = left + right
        merges.append((left, right))
    return vocab, merges
