"""Our ids beside tiktoken's: where they differ first, and how long both take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median
from time import process_time

__all__ = ["Difference", "Speed", "first_difference", "measure_speed"]

_CONTEXT = 40  # bytes
_TOKENS = 5
_MEASURABLE = 0.05  # seconds; less is mostly noise

Token = tuple[int, bytes]
Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Difference:
    """The first place where two lists of ids differ, in its context.

    ``token`` counts the ids that are equal, ``byte`` the bytes that they stand for,
    ``line`` the lines from 1. ``before`` is the end of those bytes; ``ours`` and
    ``theirs`` are the next ids with their bytes.
    """

    token: int
    byte: int
    line: int
    before: bytes
    ours: list[Token]
    theirs: list[Token]


def first_difference(
    ours: Sequence[int],
    theirs: Sequence[int],
    our_token: Callable[[int], bytes],
    their_token: Callable[[int], bytes],
) -> Difference | None:
    """Find where two lists of ids differ first; None if they are equal."""
    if ours == theirs:
        return None
    pairs = enumerate(zip_longest(ours, theirs))
    at = next(i for i, (our, their) in pairs if our != their)
    before = b"".join(map(our_token, ours[:at]))
    return Difference(
        token=at,
        byte=len(before),
        line=before.count(b"\n") + 1,
        before=before[-_CONTEXT:],
        ours=[(i, our_token(i)) for i in ours[at : at + _TOKENS]],
        theirs=[(i, their_token(i)) for i in theirs[at : at + _TOKENS]],
    )


@dataclass(frozen=True)
class Speed:
    """CPU seconds for all texts: medians of runs that take turns.

    ``cold`` is ours with nothing remembered, ``warm`` with the same texts encoded
    just before.
    """

    cold: float
    warm: float
    tiktoken: float
    runs: int

    def ratios(self) -> dict[str, float] | None:
        """Return how many times as fast as tiktoken ours is, cold and warm.

        None if the texts are too short for that to mean something.
        """
        if min(self.cold, self.warm, self.tiktoken) < _MEASURABLE:
            return None
        return {
            "cold": self.tiktoken / self.cold,
            "warm": self.tiktoken / self.warm,
        }


def measure_speed(
    texts: Sequence[str],
    new_encoder: Callable[[], Encode],
    tiktoken_encode: Encode,
    runs: int,
    progress: Callable[[int], object],
) -> Speed:
    """Encode all texts in turn, three ways, several times.

    ``new_encoder`` makes an encoder that remembers nothing. ``progress`` is called
    with 1 after each turn.
    """
    seconds = []
    for _ in range(runs):
        encode = new_encoder()
        ways = (encode, encode, tiktoken_encode)
        seconds.append([_seconds(way, texts) for way in ways])
        progress(1)
    return Speed(*map(median, zip(*seconds, strict=True)), runs=runs)


def _seconds(encode: Encode, texts: Sequence[str]) -> float:
    start = process_time()
    for text in texts:
        encode(text)
    return process_time() - start
