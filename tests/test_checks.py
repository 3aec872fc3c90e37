"""lmlib.checks: which values pass, which do not, and what the error says."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from lmlib.checks import (
    check,
    check_count,
    check_number,
    check_positive,
    check_size,
    check_switch,
    is_nonnegative,
    is_number,
    is_share,
    is_whole,
)

NO_NUMBERS = [math.nan, math.inf, -math.inf, 10**400, True, False, "1", None, 1j, Decimal(1), [1]]


@pytest.mark.parametrize("value", [0, -3, 2.5, Fraction(1, 4), np.float32(0.5), np.int64(-7), 1e308])
def test_finite_reals_are_numbers(value):
    assert is_number(value)
    assert check_number("rate", value) == value
    assert type(check_number("rate", value)) is float


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_nothing_else_is(value):
    assert not is_number(value)
    assert not is_nonnegative(value)
    assert not is_share(value)
    assert not is_whole(value, -1) or value == 10**400  # a whole number, but no float
    for refuse in (check_number, check_positive):
        with pytest.raises(ValueError, match="rate must be a finite number"):
            refuse("rate", value)


def test_limits_of_the_ranges():
    assert is_nonnegative(0)
    assert not is_nonnegative(-1e-9)
    assert [is_share(value) for value in (-1e-9, 0, 0.999, 1)] == [False, True, True, False]
    assert [is_whole(value, 2) for value in (1, 2, 3, 2.0)] == [False, True, True, False]
    assert check_positive("rate", 1e-300) == 1e-300
    for value in (0, -1):
        with pytest.raises(ValueError, match=rf"^rate must be a finite number above 0, not {value}\.$"):
            check_positive("rate", value)


def test_sizes_are_ints_from_1_on():
    size = check_size("dim", np.int32(64))
    assert size == 64
    assert type(size) is int
    for value in (0, -1, 1.0, True, "64", None):
        with pytest.raises(ValueError, match=r"^dim must be a whole number from 1 on, such as 64, not "):
            check_size("dim", value)


def test_counts_are_ints_from_0_on_and_may_be_whole_floats():
    for value, count in [(0, 0), (70e9, 70 * 10**9), (np.int32(64), 64), (10**400, 10**400)]:
        found = check_count("params", value)
        assert (found, type(found)) == (count, int)
    for value in (-1, 1.5, True, "64", None, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"^params must be a whole number from 0 on, such as 64 or 70e9, not "):
            check_count("params", value)


def test_a_switch_is_true_or_false():
    check_switch("bias", False)
    for value in (0, 1, "no", None):
        with pytest.raises(ValueError, match=r"^bias must be True or False, not "):
            check_switch("bias", value)


def test_the_error_shows_the_value_as_it_was_written():
    check(True, "decay", "'linear'", "cubic")
    with pytest.raises(ValueError, match=r"^decay must be 'linear', not 'cubic'\.$"):
        check(False, "decay", "'linear'", "cubic")
