"""Small vocabularies with troublesome special tokens, and what peers make of texts with them."""

import json
import random
from functools import cache

from lmlib.bpe import reference
from lmlib.bpe.formats import (
    gpt2_files,
    read_vocab_bpe,
)
from lmlib.bpe.patterns import GPT2_PATTERN
from lmlib.bpe.spec import TokenizerSpec
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.corpora import load_corpus
from tests.bpe_peers import PATTERNS, random_texts

BYTES = {i: bytes([i]) for i in range(256)}
ALL_PATTERNS = PATTERNS | {"none": None}
MOBY_DICK = load_corpus("moby_dick")
LANGUAGES = load_corpus("udhr")

# Names with spaces and newlines, one that starts another, ids with gaps, one with the bytes of an ordinary token.
SPECIAL = {"<|end|>": 3000, "<|end|>\n": 3001, "<| a\n\u3000b |>": 3500, "あ": 3501, " ": 4000}


SPECIAL_ITEMS = tuple(SPECIAL.items())


@cache
def small(pattern=GPT2_PATTERN, special_tokens=SPECIAL_ITEMS):
    """GPT-2's first merges, with special tokens."""
    lines = load_corpus("gpt2_merges").split("\n")[:2001]
    vocab, merges = read_vocab_bpe("\n".join(lines) + "\n")
    special_tokens = dict(special_tokens)
    vocab |= {i: name.encode() for name, i in special_tokens.items()}
    return TokenizerSpec(vocab, merges, special_tokens, pattern)


def ids_of(spec, text):
    """The reference's ids; it takes ids for ranks, so it gets ranks, and special tokens below them."""
    special = {name: -1 - number for number, name in enumerate(spec.special_tokens)}
    ids = [*spec.ids.values(), *reversed(spec.special_tokens.values())]
    return [ids[rank] for rank in reference.encode(text, spec.ranks, special, spec.pattern)]


def hugging_face_ids(tokenizer, text):
    return tokenizer.encode(replace_surrogates(text), add_special_tokens=False).ids


def check_text(spec, tokenizer, text):
    ids = hugging_face_ids(tokenizer, text)
    assert ids == ids_of(spec, text), ascii(text)
    return ids


def texts_with_special_tokens(seed, number, names=SPECIAL):
    rng = random.Random(seed)
    for text in random_texts(seed, number):
        yield text
        yield rng.choice([*names]) + text[: len(text) // 2] + rng.choice([*names]) + text[len(text) // 2 :]


def tokenizer_file(folder, content):
    path = folder / "tokenizer.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def spec_of(merges, pattern=None):
    tokens = [*BYTES.values(), *(left + right for left, right in merges)]
    return TokenizerSpec(dict(enumerate(tokens)), merges, {}, pattern)


def every_split(merges):
    """All pairs of tokens that make each token: how ranks are converted for Hugging Face."""
    tokens = {*BYTES.values(), *(left + right for left, right in merges)}
    for token in [left + right for left, right in merges]:
        for cut in range(1, len(token)):
            if token[:cut] in tokens and token[cut:] in tokens:
                yield token[:cut], token[cut:]


def written_as_gpt2(folder, spec):
    paths = folder / "vocab.json", folder / "merges.txt"
    for path, content in zip(paths, gpt2_files(spec), strict=True):
        path.write_text(content, "utf-8")
    return paths
