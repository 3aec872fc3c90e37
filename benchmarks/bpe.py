"""lmlib.bpe beside tiktoken and Hugging Face's tokenizers: CPU seconds and memory, on one core.

Run it with `make bench` where nothing else runs.
"""

import hashlib
import json
from collections.abc import Callable
from time import process_time

import contest
from contest import Measured, Task
from texts import END, documents_of, store_texts, text_path

# --- what is measured -------------------------------------------------------------------------------------------


def train_lmlib(text: str, vocab_size: int) -> Measured:
    """Train with lmlib, from a file."""
    from lmlib.bpe import train_bpe

    start = process_time()
    _, merges = train_bpe(text_path(text), vocab_size, [END], progress=False)
    return Measured(process_time() - start, len(merges))


def train_tokenizers(text: str, vocab_size: int) -> Measured:
    """Train with Hugging Face's tokenizers, from a file, with GPT-2's pre-tokens."""
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


def encode_lmlib(text: str, warm: bool = False) -> Measured:
    """Encode every document with GPT-2's vocabulary; warm, after having done it once."""
    from lmlib.bpe import Tokenizer

    return _encode(text, Tokenizer.from_pretrained("gpt2").encode_ordinary, warm)


def encode_tiktoken(text: str, warm: bool = False) -> Measured:
    """Encode every document with GPT-2's vocabulary in tiktoken, which remembers nothing."""
    from lmlib.bpe import Tokenizer

    return _encode(text, Tokenizer.from_pretrained("gpt2").to_tiktoken().encode_ordinary, warm)


def _encode(text: str, encode: Callable[[str], list[int]], warm: bool) -> Measured:
    documents = documents_of(text)
    if warm:
        for document in documents:
            encode(document)
    start = process_time()
    ids = [encode(document) for document in documents]
    seconds = process_time() - start
    return Measured(seconds, hashlib.sha256(json.dumps(ids).encode()).hexdigest())


def encode_batch_lmlib(warm: bool) -> Measured:
    """Encode half of the documents to arrays, all at once; warm, after the other half."""
    from lmlib.bpe import Tokenizer

    tokenizer = Tokenizer.from_pretrained("gpt2")
    return _encode_half(lambda documents: tokenizer.encode_batch_to_arrays(documents, disallowed_special=()), warm)


def encode_batch_tiktoken(warm: bool) -> Measured:
    """Encode half of the documents to arrays in tiktoken; warm, after the other half."""
    from lmlib.bpe import Tokenizer

    encode = Tokenizer.from_pretrained("gpt2").to_tiktoken().encode_to_numpy
    return _encode_half(lambda documents: [encode(text, disallowed_special=()) for text in documents], warm)


def _encode_half(encode: Callable[[list[str]], list], warm: bool) -> Measured:
    documents = documents_of("mixed")
    if warm:
        encode(documents[1::2])
    start = process_time()
    arrays = encode(documents[::2])
    seconds = process_time() - start
    digest = hashlib.sha256()
    for ids in arrays:
        digest.update(ids.astype("<u4").tobytes() + b"\xff\xff\xff\xff")
    return Measured(seconds, digest.hexdigest())


# --- tasks ------------------------------------------------------------------------------------------------------

TRAIN = {"lmlib": train_lmlib, "tokenizers": train_tokenizers}
ENCODE = {"lmlib": encode_lmlib, "tiktoken": encode_tiktoken}
ENCODE_BATCH = {"lmlib": encode_batch_lmlib, "tiktoken": encode_batch_tiktoken}
TASKS = {
    "train Moby-Dick to 10,000": Task(TRAIN, ("moby_dick", 10_000)),
    "train 50 MB to 32,000": Task(TRAIN, ("mixed", 32_000)),
    "encode Moby-Dick, cold": Task(ENCODE, ("moby_dick",)),
    "encode 34 languages, cold": Task(ENCODE, ("languages",)),
    "encode 50 MB, cold": Task(ENCODE, ("mixed",)),
    "encode 50 MB, warm": Task(ENCODE, ("mixed", True)),
    "encode 25 MB to arrays, cold": Task(ENCODE_BATCH, (False,)),
    "encode 25 MB to arrays, warm": Task(ENCODE_BATCH, (True,)),
}


def _text_of(task: Task) -> str:
    return "mixed" if task.contenders is ENCODE_BATCH else task.arguments[0]


if __name__ == "__main__":
    contest.main(
        __doc__,
        TASKS,
        prepare=lambda tasks: store_texts([_text_of(task) for task in tasks]),
        packages=["lmlib", "regex", "tiktoken", "tokenizers"],
    )
