"""lmlib.bpe.fast.word_table: a number for each word, exact whatever the words, in bounded time and memory."""

import random
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmlib.bpe.fast import word_table
from lmlib.bpe.fast.word_table import KeyTable, WordTable, as_block


def number(table, words):
    sizes = np.array([len(word) for word in words], np.int64)
    return table.number(as_block(b"".join(words)), np.cumsum(sizes) - sizes, sizes)


def spelled(table):
    letters, sizes, numbers = table.words()
    ends = np.cumsum(sizes)
    return {letters[end - size : end].tobytes(): n for size, end, n in zip(sizes, ends, numbers.tolist(), strict=True)}


def check(batches):
    """Compare with a dict; new words may be numbered in any order, but from the next number on."""
    table, known = WordTable(), {b"": 0}
    for words in batches:
        numbers, firsts = number(table, words)
        new = {words[i]: len(known) + k for k, i in enumerate(firsts.tolist())}
        assert len(new) == len(firsts)
        assert not new.keys() & known.keys()
        known |= new
        assert numbers.tolist() == [known[word] for word in words]
        assert table.next_number == len(known)
    assert spelled(table) == known
    assert all(8 * keys._size <= 3 * len(keys._numbers) for keys in table._tables)


@given(st.lists(st.lists(st.text("ab\0", min_size=1, max_size=40).map(str.encode), max_size=30), max_size=5))
def test_numbers_of_any_words(batches):
    check(batches)


@given(st.lists(st.text(min_size=1, max_size=12).map(lambda text: text.encode("utf-8", "replace")), max_size=30))
def test_numbers_of_any_text(words):
    check([words, words[::-1]])


@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 34, 100])
def test_words_around_the_sizes_of_keys(size):
    """They differ in one byte, at each place in turn, or only in their size."""
    words = [b"a" * i + b"b" + b"a" * (size - i - 1) for i in range(size)]
    words += [b"a" * size, b"\0" * size, b"a" * (size + 1), b"a" * max(1, size - 1)]
    check([words, [*words, *words]])


def test_a_word_at_the_very_end_of_a_block():
    check([[b"a" * size] for size in range(1, 70)])


def test_it_grows(monkeypatch):
    rng = random.Random(0)
    words = [bytes(rng.choices(b"abc", k=rng.randrange(1, 36))) for _ in range(50_000)]
    check([words[:10], words[:20_000], words, words[::-1]])


def test_numbers_do_not_depend_on_the_hash(monkeypatch):
    """Even if all keys want the same place: then it is slow, and no more."""
    monkeypatch.setattr(KeyTable, "_hash", lambda self, keys: np.zeros(len(keys[0]), np.int64))
    rng = random.Random(0)
    check([[bytes(rng.choices(b"abc", k=rng.randrange(1, 40))) for _ in range(300)] for _ in range(3)])


def test_places_at_the_end_go_on_at_the_start(monkeypatch):
    monkeypatch.setattr(KeyTable, "_hash", lambda self, keys: np.full(len(keys[0]), len(self._numbers) - 1, np.int64))
    check([[b"%d" % i for i in range(200)]])


def test_find_enters_nothing():
    table = KeyTable()
    keys = [np.array([5, 0, 7], np.uint64)]
    assert table.find(keys).tolist() == [-1, -1, -1]
    numbers, firsts = table.number([keys[0][:2]], 40)
    assert sorted(numbers.tolist()) == [40, 41]
    assert sorted(firsts.tolist()) == [0, 1]
    assert (table.find(keys)[:2] == numbers).all()
    assert table.find(keys)[2] == -1


def test_many_copies_of_few_new_words_make_no_large_table():
    table = WordTable()
    number(table, [b"%d" % (i % 100) for i in range(300_000)])
    assert table.next_number == 1 + 100
    assert table.nbytes == WordTable().nbytes


