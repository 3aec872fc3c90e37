"""A memory for results, because most words of a text were seen before."""

from collections.abc import Callable
from sys import getsizeof

__all__ = ["BoundedCache"]

_SLOT = 100  # bytes that a dict needs for an entry, at most


class BoundedCache(dict):
    """What a function returns for a string, computed once while there is room.

    The bound is one of bytes, not of number. When it is reached, everything is
    forgotten: what is frequent is back at once, and no order of use has to be kept.
    Look up with ``cache[key]``, which costs no call in Python for what is known.

    The function takes ``str`` or ``bytes``, and returns a tuple of objects that
    are kept elsewhere anyway. What it raises is passed on.
    """

    def __init__(
        self, compute: Callable[..., tuple], max_bytes: int = 2**26
    ) -> None:
        super().__init__()
        self._compute = compute
        self._max_bytes = max_bytes
        self._bytes = 0

    def __missing__(self, key: str | bytes) -> tuple:
        value = self._compute(key)
        size = getsizeof(key) + getsizeof(value) + _SLOT
        if size > self._max_bytes:
            return value
        if self._bytes + size > self._max_bytes:
            self.clear()
            self._bytes = 0
        self[key] = value
        self._bytes += size
        return value
