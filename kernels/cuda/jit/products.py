"""Kernels of products of few tokens with weights: one pass over the weights, x quantized to 8 bits.

Bound by the bytes of the weights: a program computes some rows for all tokens, and a dot product of
four weights is one instruction (dp4a). Quantized activations are words [tokens, 11, units] i32:
codes by lane, see `kernels.gpu.layout`, then for each unit its scale, and the scaled sums of the
codes of its two halves, all three f32.

A norm before a product needs no kernel: the one that wrote x quantized x times the norm's weight and
left the squares of x summed up by 32 columns, and the product is scaled by the root mean square.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.cuda.jit.activations import gated_unit
from kernels.cuda.jit.decoding import (
    byte_of,
    float8,
    floats_of,
    lane_codes,
    numbers_of,
    scale_of,
)
from kernels.cuda.jit.kinds import (
    bits,
    halves,
    has_minimum,
    high_bits,
    is_float,
    is_packed,
    is_signed,
    multiplier,
    offset,
    tile_units,
    two_levels,
)

X_WORDS = 11  # words of a unit of quantized activations
_X: tl.constexpr = tl.constexpr(X_WORDS)


@triton.jit
def dot4(a, b, c, SIGNED: tl.constexpr, EMULATED: tl.constexpr):
    """c plus the dot product of four bytes of a, signed or not, with four signed bytes of b."""
    if EMULATED:
        for k in tl.static_range(4):
            c = c + byte_of(a, k, SIGNED) * byte_of(b, k, True)
        return c
    else:
        if SIGNED:
            return tl.inline_asm_elementwise(
                "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", [a, b, c], tl.int32, True, 1
            )
        else:
            return tl.inline_asm_elementwise(
                "dp4a.u32.s32 $0, $1, $2, $3;", "=r,r,r,r", [a, b, c], tl.int32, True, 1
            )


@triton.jit
def packed_rows(
    xq,
    w,
    row,
    ok,
    U: tl.constexpr,
    T: tl.constexpr,
    BN: tl.constexpr,
    BU: tl.constexpr,
    KIND: tl.constexpr,
    EMULATED: tl.constexpr,
):
    """Products [T, BN] f32 of quantized activations with rows of integer codes."""
    P: tl.constexpr = tile_units(KIND)
    G: tl.constexpr = BU // P
    H: tl.constexpr = halves(KIND)
    t = tl.arange(0, T)[:, None, None, None]
    rows = row[None, :, None, None]
    valid = ok[None, :, None, None]
    xf = xq.to(tl.pointer_type(tl.float32))
    total = tl.zeros([T, BN, G, 1], tl.float32)
    for start in range(0, U, BU):
        group = (start // P + tl.arange(0, G))[None, None, :, None]
        u = group * P + tl.arange(0, P)[None, None, None, :]
        inside = u < U
        weights_ok = valid & inside
        x_at = t * (_X * U) + u
        at = rows * (bits(KIND) * U) + u, rows * (high_bits(KIND) * U) + u
        size = tl.load(xf + x_at + 8 * U, mask=inside, other=0.0)
        sums = tl.zeros([T, BN, G, P], tl.int32)
        for i in tl.static_range(8):
            codes = lane_codes(w[0], w[1], at, weights_ok, i, U, KIND)
            x = tl.load(xq + x_at + i * U, mask=inside, other=0)
            codes, x = tl.broadcast(codes, x)
            codes, sums = tl.broadcast(codes, sums)
            x, sums = tl.broadcast(x, sums)
            sums = dot4(codes, x, sums, is_signed(KIND), EMULATED)
            if i % (8 // H) == 8 // H - 1:  # the last lane of a scale's columns
                found = sums.to(tl.float32) * size
                added = tl.zeros([T, 1, G, P], tl.float32)
                if multiplier(KIND) != 1.0:
                    found = found * multiplier(KIND)
                if offset(KIND) != 0.0 or has_minimum(KIND):
                    added = tl.load(xf + x_at + (9 + i // 4 * (H - 1)) * U, mask=inside, other=0.0)
                    if H == 1:
                        added += tl.load(xf + x_at + 10 * U, mask=inside, other=0.0)
                    if offset(KIND) != 0.0:
                        found = found - added * offset(KIND)
                if two_levels(KIND):
                    number, least = numbers_of(w, rows, u, i // 4 * (H - 1), weights_ok, U, KIND)
                    found = found * number
                    if has_minimum(KIND):
                        added = added * least
                d, m = floats_of(w, rows, group, i // 4 * (H - 1), valid & (group * P < U), U, KIND)
                total += _added_up(found, P) * d
                if has_minimum(KIND):
                    total -= _added_up(added, P) * m
                sums = tl.zeros([T, BN, G, P], tl.int32)
    return tl.sum(tl.sum(total, 3), 2)


@triton.jit
def _added_up(x, P: tl.constexpr):
    """Sums over the last dimension, which stays."""
    if P == 1:
        return x
    else:
        return tl.sum(x, 3, keep_dims=True)


@triton.jit
def float_rows(
    x,
    w,
    row,
    ok,
    U: tl.constexpr,
    D: tl.constexpr,
    T: tl.constexpr,
    BN: tl.constexpr,
    BU: tl.constexpr,
    KIND: tl.constexpr,
):
    """Products [T, BN] f32 of activations [T, D] f32 with rows of floats."""
    t = tl.arange(0, T)[:, None, None]
    rows = row[None, :, None]
    valid = ok[None, :, None]
    total = tl.zeros([T, BN, BU], tl.float32)
    if is_packed(KIND):
        for start in range(0, U, BU):
            u = (start + tl.arange(0, BU))[None, None, :]
            inside = valid & (u < U)
            part = tl.zeros([T, BN, BU], tl.float32)
            at = rows * (8 * U) + u, rows
            for i in tl.static_range(8):
                words = lane_codes(w[0], w[1], at, inside, i, U, KIND)
                for k in tl.static_range(4):
                    column = u * 32 + (i * 4 + k)
                    a = tl.load(x + t * D + column, mask=column < D, other=0.0)
                    part += float8(byte_of(words, k, False), KIND) * a
            d, _ = scale_of(w, rows, u, 0, inside, U, KIND)
            total += part * d
    else:
        for start in range(0, D, BU):
            column = (start + tl.arange(0, BU))[None, None, :]
            inside = column < D
            weights = tl.load(w[0] + rows.to(tl.int64) * D + column, mask=valid & inside, other=0.0)
            a = tl.load(x + t * D + column, mask=inside, other=0.0)
            total += weights.to(tl.float32) * a
    return tl.sum(total, 2)


@triton.jit
def rows_of(
    x,
    xq,
    w,
    row,
    ok,
    U: tl.constexpr,
    D: tl.constexpr,
    T: tl.constexpr,
    BN: tl.constexpr,
    BU: tl.constexpr,
    KIND: tl.constexpr,
    EMULATED: tl.constexpr,
):
    """Products [T, BN] f32 with rows of any format, of the activations that it reads."""
    if is_float(KIND):
        return float_rows(x, w, row, ok, U, D, T, BN, BU, KIND)
    else:
        return packed_rows(xq, w, row, ok, U, T, BN, BU, KIND, EMULATED)


@triton.jit
def norm_factor(squares, epsilon, T: tl.constexpr, D: tl.constexpr):
    """1 / root mean square of the tokens' x [T, 1], from the sums of squares of its units."""
    N: tl.constexpr = (D + 31) // 32
    at = tl.arange(0, triton.next_power_of_2(N))[None, :]
    t = tl.arange(0, T)[:, None]
    found = tl.load(squares + t * N + at, mask=at < N, other=0.0)
    return tl.rsqrt(tl.sum(found, 1) / D + epsilon)[:, None]