def test_memory_grows_with_the_words():
    table = WordTable()
    for start in range(0, 200_000, 20_000):
        number(table, [b"%d" % i for i in range(start, start + 20_000)])
        assert table.nbytes < 200_000 + 16 * 12 * table.next_number
    number(table, [b"x" * 10_000])
    assert table.nbytes > 10_000


@pytest.mark.parametrize("stride", [1, 2**8, 2**16, 2**32, 2**40])
def test_regular_keys_take_linear_time(stride):
    """Keys that a fixed multiplier could send to few places."""
    table = KeyTable()
    keys = np.arange(200_000, dtype=np.uint64) * np.uint64(stride)
    start = time.process_time()
    for part in np.array_split(keys, 20):
        table.number([part], table._size)
    assert time.process_time() - start < 20
    assert sorted(table.find([keys]).tolist()) == list(range(200_000))


@pytest.mark.parametrize("byte", [0, 3, 4, 7])
@pytest.mark.parametrize(("num_columns", "values"), [(2, 100), (4, 10)])
def test_keys_that_differ_in_one_byte_of_each_integer_have_many_hashes(num_columns, values, byte):
    """If they had few, all would look for the same places, and take quadratic time, whatever the multipliers."""
    letters = np.meshgrid(*num_columns * [np.arange(values, dtype=np.uint64)])
    keys = [letter.ravel() << np.uint64(8 * byte) for letter in letters]
    table = KeyTable(num_columns, expected=10_000)
    assert len(np.unique(table._hash(keys))) > 1000


@pytest.mark.parametrize("at", [0, 1000, 12_286, 12_287, 12_288, 19_999])
def test_more_new_words_at_once_than_there_is_room_for(at):
    """Among them the one whose key is what a free place holds, too."""
    assert KeyTable()._room() == 12_288
    words = [b"%08d" % i for i in range(20_000)]
    words[at] = bytes(8)
    check([[*words, *words], words])
    check([words[:at], words[at:], words])


def test_words_with_numbers_that_are_given():
    words = [b"a", b"\0", b"ab" * 4, b"ab" * 5, b"ab" * 16, b"ab" * 17, b"ab" * 99]
    given_numbers = [5, 0, 3, 1, 2, 6, 4]
    sizes = np.array([len(word) for word in words])
    table = WordTable(sizes, empty=7)
    starts = np.cumsum(sizes) - sizes
    table.enter(as_block(b"".join(words)), starts, sizes, np.array(given_numbers))
    assert table.find(as_block(b"".join(words)), starts, sizes).tolist() == given_numbers
    numbers, firsts = number(table, [b"new", b"a", b"\xff", b"ab" * 17, b"new", b"other"])
    assert numbers[[1, 2, 3]].tolist() == [5, 7, 6]
    assert sorted(numbers[[0, 5]].tolist()) == sorted(numbers[firsts].tolist()) == [8, 9]
    assert numbers[0] == numbers[4]
    assert spelled(table) == dict(zip(words, given_numbers, strict=True)) | {
        b"": 7,
        b"new": numbers[0],
        b"other": numbers[5],
    }


@pytest.mark.slow
def test_ten_million_different_words():
    table = WordTable()
    count = 0
    for start in range(0, 10_000_000, 100_000):
        words = [b"%07d" % i for i in range(start, start + 100_000)]
        numbers, firsts = number(table, words)
        count += len(firsts)
        assert len(numbers) == 100_000
    assert count == table.next_number - 1 == 10_000_000
    assert table.nbytes < 2**30


def test_padding_is_no_byte_of_text():
    """So the byte that ends documents, which is the padding, is like a word of no bytes."""
    table = WordTable()
    numbers, _ = number(table, [b"\xff", b"a", b"\xff", b"a"])
    assert numbers[0] == numbers[2] != numbers[1] == numbers[3]
    assert spelled(table).keys() == {b"", b"a"}
    assert word_table._PADDING == 0xFF
