"""lmlib.bpe.unicode_table: the classes of every character are tiktoken's."""

from itertools import pairwise

import pytest

from lmlib.bpe.unicode_table import CLASS_NAMES, class_ranges
from tests.make_unicode_table import SCALARS, TABLE, table, tiktoken_matches

IN_TIKTOKEN = {"White_Space": r"\s", "Word": r"\w"}


def members(name):
    return {point for first, last in class_ranges(name) for point in range(first, last + 1)}


def test_there_are_1112064_scalar_values():
    assert len(SCALARS) == 1_112_064


@pytest.mark.parametrize("name", CLASS_NAMES)
def test_class_is_tiktokens_for_every_scalar_value(name):
    assert members(name) == tiktoken_matches(IN_TIKTOKEN.get(name, rf"\p{{{name}}}"))


def test_digits_are_the_decimal_numbers():
    assert members("Nd") == tiktoken_matches(r"\d")
    assert "½" not in map(chr, members("Nd"))


def test_separators_of_ascii_are_not_white_space():
    assert not members("White_Space") & set(range(0x1C, 0x20))
    assert len(members("White_Space")) == 25


@pytest.mark.parametrize("name", CLASS_NAMES)
def test_ranges_are_sorted_and_do_not_touch(name):
    ranges = class_ranges(name)
    assert all(first <= last for first, last in ranges)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))


def test_the_table_is_what_its_script_writes():
    assert TABLE.read_text("utf-8") == table()


@pytest.mark.parametrize("name", ["P", "l", "", None])
def test_unknown_class_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=r"no class .*L, Lu, .*Word"):
        class_ranges(name)
