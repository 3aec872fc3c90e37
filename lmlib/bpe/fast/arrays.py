"""What NumPy lacks for pieces of different sizes that lie one after the other."""

import numpy as np

__all__ = ["begins", "group_begins", "groups", "ranges", "with_room"]


def begins(sizes: np.ndarray) -> np.ndarray:
    """Return where each piece begins, if they lie one after the other."""
    return np.cumsum(sizes) - sizes


def ranges(begin: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the integers from ``begin[i]`` on, ``sizes[i]`` of them, for all i."""
    return np.arange(sizes.sum()) + np.repeat(begin - begins(sizes), sizes)


def group_begins(values: np.ndarray) -> np.ndarray:
    """Return where each group of equal neighbours begins."""
    differs = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return np.flatnonzero(differs)


def groups(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where each group of equal neighbours begins, and its size."""
    differs = np.ones(len(values) + 1, bool)
    np.not_equal(values[1:], values[:-1], out=differs[1:-1])
    bounds = np.flatnonzero(differs)
    return bounds[:-1], bounds[1:] - bounds[:-1]


def with_room(array: np.ndarray, size: int) -> np.ndarray:
    """Return an array that has a place ``size - 1``: this one, or a longer copy.

    The copy is at least twice as long, so that growing step by step is linear.
    """
    if size <= len(array):
        return array
    longer = np.zeros(max(size, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer
