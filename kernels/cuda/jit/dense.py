"""Kernels that decode weights: embeddings, and products of many tokens on tensor cores.

From some tokens on arithmetic sets the pace. A tile of weights is decoded to bfloat16 once for a
block of tokens; for long prompts whole matrices are, in pieces that stay in the L2 cache, for the
vendor's matrix product.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.cuda.jit.activations import gated_unit
from kernels.cuda.jit.decoding import decoded, float8, scale_of
from kernels.cuda.jit.kinds import (
    bits,
    halves,
    has_minimum,
    high_bits,
    high_lanes,
    is_float,
    is_packed,
    is_signed,
    lanes,
)


@triton.jit
def tile_of(
    w,
    row,
    ok,
    start,
    U: tl.constexpr,
    D: tl.constexpr,
    BN: tl.constexpr,
    BU: tl.constexpr,
    KIND: tl.constexpr,
):
    """Weights [BN, 32 * BU] f32 of rows [BN], the columns of BU units from `start` on."""
    if is_packed(KIND):
        u = (start + tl.arange(0, BU))[None, :, None, None]
        lane = tl.arange(0, 8)[None, None, :, None]
        shift = (tl.arange(0, 4) * 8)[None, None, None, :]
        rows = row[:, None, None, None]
        valid = ok[:, None, None, None] & (u < U)
        L: tl.constexpr = lanes(KIND)
        at = rows * (bits(KIND) * U) + (lane // L) * U + u
        words = tl.load(w[0] + at, mask=valid, other=0)
        if is_signed(KIND):
            codes = words << (24 - shift) >> 24
        else:
            codes = words >> (bits(KIND) * (lane % L) + shift) & ((1 << bits(KIND)) - 1)
        if high_bits(KIND):
            M: tl.constexpr = high_lanes(KIND)
            at = rows * (high_bits(KIND) * U) + (lane // M) * U + u
            words = tl.load(w[1] + at, mask=valid, other=0)
            high = words >> (high_bits(KIND) * (lane % M) + shift) & ((1 << high_bits(KIND)) - 1)
            codes = codes | high << bits(KIND)
        d, m = scale_of(w, rows, u, 0, valid, U, KIND)
        if halves(KIND) == 2:
            d2, m2 = scale_of(w, rows, u, 1, valid, U, KIND)
            d = tl.where(lane < 4, d, d2)
            m = tl.where(lane < 4, m, m2)
        if is_float(KIND):
            y = float8(codes, KIND) * d
        else:
            y = decoded(codes, d, m, KIND, has_minimum(KIND))
        return tl.reshape(y, [BN, BU * 32])
    else:
        column = (start * 32 + tl.arange(0, BU * 32))[None, :]
        at = w[0] + row[:, None].to(tl.int64) * D + column
        y = tl.load(at, mask=ok[:, None] & (column < D), other=0.0)
        if y.dtype == tl.bfloat16:  # the upper half of a float32
            return (y.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)
        else:
            return y.to(tl.float32)


@triton.jit
def dot_rounded(a, b, total, EMULATED: tl.constexpr):
    """total plus the matrix product of a and b f32, rounded to bfloat16."""
    a, b = a.to(tl.bfloat16), b.to(tl.bfloat16)
    if EMULATED:  # the interpreter multiplies the bits of bfloat16 as whole numbers
        return tl.dot(a.to(tl.float32), b.to(tl.float32), total)
    else:
        return tl.dot(a, b, total)


@triton.jit
def embedded(
    ids,
    w,
    out,
    scale,
    U: tl.constexpr,
    D: tl.constexpr,
    BU: tl.constexpr,
    KIND: tl.constexpr,
):
    """out [tokens, D] f32 = scale * rows `ids` i64 of a table. Grid: tokens, blocks of units.

    Compiled without fused multiply-adds: a row has the bits of the format's decoder.
    """
    token = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * BU
    row = tl.load(ids + token + tl.arange(0, 1)).to(tl.int32)
    y = tile_of(w, row, row >= 0, start, U, D, 1, BU, KIND) * scale
    column = (start * 32 + tl.arange(0, BU * 32))[None, :]
    tl.store(out + token * D + column, y, mask=column < D)


@triton.jit(do_not_specialize=["first", "end"])
def decoded_rows(
    w,
    out,
    first,
    end,
    U: tl.constexpr,
    D: tl.constexpr,
    BN: tl.constexpr,
    BU: tl.constexpr,
    KIND: tl.constexpr,
):
    """out [end - first, D] bf16 = rows of a weight. Grid: blocks of BN rows, blocks of units."""
    row = first + tl.program_id(0) * BN + tl.arange(0, BN)
    start = tl.program_id(1) * BU
    y = tile_of(w, row, row < end, start, U, D, BN, BU, KIND)
    column = (start * 32 + tl.arange(0, BU * 32))[None, :]
    at = (row - first)[:, None].to(tl.int64) * D + column
    tl.store(out + at, y.to(tl.bfloat16), mask=(row < end)[:, None] & (column < D))


@triton.jit(do_not_specialize=["tokens"])
def product_tiles(
    x,
    w,
    out,
    tokens,
    n,
    U: tl.constexpr,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BU: tl.constexpr,
    KIND: tl.constexpr,
    EMULATED: tl.constexpr,
):
    """out [tokens, n] f32 = x [tokens, D] f32 times a weight.

    Grid: blocks of BN rows of the weight, blocks of BM tokens.
    """
    token = tl.program_id(1) * BM + tl.arange(0, BM)
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, U, BU):
        column = (start * 32 + tl.arange(0, BU * 32))[None, :]
        at = x + token[:, None].to(tl.int64) * D + column
        a = tl.load(at, mask=(token < tokens)[:, None] & (column < D), other=0.0)
        b = tile_of(w, row, row < n, start, U, D, BN, BU, KIND)
        total = dot_rounded(a, tl.trans(b), total, EMULATED)
    at = out + token[:, None].to(tl.int64) * n + row[None, :]
    ok = (token < tokens)[:, None] & (row < n)[None, :]
    tl.store(at, total, mask=ok)


@triton.jit
def gated(
    gate,
    up,
    out,
    count,
    limit,
    BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr,
    UP: tl.constexpr,
    LIMIT: tl.constexpr,
):
    """out [count] f32 = gated units of `gate` and, with UP, `up`; `out` may be either."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(gate + at, mask=at < count, other=0.0)
    factor = x
    if UP:
        factor = tl.load(up + at, mask=at < count, other=0.0)
    y = gated_unit(x, factor, limit, ACTIVATION, UP, LIMIT)
    tl.store(out + at, y, mask=at < count)