@triton.jit
def store_quantized(y, xq, unit, ok, UNITS: tl.constexpr, R: tl.constexpr, BN: tl.constexpr):
    """Quantize rows y [R, BN] f32 to the units `unit` [R, BN / 32] of `xq`, where `ok`."""
    N: tl.constexpr = BN // 32
    y = tl.reshape(y, [R, N, 8, 4])
    size = tl.max(tl.max(tl.abs(y), 3), 2) / 127.0  # [R, N]
    raised = tl.where(size < 7.9e-31, 1.8446744073709552e19, 1.0)  # by 2 ** 64, exactly
    large = size * raised  # whose inverse is finite
    factor = tl.where(large > 0.0, 1.0 / tl.maximum(large, 1e-36), 0.0)
    z = y * raised[:, :, None, None] * factor[:, :, None, None]
    z = tl.where(z >= 0.0, z + 0.5, z - 0.5)
    z = tl.minimum(tl.maximum(z, -127.0), 127.0)
    codes = z.to(tl.int32)  # towards zero
    shifts = (tl.arange(0, 4) * 8)[None, None, None, :]
    words = tl.sum((codes & 255) << shifts, 3)  # [R, N, 8]
    lane_sums = tl.sum(codes, 3)
    lane = tl.arange(0, 8)[None, None, :]
    first = tl.sum(tl.where(lane < 4, lane_sums, 0), 2).to(tl.float32) * size
    second = tl.sum(tl.where(lane >= 4, lane_sums, 0), 2).to(tl.float32) * size
    tl.store(xq + unit[:, :, None] + lane * UNITS, words, mask=ok[:, :, None])
    xf = xq.to(tl.pointer_type(tl.float32))
    tl.store(xf + unit + 8 * UNITS, size, mask=ok)
    tl.store(xf + unit + 9 * UNITS, first, mask=ok)
    tl.store(xf + unit + 10 * UNITS, second, mask=ok)


