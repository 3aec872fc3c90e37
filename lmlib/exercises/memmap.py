"""Exercises of chapter 8: bytes of a file, pages of a batch, epochs, documents."""

from __future__ import annotations

from math import ceil, gcd

import numpy as np

from lmlib.data import BatchLoader
from lmlib.exercises import Exercise, function_exercise, value_exercise


def _file_bytes() -> Exercise:
    tokens, vocab_size = 300 * 10**9, 100_277
    fitting = (np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
    dtype = next(kind for kind in fitting if vocab_size <= np.iinfo(kind).max + 1)
    expected = tokens * dtype.itemsize
    return value_exercise(
        expected=expected,
        mistakes=[
            (
                tokens * 2,
                "two bytes end at 65,535, and this vocabulary does not.",
            ),
            (
                tokens * 3,
                "three bytes would do, but NumPy has no integer of three.",
            ),
            (tokens * 8, "64 bits are more than these ids need."),
            (tokens, "that counts tokens; how many bytes is each?"),
            (
                tokens * 17 / 8,
                "17 bits would do, but an array has whole types only.",
            ),
            (expected / 10**9, "that looks like GB; give plain bytes."),
            (expected / 10**12, "that looks like TB; give plain bytes."),
            (expected / 2**30, "that looks like GiB; give plain bytes."),
        ],
        hint="which is the narrowest type of NumPy that holds the largest id?",
    )


def _epoch_end() -> Exercise:
    windows, batch_size, world_size = 1000, 8, 4
    step = batch_size * world_size
    loader = BatchLoader(
        np.arange(windows + 1), batch_size, 1, world_size=world_size, prefetch=0
    )
    batches = len(loader)
    borrowed = batches * step - windows
    return value_exercise(
        expected=(batches, borrowed),
        mistakes=[
            (
                (windows // step, 0),
                "no window is dropped: the last batch begins in this epoch too.",
            ),
            (
                (windows // step, windows % step),
                "these windows are left over; another batch begins with them.",
            ),
            (
                (batches, borrowed // world_size),
                "that is one rank's share; count what all ranks take.",
            ),
            (
                (batches * world_size, borrowed),
                "that counts the batches of all ranks; how many does each get?",
            ),
            (
                (batches, 0),
                "the last batch is full: it takes its rest from the next epoch.",
            ),
            (
                (batches, windows % step),
                "that many were left for the last batch; how many did it lack?",
            ),
            (
                (ceil(windows / batch_size), 0),
                "that is for one rank; each step serves four of them.",
            ),
        ],
        hint="answer with (batches, windows). How many windows does one step take "
        "from the stream, over all ranks?",
    )


def _broken_shuffle() -> Exercise:
    windows = 360

    def windows_seen(multiplier) -> int | None:
        if type(multiplier) is not int or not 0 < multiplier < windows:
            return None
        return len({multiplier * place % windows for place in range(windows)})

    def with_divisor(divisor: int, start: int) -> int:
        return next(a for a in range(start, windows) if gcd(a, windows) == divisor)

    return Exercise(
        solution=with_divisor(3, start=5),
        mistakes=[
            (
                with_divisor(1, start=2),
                "this one shows every window: it shares no divisor with 360.",
            ),
            (
                windows // 3,
                "this one shows three windows, not a third of them.",
            ),
            (with_divisor(2, start=2), "this one shows half of the windows."),
            (with_divisor(9, start=2), "this one shows a ninth of the windows."),
        ],
        hint="give a whole number from 1 to 359, and count the different windows "
        "that it shows. When do a·i and a·j leave the same remainder?",
        read=windows_seen,
    )


def _pages() -> Exercise:
    def pages(starts, context_length, itemsize=2, page=4096):
        first = np.asarray(starts) * itemsize // page
        end = (np.asarray(starts) + context_length + 1) * itemsize
        last = (end - 1) // page
        return len(
            {
                number
                for a, b in zip(first, last, strict=True)
                for number in range(a, b + 1)
            }
        )

    def without_target(starts, context_length, itemsize=2, page=4096):
        return pages(starts, context_length - 1, itemsize, page)

    def one_too_far(starts, context_length, itemsize=2, page=4096):
        return pages(starts, context_length + 1, itemsize, page)

    def each_by_itself(starts, context_length, itemsize=2, page=4096):
        return sum(pages([s], context_length, itemsize, page) for s in starts)

    def only_the_ends(starts, context_length, itemsize=2, page=4096):
        places = np.asarray(starts)
        ends = np.concatenate([places, places + context_length])
        return len(np.unique(ends * itemsize // page))

    def tokens_for_bytes(starts, context_length, itemsize=2, page=4096):
        return pages(starts, context_length, 1, page)

    def two_bytes_always(starts, context_length, itemsize=2, page=4096):
        return pages(starts, context_length, 2, page)

    def one_size_of_page(starts, context_length, itemsize=2, page=4096):
        return pages(starts, context_length, itemsize, 4096)

    def from_the_size(starts, context_length, itemsize=2, page=4096):
        return len(starts) * ceil((context_length + 1) * itemsize / page)

    def probes() -> list[tuple]:
        generator = np.random.default_rng(0)
        return [
            ([0], 2047, 2),  # exactly one page
            ([0], 2048, 2),  # the target is the first token of the next page
            ([1024, 1500], 512, 2),  # on one page
            ([10, 10], 100, 4),  # the same window twice
            ([0], 10_000, 2),  # pages between the first and the last
            (generator.integers(0, 10**6, 64).tolist(), 1024, 4),
            ([0, 8000, 16_000], 300, 2, 16_384),
        ]

    return function_exercise(
        pages,
        probes,
        mistakes=[
            (
                without_target,
                "each window needs one token more, for its last target.",
            ),
            (one_too_far, "a window is T + 1 tokens long, and you read one more."),
            (each_by_itself, "a page that two windows share is read once."),
            (only_the_ends, "a long window also has pages between its two ends."),
            (tokens_for_bytes, "a page is counted in bytes, and starts in tokens."),
            (two_bytes_always, "ids may have four bytes: see `itemsize`."),
            (one_size_of_page, "pages may have another size: see `page`."),
            (
                from_the_size,
                "a window may begin anywhere in a page, and end in a later one.",
            ),
        ],
        hint="for each window: in which page is its first byte, in which its last?",
    )


def _documents() -> Exercise:
    def documents(ids, end_of_text):
        ends = np.asarray(ids) == end_of_text
        return np.cumsum(ends) - ends

    def ends_too_early(ids, end_of_text):
        return np.cumsum(np.asarray(ids) == end_of_text)

    def counts_from_one(ids, end_of_text):
        return documents(ids, end_of_text) + 1

    def marks_ends(ids, end_of_text):
        return (np.asarray(ids) == end_of_text).astype(np.int64)

    def starts_over(ids, end_of_text):
        numbers = documents(ids, end_of_text)
        first = np.searchsorted(numbers, numbers)
        return np.arange(len(numbers)) - first

    def number_of_them(ids, end_of_text):
        return int((np.asarray(ids) == end_of_text).sum())

    def probes() -> list[tuple]:
        return [
            (np.array([5, 6, 0, 7, 0, 8, 9, 9]), 0),
            (np.array([0, 0, 4, 0], dtype=np.uint16), 0),
            (np.array([3, 1, 2], dtype=np.uint16), 50_256),
            (np.array([7, 50_256, 9, 50_256], dtype=np.uint16), 50_256),
        ]

    return function_exercise(
        documents,
        probes,
        mistakes=[
            (
                ends_too_early,
                "the end belongs to the document that it ends, not to the next.",
            ),
            (counts_from_one, "count documents from 0 on."),
            (marks_ends, "that marks the ends; count how many came before each."),
            (
                starts_over,
                "that is the place within a document; give the document's number.",
            ),
            (number_of_them, "give a number for every token, not one for all."),
        ],
        hint="how many ends stand before a token? `np.cumsum` counts as it goes.",
    )


EXERCISES = {
    "file_bytes": _file_bytes(),
    "epoch_end": _epoch_end(),
    "broken_shuffle": _broken_shuffle(),
    "pages": _pages(),
    "documents": _documents(),
}
