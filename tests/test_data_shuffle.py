"""lmlib.data.shuffle: each number once, in an order as good as random, the same everywhere."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmlib.data.shuffle import Permutation


def order(size, *key):
    return Permutation(size, *key)(np.arange(size)).tolist()


def deviations(counts, expected):
    """How many standard deviations the chi-square of counts is above what chance gives."""
    counts = np.asarray(counts)
    degrees = counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - degrees) / math.sqrt(2 * degrees)


@given(st.integers(1, 3000), st.integers(0, 2**64), st.integers(0, 2**40))
def test_each_number_comes_once(size, seed, epoch):
    assert sorted(order(size, seed, epoch)) == list(range(size))


@pytest.mark.parametrize("size", [2**16, 2**16 + 1, 10**6])
def test_each_number_comes_once_among_many(size):
    assert np.array_equal(np.sort(Permutation(size, 0, 0)(np.arange(size))), np.arange(size))


def test_numbers_beyond_what_could_be_stored():
    size = 10**15 + 7
    places = np.arange(size - 1000, size)
    numbers = Permutation(size, 3, 1)(places)
    assert len(set(numbers.tolist())) == 1000
    assert numbers.min() >= 0
    assert numbers.max() < size
    assert np.array_equal(Permutation(size, 3, 1)(places[::-1]), numbers[::-1])


def test_the_order_is_the_same_on_every_machine():
    """Checkpoints of the past rely on it: an order that changes repeats windows and leaves others out."""
    assert order(10, 0, 0) == [5, 3, 6, 9, 1, 0, 4, 2, 8, 7]
    assert order(10, 1234, 5) == [6, 8, 3, 0, 5, 4, 2, 9, 7, 1]


def test_keys_give_orders_of_their_own():
    orders = [tuple(order(20, seed, epoch)) for seed in range(30) for epoch in range(30)]
    assert len(set(orders)) == len(orders)


@pytest.mark.parametrize("size", [3, 4])
def test_all_orders_are_equally_likely(size):
    orders = list(itertools.permutations(range(size)))
    draws = 200 * len(orders)
    counts = dict.fromkeys(orders, 0)
    for epoch in range(draws):
        counts[tuple(order(size, 0, epoch))] += 1
    assert deviations(list(counts.values()), 200) < 4


@pytest.mark.parametrize("size", [7, 50])
def test_all_places_are_equally_likely(size):
    counts = np.zeros((size, size))
    for epoch in range(1500):
        counts[np.arange(size), order(size, 0, epoch)] += 1
    assert deviations(counts, 1500 / size) < 4


def test_neighbours_have_nothing_in_common():
    size = 100_000
    numbers = Permutation(size, 0, 0)(np.arange(size))
    other = Permutation(size, 0, 1)(np.arange(size))
    for one, two in [(numbers[:-1], numbers[1:]), (numbers, np.arange(size)), (numbers, other)]:
        assert abs(np.corrcoef(one, two)[0, 1]) < 4 / math.sqrt(size)
        steps = np.bincount((two - one) % size * 100 // size, minlength=100)
        assert deviations(steps, len(one) / 100) < 4


def test_nothing_is_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        order(1, 0)
        order(99, 0)
