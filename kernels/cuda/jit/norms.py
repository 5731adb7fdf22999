"""Kernels of norms and of quantized activations: one program for a token."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.cuda.jit.products import store_quantized, units_of


@triton.jit
def norm(
    x,
    weight,
    bias,
    out,
    xq,
    epsilon,
    D: tl.constexpr,
    BD: tl.constexpr,
    UNITS: tl.constexpr,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    STORE: tl.constexpr,
    QUANTIZE: tl.constexpr,
):
    """Norm of the rows of x [tokens, D] f32 → `out`, and quantized to `xq`.

    NORM: 0 none, 1 RMS norm, 2 layer norm. `out` may be x. BD is a power of two, at least D.
    """
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BD)
    ok = column < D
    y = tl.load(x + token * D + column, mask=ok, other=0.0)
    if NORM == 2:
        y = tl.where(ok, y - tl.sum(y, 0) / D, 0.0)
    if NORM:
        y = y * tl.rsqrt(tl.sum(y * y, 0) / D + epsilon)
        y = y * tl.load(weight + column, mask=ok, other=0.0)
    if BIAS:
        y = y + tl.load(bias + column, mask=ok, other=0.0)
    if STORE:
        tl.store(out + token * D + column, y, mask=ok)
    if QUANTIZE:
        place, inside = units_of(tl.program_id(0), 0, UNITS, 1, BD // 32)
        store_quantized(tl.reshape(y, [1, BD]), xq, place, inside, UNITS, 1, BD)
