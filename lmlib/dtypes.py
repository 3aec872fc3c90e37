"""Floating formats bit by bit: sign, exponent, fraction, bias and special values.

``decode`` and ``encode`` hold for every format here, whether NumPy or torch has it
or not. Values are float64, which holds each of them exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "BF16",
    "FORMATS",
    "FP8_E4M3FN",
    "FP8_E5M2",
    "FP16",
    "FP32",
    "FP64",
    "TF32",
    "BitFields",
    "FloatFormat",
    "format_table",
    "get_format",
]

EXACT_INTEGERS = 2**53  # float64 holds every whole number up to here


@dataclass(frozen=True)
class BitFields:
    """A bit pattern as strings of 0 and 1; as text ``0 | 01111 | 0000000000``."""

    sign: str
    exponent: str
    fraction: str

    def __str__(self) -> str:
        return f"{self.sign} | {self.exponent} | {self.fraction}"


@dataclass(frozen=True, kw_only=True)
class FloatFormat:
    """A binary floating format: one sign bit, then the exponent, then the fraction.

    An exponent field e > 0 makes a normal number, ±1.fraction · 2^(e - bias); e = 0
    makes a subnormal, ±0.fraction · 2^(1 - bias). The largest exponent field means
    infinity (fraction 0) or NaN, as in IEEE 754; without ``has_infinity`` only the
    pattern of all ones, sign aside, is special, and is NaN.
    ``overflow`` says what becomes of a value that rounds beyond ``max``, infinity
    included: infinity, the largest finite value (``"saturate"``), or NaN.
    ``storage_bits`` are those that a value takes in memory.

    ``ValueError`` for a format that float64 cannot hold, or one without infinity
    that overflows to it.
    """

    name: str
    exponent_bits: int
    fraction_bits: int
    bias: int
    storage_bits: int
    has_infinity: bool = True
    overflow: Literal["infinity", "saturate", "nan"] = "infinity"
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that the parts make a format."""
        if not (2 <= self.exponent_bits <= 11 and 1 <= self.fraction_bits <= 52):
            raise ValueError(
                f"{self.name}: give it 2 to 11 exponent bits and 1 to 52 fraction "
                f"bits, not {self.exponent_bits} and {self.fraction_bits}"
            )
        sizes = [size for size in (8, 16, 32, 64) if size >= self.bits]
        if self.storage_bits not in sizes:
            raise ValueError(
                f"{self.name}: {self.bits} bits can be stored in "
                f"{' or '.join(map(str, sizes))}, not in {self.storage_bits}"
            )
        smallest = self.min_exponent - self.fraction_bits
        if smallest < -1074 or self.max_exponent > 1023:
            raise ValueError(
                f"{self.name}: with bias {self.bias} its values leave the range of "
                "float64: take a bias nearer to "
                f"{2 ** (self.exponent_bits - 1) - 1}"
            )
        if self.overflow not in ("infinity", "saturate", "nan"):
            raise ValueError(
                f"{self.name}: overflow is {self.overflow!r}: "
                "choose infinity, saturate or nan"
            )
        if self.overflow == "infinity" and not self.has_infinity:
            raise ValueError(
                f"{self.name} has no infinity to overflow to: "
                "choose overflow='saturate' or 'nan'"
            )

    # --- what the format can hold -------------------------------------------------

    @property
    def bits(self) -> int:
        """Bits of a pattern; for tf32 fewer than it takes in memory."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def nbytes(self) -> int:
        """Bytes that a value takes in memory."""
        return self.storage_bits // 8

    @property
    def min_exponent(self) -> int:
        """Power of two of the smallest normal number."""
        return 1 - self.bias

    @property
    def max_exponent(self) -> int:
        """Power of two of the largest finite numbers."""
        return (self._largest_finite >> self.fraction_bits) - self.bias

    @property
    def max(self) -> float:
        """Largest finite value."""
        return float(self.decode(self._largest_finite))

    @property
    def smallest_normal(self) -> float:
        """Smallest positive value with all its fraction bits to use."""
        return 2.0**self.min_exponent

    @property
    def smallest_subnormal(self) -> float:
        """Smallest positive value: the step in which subnormals count."""
        return 2.0 ** (self.min_exponent - self.fraction_bits)

    @property
    def eps(self) -> float:
        """Spacing at 1: the distance from 1 to the next larger value."""
        return 2.0**-self.fraction_bits

    def spacing(self, values: ArrayLike) -> NDArray[np.float64]:
        """Distance between neighbouring values of the format where ``values`` lie.

        From one power of two up to the next it is the same. NaN beyond ``max``.
        """
        magnitude = np.abs(_as_float64(values))
        gap = np.ldexp(1.0, self._exponents(magnitude) - self.fraction_bits)
        return np.where(magnitude <= self.max, gap, np.nan)[()]

    # --- from bits to values and back ---------------------------------------------

    def decode(self, patterns: ArrayLike) -> NDArray[np.float64]:
        """Values of bit patterns, exact, as float64 of the same shape.

        ``TypeError`` unless the patterns are whole numbers, ``ValueError`` for one
        with more bits than the format has.
        """
        patterns = self._checked_patterns(patterns)
        sign = _bits(patterns, start=self.bits - 1, count=1)
        field = _bits(patterns, start=self.fraction_bits, count=self.exponent_bits)
        fraction = _bits(patterns, start=0, count=self.fraction_bits)

        leading_one = np.where(field > 0, 2**self.fraction_bits, 0)
        steps = (leading_one + fraction).astype(np.float64)
        exponent = np.maximum(field, 1) - self.bias
        with np.errstate(over="ignore"):  # fp64's special patterns, replaced below
            value = np.ldexp(steps, exponent - self.fraction_bits)

        magnitude = (field << self.fraction_bits) + fraction
        value = np.where(magnitude > self._largest_finite, np.nan, value)
        if self.has_infinity:
            value = np.where(magnitude == self._infinity, np.inf, value)
        return np.where(sign, -value, value)[()]

    def encode(self, values: ArrayLike) -> NDArray[np.unsignedinteger]:
        """Bit patterns of the nearest values; of two as near, the even pattern.

        Values are read as float64 and rounded once. What rounds beyond ``max``, and
        infinity, becomes what ``overflow`` says; NaN becomes the quiet NaN of its
        sign. ``TypeError`` for what is not a real number, ``ValueError`` for whole
        numbers too large for float64.
        """
        values = _as_float64(values)
        magnitude = np.abs(values)
        finite = np.where(np.isfinite(values), magnitude, 0.0)

        # The value in steps of the spacing where it lies; scaling by a power of two
        # is exact, so that rint is the one rounding, half to even.
        exponent = self._exponents(finite)
        steps = np.rint(np.ldexp(finite, self.fraction_bits - exponent))

        # Each power of two takes 2^fraction_bits patterns. Subnormals start from 0
        # steps and normals from 2^fraction_bits, which counts as one exponent more;
        # a fraction that rounds up to the next power carries into it likewise.
        octaves = (exponent - self.min_exponent).astype(np.int64)
        pattern = (octaves << self.fraction_bits) + steps.astype(np.int64)

        overflows = (pattern > self._largest_finite) | np.isinf(magnitude)
        pattern = np.where(overflows, self._overflow_pattern, pattern)
        pattern = np.where(np.isnan(values), self._nan, pattern)
        unsigned = np.dtype(f"u{self.nbytes}")
        sign = np.signbit(values).astype(unsigned) << unsigned.type(self.bits - 1)
        return (pattern.astype(unsigned) | sign)[()]

    def round(self, values: ArrayLike) -> NDArray[np.float64]:
        """Round to values of the format, as float64; errors as ``encode``."""
        return self.decode(self.encode(values))

    def _exponents(self, magnitude: NDArray[np.float64]) -> NDArray[np.int32]:
        """Power of two that a magnitude reaches; the least for subnormals and 0."""
        exponent = np.frexp(magnitude)[1] - 1
        exponent = np.where(magnitude == 0, self.min_exponent, exponent)
        return np.maximum(exponent, self.min_exponent)

    # --- to look at ---------------------------------------------------------------

    def bit_fields(self, value: float) -> BitFields:
        """Bits of a value rounded to the format, as strings of 0 and 1."""
        return self.split_pattern(self.encode(value))

    def split_pattern(self, pattern: int) -> BitFields:
        """Bits of a pattern, as strings of 0 and 1; errors as ``decode``."""
        checked = self._checked_patterns(pattern)
        if checked.ndim:
            raise TypeError("give one number, not an array of them")
        bits = f"{int(checked):0{self.bits}b}"
        end = 1 + self.exponent_bits
        return BitFields(bits[0], bits[1:end], bits[end:])

    # --- patterns, without the sign -----------------------------------------------

    @property
    def _all_ones(self) -> int:
        return 2 ** (self.bits - 1) - 1

    @property
    def _largest_finite(self) -> int:
        special = 2**self.fraction_bits if self.has_infinity else 1
        return self._all_ones - special

    @property
    def _nan(self) -> int:
        if not self.has_infinity:
            return self._all_ones
        return self._infinity | 2 ** (self.fraction_bits - 1)

    @property
    def _infinity(self) -> int:
        return self._largest_finite + 1

    @property
    def _overflow_pattern(self) -> int:
        choices = {
            "infinity": self._infinity,
            "saturate": self._largest_finite,
            "nan": self._nan,
        }
        return choices[self.overflow]

    def _checked_patterns(self, patterns: ArrayLike) -> NDArray[np.uint64]:
        patterns = np.asarray(patterns)
        if patterns.dtype.kind not in "iu":
            raise TypeError(
                f"a bit pattern is a whole number from 0 to 2**{self.bits} - 1, "
                f"not {_described(patterns)}; encode() makes one of a value"
            )
        if np.any(patterns < 0) or np.any(patterns > 2**self.bits - 1):
            raise ValueError(
                f"a pattern of {self.name} lies from 0 to 2**{self.bits} - 1; "
                "view signed integers as unsigned first"
            )
        return patterns.astype(np.uint64)


def _bits(
    patterns: NDArray[np.uint64], start: int, count: int
) -> NDArray[np.int64]:
    """Fields of ``count`` bits, counted from the lowest bit on."""
    mask = np.uint64(2**count - 1)  # a Python int would turn uint64 into float64
    return ((patterns >> np.uint64(start)) & mask).astype(np.int64)


def _as_float64(values: ArrayLike) -> NDArray[np.float64]:
    """Values as float64, or an error where that would change them."""
    try:
        values = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"give real numbers that NumPy can read ({error}); "
            "of a torch tensor x give x.detach().cpu().float()"
        ) from None
    if values.dtype.kind not in "fiu" or values.dtype.itemsize > 8:
        raise TypeError(
            "give real numbers that float64 holds (float, int, NumPy arrays), "
            f"not {_described(values)}"
        )
    if values.dtype.kind in "iu":
        too_large = (values > EXACT_INTEGERS) | (values < -EXACT_INTEGERS)
        if np.any(too_large):
            raise ValueError(
                "whole numbers beyond 2**53 may not be exact in float64: "
                "convert them with float() first"
            )
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return values.astype(np.float64)


def _described(array: NDArray) -> str:
    return repr(array.item()) if array.ndim == 0 else f"an array of {array.dtype}"


# --- the formats ------------------------------------------------------------------

FP64 = FloatFormat(
    name="fp64",
    exponent_bits=11,
    fraction_bits=52,
    bias=1023,
    storage_bits=64,
    aliases=("float64", "double"),
)
"""IEEE 754's binary64."""
FP32 = FloatFormat(
    name="fp32",
    exponent_bits=8,
    fraction_bits=23,
    bias=127,
    storage_bits=32,
    aliases=("float32", "float"),
)
"""IEEE 754's binary32."""
# What tensor cores keep of an fp32 number: its range, with the fraction of fp16.
TF32 = FloatFormat(
    name="tf32",
    exponent_bits=8,
    fraction_bits=10,
    bias=127,
    storage_bits=32,
    aliases=("tensorfloat32",),
)
BF16 = FloatFormat(
    name="bf16",
    exponent_bits=8,
    fraction_bits=7,
    bias=127,
    storage_bits=16,
    aliases=("bfloat16",),
)
"""Google's: the range of fp32 in half of the bits."""
FP16 = FloatFormat(
    name="fp16",
    exponent_bits=5,
    fraction_bits=10,
    bias=15,
    storage_bits=16,
    aliases=("float16", "half"),
)
"""IEEE 754's binary16."""
FP8_E5M2 = FloatFormat(
    name="fp8_e5m2",
    exponent_bits=5,
    fraction_bits=2,
    bias=15,
    storage_bits=8,
    aliases=("float8_e5m2", "e5m2"),
)
"""The wider of the two in 8 bits (Micikevicius et al. 2022), with infinities."""
# FN: finite, but for NaN. What does not fit saturates, infinity too, as torch 2.13
# does; older torch makes NaN of it, and so does ml_dtypes: overflow="nan".
FP8_E4M3FN = FloatFormat(
    name="fp8_e4m3fn",
    exponent_bits=4,
    fraction_bits=3,
    bias=7,
    storage_bits=8,
    has_infinity=False,
    overflow="saturate",
    aliases=("float8_e4m3fn", "e4m3fn", "fp8_e4m3", "e4m3"),
)

