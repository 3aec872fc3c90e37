"""A shuffled order that is computed where it is needed, and never stored.

A permutation of the windows of 10¹² tokens would take gigabytes on every rank. This
one takes eight keys: a cipher that maps numbers below ``size`` to numbers below
``size``, one to one. Any place of it can be asked for at any time, and only integer
arithmetic decides, so that it is the same on every machine and in every version.
"""

import math

import numpy as np

__all__ = ["Permutation"]

_ROUNDS = 8


class Permutation:
    """An order of the numbers from 0 to ``size - 1``, another one for each key.

    A Feistel network over pairs of digits, applied again to what it maps beyond
    the end. Source: Black & Rogaway 2002, "Ciphers with Arbitrary Finite Domains",
    methods 2 and 3. ``key`` is whole numbers from 0 on, such as seed and epoch.
    """

    def __init__(self, size: int, *key: int) -> None:
        self._size = size
        self._base = np.uint64(math.isqrt(size - 1) + 1)  # base² is just enough
        # NumPy promises that these stay the same: its NEP 19
        self._keys = np.random.SeedSequence(key).generate_state(_ROUNDS, np.uint64)

    def __call__(self, places: np.ndarray) -> np.ndarray:
        """Return the numbers at some places of the order, as int64."""
        numbers = self._encrypt(places.astype(np.uint64))
        while (outside := numbers >= self._size).any():
            numbers[outside] = self._encrypt(numbers[outside])
        return numbers.astype(np.int64)

    def _encrypt(self, numbers: np.ndarray) -> np.ndarray:
        """Map numbers below base² one to one; each round can be undone."""
        left, right = np.divmod(numbers, self._base)
        for key in self._keys:
            left, right = (
                right,
                (left + _mix(right ^ key) % self._base) % self._base,
            )
        return left * self._base + right


def _mix(numbers: np.ndarray) -> np.ndarray:
    """Make every bit depend on all: the end of SplitMix64 (Steele et al. 2014)."""
    numbers = (numbers ^ (numbers >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> 27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> 31)
