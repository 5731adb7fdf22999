"""Kernels of mixtures of experts, for one token at a time: routing, gate and up, down.

The weights of the experts lie anywhere: a table has the addresses of each one's arrays, and which
expert a program reads is decided on the device, so that a recorded launch serves any choice.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.cuda.jit.activations import gated_unit
from kernels.cuda.jit.products import X_WORDS, rows_of, store_added, store_quantized
from kernels.ops.routing import Gating

_X: tl.constexpr = tl.constexpr(X_WORDS)


# Numbers of the gatings.
GATINGS = {gating: number for number, gating in enumerate(Gating)}
_SOFTMAX: tl.constexpr = tl.constexpr(GATINGS[Gating.SOFTMAX])
_SIGMOID: tl.constexpr = tl.constexpr(GATINGS[Gating.SIGMOID])
_SOFTMAX_OF_CHOSEN: tl.constexpr = tl.constexpr(GATINGS[Gating.SOFTMAX_OF_CHOSEN])
_SIGMOID_OF_CHOSEN: tl.constexpr = tl.constexpr(GATINGS[Gating.SIGMOID_OF_CHOSEN])


@triton.jit
def _of_best_groups(
    ranked, e, E: tl.constexpr, GROUPS: tl.constexpr, GP: tl.constexpr, CHOSEN: tl.constexpr
):
    """Ranks [EP] with -inf outside of the CHOSEN best groups, by the sums of their two highest."""
    SIZE: tl.constexpr = E // GROUPS
    group = e // SIZE
    g = tl.arange(0, GP)
    best = tl.full([GP], float("-inf"), tl.float32)
    for number in tl.static_range(GROUPS):
        own = tl.where((group == number) & (e < E), ranked, float("-inf"))
        highest = tl.max(own, 0)
        if SIZE > 1:
            at = tl.min(tl.where(own == highest, e, E), 0)
            highest += tl.max(tl.where(e == at, float("-inf"), own), 0)
        best = tl.where(g == number, highest, best)
    kept = tl.full(e.shape, float("-inf"), tl.float32)
    for _ in tl.static_range(CHOSEN):
        at = tl.min(tl.where((best == tl.max(best, 0)) & (g < GROUPS), g, GROUPS - 1), 0)
        kept = tl.where(group == at, ranked, kept)
        best = tl.where(g == at, float("-inf"), best)
    return kept


@triton.jit
def routed(
    scores, bias, chosen, shares, scale,
    E: tl.constexpr, EP: tl.constexpr, CHOSEN: tl.constexpr, GATING: tl.constexpr,
    BIAS: tl.constexpr, GROUPS: tl.constexpr, GP: tl.constexpr, CHOSEN_GROUPS: tl.constexpr,
    NORMALIZED: tl.constexpr,
):  # fmt: skip
    """The experts of each token and their shares; see the op route.

    Grid: tokens. `scores` f32 [tokens, E], `bias` f32 [E]; `chosen` i32 and `shares` f32
    [tokens, CHOSEN]. Of equal ranks the first is taken. EP and GP are powers of two, at least E and
    GROUPS.
    """
    t = tl.program_id(0)
    e = tl.arange(0, EP)
    values = tl.load(scores + t * E + e, mask=e < E, other=float("-inf"))
    most = tl.max(values, 0)
    if GATING == _SOFTMAX:
        values = tl.exp(values - most)
        values = values / tl.sum(values, 0)
    if GATING == _SIGMOID:
        values = tl.sigmoid(values)
    left = values
    if BIAS:
        left = left + tl.load(bias + e, mask=e < E, other=0.0)
    left = tl.where(e < E, left, float("-inf"))
    if GROUPS > 1:
        left = _of_best_groups(left, e, E, GROUPS, GP, CHOSEN_GROUPS)
    total = most * 0.0
    for nth in tl.static_range(CHOSEN):
        at = tl.min(tl.where((left == tl.max(left, 0)) & (e < E), e, E - 1), 0)
        weight = tl.sum(tl.where(e == at, values, 0.0), 0)
        if GATING == _SOFTMAX_OF_CHOSEN:
            weight = tl.exp(weight - most)
        if GATING == _SIGMOID_OF_CHOSEN:
            weight = tl.sigmoid(weight)
        total += weight
        tl.store(chosen + t * CHOSEN + nth, at)
        tl.store(shares + t * CHOSEN + nth, weight)
        left = tl.where(e == at, float("-inf"), left)
    factor = total * 0.0 + scale
    if GATING == _SOFTMAX_OF_CHOSEN:
        factor = factor / total
    elif NORMALIZED:
        factor = factor / tl.maximum(total, 0.00006103515625)  # 2 ** -14
    tl.debug_barrier()  # the shares are read back
    nth = tl.arange(0, triton.next_power_of_2(CHOSEN))
    weights = tl.load(shares + t * CHOSEN + nth, mask=nth < CHOSEN, other=0.0)
    tl.debug_barrier()
    tl.store(shares + t * CHOSEN + nth, weights * factor, mask=nth < CHOSEN)


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
def _completed(
    y, scales, biases, expert, row, ok, n, SCALE: tl.constexpr, BIAS: tl.constexpr
):  # fmt: skip
    """A product [1, BN] of an expert with its scale and bias, where there are any."""
    if SCALE:
        y = y * tl.load(scales + expert)
    if BIAS:
        y = y + tl.load(biases + expert.to(tl.int64) * n + row, mask=ok, other=0.0)[None, :]
    return y


@triton.jit
def experts_gated(
    x, xq, chosen, shares, table0, table1, w0, w1, scale0, scale1, bias0, bias1, out, xq_out, n,
    limit,
    U: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr,
    KIND0: tl.constexpr, KIND1: tl.constexpr, CHOSEN: tl.constexpr, UNITS: tl.constexpr,
    ACTIVATION: tl.constexpr, LIMIT: tl.constexpr, UP: tl.constexpr, WEIGHED: tl.constexpr,
    SCALES: tl.constexpr, BIASES: tl.constexpr, QUANTIZE: tl.constexpr, EMULATED: tl.constexpr,
):  # fmt: skip
    """Gated units of the experts chosen → [tokens * CHOSEN, n] f32, or quantized.

    Grid: blocks of BN rows, tokens * CHOSEN. Tables: i64 [experts, 6]. Bit i of SCALES and BIASES:
    product i is multiplied by scale_i [experts] f32, and bias_i [experts, n] f32 is added. With
    WEIGHED x is multiplied by the share of the expert.
    """
    slot = tl.program_id(1)
    t = slot // CHOSEN
    expert = tl.load(chosen + slot)
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    ok = row < n
    gates = _arrays_of(table0, expert, w0)
    own, own_q = x + t * D, xq + t * (_X * U)
    share = 1.0
    if WEIGHED:
        share = tl.load(shares + slot)
    gate = rows_of(own, own_q, gates, row, ok, U, D, 1, BN, BU, KIND0, EMULATED)
    gate = _completed(
        gate * share, scale0, bias0, expert, row, ok, n, SCALES & 1, BIASES & 1
    )  # fmt: skip
    up = gate
    if UP:
        ups = _arrays_of(table1, expert, w1)
        up = rows_of(own, own_q, ups, row, ok, U, D, 1, BN, BU, KIND1, EMULATED)
        up = _completed(
            up * share, scale1, bias1, expert, row, ok, n, SCALES >> 1, BIASES >> 1
        )  # fmt: skip
    y = gated_unit(gate, up, limit, ACTIVATION, UP, LIMIT)
    if QUANTIZE:
        unit = (tl.program_id(0) * (BN // 32) + tl.arange(0, BN // 32))[None, :]
        store_quantized(y, xq_out + slot * (_X * UNITS), unit, unit < UNITS, UNITS, 1, BN)
    else:
        tl.store(out + slot.to(tl.int64) * n + row[None, :], y, mask=ok[None, :])


@triton.jit
def experts_added(
    x, xq, chosen, shares, table, w, scales, biases, residual, norm, xq_out, squares_out, n, scale,
    U: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr,
    KIND: tl.constexpr, CHOSEN: tl.constexpr, UNITS: tl.constexpr, SCALE: tl.constexpr,
    BIAS: tl.constexpr, WEIGHED: tl.constexpr, QUANTIZE: tl.constexpr, EMULATED: tl.constexpr,
):  # fmt: skip
    """residual [tokens, n] f32 += scale * sum of shares times the down products of the experts.

    Grid: blocks of BN rows, tokens; x [tokens * CHOSEN, D]. With WEIGHED the shares are part of x.
    For the rest see `experts_gated` and `store_added`.
    """
    t = tl.program_id(1)
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    ok = row < n
    total = tl.zeros([1, BN], tl.float32)
    for nth in range(CHOSEN):
        slot = t * CHOSEN + nth
        expert = tl.load(chosen + slot)
        downs = _arrays_of(table, expert, w)
        own, own_q = x + slot * D, xq + slot * (_X * U)
        y = rows_of(own, own_q, downs, row, ok, U, D, 1, BN, BU, KIND, EMULATED)
        y = _completed(y, scales, biases, expert, row, ok, n, SCALE, BIAS)
        if not WEIGHED:
            y = y * tl.load(shares + slot)
        total += y
    store_added(
        total * scale, residual, norm, xq_out, squares_out, n, t, row, 1, BN, UNITS, QUANTIZE
    )  # fmt: skip
