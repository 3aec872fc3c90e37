"""lmlib.dtypes: each bit pattern means what it means in torch, and each value rounds as it does there."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmlib.dtypes import (
    BF16,
    FORMATS,
    FP8_E4M3FN,
    FP8_E5M2,
    FP16,
    FP32,
    FP64,
    TF32,
    BitFields,
    FloatFormat,
    format_table,
    get_format,
)

IN_TORCH = {
    FP8_E4M3FN: torch.float8_e4m3fn,
    FP8_E5M2: torch.float8_e5m2,
    FP16: torch.float16,
    BF16: torch.bfloat16,
}
IN_NUMPY = {FP32: np.float32, FP64: np.float64}
SMALL = pytest.mark.parametrize("format", IN_TORCH, ids=lambda each: each.name)
ALL = pytest.mark.parametrize("format", FORMATS.values(), ids=lambda each: each.name)


def unsigned(nbytes):
    return np.dtype(f"u{nbytes}")


def all_patterns(format):
    return np.arange(2**format.bits, dtype=unsigned(format.nbytes))


def as_float64(values):
    with np.errstate(invalid="ignore"):  # NumPy warns of signalling NaN
        return values.astype(np.float64)


def torch_values(format, patterns):
    """What torch reads in bit patterns, as float64."""
    return torch.from_numpy(patterns.copy()).view(IN_TORCH[format]).to(torch.float64).numpy()


def torch_patterns(format, values):
    """The bit patterns that torch makes of fp32 values."""
    cast = torch.from_numpy(values).to(IN_TORCH[format])
    return cast.view(torch.uint8 if format.nbytes == 1 else torch.uint16).numpy()


def assert_same_values(ours, theirs):
    """Equal to the bit, the sign of zero included; NaN equals NaN, whatever its payload."""
    is_nan = np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(ours), is_nan)
    np.testing.assert_array_equal(ours[~is_nan].view(np.uint64), theirs[~is_nan].view(np.uint64))


def assert_same_patterns(format, ours, theirs):
    """Equal to the bit; the payload of a NaN differs between machines and means nothing."""
    assert ours.dtype == theirs.dtype
    is_nan = np.isnan(torch_values(format, theirs))
    np.testing.assert_array_equal(np.isnan(torch_values(format, ours)), is_nan)
    np.testing.assert_array_equal(ours[~is_nan], theirs[~is_nan])


# --- decode ---------------------------------------------------------------------------------------------------


@SMALL
def test_every_pattern_means_what_it_means_in_torch(format):
    patterns = all_patterns(format)
    assert_same_values(format.decode(patterns), torch_values(format, patterns))


@pytest.mark.parametrize("format", IN_NUMPY, ids=lambda each: each.name)
def test_random_patterns_mean_what_they_mean_in_numpy(format):
    random = np.random.default_rng(0)
    patterns = random.integers(2**format.bits, size=100_000, dtype=unsigned(format.nbytes))
    infinity = (2**format.exponent_bits - 1) << format.fraction_bits
    edges = [0, 1, 2**format.fraction_bits - 1, 2**format.fraction_bits, infinity - 1, infinity, infinity + 1]
    edges += [edge | 1 << (format.bits - 1) for edge in edges]
    patterns = np.concatenate([patterns, np.array(edges, dtype=patterns.dtype)])
    assert_same_values(format.decode(patterns), as_float64(patterns.view(IN_NUMPY[format])))


def test_every_tf32_pattern_is_an_fp32_pattern_with_thirteen_bits_of_zero():
    patterns = np.arange(2**TF32.bits, dtype=np.uint32)
    assert_same_values(TF32.decode(patterns), as_float64((patterns << 13).view(np.float32)))


def test_decode_keeps_the_shape_and_takes_scalars_lists_and_other_integers():
    assert FP16.decode([[0x3C00, 0xC000]]).tolist() == [[1.0, -2.0]]
    assert FP16.decode(0x3C00) == 1.0
    assert isinstance(FP16.decode(0x3C00), float)
    assert FP16.decode(np.int64(0x3C00)) == FP16.decode(np.uint16(0x3C00))
    assert FP16.decode(np.zeros((0, 3), dtype=np.uint16)).shape == (0, 3)


# --- encode ---------------------------------------------------------------------------------------------------


def random_fp32(count, format, seed):
    """Half of them any bit pattern, NaN and subnormals included, half near the range of the format."""
    random = np.random.default_rng(seed)
    any_pattern = random.integers(2**32, size=count // 2, dtype=np.uint32).view(np.float32)
    exponents = random.uniform(format.min_exponent - format.fraction_bits - 3, format.max_exponent + 2, count // 2)
    near = np.exp2(exponents) * random.choice([-1.0, 1.0], count // 2)
    with np.errstate(over="ignore"):  # beyond the range of fp32 is a case too
        return np.concatenate([any_pattern, near.astype(np.float32)])


@SMALL
def test_a_million_random_fp32_values_are_cast_as_in_torch(format):
    values = random_fp32(1_000_000, format, seed=format.bits)
    exponent_fields = (values.view(np.uint32) >> 23) & 0xFF
    assert len(np.unique(exponent_fields)) == 256  # subnormals and NaN are among them
    assert_same_patterns(format, format.encode(values), torch_patterns(format, values))


@SMALL
def test_ties_and_their_neighbours_are_cast_as_in_torch(format):
    """Half-way between each two neighbours, beyond the largest too, and one fp32 step to both sides."""
    finite = np.unique(format.decode(all_patterns(format)))
    finite = finite[np.isfinite(finite)]
    beyond = format.max + format.spacing(format.max) * np.array([0.5, 1.0, 1.5, 2.0])
    with np.errstate(over="ignore"):  # twice the spacing beyond bf16's max is infinity in fp32
        ties = np.concatenate([(finite[:-1] + finite[1:]) / 2, beyond, -beyond]).astype(np.float32)
    values = np.concatenate([ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))])
    assert len(values) > 3 * len(finite)
    assert_same_patterns(format, format.encode(values), torch_patterns(format, values))


@SMALL
def test_what_is_special_is_cast_as_in_torch(format):
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 3.4e38, -3.4e38, 1e-45, -1e-45], dtype=np.float32)
    assert_same_patterns(format, format.encode(values), torch_patterns(format, values))


@ALL
def test_values_of_a_format_survive_the_way_there_and_back(format):
    random = np.random.default_rng(1)
    patterns = random.integers(2**format.bits, size=20_000, dtype=np.uint64)
    if format.bits <= 16:
        patterns = np.arange(2**format.bits, dtype=np.uint64)
    values = format.decode(patterns)
    is_nan = np.isnan(values)
    back = format.encode(values)
    infinite = np.isinf(values)
    np.testing.assert_array_equal(back[~is_nan], patterns[~is_nan])
    assert np.isnan(format.decode(back[is_nan])).all()
    assert infinite.any() == (format.bits <= 16 and format.has_infinity)


def test_float64_is_cast_to_fp32_as_in_numpy():
    random = np.random.default_rng(2)
    values = random.integers(2**64, size=1_000_000, dtype=np.uint64).view(np.float64)
    near = as_float64(random.integers(2**32, size=100_000, dtype=np.uint32).view(np.float32))
    near = near * (1 + random.uniform(-1, 1, near.size) * 2.0**-23)
    values = np.concatenate([values, near])
    values = values[~np.isnan(values)]
    with np.errstate(over="ignore"):
        theirs = values.astype(np.float32).view(np.uint32)
    np.testing.assert_array_equal(FP32.encode(values), theirs)


def test_tf32_rounds_an_fp32_number_to_ten_bits():
    """In integers: add half of the last bit kept, or a little less where that bit is 0, and cut."""
    random = np.random.default_rng(3)
    bits = random.integers(2**32, size=200_000, dtype=np.uint32)
    bits[:1000] = bits[:1000] & 0xFFFFE000 | 0x1000  # ties
    bits = bits[np.isfinite(bits.view(np.float32))]
    expected = (bits + 0x0FFF + (bits >> 13 & 1)) >> 13
    np.testing.assert_array_equal(TF32.encode(bits.view(np.float32)), expected)


@given(st.floats(allow_nan=False))
@pytest.mark.parametrize("format", [FP8_E4M3FN, FP8_E5M2], ids=lambda each: each.name)
def test_encode_finds_the_nearest_value(format, value):
    """Among all of the format, in exact fractions; of two as near, the one whose pattern is even."""
    patterns = range(2 ** (format.bits - 1))
    finite = [pattern for pattern in patterns if np.isfinite(format.decode(pattern))]
    encoded = int(format.encode(abs(value)))
    limit = Fraction(format.max) + Fraction(float(format.spacing(format.max))) / 2
    overflow_pattern = finite[-1] + format.has_infinity
    if abs(value) == np.inf or Fraction(abs(value)) >= limit:
        assert encoded == overflow_pattern
    else:
        distance = {p: abs(Fraction(float(format.decode(p))) - Fraction(abs(value))) for p in finite}
        assert encoded == min(finite, key=lambda p: (distance[p], p % 2))


def test_float64_is_rounded_once_where_torch_rounds_by_way_of_fp32():
    value = 1 + 2**-4 + 2**-40  # just above the middle of 1 and 1.125, but on it in fp32
    assert FP8_E4M3FN.round(value) == 1.125
    assert torch.tensor(value, dtype=torch.float64).to(torch.float8_e4m3fn) == 1.0


@pytest.mark.parametrize(
    ("format", "value", "rounded"),
    [
        (FP16, 1e-8, 0.0),
        (FP16, 2.0**-25, 0.0),  # a tie
        (FP16, 3e-8, 2.0**-24),
        (FP16, 65519.9, 65504.0),
        (FP16, 65520.0, np.inf),
        (FP16, 1 + 1e-4, 1.0),
        (BF16, 1e-8, 1.0011717677116394e-08),
        (BF16, 1 + 1e-3, 1.0),
        (FP8_E5M2, 61439.9, 57344.0),
        (FP8_E5M2, 61440.0, np.inf),
        (FP8_E4M3FN, 500.0, 448.0),
        (FP8_E4M3FN, np.inf, 448.0),
        (FP8_E4M3FN, -np.inf, -448.0),
    ],
)
def test_known_roundings(format, value, rounded):
    assert format.round(value) == rounded
    assert torch.tensor(value).to(IN_TORCH[format]).double() == rounded


def test_overflow_is_what_the_format_says():
    to_nan = replace(FP8_E4M3FN, overflow="nan")
    assert np.isnan(to_nan.round([464.1, 1e30, np.inf])).all()
    assert to_nan.round([448.0, 464.0]).tolist() == [448.0, 448.0]
    saturating = replace(FP8_E5M2, overflow="saturate")
    assert saturating.round([1e9, -np.inf]).tolist() == [57344.0, -57344.0]


@ALL
def test_nan_keeps_its_sign_and_is_quiet(format):
    positive, negative = (format.split_pattern(format.encode(value)) for value in [np.nan, -np.nan])
    assert (positive.sign, negative.sign) == ("0", "1")
    assert positive.exponent == "1" * format.exponent_bits
    assert positive.fraction[0] == "1"


def test_encode_keeps_the_shape_and_gives_the_unsigned_type_of_the_storage():
    for format in FORMATS.values():
        assert format.encode([[1.0, 2.0]]).shape == (1, 2)
        assert format.encode([[1.0, 2.0]]).dtype == unsigned(format.nbytes)
        assert format.encode(1).dtype == unsigned(format.nbytes)
        assert format.encode(np.zeros((0, 2))).shape == (0, 2)


# --- range and spacing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [*IN_TORCH, FP32, FP64], ids=lambda each: each.name)
def test_range_and_spacing_are_torchs(format):
    info = torch.finfo({**IN_TORCH, FP32: torch.float32, FP64: torch.float64}[format])
    assert (format.bits, format.max, format.eps) == (info.bits, info.max, info.eps)
    assert format.smallest_normal == info.smallest_normal
    assert format.nbytes * 8 == info.bits
    assert format.decode(1) == format.smallest_subnormal > 0
    assert format.decode(2**format.fraction_bits) == format.smallest_normal


def test_tf32_has_the_range_of_fp32_and_the_fraction_of_fp16():
    assert (TF32.exponent_bits, TF32.fraction_bits, TF32.bits) == (8, 10, 19)
    assert TF32.smallest_normal == FP32.smallest_normal
    assert TF32.eps == FP16.eps
    assert TF32.nbytes == FP32.nbytes


@SMALL
def test_spacing_is_the_distance_to_the_next_value(format):
    patterns = np.arange(2 ** (format.bits - 1))
    values = format.decode(patterns)
    values = values[np.isfinite(values)]
    np.testing.assert_array_equal(format.spacing(values[:-1]), np.diff(values))
    np.testing.assert_array_equal(format.spacing(-values), format.spacing(values))
    between = values[:-1] + np.diff(values) * 0.25
    np.testing.assert_array_equal(format.spacing(between), np.diff(values))
    assert np.isnan(format.spacing([format.max * 1.01, np.inf, np.nan])).all()


def test_spacing_of_fp64_is_numpys():
    values = np.array([0.0, 1.0, 1.5, 5e-324, 2.3e-308, 1e300])
    np.testing.assert_array_equal(FP64.spacing(values), np.spacing(values))
    assert FP16.spacing(0.0) == 2.0**-24


def test_the_table_has_a_row_for_each_format():
    table = format_table()
    assert [row["name"] for row in table] == list(FORMATS)
    assert all(row.keys() == table[0].keys() for row in table)
    row = format_table([FP16])[0]
    assert row == {
        "name": "fp16",
        "bits": 16,
        "exponent": 5,
        "fraction": 10,
        "bias": 15,
        "max": 65504.0,
        "smallest_normal": 2.0**-14,
        "smallest_subnormal": 2.0**-24,
        "eps": 2.0**-10,
    }


# --- bit fields -----------------------------------------------------------------------------------------------


def test_bit_fields_show_a_value():
    assert str(FP16.bit_fields(1.0)) == "0 | 01111 | 0000000000"
    assert FP16.bit_fields(-1.5) == BitFields("1", "01111", "1000000000")
    assert str(BF16.bit_fields(1e-8)) == "0 | 01100100 | 0101100"
    assert str(FP8_E4M3FN.bit_fields(1000)) == "0 | 1111 | 110"
    assert FP16.split_pattern(0xFC00) == FP16.bit_fields(-np.inf)


@ALL
def test_bit_fields_put_together_are_the_pattern(format):
    for pattern in [0, 1, 2**format.bits - 1, 2 ** (format.bits - 1), 2**format.fraction_bits]:
        fields = format.split_pattern(pattern)
        assert int(fields.sign + fields.exponent + fields.fraction, 2) == pattern
        assert (len(fields.exponent), len(fields.fraction)) == (format.exponent_bits, format.fraction_bits)


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("fp16", FP16),
        ("FP16", FP16),
        ("half", FP16),
        ("float16", FP16),
        (np.float16, FP16),
        (np.dtype("float16"), FP16),
        ("torch.bfloat16", BF16),
        ("tf32", TF32),
        ("fp8_e4m3", FP8_E4M3FN),
        *((dtype, format) for format, dtype in IN_TORCH.items()),
        (torch.float64, FP64),
        (FP32, FP32),
        (float, FP64),  # np.dtype(float), and what Python computes in
    ],
)
def test_formats_go_by_the_names_of_numpy_and_torch(name, format):
    assert get_format(name) is format


@pytest.mark.parametrize("name", ["int8", torch.int64, "", "fp12", None, 16])
def test_an_unknown_dtype_says_which_are_known(name):
    with pytest.raises(ValueError, match=r"unknown floating dtype .*choose from fp64, fp32, tf32, bf16, fp16"):
        get_format(name)


# --- bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", ["1.5", ["1.5"], None, 1j, True, 2**70, np.longdouble(1), [1.0, None]])
def test_encode_takes_real_numbers_only(values):
    with pytest.raises(TypeError, match="give real numbers that float64 holds"):
        FP16.encode(values)


@pytest.mark.parametrize("values", [torch.ones(2, dtype=torch.bfloat16), torch.ones(2, requires_grad=True)])
def test_encode_says_how_to_give_it_a_tensor(values):
    with pytest.raises(TypeError, match=r"give x.detach\(\)\.cpu\(\)\.float\(\)"):
        BF16.encode(values)
    assert BF16.encode(values.detach().cpu().float()).tolist() == [0x3F80, 0x3F80]


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, np.int64(-(2**63)), np.uint64(2**64 - 1)])
def test_encode_refuses_whole_numbers_that_float64_may_change(value):
    with pytest.raises(ValueError, match=r"beyond 2\*\*53"):
        FP16.encode(value)
    assert FP64.round(2**53) == 2**53


@pytest.mark.parametrize("patterns", [1.0, "0", None, [0.0], True])
def test_decode_takes_whole_numbers_only(patterns):
    with pytest.raises(TypeError, match="a bit pattern is a whole number from 0 to"):
        FP16.decode(patterns)


@pytest.mark.parametrize(("format", "pattern"), [(FP16, -1), (FP16, 2**16), (TF32, 2**19), (FP8_E5M2, [0, 256])])
def test_decode_refuses_patterns_of_other_sizes(format, pattern):
    with pytest.raises(ValueError, match=rf"a pattern of {format.name} lies from 0 to 2\*\*{format.bits} - 1"):
        format.decode(pattern)


def test_bit_fields_are_those_of_one_number():
    with pytest.raises(TypeError, match="give one number"):
        FP16.bit_fields([1.0, 2.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"exponent_bits": 1}, "2 to 11 exponent bits"),
        ({"exponent_bits": 12, "storage_bits": 32}, "2 to 11 exponent bits"),
        ({"fraction_bits": 0}, "1 to 52 fraction bits"),
        ({"storage_bits": 8}, "16 bits can be stored in 16 or 32 or 64, not in 8"),
        ({"storage_bits": 24}, "not in 24"),
        ({"bias": 2000}, "take a bias nearer to 15"),
        ({"bias": -2000}, "take a bias nearer to 15"),
        ({"overflow": "wrap"}, "choose infinity, saturate or nan"),
        ({"has_infinity": False}, "no infinity to overflow to"),
    ],
)
def test_parts_that_make_no_format_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(FP16, **change)


def test_a_format_of_ones_own():
    fp6 = FloatFormat(
        name="fp6_e3m2",
        exponent_bits=3,
        fraction_bits=2,
        bias=3,
        storage_bits=8,
        has_infinity=False,
        overflow="saturate",
    )
    assert (fp6.bits, fp6.max, fp6.smallest_subnormal) == (6, 24.0, 2.0**-4)
    assert fp6.round([0.3, 25.0]).tolist() == [0.3125, 24.0]
    with pytest.raises(FrozenInstanceError):
        fp6.bias = 4


def test_it_imports_without_torch():
    code = "import sys; sys.modules['torch'] = None; import lmlib.dtypes as d; assert d.FP16.max == 65504"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
