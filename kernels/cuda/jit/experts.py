"""Kernels of mixtures of experts, for one token at a time: routing, gate and up, down.

The weights of the experts lie anywhere: a table has the addresses of each one's arrays, and which
expert a program reads is decided on the device, so that a recorded launch serves any choice.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.cuda.jit.activations import gated_unit
from kernels.cuda.jit.products import X_WORDS, rows_of, store_added, store_quantized

_X: tl.constexpr = tl.constexpr(X_WORDS)


@triton.jit
def routed(
    scores, chosen, shares, E: tl.constexpr, EP: tl.constexpr, CHOSEN: tl.constexpr
):  # fmt: skip
    """The experts of each token and their shares, the softmax of the highest scores.

    Grid: tokens. `scores` f32 [tokens, E]; `chosen` i32 and `shares` f32 [tokens, CHOSEN]. Of equal
    scores the first is taken. EP is a power of two, at least E.
    """
    t = tl.program_id(0)
    e = tl.arange(0, EP)
    left = tl.load(scores + t * E + e, mask=e < E, other=float("-inf"))
    most = tl.max(left, 0)
    total = most * 0.0
    for nth in tl.static_range(CHOSEN):
        value = tl.max(left, 0)
        at = tl.min(tl.where((left == value) & (e < E), e, E - 1), 0)
        weight = tl.exp(value - most)
        total += weight
        tl.store(chosen + t * CHOSEN + nth, at)
        tl.store(shares + t * CHOSEN + nth, weight)
        left = tl.where(e == at, float("-inf"), left)
    tl.debug_barrier()  # the shares are read back
    nth = tl.arange(0, triton.next_power_of_2(CHOSEN))
    weights = tl.load(shares + t * CHOSEN + nth, mask=nth < CHOSEN, other=0.0)
    tl.debug_barrier()
    tl.store(shares + t * CHOSEN + nth, weights / total, mask=nth < CHOSEN)


@triton.jit
def _arrays_of(table, expert, like):
    """The arrays of an expert's weight; `like` are those of another, for their types."""
    at = table + expert * 6
    return (
        tl.multiple_of(tl.load(at).to(like[0].dtype), 16),
        tl.multiple_of(tl.load(at + 1).to(like[1].dtype), 16),
        tl.multiple_of(tl.load(at + 2).to(like[2].dtype), 16),
        tl.multiple_of(tl.load(at + 3).to(like[3].dtype), 16),
        tl.multiple_of(tl.load(at + 4).to(like[4].dtype), 16),
        tl.multiple_of(tl.load(at + 5).to(like[5].dtype), 16),
    )


@triton.jit
def experts_gated(
    x, xq, chosen, table0, table1, w0, w1, out, xq_out, n,
    U: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr,
    KIND0: tl.constexpr, KIND1: tl.constexpr, CHOSEN: tl.constexpr, UNITS: tl.constexpr,
    ACTIVATION: tl.constexpr, QUANTIZE: tl.constexpr, EMULATED: tl.constexpr,
):  # fmt: skip
    """activation(gate) * up of the experts chosen → [tokens * CHOSEN, n] f32, or quantized.

    Grid: blocks of BN rows, tokens * CHOSEN. Tables: i64 [experts, 6].
    """
    slot = tl.program_id(1)
    t = slot // CHOSEN
    expert = tl.load(chosen + slot)
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    ok = row < n
    gates, ups = _arrays_of(table0, expert, w0), _arrays_of(table1, expert, w1)
    own, own_q = x + t * D, xq + t * (_X * U)
    gate = rows_of(own, own_q, gates, row, ok, U, D, 1, BN, BU, KIND0, EMULATED)
    up = rows_of(own, own_q, ups, row, ok, U, D, 1, BN, BU, KIND1, EMULATED)
    y = gated_unit(gate, up, 0.0, ACTIVATION, True, False)
    if QUANTIZE:
        unit = (tl.program_id(0) * (BN // 32) + tl.arange(0, BN // 32))[None, :]
        store_quantized(y, xq_out + slot * (_X * UNITS), unit, unit < UNITS, UNITS, 1, BN)
    else:
        tl.store(out + slot.to(tl.int64) * n + row[None, :], y, mask=ok[None, :])


@triton.jit
def experts_added(
    x, xq, chosen, shares, table, w, residual, norm, xq_out, squares_out, n, scale,
    U: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr,
    KIND: tl.constexpr, CHOSEN: tl.constexpr, UNITS: tl.constexpr,
    QUANTIZE: tl.constexpr, EMULATED: tl.constexpr,
):  # fmt: skip
    """residual [tokens, n] f32 += scale * sum of shares times the down products of the experts.

    Grid: blocks of BN rows, tokens; x [tokens * CHOSEN, D]. For the rest see `store_added`.
    """
    t = tl.program_id(1)
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    ok = row < n
    total = tl.zeros([1, BN], tl.float32)
    for nth in range(CHOSEN):
        slot = t * CHOSEN + nth
        downs = _arrays_of(table, tl.load(chosen + slot), w)
        own, own_q = x + slot * D, xq + slot * (_X * U)
        y = rows_of(own, own_q, downs, row, ok, U, D, 1, BN, BU, KIND, EMULATED)
        total += y * tl.load(shares + slot)
    store_added(
        total * scale, residual, norm, xq_out, squares_out, n, t, row, 1, BN, UNITS, QUANTIZE
    )  # fmt: skip
