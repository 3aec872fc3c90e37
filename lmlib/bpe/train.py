"""Training: from files or texts to a vocabulary and its merges."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from lmlib.bpe.counting import count_files, make_counter
from lmlib.bpe.fast import merges as fast
from lmlib.bpe.fast.counting import WordCounts
from lmlib.bpe.merges import iter_merges
from lmlib.bpe.patterns import GPT2_PATTERN
from lmlib.bpe.reference import check_training
from lmlib.bpe.spec import Pair
from lmlib.bpe.text_files import STANDARD_INPUT, is_regular_file
from lmlib.parallel import check_workers

__all__ = ["train_bpe"]

_FEW_LETTERS = 20_000  # of different words: below, a millisecond counts

Source = str | os.PathLike | Iterable[str | os.PathLike]


def train_bpe(
    source: Source,
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    pattern: str | None = GPT2_PATTERN,
    num_workers: int = 1,
    progress: bool = True,
) -> tuple[dict[int, bytes], list[Pair]]:
    """Learn a vocabulary; return it with the merges in order.

    ``source`` is the path of a file, or an iterable of texts (``str``) and of files
    (``Path``). Files are UTF-8, may be ``.gz`` or ``.xz``, may be larger than
    memory, and are shared by ``num_workers`` processes; ``-`` is standard input.

    Ids are the 256 bytes, then one per merge, then the special tokens, which are
    not trained on. The pair merged is the most frequent one inside pre-tokens; of
    several, the greater as ``(bytes, bytes)``. The vocabulary is smaller than asked
    for if no pair is left. ``progress`` shows bars where standard error is a
    terminal.

    Raises ValueError if there is no text, if a file is not UTF-8, if ``vocab_size``
    has no room for bytes and special tokens, if a special token is empty or named
    twice, or if the pattern is invalid; OSError if a file cannot be read; and
    ChildProcessError if a process dies.
    """
    check_training(vocab_size, special_tokens)
    check_workers(num_workers)
    counts = _count(source, special_tokens, pattern, num_workers, progress)
    if not counts:
        raise ValueError("There is no text to train on: the source is empty.")
    num_merges = vocab_size - 256 - len(special_tokens)
    merges = list(
        _Bar(
            _iter_merges(counts, num_merges),
            desc="merging",
            total=num_merges,
            unit="merge",
            disable=_hidden(progress),
        )
    )
    vocab = [bytes([byte]) for byte in range(256)]
    vocab += [left + right for left, right in merges]
    vocab += [token.encode() for token in special_tokens]
    return dict(enumerate(vocab)), merges


def _iter_merges(
    counts: Counter[str] | WordCounts, num_merges: int
) -> Iterator[Pair]:
    """Choose the way to train by what was counted, and how much of it."""
    if not isinstance(counts, WordCounts):
        words = {pretoken.encode(): count for pretoken, count in counts.items()}
    elif _FEW_LETTERS <= len(counts.letters) <= fast.MOST_LETTERS:
        return fast.iter_merges(counts, num_merges)
    else:
        words = dict(counts.items())
    return islice(iter_merges(words), num_merges)


class _Bar(tqdm):
    monitor_interval = 0  # no thread of its own, because workers may be forked


def _count(
    source: Source,
    special_tokens: Sequence[str],
    pattern: str | None,
    num_workers: int,
    progress: bool,
) -> Counter[str] | WordCounts:
    counter = make_counter(pattern, special_tokens)
    if isinstance(source, str | os.PathLike):
        source = [Path(source)]
    files = []
    for item in source:
        if isinstance(item, os.PathLike):
            files.append(item)
        else:
            counter.add([_text(item)])
    with _Bar(
        desc="counting",
        total=_stored_bytes(files),
        unit="B",
        unit_scale=True,
        disable=_hidden(progress and bool(files)),
    ) as bar:
        return count_files(
            files, pattern, special_tokens, num_workers, bar.update, counter
        )


def _text(item: object) -> str:
    if not isinstance(item, str):
        raise TypeError(f"A text is {item!r}: pass texts (str) and files (Path).")
    if len(item) < 256 and "\0" not in item and os.path.isfile(item):
        raise ValueError(f"{item!r} is the name of a file: pass Path({item!r}).")
    return item


def _stored_bytes(files: Sequence[os.PathLike]) -> int | None:
    """Return the size of all files, or None if it is not known.

    Raises FileNotFoundError before the first file is read.
    """
    named = (file for file in files if os.fspath(file) != STANDARD_INPUT)
    try:
        size = sum(map(os.path.getsize, named))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"There is no file {error.filename!r}. To train on a text itself, pass "
            "it in a list."
        ) from None
    return size if all(map(is_regular_file, files)) else None


def _hidden(progress: bool) -> bool | None:
    return None if progress else True  # None: hidden unless there is a terminal
