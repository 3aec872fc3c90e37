"""lmlib.data beside the plain ways: batches as a list of slices, and encoding that writes no file; on one core.

Run it with `make bench` where nothing else runs.
"""

import hashlib
from collections.abc import Callable, Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import contest
import numpy as np
from contest import BUILD, Measured, Task, process_kib
from texts import END, documents_of, store_texts, text_path

TOKENS = BUILD / "tokens.bin"
NUM_TOKENS = 1_000_000_000  # 2 GB
VOCAB_SIZE = 50_257
BATCH_SIZE, CONTEXT_LENGTH = 64, 1024


# --- batches ----------------------------------------------------------------------------------------------------


def batches_lmlib(num_batches: int) -> Measured:
    """Take random batches with get_batch."""
    import torch

    from lmlib.data import get_batch, open_tokens

    generator = torch.Generator().manual_seed(0)
    tokens = open_tokens(TOKENS, dtype="uint16", vocab_size=VOCAB_SIZE)
    return _take(lambda: get_batch(tokens, BATCH_SIZE, CONTEXT_LENGTH, generator=generator), num_batches)


def batches_of_slices(num_batches: int) -> Measured:
    """Take the same batches as nanoGPT does, slice by slice, from a mapping that stays open."""
    import torch

    generator = torch.Generator().manual_seed(0)
    ids = np.memmap(TOKENS, dtype=np.uint16, mode="r")

    def tensor_of(starts: torch.Tensor, offset: int) -> torch.Tensor:
        begins = (starts + offset).tolist()
        return torch.stack([torch.from_numpy(ids[i : i + CONTEXT_LENGTH].astype(np.int64)) for i in begins])

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.randint(len(ids) - CONTEXT_LENGTH, (BATCH_SIZE,), generator=generator)
        return tensor_of(starts, 0), tensor_of(starts, 1)

    return _take(batch, num_batches)


def _take(batch: Callable[[], tuple], num_batches: int) -> Measured:
    """Take batches, and note how much memory is resident after 1, 10, 100 … of them."""
    batch()
    resident, start = {}, process_time()
    for number in range(1, num_batches + 1):
        inputs, targets = batch()
        if number == 10 ** len(resident):
            resident[f"after {number:,}"] = process_kib("VmRSS") // 1024
    seconds = process_time() - start
    result = [int(inputs.sum()), int(targets.sum())]
    return Measured(seconds, result, {"resident_mib": resident})


def store_tokens() -> dict:
    """Write random ids, and return what identifies them."""
    random = np.random.default_rng(0)
    digest = hashlib.sha256()
    with TOKENS.open("wb") as file:
        for _ in range(NUM_TOKENS // 10**7):
            part = random.integers(VOCAB_SIZE, size=10**7, dtype=np.uint16).tobytes()
            file.write(part)
            digest.update(part)
    return {"bytes": TOKENS.stat().st_size, "sha256": digest.hexdigest()}


# --- token files ------------------------------------------------------------------------------------------------


def prepare_lmlib() -> Measured:
    """Make a token file of a text file."""
    from lmlib.bpe import Tokenizer
    from lmlib.data import prepare_tokens

    tokenizer = Tokenizer.from_pretrained("gpt2")
    with TemporaryDirectory(dir=BUILD) as folder:
        out = Path(folder, "train.bin")
        start = process_time()
        prepare_tokens(text_path("mixed"), tokenizer, out, progress=False)
        seconds = process_time() - start
        return Measured(seconds, hashlib.sha256(out.read_bytes()).hexdigest())


def encode_only() -> Measured:
    """Encode the same text, document by document, in memory."""
    from lmlib.bpe import Tokenizer

    tokenizer = Tokenizer.from_pretrained("gpt2")
    documents, end = documents_of("mixed"), tokenizer.special_tokens[END]
    start = process_time()
    ids = [tokenizer.encode_ordinary(document) for document in documents]
    seconds = process_time() - start
    whole = np.concatenate([np.array([*document, end], np.uint16) for document in ids])
    return Measured(seconds, hashlib.sha256(whole.tobytes()).hexdigest())


# --- tasks ------------------------------------------------------------------------------------------------------

BATCHES = {"lmlib": batches_lmlib, "list of slices": batches_of_slices}
TASKS = {
    "1,000 batches of 64 × 1024": Task(BATCHES, (1_000,)),
    "100,000 batches of 64 × 1024": Task(BATCHES, (100_000,), runs=1),
    "50 MB of text to a token file": Task({"lmlib": prepare_lmlib, "encoding alone": encode_only}),
}


def prepare(tasks: Collection[Task]) -> dict:
    """Write what these tasks read."""
    inputs = {}
    if any(task.contenders is BATCHES for task in tasks):
        inputs["tokens"] = store_tokens()
    if any(task.contenders is not BATCHES for task in tasks):
        inputs |= store_texts(["mixed"])
    return inputs


if __name__ == "__main__":
    contest.main(__doc__, TASKS, prepare, packages=["lmlib", "numpy", "torch", "regex"])
