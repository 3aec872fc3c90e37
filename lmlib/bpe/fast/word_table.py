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
_FREE = -1  # the number at a place that no key has
_LONGEST = (8, 16, 32)  # bytes of words that are in one table
LONGEST_KEY = max(_LONGEST)

Keys = Sequence[np.ndarray]  # one array for each integer of a key


class WordTable:
    """Gives each word a number: the next one, in the order in which they are met.

    The first number, ``empty``, is that of the word without bytes. 0xFF, which ends
    documents, is like it. If the ``sizes`` of the words to come are known, the
    table need not grow for them.
    """

    def __init__(
        self, sizes: Sequence[int] | np.ndarray = (), empty: int = 0
    ) -> None:
        self.empty = empty
        self.next_number = empty + 1
        most = np.searchsorted(np.sort(sizes), _LONGEST, side="right")
        expected = np.diff(most, prepend=0).tolist()
        self._tables = [
            KeyTable(longest // 8, number)
            for longest, number in zip(_LONGEST, expected, strict=True)
        ]
        self._tables[0].enter([_KEY_OF_EMPTY], np.array([empty]))
        self._long: dict[bytes, int] = {}
        self._long_bytes = 0

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory the table takes."""
        in_keys = sum(table.nbytes for table in self._tables)
        return in_keys + self._long_bytes + 200 * len(self._long)

    def enter(
        self,
        block: np.ndarray,
        starts: np.ndarray,
        sizes: np.ndarray,
        numbers: np.ndarray,
    ) -> None:
        """Enter different words, which are new, with numbers below ``empty``.

        The table was made for their sizes.
        """
        short = np.flatnonzero(sizes <= _LONGEST[0])
        for table, which in (
            (self._tables[0], short),
            *self._tables_of_longer(sizes),
        ):
            keys = _keys(block, starts[which], sizes[which], table.num_columns)
            table.enter(keys, numbers[which])
        long = np.flatnonzero(sizes > LONGEST_KEY)
        words = pieces(block, starts[long], sizes[long])
        self._long.update(zip(words, numbers[long].tolist(), strict=True))
        self._long_bytes += int(sizes[long].sum())

    def number(
        self, block: np.ndarray, starts: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of each word, and a word for each number that is new.

        Words are the bytes of a block from ``as_block`` at ``starts``. New words
        get the numbers from ``next_number`` on; the second array has the index of
        one word for each of them, in this order.

        All words are looked up in the table of the shortest: most are short, and to
        pick those out takes longer. There, longer ones are like the empty one.
        """
        keys = _keys_of_short(block, starts, sizes)
        numbers, new = self._tables[0].number(keys, self.next_number)
        self.next_number += len(new)
        firsts = [new]
        for table, which in self._tables_of_longer(sizes):
            keys = _keys(block, starts[which], sizes[which], table.num_columns)
            numbers[which], new = table.number(keys, self.next_number)
            self.next_number += len(new)
            firsts.append(which[new])
        which = np.flatnonzero(sizes > LONGEST_KEY)
        firsts.append(self._number_long(block, starts, sizes, which, numbers))
        return numbers, np.concatenate(firsts)

    def find(
        self, block: np.ndarray, starts: np.ndarray, sizes: np.ndarray
    ) -> np.ndarray:
        """Return the number of each word, -1 where it has none."""
        numbers = self._tables[0].find(_keys_of_short(block, starts, sizes))
        for table, which in self._tables_of_longer(sizes):
            keys = _keys(block, starts[which], sizes[which], table.num_columns)
            numbers[which] = table.find(keys)
        which = np.flatnonzero(sizes > LONGEST_KEY)
        words = pieces(block, starts[which], sizes[which])
        for i, word in zip(which.tolist(), words, strict=True):
            numbers[i] = self._long.get(word, -1)
        return numbers

    def _tables_of_longer(
        self, sizes: np.ndarray
    ) -> Iterator[tuple["KeyTable", np.ndarray]]:
        """Yield each table but the first that words need, and which words."""
        longer = np.flatnonzero(sizes > _LONGEST[0])
        sizes = sizes[longer]
        shortest = _LONGEST[0]
        for table, longest in zip(self._tables[1:], _LONGEST[1:], strict=True):
            which = longer[(sizes > shortest) & (sizes <= longest)]
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
            number = self._long.setdefault(word, self.next_number)
            if number == self.next_number:
                self.next_number += 1
                self._long_bytes += len(word)
                first.append(i)
            numbers[i] = number
        return np.array(first, np.int64)

    def words(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all words: their bytes one after the other, sizes and numbers."""
        parts = []
        for table in self._tables:
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

    At most three eighths of its places are taken, so a probe along taken places
    always ends, and mostly soon, at a free one. The multipliers of the hash are
    random, so no text can be made to collide: two keys meet with a probability of
    at most about 2 in the number of places (multiply-shift hashing, Dietzfelbinger
    et al., *A reliable randomized algorithm for the closest-pair problem*, 1997).
    Of several integers, all but the first are halved: whole ones that differ in
    their highest bytes alone would have only 256 hashes between them.

    A table for a number of keys that are ``expected`` has six places or more for
    each. Then most probes end where they begin: with tokens as the keys, to find
    pairs of tokens takes two thirds of the time that three places for each take,
    and twelve places are no better.
    """

    def __init__(self, num_columns: int = 1, expected: int = 0) -> None:
        self.num_columns = num_columns
        self._multipliers = [_random_odd() for _ in range(2 * num_columns - 1)]
        self._make(max(15, (6 * expected).bit_length()))

    def _make(self, bits: int) -> None:
        self._size = 0
        self._shift = np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        self._columns = [
            np.zeros(1 << bits, np.uint64) for _ in range(self.num_columns)
        ]
        self._numbers = np.full(1 << bits, _FREE, np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return (8 * self.num_columns + 4) * len(self._numbers)

    def find(self, keys: Keys) -> np.ndarray:
        """Return the number of each key, -1 where it is not in the table."""
        return self._numbers[self._probe(keys)]

    def number(self, keys: Keys, next_number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers as ``WordTable.number`` does, new ones from a number on.

        Keys that are not in the table are entered together, for most of them may be
        the same, until there is no room: then the table grows.
        """
        place = self._probe(keys)
        numbers = self._numbers[place]
        absent = np.flatnonzero(numbers < 0)
        firsts = [absent[:0]]
        while absent.size:
            absent_keys = [column[absent] for column in keys]
            if self._room() == 0:
                self._grow()
                place[absent] = self._hash(absent_keys)
            at, entered, left = self._enter(absent_keys, place[absent], next_number)
            numbers[absent] = self._numbers[at]
            next_number += len(entered)
            firsts.append(absent[entered])
            absent = absent[left]
        return numbers, np.concatenate(firsts)

    def enter(self, keys: Keys, numbers: np.ndarray) -> None:
        """Enter different keys, which are new and for which there is room."""
        place, _, left = self._enter(keys, self._hash(keys), 0)
        assert not left.size
        self._numbers[place] = numbers

    def items(self) -> tuple[Keys, np.ndarray]:
        """Return all keys with their numbers."""
        taken = np.flatnonzero(self._numbers >= 0)
        return [column[taken] for column in self._columns], self._numbers[taken]

    def _grow(self) -> None:
        keys, numbers = self.items()
        self._make(len(self._numbers).bit_length())  # twice as many places
        self.enter(keys, numbers)

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
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Enter keys, some of which may be the same, as long as there is room.

        Returns their places, which of them were entered, and which are left: of
        these, the places say nothing.

        The search begins at ``place``: the hash of each key, or the free place that
        ``_probe`` found for it. Where several want one free place, the last of them
        gets it, and the others look again.
        """
        todo = np.arange(len(place))
        entered = [todo[:0]]
        while todo.size and self._room():
            at = place[todo]
            is_free = self._numbers[at] < 0
            wanting, wanted = todo[is_free], at[is_free]
            self._numbers[wanted] = ~wanting  # negative, so it is free still
            winners = wanting[self._numbers[wanted] == ~wanting]
            self._numbers[wanted] = _FREE
            winners = winners[: self._room()]
            self._numbers[place[winners]] = np.arange(number, number + len(winners))
            for column, key in zip(self._columns, keys, strict=True):
                column[place[winners]] = key[winners]
            entered.append(winners)
            number += len(winners)
            self._size += len(winners)
            is_there = self._is_at(at, [column[todo] for column in keys])
            is_there &= self._numbers[at] >= 0
            todo = todo[~is_there]
            place[todo] = (place[todo] + 1) & self._mask
        return place, np.concatenate(entered), todo

    def _room(self) -> int:
        """Return how many keys may be entered before the table has to grow."""
        return 3 * len(self._numbers) // 8 - self._size

    def _hash(self, keys: Keys) -> np.ndarray:
        hashed = keys[0] * self._multipliers[0]
        halves = _halves(keys[1:])
        for half, multiplier in zip(halves, self._multipliers[1:], strict=True):
            hashed += half * multiplier
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
    eight_bytes = _eight_bytes(block)
    return [
        eight_bytes[starts + offset] | _PADDINGS.take(sizes - offset, mode="clip")
        for offset in range(0, 8 * num_columns, 8)
    ]


def _keys_of_short(
    block: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> Keys:
    """Return keys of words of 1 to 8 bytes; longer ones have the empty word's."""
    paddings = _PADDINGS_OF_SHORT.take(sizes, mode="clip")
    return [_eight_bytes(block)[starts] | paddings]


def _eight_bytes(block: np.ndarray) -> np.ndarray:
    """Return the eight bytes from each place on as an integer."""
    return np.ndarray((len(block) - 7,), "<u8", block, strides=(1,))


# What to set where a word has no byte: all of them up to size 0, none from 8 on.
_PADDINGS = np.array(
    [2**64 - 2 ** (8 * size) for size in range(8)] + [0], np.uint64
)
_KEY_OF_EMPTY = _PADDINGS[:1]
_PADDINGS_OF_SHORT = np.append(_PADDINGS, _KEY_OF_EMPTY)


def _halves(keys: Keys) -> Iterator[np.ndarray]:
    for key in keys:
        yield key & np.uint64(2**32 - 1)
        yield key >> np.uint64(32)


def _random_odd() -> np.uint64:
    return np.uint64(int.from_bytes(os.urandom(8), "little") | 1)
