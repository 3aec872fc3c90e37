"""GPT-2's two files: ``vocab.json`` and ``merges.txt``.

OpenAI calls them ``encoder.json`` and ``vocab.bpe``.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from lmlib.bpe.formats.alphabet import (
    gpt2_byte_alphabet,
    spelled_merges,
    spelled_vocab,
    unspell,
)
from lmlib.bpe.formats.canonical import check_canonical
from lmlib.bpe.patterns import GPT2_PATTERN
from lmlib.bpe.spec import Pair, TokenizerSpec, check_special_tokens, numbered

__all__ = ["gpt2_files", "read_gpt2", "read_json_object", "read_vocab_bpe"]

_TOKEN = "[!-~¡-¬®-\u0143]+"  # U+0143 is the last character of the alphabet
_PAIR = re.compile(f"({_TOKEN}) ({_TOKEN})")


def read_vocab_bpe(text: str) -> tuple[dict[int, bytes], list[Pair]]:
    """Return the vocabulary and the merges that a ``vocab.bpe`` file lists.

    Ids are GPT-2's: the bytes in the order of its alphabet, then one per merge.
    Special tokens are not part of the file.

    Raises ValueError, which names the line, for a line that is not two tokens in
    GPT-2's alphabet.
    """
    alphabet = gpt2_byte_alphabet()
    tokens = {spelled: bytes([byte]) for byte, spelled in alphabet.items()}
    vocab = dict(enumerate(tokens.values()))
    merges: list[Pair] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if number == 1 and line.startswith("#version"):
            continue
        left, _, right = line.partition(" ")
        try:  # parts were met before, so to look them up is enough, and much faster
            pair = tokens[left], tokens[right]
        except KeyError:
            pair = _parse_merge(number, line)
        token = pair[0] + pair[1]
        vocab[len(vocab)] = tokens[left + right] = token
        merges.append(pair)
    return vocab, merges


def _parse_merge(number: int, line: str) -> Pair:
    pair = _PAIR.fullmatch(line)
    if not pair:
        raise ValueError(
            f"Line {number} is {line!r}, not two tokens in GPT-2's alphabet."
        )
    return unspell(pair[1]), unspell(pair[2])


def read_gpt2(
    vocab_json: str | os.PathLike,
    merges_txt: str | os.PathLike,
    special_tokens: Iterable[str] | Mapping[str, int] = (),
    pattern: str | None = GPT2_PATTERN,
) -> TokenizerSpec:
    """Read a vocabulary and its merges from GPT-2's two files.

    A special token that the vocabulary names keeps its id there; another one gets
    the id given with it, or the next free one. A token of the vocabulary that is
    not named here, ``<|endoftext|>`` for example, is not special: if no merge makes
    it, it is decoded and never encoded to.

    Raises OSError if a file cannot be read, and ValueError, which names the file,
    if it is broken, or if the merges mean another thing to Hugging Face than to
    tiktoken.
    """
    if not isinstance(special_tokens, str | Mapping):
        special_tokens = list(special_tokens)
    check_special_tokens(special_tokens)
    merges = _read_merges(merges_txt)
    ids = read_json_object(vocab_json)
    try:
        vocab, found = _parse_vocab(ids, special_tokens)
        missing = [name for name in special_tokens if name not in found]
        if isinstance(special_tokens, Mapping):
            found |= {name: special_tokens[name] for name in missing}
        else:
            found |= numbered(missing, vocab, merges)
        _add_special_tokens(vocab, found)
        special = {name: found[name] for name in special_tokens}
        return TokenizerSpec(vocab, merges, special, pattern)
    except ValueError as error:
        raise ValueError(f"{vocab_json}: {error}") from None


def gpt2_files(spec: TokenizerSpec) -> tuple[str, str]:
    """Return the content of ``vocab.json`` and of ``merges.txt``.

    Special tokens stand among the others. The pattern is in neither file.

    Raises ValueError if the merges mean another thing to Hugging Face than to
    tiktoken, or if a special token is written like another token.
    """
    check_canonical(spec.merges)
    vocab = json.dumps(spelled_vocab(spec), ensure_ascii=False)
    merges = "".join(f"{merge}\n" for merge in spelled_merges(spec.merges))
    return vocab, f"#version: 0.2\n{merges}"


def read_json_object(path: str | os.PathLike) -> dict:
    """Read a JSON file that holds an object.

    Raises OSError if it cannot be read, and ValueError if it holds anything else.
    """
    try:
        data = json.loads(
            Path(path).read_text("utf-8"), object_pairs_hook=_no_twins
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply.") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds {type(data).__name__}, not a JSON object.")
    return data


def _no_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in data if names.count(name) > 1)
        raise ValueError(f"{twin!r} stands twice in one JSON object.")
    return data


def _read_merges(path: str | os.PathLike) -> list[Pair]:
    try:
        _, merges = read_vocab_bpe(Path(path).read_text("utf-8"))
        check_canonical(merges)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}.") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return merges


def _parse_vocab(
    ids: Mapping[str, int], special_tokens: Iterable[str]
) -> tuple[dict[int, bytes], dict[str, int]]:
    """Return the vocabulary, and the ids of the special tokens that it names."""
    names = set(special_tokens)
    vocab: dict[int, bytes] = {}
    for name, i in ids.items():
        if not isinstance(i, int):
            raise ValueError(f"The id of {name!r} is {i!r}, not an integer.")
        if i in vocab:
            raise ValueError(f"Id {i} is given twice, the second time to {name!r}.")
        vocab[i] = name.encode() if name in names else unspell(name)
    return vocab, {name: ids[name] for name in names & ids.keys()}


def _add_special_tokens(vocab: dict[int, bytes], found: Mapping[str, int]) -> None:
    for name, i in found.items():
        vocab.setdefault(i, name.encode())