FORMATS: dict[str, FloatFormat] = {
    each.name: each for each in (FP64, FP32, TF32, BF16, FP16, FP8_E5M2, FP8_E4M3FN)
}
"""All formats by name."""
_NAMES = {
    name: each for each in FORMATS.values() for name in (each.name, *each.aliases)
}


def get_format(dtype: object) -> FloatFormat:
    """Format of a dtype, or of its name here, in NumPy or in torch.

    ``ValueError`` lists the formats when it is none of them.
    """
    if isinstance(dtype, FloatFormat):
        return dtype
    if dtype is float:  # which is double, while torch.float is single
        return FP64
    name = getattr(dtype, "__name__", None) or str(dtype)  # np.float16, dtype("f2")
    found = _NAMES.get(name.lower().removeprefix("torch."))
    if found is None:
        raise ValueError(
            f"unknown floating dtype {name!r}: choose from {', '.join(FORMATS)}"
        )
    return found


def format_table(
    formats: Iterable[FloatFormat] = tuple(FORMATS.values()),
) -> list[dict[str, Any]]:
    """Bits, range and spacing of formats: one row for each, with the same keys."""
    return [
        {
            "name": each.name,
            "bits": each.bits,
            "exponent": each.exponent_bits,
            "fraction": each.fraction_bits,
            "bias": each.bias,
            "max": each.max,
            "smallest_normal": each.smallest_normal,
            "smallest_subnormal": each.smallest_subnormal,
            "eps": each.eps,
        }
        for each in formats
    ]
