"""Functions of kernels that read weights in the layout of `kernels.gpu.layout`.

A weight is a tuple of pointers, `Arrays` in this order: codes, high, d, m, scales, minimums; of a
float format all are the matrix. Tiles are [tokens, rows, groups of units, units of a group].
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.cuda.jit.kinds import (
    NIBBLES,
    PAIR,
    bits,
    group_units,
    halves,
    has_minimum,
    high_bits,
    high_lanes,
    is_e4m3,
    lanes,
    mask,
    multiplier,
    offset,
    scales,
    tile_units,
    two_levels,
)

# Constants that compiled functions may read.
_PAIR: tl.constexpr = tl.constexpr(PAIR)
_NIBBLES: tl.constexpr = tl.constexpr(NIBBLES)


@triton.jit
def lane_codes(codes, high, at, ok, i: tl.constexpr, U: tl.constexpr, KIND: tl.constexpr):
    """Codes of lane `i` of units as words of 4 bytes; `at` is a row's first word plus the unit.

    For the lanes of one word the compiler loads it once.
    """
    L: tl.constexpr = lanes(KIND)
    word = tl.load(codes + at[0] + (i // L) * U, mask=ok, other=0)
    found = word
    if L > 1:
        found = (word >> bits(KIND) * (i % L)) & mask(bits(KIND))
    if high_bits(KIND):
        M: tl.constexpr = high_lanes(KIND)
        more = tl.load(high + at[1] + (i // M) * U, mask=ok, other=0)
        more = (more >> high_bits(KIND) * (i % M)) & mask(high_bits(KIND))
        found = found | more << bits(KIND)
    return found


@triton.jit
def numbers_of(w, row, u, half: tl.constexpr, ok, U: tl.constexpr, KIND: tl.constexpr):
    """The second level of the scales of units, of d and of m, f32."""
    H: tl.constexpr = halves(KIND)
    at = row * (U * H) + half * U + u
    number = tl.load(w[4] + at, mask=ok, other=0)
    if scales(KIND) == _NIBBLES:
        return (number & 15).to(tl.float32), (number >> 4).to(tl.float32)
    else:
        if scales(KIND) == _PAIR:
            least = tl.load(w[5] + at, mask=ok, other=0)
            return number.to(tl.float32), least.to(tl.float32)
        else:
            return number.to(tl.float32), number.to(tl.float32)


@triton.jit
def floats_of(w, row, group, half: tl.constexpr, ok, U: tl.constexpr, KIND: tl.constexpr):
    """The floats d and m of groups of `tile_units` units, f32; m only if the format has it."""
    if two_levels(KIND):
        blocks: tl.constexpr = (U + 7) // 8
        at = row * blocks + group // 2
    else:
        H: tl.constexpr = halves(KIND)
        at = row * (U // group_units(KIND) * H) + group * H + half
    d = tl.load(w[2] + at, mask=ok, other=0).to(tl.float32)
    m = d
    if has_minimum(KIND):
        m = tl.load(w[3] + at, mask=ok, other=0).to(tl.float32)
    return d, m


@triton.jit
def scale_of(w, row, u, half: tl.constexpr, ok, U: tl.constexpr, KIND: tl.constexpr):
    """The factors d and m of units, f32, with the bits of the format's decoder."""
    d, m = floats_of(w, row, u // tile_units(KIND), half, ok, U, KIND)
    if two_levels(KIND):
        number, least = numbers_of(w, row, u, half, ok, U, KIND)
        d = number * d
        m = least * m
    return d, m


@triton.jit
def byte_of(words, k: tl.constexpr, SIGNED_BYTES: tl.constexpr):
    """Byte `k` of words, i32."""
    if SIGNED_BYTES:
        return (words << (24 - 8 * k)) >> 24
    else:
        return (words >> 8 * k) & 255


@triton.jit
def float8(codes, KIND: tl.constexpr):
    """8-bit floats, codes i32 of 0 to 255 → f32; exact, as their bits are those of float16."""
    if is_e4m3(KIND):
        half = ((codes & 0x80) << 8 | (codes & 0x7F) << 7).to(tl.int16).to(tl.float16, bitcast=True)
        value = half.to(tl.float32) * 256.0
        return tl.where((codes & 0x7F) == 0x7F, float("nan"), value)
    else:
        return (codes << 8).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def decoded(codes, d, m, KIND: tl.constexpr, MINIMUM: tl.constexpr):
    """Weights f32 of codes i32, in the order of operations of the format's decoder."""
    q = codes.to(tl.float32)
    if multiplier(KIND) != 1.0:
        q = q * multiplier(KIND)
    if offset(KIND) != 0.0:
        q = q - offset(KIND)
    y = q * d
    if MINIMUM:
        y = y - m
    return y
