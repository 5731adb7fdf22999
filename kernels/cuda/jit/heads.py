"""Kernel of norms and gates of the heads of a row, one program for each head."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.cuda.jit.activations import gated_unit
from kernels.cuda.jit.products import X_WORDS, store_quantized

_X: tl.constexpr = tl.constexpr(X_WORDS)

# What gates do: nothing; before or after the norm by channel; by head; activate x itself.
NONE, BEFORE, AFTER, BY_HEAD, ITSELF = range(5)
_BEFORE: tl.constexpr = tl.constexpr(BEFORE)
_AFTER: tl.constexpr = tl.constexpr(AFTER)
_BY_HEAD: tl.constexpr = tl.constexpr(BY_HEAD)
_ITSELF: tl.constexpr = tl.constexpr(ITSELF)


@triton.jit
def heads(
    x, gate, weight, out, xq, epsilon, limit,
    D: tl.constexpr, H: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, NORM: tl.constexpr,
    GATE: tl.constexpr, ACTIVATION: tl.constexpr, LIMIT: tl.constexpr, UNITS: tl.constexpr,
    QUANTIZE: tl.constexpr,
):  # fmt: skip
    """Norms and gates of the H heads of C channels of rows x [tokens, D] f32.

    NORM: 0 none, 1 RMS norm, 2 layer norm, with `weight` [H, C] f32. `gate` is [tokens, D] f32, of
    heads [tokens, H]. To `out` [tokens, D], which may be an operand, or with QUANTIZE to `xq`,
    which needs heads of whole units. The last head may be narrower if it has no norm. Grid: heads,
    tokens.
    """
    head, t = tl.program_id(0), tl.program_id(1)
    c = tl.arange(0, CP)
    column = head * C + c
    ok = (c < C) & (column < D)
    place = t.to(tl.int64) * D + column
    y = tl.load(x + place, mask=ok, other=0.0)
    if GATE == _BEFORE:
        y = gated_unit(tl.load(gate + place, mask=ok, other=0.0), y, limit, ACTIVATION, True, LIMIT)
    if NORM:
        mean = tl.sum(y, 0) / C if NORM == 2 else 0.0
        y = tl.where(ok, y - mean, 0.0)
        y = y * tl.rsqrt(tl.sum(y * y, 0) / C + epsilon)
        y = y * tl.load(weight + column, mask=ok, other=0.0)
    if GATE == _AFTER:
        y = gated_unit(tl.load(gate + place, mask=ok, other=0.0), y, limit, ACTIVATION, True, LIMIT)
    if GATE == _BY_HEAD:
        share = tl.load(gate + t * H + head + tl.zeros([CP], tl.int32))
        y = gated_unit(share, y, limit, ACTIVATION, True, LIMIT)
    if GATE == _ITSELF:
        y = gated_unit(y, y, limit, ACTIVATION, False, LIMIT)
    if QUANTIZE:
        n = tl.arange(0, CP // 32)[None, :]
        unit = head * (C // 32) + n
        inside = (n < C // 32) & (unit * 32 < D)
        y = tl.reshape(tl.where(ok, y, 0.0), [1, CP])
        store_quantized(y, xq + t * (_X * UNITS), unit, inside, UNITS, 1, CP)
    else:
        tl.store(out + place, y, mask=ok)
