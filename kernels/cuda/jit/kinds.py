"""Facts of each weight format that kernels read while they are compiled, by the format's number.

Compiled code can call only functions like those at the end, which read tables of numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import triton

from kernels.gpu.layout import FORMATS, LANES, LAYOUTS, UNIT, Codes, Layout
from kernels.gpu.layout import Scales as _Scales

# The number of a format in kernels.
KINDS: dict[str, int] = {name: number for number, name in enumerate(FORMATS)}

# As numbers: kernels can read neither enums nor attributes.
HALF, HALF_MINIMUM, SINGLE, SIGNED, PAIR, NIBBLES = (int(one) for one in _Scales)


def _table(fact: Callable[[Layout], int], of_files: int = 0) -> tuple[int, ...]:
    """A number of each format; `of_files` for those that are stored as in the file."""
    found = (LAYOUTS.get(name) for name in FORMATS)
    return tuple(of_files if one is None else int(fact(one)) for one in found)


_PACKED = _table(lambda one: 1)
_FLOAT = _table(lambda one: one.read_as.are_floats, of_files=1)
_E4M3 = _table(lambda one: one.read_as is Codes.E4M3)
_BITS = _table(lambda one: one.bits)
_LANES = _table(lambda one: LANES // one.bits)
_HIGH_BITS = _table(lambda one: one.high_bits)
_HIGH_LANES = _table(lambda one: LANES // max(one.high_bits, 1))
_SIGNED = _table(lambda one: one.read_as is Codes.SIGNED)
_HALVES = _table(lambda one: UNIT // min(one.group, UNIT))
_GROUP_UNITS = _table(lambda one: max(one.group // UNIT, 1))
_TWO_LEVELS = _table(lambda one: one.scales in (_Scales.SIGNED, _Scales.PAIR, _Scales.NIBBLES))
# Units of a tile's last dimension, which one thread adds up: those of a group, or half a block.
_TILE_UNITS = tuple(
    4 if two else max(units, 1) for two, units in zip(_TWO_LEVELS, _GROUP_UNITS, strict=True)
)
_SCALES = _table(lambda one: one.scales)
_MINIMUM = _table(lambda one: one.scales in (_Scales.HALF_MINIMUM, _Scales.PAIR, _Scales.NIBBLES))
_MULTIPLIERS = _table(lambda one: one.multiplier)
_OFFSETS = _table(lambda one: one.offset)


@triton.constexpr_function
def is_packed(kind):
    """Whether a format is stored in bit planes."""
    return _PACKED[kind] == 1


@triton.constexpr_function
def is_float(kind):
    """Whether products of a format read x as floats: its codes are floats themselves."""
    return _FLOAT[kind] == 1


@triton.constexpr_function
def is_e4m3(kind):
    """Whether codes are floats of 4 exponent bits; else 5."""
    return _E4M3[kind] == 1


@triton.constexpr_function
def bits(kind):
    """Bits of the first plane."""
    return _BITS[kind]


@triton.constexpr_function
def lanes(kind):
    """Lanes in a word of the first plane."""
    return _LANES[kind]


@triton.constexpr_function
def high_bits(kind):
    """Bits of the second plane; 0: there is none."""
    return _HIGH_BITS[kind]


@triton.constexpr_function
def high_lanes(kind):
    """Lanes in a word of the second plane."""
    return _HIGH_LANES[kind]


@triton.constexpr_function
def mask(count):
    """The lowest bits of every byte of a word, as a signed number."""
    word = ((1 << count) - 1) * 0x01010101
    return word - (1 << 32) if word >> 31 else word


@triton.constexpr_function
def is_signed(kind):
    """Whether codes are signed bytes."""
    return _SIGNED[kind] == 1


@triton.constexpr_function
def halves(kind):
    """Scales of a unit: 2 for groups of 16 columns, else 1."""
    return _HALVES[kind]


@triton.constexpr_function
def group_units(kind):
    """Units of a group that shares a scale, at least 1."""
    return _GROUP_UNITS[kind]


@triton.constexpr_function
def tile_units(kind):
    """Units that have a scale, or the first level of it, in common; at least 1."""
    return _TILE_UNITS[kind]


@triton.constexpr_function
def two_levels(kind):
    """Whether scales are a float of 256 columns times a small whole number."""
    return _TWO_LEVELS[kind] == 1


@triton.constexpr_function
def scales(kind):
    """The number of the kind of scales."""
    return _SCALES[kind]


@triton.constexpr_function
def has_minimum(kind):
    """Whether weights have a minimum."""
    return _MINIMUM[kind] == 1


@triton.constexpr_function
def multiplier(kind):
    """Factor of a code."""
    return float(_MULTIPLIERS[kind])


@triton.constexpr_function
def offset(kind):
    """Number that is subtracted from a code."""
    return float(_OFFSETS[kind])
