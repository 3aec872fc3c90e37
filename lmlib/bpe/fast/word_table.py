"""Numbers for words, found for all words of a block at once.

A word of up to 8, 16 or 32 bytes, padded with the byte 0xFF, *is* one, two or four
integers of 64 bits: UTF-8 never uses 0xFF, so no two words share their integers.
These are its key, and keys are compared as a whole. A hash only says where to look
first, so no collision can make a result wrong. Longer words, a few in a thousand,
are in a ``dict``.
"""

import os
from collections.abc import Iterator, Sequence

import numpy as np

__all__ = ["KeyTable", "WordTable", "as_block", "pieces"]

_PADDING = 0xFF
_LONGEST = (8, 16, 32)  # bytes of words that are in one table
LONGEST_KEY = max(_LONGEST)

Keys = Sequence[np.ndarray]  # one array for each integer of a key


class WordTable:
    """Gives each word a number: 0, 1, 2, … in the order in which they are met.

    If the ``sizes`` of the words to come are known, it need not grow for them.
    """

    def __init__(self, sizes: Sequence[int] | np.ndarray = ()) -> None:
        most = np.searchsorted(np.sort(sizes), _LONGEST, side="right")
        expected = np.diff(most, prepend=0).tolist()
        self._tables = {
            longest: KeyTable(longest // 8, number)
            for longest, number in zip(_LONGEST, expected, strict=True)
        }
        self._long: dict[bytes, int] = {}
        self._long_bytes = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory the table takes."""
        in_keys = sum(table.nbytes for table in self._tables.values())
        return in_keys + self._long_bytes + 200 * len(self._long)

    def number(
        self, block: np.ndarray, starts: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of each word, and which are the first of their number.

        Words are the bytes of a block from ``as_block`` at ``starts``. New words
        get the numbers from ``len(self)`` on; the second array has the index of one
        word for each of them, in this order.
        """
        numbers = np.empty(len(starts), np.int32)
        firsts: list[np.ndarray] = []
        for table, which in self._tables_for(sizes):
            keys = _keys(block, starts[which], sizes[which], table.num_columns)
            numbers[which], new = table.number(keys, self._size)
            firsts.append(which[new])
            self._size += len(new)
        which = np.flatnonzero(sizes > LONGEST_KEY)
        firsts.append(self._number_long(block, starts, sizes, which, numbers))
        return numbers, np.concatenate(firsts)

    def find(
        self, block: np.ndarray, starts: np.ndarray, sizes: np.ndarray
    ) -> np.ndarray:
        """Return the number of each word, -1 where it has none."""
        numbers = np.empty(len(starts), np.int32)
        for table, which in self._tables_for(sizes):
            keys = _keys(block, starts[which], sizes[which], table.num_columns)
            numbers[which] = table.find(keys)
        which = np.flatnonzero(sizes > LONGEST_KEY)
        words = pieces(block, starts[which], sizes[which])
        for i, word in zip(which.tolist(), words, strict=True):
            numbers[i] = self._long.get(word, -1)
        return numbers

    def _tables_for(
        self, sizes: np.ndarray
    ) -> Iterator[tuple["KeyTable", np.ndarray]]:
        """Yield each table that words of these sizes need, and which words."""
        shortest = 0
        for longest, table in self._tables.items():
            which = np.flatnonzero((sizes > shortest) & (sizes <= longest))
            shortest = longest
            if which.size:
                yield table, which

    def _number_long(
        self,
        block: np.ndarray,
        starts: np.ndarray,
        sizes: np.ndarray,
        which: np.ndarray,
        numbers: np.ndarray,
    ) -> np.ndarray:
        first = []
        words = pieces(block, starts[which], sizes[which])
        for i, word in zip(which.tolist(), words, strict=True):
            number = self._long.setdefault(word, self._size)
            if number == self._size:
                self._size += 1
                self._long_bytes += len(word)
                first.append(i)
            numbers[i] = number
        return np.array(first, np.int64)

    def words(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all words: their bytes one after the other, sizes and numbers."""
        parts = []
        for table in self._tables.values():
            keys, numbers = table.items()
            padded = np.stack(keys, 1).astype("<u8").view(np.uint8)
            is_letter = padded != _PADDING
            parts.append((padded[is_letter], is_letter.sum(1), numbers))
        letters = np.frombuffer(b"".join(self._long), np.uint8)
        sizes = np.array([*map(len, self._long)], np.int64)
        parts.append((letters, sizes, np.array([*self._long.values()], np.int32)))
        return tuple(map(np.concatenate, zip(*parts, strict=True)))


class KeyTable:
    """Numbers for keys: an open-addressing hash table that grows.

    At most half of its places are taken, so a probe along taken places always ends,
    and mostly soon, at a free one. The multipliers of the hash are random,
    so no text can be made to collide: two keys meet with a probability of at most
    about 2 in the number of places (multiply-shift hashing, Dietzfelbinger et al.,
    *A reliable randomized algorithm for the closest-pair problem*, 1997).

    A table for a number of keys that are ``expected`` has six places or more for
    each. Then most probes end where they begin: with tokens as the keys, to find
    pairs of tokens takes two thirds of the time that three places for each take,
    and twelve places are no better.
    """

    def __init__(self, num_columns: int = 1, expected: int = 0) -> None:
        self.num_columns = num_columns
        self._multipliers = [_random_odd() for _ in range(num_columns)]
        self._make(max(12, (6 * expected).bit_length()))

    def _make(self, bits: int) -> None:
        self._size = 0
        self._shift = np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        self._columns = [np.zeros(1 << bits, np.uint64) for _ in self._multipliers]
        self._numbers = np.full(1 << bits, -1, np.int32)  # -1: the place is free

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return (8 * self.num_columns + 4) * len(self._numbers)

    def find(self, keys: Keys) -> np.ndarray:
        """Return the number of each key, -1 where it is not in the table."""
        return self._numbers[self._probe(keys)]

    def number(self, keys: Keys, next_number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers as ``WordTable.number`` does, new ones from a number on.

        Keys that are not in the table are entered a few at a time, for most of them
        may be the same.
        """
        place = self._probe(keys)
        numbers = self._numbers[place]
        absent = np.flatnonzero(numbers < 0)
        first = [absent[:0]]
        while absent.size:
            if 8 * self._size > 3 * len(self._numbers):
                self._grow()
                place[absent] = self._probe([column[absent] for column in keys])
            number = len(self._numbers) // 8
            few, absent = absent[:number], absent[number:]
            few_keys = [column[few] for column in keys]
            at, entered = self._enter(few_keys, place[few], next_number)
            next_number += len(entered)
            first.append(few[entered])
            numbers[few] = self._numbers[at]
        return numbers, np.concatenate(first)

    def items(self) -> tuple[Keys, np.ndarray]:
        """Return all keys with their numbers."""
        taken = np.flatnonzero(self._numbers >= 0)
        return [column[taken] for column in self._columns], self._numbers[taken]

    def _grow(self) -> None:
        keys, numbers = self.items()
        self._make(len(self._numbers).bit_length())  # twice as many places
        place, entered = self._enter(keys, self._hash(keys), 0)
        self._numbers[place] = numbers
        assert len(entered) == len(numbers)

    def _probe(self, keys: Keys) -> np.ndarray:
        """Return the place of each key, or the free one where it would be."""
        place = self._hash(keys)
        todo = np.flatnonzero(~self._is_at(place, keys))
        while todo.size:
            todo = todo[self._numbers[place[todo]] >= 0]
            place[todo] = (place[todo] + 1) & self._mask
            todo = todo[
                ~self._is_at(place[todo], [column[todo] for column in keys])
            ]
        return place

    def _enter(
        self, keys: Keys, place: np.ndarray, number: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Enter keys, some of which may be the same; return places and the first.

        To look for a place begins where the keys were not before: at their hash, or
        at the free place that was found for them. Where several want one free
        place, the last of them gets it, and the others look again.
        """
        todo = np.arange(len(place))
        entered = [todo[:0]]
        while todo.size:
            at = place[todo]
            is_free = self._numbers[at] < 0
            wanting, wanted = todo[is_free], at[is_free]
            self._numbers[wanted] = ~wanting  # negative, so it is free still
            winners = wanting[self._numbers[wanted] == ~wanting]
            self._numbers[place[winners]] = np.arange(number, number + len(winners))
            for column, key in zip(self._columns, keys, strict=True):
                column[place[winners]] = key[winners]
            entered.append(winners)
            number += len(winners)
            todo = todo[~self._is_at(at, [column[todo] for column in keys])]
            place[todo] = (place[todo] + 1) & self._mask
        entered = np.concatenate(entered)
        self._size += len(entered)
        return place, entered

    def _hash(self, keys: Keys) -> np.ndarray:
        hashed = keys[0] * self._multipliers[0]
        for key, multiplier in zip(keys[1:], self._multipliers[1:], strict=True):
            hashed += key * multiplier
        return (hashed >> self._shift).view(np.int64)

    def _is_at(self, place: np.ndarray, keys: Keys) -> np.ndarray:
        is_at = self._columns[0][place] == keys[0]
        for column, key in zip(self._columns[1:], keys[1:], strict=True):
            is_at &= column[place] == key
        return is_at


def as_block(data: bytes) -> np.ndarray:
    """Return bytes as an array that is long enough to read keys at its end."""
    return np.frombuffer(data + bytes(LONGEST_KEY), np.uint8)


def pieces(
    block: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> Iterator[bytes]:
    """Yield words as bytes, one by one."""
    for at, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        yield block[at : at + size].tobytes()


def _keys(
    block: np.ndarray, starts: np.ndarray, sizes: np.ndarray, num_columns: int
) -> Keys:
    """Return the keys of words of 1 to ``8 * num_columns`` bytes."""
    eight_bytes = np.ndarray((len(block) - 7,), "<u8", block, strides=(1,))
    return [
        eight_bytes[starts + offset] | _PADDINGS.take(sizes - offset, mode="clip")
        for offset in range(0, 8 * num_columns, 8)
    ]


# What to set where a word has no byte: all of them up to size 0, none from 8 on.
_PADDINGS = np.array(
    [2**64 - 2 ** (8 * size) for size in range(8)] + [0], np.uint64
)


def _random_odd() -> np.uint64:
    return np.uint64(int.from_bytes(os.urandom(8), "little") | 1)