@triton.jit
def units_of(first, start, UNITS: tl.constexpr, R: tl.constexpr, N: tl.constexpr):
    """Places [R, N] of the units from `start` on of the tokens from `first` on; which exist."""
    t = first + tl.arange(0, R)[:, None]
    unit = start + tl.arange(0, N)[None, :]
    return t * (_X * UNITS) + unit, (unit < UNITS) & (t >= 0)


# --- kernels ------------------------------------------------------------------------------------


@triton.jit
def products(
    x,
    xq,
    squares,
    epsilon,
    w0,
    w1,
    w2,
    bias0,
    bias1,
    bias2,
    scale0,
    scale1,
    scale2,
    out0,
    out1,
    out2,
    n0,
    n1,
    n2,
    U: tl.constexpr,
    D: tl.constexpr,
    T: tl.constexpr,
    BN: tl.constexpr,
    BU: tl.constexpr,
    KIND0: tl.constexpr,
    KIND1: tl.constexpr,
    KIND2: tl.constexpr,
    COUNT: tl.constexpr,
    NORM: tl.constexpr,
    BIASES: tl.constexpr,
    EMULATED: tl.constexpr,
):
    """Products of one x with up to three weights times scales, plus biases → [tokens, rows] f32.

    Grid: blocks of BN rows of all weights; blocks of T tokens. Buffers are padded to whole blocks
    of tokens. With NORM x is divided by its root mean square. Bit i of BIASES: weight i has one.
    """
    block = tl.program_id(0)
    first = tl.program_id(1) * T
    x += first * D
    xq += first * (_X * U)
    factor = tl.full([T, 1], 1.0, tl.float32)
    if NORM:
        factor = norm_factor(squares + first * ((D + 31) // 32), epsilon, T, D)
    before1 = tl.cdiv(n0, BN)
    before2 = before1 + tl.cdiv(n1, BN)
    if COUNT == 1 or block < before1:
        _store_rows(
            x, xq, w0, bias0, out0, n0, block, first, factor * scale0,
            U, D, T, BN, BU, KIND0, BIASES >> 0 & 1, EMULATED,
        )  # fmt: skip
    elif COUNT == 2 or block < before2:
        at = block - before1
        _store_rows(
            x, xq, w1, bias1, out1, n1, at, first, factor * scale1,
            U, D, T, BN, BU, KIND1, BIASES >> 1 & 1, EMULATED,
        )  # fmt: skip
    else:
        at = block - before2
        _store_rows(
            x, xq, w2, bias2, out2, n2, at, first, factor * scale2,
            U, D, T, BN, BU, KIND2, BIASES >> 2 & 1, EMULATED,
        )  # fmt: skip


@triton.jit
def _store_rows(
    x,
    xq,
    w,
    bias,
    out,
    n,
    block,
    first,
    factor,
    U: tl.constexpr,
    D: tl.constexpr,
    T: tl.constexpr,
    BN: tl.constexpr,
    BU: tl.constexpr,
    KIND: tl.constexpr,
    BIAS: tl.constexpr,
    EMULATED: tl.constexpr,
):
    row = block * BN + tl.arange(0, BN)
    ok = row < n
    y = rows_of(x, xq, w, row, ok, U, D, T, BN, BU, KIND, EMULATED) * factor
    y = biased(y, bias, row, ok, BIAS)
    t = first + tl.arange(0, T)[:, None]
    tl.store(out + t.to(tl.int64) * n + row[None, :], y, mask=ok[None, :] & (t >= 0))


@triton.jit
def biased(y, bias, row, ok, BIAS: tl.constexpr):
    """y [tokens, rows] plus the bias f32 of its rows, if there is one."""
    if BIAS:
        return y + tl.load(bias + row, mask=ok, other=0.0)[None, :]
    else:
        return y


@triton.jit
def product_added(
    x,
    xq,
    w,
    bias,
    residual,
    norm,
    xq_out,
    squares_out,
    n,
    scale,
    U: tl.constexpr,
    D: tl.constexpr,
    T: tl.constexpr,
    BN: tl.constexpr,
    BU: tl.constexpr,
    KIND: tl.constexpr,
    UNITS: tl.constexpr,
    BIAS: tl.constexpr,
    QUANTIZE: tl.constexpr,
    EMULATED: tl.constexpr,
):
    """residual [tokens, n] f32 += scale * (product + bias); see `store_added`."""
    first = tl.program_id(1) * T
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    ok = row < n
    y = rows_of(
        x + first * D, xq + first * (_X * U), w, row, ok, U, D, T, BN, BU, KIND, EMULATED
    )  # fmt: skip
    y = biased(y, bias, row, ok, BIAS) * scale
    store_added(y, residual, norm, xq_out, squares_out, n, first, row, T, BN, UNITS, QUANTIZE)


@triton.jit
def store_added(
    y,
    residual,
    norm,
    xq_out,
    squares_out,
    n,
    first,
    row,
    T: tl.constexpr,
    BN: tl.constexpr,
    UNITS: tl.constexpr,
    QUANTIZE: tl.constexpr,
):
    """residual [tokens, n] f32 += y [T, BN]; with QUANTIZE prepares the product after a norm.

    Then it quantizes the residual times the weight `norm` [n] f32 to `xq_out`, of UNITS units, and
    writes the sums of squares of its units to `squares_out` [tokens, n / 32]. BN is 32 or more.
    """
    ok = row < n
    t = first + tl.arange(0, T)[:, None]
    at = residual + t.to(tl.int64) * n + row[None, :]
    valid = ok[None, :] & (t >= 0)
    y = tl.load(at, mask=valid, other=0.0) + y
    tl.store(at, y, mask=valid)
    if QUANTIZE:
        N: tl.constexpr = BN // 32
        squares = tl.sum(tl.reshape(y * y, [T, N, 32]), 2)
        unit = tl.program_id(0) * N + tl.arange(0, N)[None, :]
        count = tl.cdiv(n, 32)
        tl.store(squares_out + t * count + unit, squares, mask=(unit < count) & (t >= 0))
        y = y * tl.load(norm + row, mask=ok, other=0.0)[None, :]
        place, inside = units_of(first, tl.program_id(0) * N, UNITS, T, N)
        store_quantized(y, xq_out, place, inside, UNITS, T, BN)


@triton.jit
def products_gated(
    x,
    xq,
    squares,
    epsilon,
    w0,
    w1,
    bias0,
    bias1,
    out,
    xq_out,
    n,
    limit,
    U: tl.constexpr,
    D: tl.constexpr,
    T: tl.constexpr,
    BN: tl.constexpr,
    BU: tl.constexpr,
    KIND0: tl.constexpr,
    KIND1: tl.constexpr,
    UNITS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    LIMIT: tl.constexpr,
    NORM: tl.constexpr,
    BIASES: tl.constexpr,
    QUANTIZE: tl.constexpr,
    EMULATED: tl.constexpr,
):
    """Gated units of the products with w0 and w1 → [tokens, n] f32, or quantized to `xq_out`."""
    first = tl.program_id(1) * T
    x += first * D
    xq += first * (_X * U)
    factor = tl.full([T, 1], 1.0, tl.float32)
    if NORM:
        factor = norm_factor(squares + first * ((D + 31) // 32), epsilon, T, D)
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    ok = row < n
    gate = rows_of(x, xq, w0, row, ok, U, D, T, BN, BU, KIND0, EMULATED) * factor
    up = rows_of(x, xq, w1, row, ok, U, D, T, BN, BU, KIND1, EMULATED) * factor
    gate = biased(gate, bias0, row, ok, BIASES & 1)
    up = biased(up, bias1, row, ok, BIASES >> 1)
    y = gated_unit(gate, up, limit, ACTIVATION, True, LIMIT)
    if QUANTIZE:
        place, inside = units_of(first, tl.program_id(0) * (BN // 32), UNITS, T, BN // 32)
        store_quantized(y, xq_out, place, inside, UNITS, T, BN)
    else:
        t = first + tl.arange(0, T)[:, None]
        tl.store(out + t.to(tl.int64) * n + row[None, :], y, mask=ok[None, :] & (t >= 0))
