"""Hugging Face's ``tokenizer.json``, for byte-level BPE."""

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lmlib.bpe.formats.alphabet import spelled_merges, spelled_vocab, unspell
from lmlib.bpe.formats.canonical import canonical_merges, check_canonical
from lmlib.bpe.formats.gpt2 import read_json_object
from lmlib.bpe.formats.hugging_face_patterns import (
    pre_tokenizer,
    read_pre_tokenizer,
)
from lmlib.bpe.spec import Pair, TokenizerSpec

if TYPE_CHECKING:
    import tokenizers

__all__ = ["read_tokenizer_json", "to_hugging_face", "tokenizer_json"]


# --- writing --------------------------------------------------------------------


def tokenizer_json(spec: TokenizerSpec) -> str:
    """Return the content of a ``tokenizer.json`` that gives the same ids.

    A ``tokenizers.Tokenizer`` opened from it finds special tokens in every text, as
    ours does with ``allowed_special="all"``. Both decode to the same text, unless
    the name of a special token is made of GPT-2's alphabet and not of ASCII.

    Raises ValueError if the merges mean another thing to Hugging Face than to
    tiktoken, if a special token is written like another token, or if the pattern
    holds what Hugging Face's engine reads otherwise.
    """
    check_canonical(spec.merges)
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added_token(name, i)
            for name, i in sorted(
                spec.special_tokens.items(), key=lambda item: item[1]
            )
        ],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer(spec.pattern),
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        },
        "model": _model(spec),
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def to_hugging_face(spec: TokenizerSpec) -> "tokenizers.Tokenizer":
    """Build a real ``tokenizers.Tokenizer`` that gives the same ids.

    Raises ImportError if ``tokenizers`` is not installed, and ValueError as
    ``tokenizer_json`` does.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ImportError(
            "A Hugging Face tokenizer needs their library: pip install tokenizers"
        ) from error
    return Tokenizer.from_str(tokenizer_json(spec))


def _added_token(name: str, i: int) -> dict:
    return {
        "id": i,
        "content": name,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _model(spec: TokenizerSpec) -> dict:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        # Special tokens too: those that are missing here do not keep their ids.
        "vocab": spelled_vocab(spec),
        "merges": spelled_merges(spec.merges),
    }


# --- reading --------------------------------------------------------------------


def read_tokenizer_json(path: str | os.PathLike) -> TokenizerSpec:
    """Read byte-level BPE that gives the ids that Hugging Face's library gives.

    It means those of ``encode(text, add_special_tokens=False)``: what a
    post-processor adds around a text is left out. All added tokens become special
    tokens, those that the file calls not special too.

    Raises OSError if the file cannot be read, and ValueError, which names the file
    and the field, if it is broken, or if it holds anything that would change ids
    and that byte-level BPE, as we have it, does not do.
    """
    content = read_json_object(path)
    try:
        return _read(content)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _read(content: Mapping) -> TokenizerSpec:
    for field in ("normalizer", "truncation", "padding"):
        if content.get(field) is not None:
            raise ValueError(
                f"{field} is set: it changes ids, so save the tokenizer without it."
            )
    model = _field(content, "model", dict)
    _check_model(model)
    _check_decoder(content)
    pattern = read_pre_tokenizer(content.get("pre_tokenizer"))
    ids = _field(model, "vocab", dict, "model.")
    special_tokens = _read_added_tokens(content, ids)
    vocab = _read_vocab(ids, special_tokens)
    merges = canonical_merges(_read_merges(model, ids))
    spec = TokenizerSpec(vocab, merges, special_tokens, pattern)
    if model.get("ignore_merges"):
        _check_ignored_merges(spec)
    return spec


def _field(mapping: Mapping, name: str, kind: type, prefix: str = "") -> object:
    value = mapping.get(name)
    if not isinstance(value, kind):
        expected = {
            dict: "an object",
            list: "a list",
            str: "a string",
            int: "a number",
        }
        raise ValueError(f"{prefix}{name} is missing, or not {expected[kind]}.")
    return value


def _check_decoder(content: Mapping) -> None:
    if content.get("decoder") is not None:
        kind = _field(content, "decoder", dict).get("type")
        if kind != "ByteLevel":
            raise ValueError(f"decoder is {kind!r}: only 'ByteLevel' can be read.")


def _check_model(model: Mapping) -> None:
    kind = model.get("type", "BPE")
    if kind != "BPE":
        raise ValueError(f"model.type is {kind!r}: only 'BPE' can be read.")
    # an unk_token or fuse_unk changes nothing, since every byte is a token
    for name in (
        "dropout",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "byte_fallback",
    ):
        if model.get(name):
            raise ValueError(
                f"model.{name} is {model[name]!r}: byte-level BPE has none, so "
                "save the tokenizer without it."
            )


def _check_ignored_merges(spec: TokenizerSpec) -> None:
    """Refuse what makes a difference where a whole pre-token is looked up first."""
    foreign = {
        i: name for name, i in spec.special_tokens.items() if not name.isascii()
    }
    for i, token in (spec.unreachable | foreign).items():
        raise ValueError(
            f"model.ignore_merges is true, and no merge makes token {i}, "
            f"{token!r}: only a pre-token that is all of it would become it."
        )


def _read_vocab(
    ids: Mapping[str, int], special_tokens: Mapping[str, int]
) -> dict[int, bytes]:
    vocab = {i: name.encode() for name, i in special_tokens.items()}
    for name, i in ids.items():
        if special_tokens.get(name) == i:
            continue
        if not isinstance(i, int):
            raise ValueError(f"model.vocab: the id of {name!r} is {i!r}.")
        if i in vocab:
            raise ValueError(f"model.vocab gives id {i}, of {name!r}, twice.")
        try:
            vocab[i] = unspell(name)
        except ValueError as error:
            raise ValueError(f"model.vocab: {error}") from None
    return vocab


def _read_merges(model: Mapping, ids: Mapping[str, int]) -> list[Pair]:
    """Read merges, ``"a b"`` in old files and ``["a", "b"]`` in new ones."""
    merges: list[Pair] = []
    tokens: dict[str, bytes] = {}
    for number, entry in enumerate(
        _field(model, "merges", list, "model."), start=1
    ):
        parts = entry.split(" ") if isinstance(entry, str) else entry
        if (
            not isinstance(parts, list)
            or len(parts) != 2
            or not all(isinstance(part, str) and part for part in parts)
        ):
            raise ValueError(
                f"model.merges: {number} is {entry!r}, not two tokens."
            )
        for name in (*parts, "".join(parts)):
            if name not in tokens:
                if name not in ids:
                    raise ValueError(
                        f"model.merges: {number} is {entry!r}, and {name!r} is not "
                        "in model.vocab."
                    )
                tokens[name] = unspell(name)
        merges.append((tokens[parts[0]], tokens[parts[1]]))
    return merges


# --- added tokens ---------------------------------------------------------------


def _read_added_tokens(content: Mapping, ids: Mapping[str, int]) -> dict[str, int]:
    entries = content.get("added_tokens") or []
    if not isinstance(entries, list):
        raise ValueError("added_tokens is not a list.")
    special_tokens: dict[str, int] = {}
    following = len(ids)
    for entry in entries:
        name, i = _read_added_token(entry)
        assigned = ids.get(name, following)
        if name not in ids:  # then Hugging Face numbers it, whatever the file says
            following += 1
        if i != assigned:
            raise ValueError(
                f"added_tokens: {name!r} has id {i}, but Hugging Face gives it "
                f"{assigned}: give it the same id in model.vocab."
            )
        special_tokens[name] = i
    _check_two_passes(entries)
    return special_tokens


def _read_added_token(entry: object) -> tuple[str, int]:
    if not isinstance(entry, dict):
        raise ValueError(f"added_tokens holds {entry!r}, which is not an object.")
    name = _field(entry, "content", str, "added_tokens: ")
    for flag in ("lstrip", "rstrip", "single_word"):
        if entry.get(flag):
            raise ValueError(
                f"added_tokens: {name!r} has {flag} set, which looks at the text "
                "around it: save the tokenizer without it."
            )
    return name, _field(entry, "id", int, "added_tokens: ")


def _check_two_passes(entries: list[dict]) -> None:
    """Refuse what Hugging Face's two passes over a text would cut differently.

    It looks for tokens with ``normalized: false`` first, then for the others in
    what is left. One search for all finds the same, if no two tokens of different
    passes can overlap.
    """
    passes: dict[bool, list[str]] = {True: [], False: []}
    for entry in entries:
        passes[bool(entry.get("normalized"))].append(entry["content"])
    for one in passes[True]:
        for other in passes[False]:
            if _can_overlap(one, other):
                raise ValueError(
                    f"added_tokens: {one!r} and {other!r} can overlap, and differ "
                    "in `normalized`: save both with normalized=False."
                )


def _can_overlap(one: str, other: str) -> bool:
    return (
        one in other
        or other in one
        or any(
            left.endswith(right[:length])
            for left, right in ((one, other), (other, one))
            for length in range(1, min(len(one), len(other)))
        )
    )
