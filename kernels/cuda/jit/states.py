"""Kernels of layers with a state of fixed size: gated linear recurrences, causal convolutions.

A step of one token for each of some sequences reads the state before it from one page and writes
the state after it to the next one, see `kernels.states.kv_pages.PagedState`; both addresses are read from
device memory, so that a recorded launch serves any position. For a prompt the same arithmetic runs
token after token with the state in registers; operands of the next token are loaded ahead.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.cuda.jit.activations import activated, softplus
from kernels.cuda.jit.pages import page_at
from kernels.cuda.jit.products import X_WORDS, store_quantized

_X: tl.constexpr = tl.constexpr(X_WORDS)


@triton.jit
def _states(positions, tables, width, b, offset, ALIGNED: tl.constexpr):
    """State before a step and after it, f32 pointers, and 1 if there is one before, else 0."""
    index = (tl.load(positions + b) + 255) // 256  # of the page that the step writes
    table = tables + b.to(tl.int64) * width
    before = page_at(table, tl.maximum(index - 1, 0)) + offset
    after = page_at(table, index) + offset
    before = before.to(tl.pointer_type(tl.float32))
    after = after.to(tl.pointer_type(tl.float32))
    if ALIGNED:
        before, after = tl.multiple_of(before, 16), tl.multiple_of(after, 16)
    return before, after, (index > 0).to(tl.int32)


# --- recurrence ---------------------------------------------------------------------------------


@triton.jit
def _operands(
    q, k, v, decay, strength, row, head, key_head, c, w,
    K: tl.constexpr, H: tl.constexpr, C: tl.constexpr, V: tl.constexpr,
    BY_CHANNEL: tl.constexpr, STRENGTH: tl.constexpr,
):  # fmt: skip
    """Of a token q and k [CP, 1], v [1, BV], decay [CP, 1] or [1, 1], strength [1, 1]."""
    keys = (row * K + key_head) * C + c
    query = tl.load(q + keys, mask=c < C, other=0.0)
    key = tl.load(k + keys, mask=c < C, other=0.0)
    value = tl.load(v + (row * H + head) * V + w, mask=w < V, other=0.0)
    one = row * H + head + tl.arange(0, 1)[:, None]
    if BY_CHANNEL:
        decays = tl.load(decay + (row * H + head) * C + c, mask=c < C, other=0.0)
    else:
        decays = tl.load(decay + one)
    share = value
    if STRENGTH:
        share = tl.load(strength + one)
    return query, key, value, decays, share


@triton.jit
def _advanced(
    state, query, key, value, decays, share, rate, bias, scale, epsilon, floor,
    NORM: tl.constexpr, STRENGTH: tl.constexpr, CORRECTED: tl.constexpr, FLOOR: tl.constexpr,
):  # fmt: skip
    """The state [CP, BV] after a token, and its result [1, BV]; see the op recurrence.

    Both sums over the state are those of the decayed one, so that neither waits for the other:
    y = S^T q + (k q) u.
    """
    if NORM:
        query = query / tl.sqrt(tl.sum(query * query, 0, keep_dims=True) + epsilon)
        key = key / tl.sqrt(tl.sum(key * key, 0, keep_dims=True) + epsilon)
    query = query * scale
    biased = decays + bias
    step = biased
    if FLOOR:
        kept = floor * tl.sigmoid(rate * biased)
    else:
        step = softplus(biased)
        kept = rate * step
    state = state * tl.exp(kept)
    y = tl.sum(state * query, 0, keep_dims=True)
    change = value
    if CORRECTED:
        change = value - tl.sum(state * key, 0, keep_dims=True)
    change = change * tl.sigmoid(share) if STRENGTH else change * step
    y += tl.sum(key * query, 0, keep_dims=True) * change
    return state + key * change, y


@triton.jit
def recurrence_step(
    q, k, v, decay, strength, out, rate, decay_bias, skip, positions, tables, width, offset,
    scale, epsilon, floor,
    K: tl.constexpr, H: tl.constexpr, C: tl.constexpr, V: tl.constexpr, CP: tl.constexpr,
    BV: tl.constexpr, TILED: tl.constexpr, BY_CHANNEL: tl.constexpr, NORM: tl.constexpr,
    STRENGTH: tl.constexpr, CORRECTED: tl.constexpr, FLOOR: tl.constexpr, SKIP: tl.constexpr,
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """Gated linear recurrence of one token of each sequence → out [B, H * V] f32.

    Grid: sequences, H, blocks of BV channels of a value. `positions` i64 [B], `tables` i64
    [B, width] page addresses, `offset` of the state [H, C, V] f32 in a page, bytes.
    """
    b, head = tl.program_id(0), tl.program_id(1)
    key_head = head % K if TILED else head // (H // K)
    c = tl.arange(0, CP)[:, None]
    w = tl.program_id(2) * BV + tl.arange(0, BV)[None, :]
    before, after, exists = _states(positions, tables, width, b, offset, ALIGNED)
    at = head * (C * V) + c * V + w
    ok = (c < C) & (w < V)
    state = tl.load(before + at, mask=(c < C * exists) & (w < V), other=0.0)
    query, key, value, decays, share = _operands(
        q, k, v, decay, strength, b, head, key_head, c, w, K, H, C, V, BY_CHANNEL, STRENGTH
    )  # fmt: skip
    one = head + tl.arange(0, 1)[:, None]
    if BY_CHANNEL:
        bias = tl.load(decay_bias + head * C + c, mask=c < C, other=0.0)
    else:
        bias = tl.load(decay_bias + one)
    state, y = _advanced(
        state, query, key, value, decays, share, tl.load(rate + one), bias, scale, epsilon, floor,
        NORM, STRENGTH, CORRECTED, FLOOR,
    )  # fmt: skip
    if SKIP:
        y += tl.load(skip + one) * value
    tl.store(after + at, state, mask=ok)
    tl.store(out + (b * H + head) * V + w, y, mask=w < V)


@triton.jit(do_not_specialize=["tokens"])
def recurrence_rows(
    q, k, v, decay, strength, out, before, after, rate, decay_bias, skip, tokens,
    scale, epsilon, floor,
    K: tl.constexpr, H: tl.constexpr, C: tl.constexpr, V: tl.constexpr, CP: tl.constexpr,
    BV: tl.constexpr, TILED: tl.constexpr, BY_CHANNEL: tl.constexpr, NORM: tl.constexpr,
    STRENGTH: tl.constexpr, CORRECTED: tl.constexpr, FLOOR: tl.constexpr, SKIP: tl.constexpr,
):  # fmt: skip
    """Gated linear recurrence of a sequence's tokens → out [tokens, H * V] f32.

    Grid: H, blocks of BV channels of a value. `before` and `after` are the states [H, C, V] f32.
    """
    head = tl.program_id(0)
    key_head = head % K if TILED else head // (H // K)
    c = tl.arange(0, CP)[:, None]
    w = tl.program_id(1) * BV + tl.arange(0, BV)[None, :]
    at = head * (C * V) + c * V + w
    ok = (c < C) & (w < V)
    state = tl.load(before + at, mask=ok, other=0.0)
    one = head + tl.arange(0, 1)[:, None]
    factor = tl.load(rate + one)
    if BY_CHANNEL:
        bias = tl.load(decay_bias + head * C + c, mask=c < C, other=0.0)
    else:
        bias = tl.load(decay_bias + one)
    skipped = factor
    if SKIP:
        skipped = tl.load(skip + one)
    row = tl.zeros([1, 1], tl.int64)
    query, key, value, decays, share = _operands(
        q, k, v, decay, strength, row, head, key_head, c, w, K, H, C, V, BY_CHANNEL, STRENGTH
    )  # fmt: skip
    for _ in range(tokens):
        # Loads of the next token do not wait for this one's state; the last repeats itself.
        following = tl.minimum(row + 1, tokens - 1)
        query1, key1, value1, decays1, share1 = _operands(
            q, k, v, decay, strength, following, head, key_head, c, w,
            K, H, C, V, BY_CHANNEL, STRENGTH,
        )  # fmt: skip
        state, y = _advanced(
            state, query, key, value, decays, share, factor, bias, scale, epsilon, floor,
            NORM, STRENGTH, CORRECTED, FLOOR,
        )  # fmt: skip
        if SKIP:
            y += skipped * value
        tl.store(out + (row * H + head) * V + w, y, mask=w < V)
        query, key, value, decays, share, row = query1, key1, value1, decays1, share1, following
    tl.store(after + at, state, mask=ok)


# --- convolution --------------------------------------------------------------------------------


@triton.jit
def _convolved(
    now, weight, bias, before, after, exists, column, n,
    TAPS: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Result of one token's inputs `now` of some channels; the state after them is stored."""
    ok = column < n
    y = tl.zeros(now.shape, tl.float32)
    for tap in tl.static_range(TAPS - 1):
        old = tl.load(before + tap * n + column, mask=column < n * exists, other=0.0)
        y += old * tl.load(weight + column * TAPS + tap, mask=ok, other=0.0)
        if tap > 0:
            tl.store(after + (tap - 1) * n + column, old, mask=ok)
    if TAPS > 1:
        tl.store(after + (TAPS - 2) * n + column, now, mask=ok)
    y += now * tl.load(weight + column * TAPS + (TAPS - 1), mask=ok, other=0.0)
    if BIAS:
        y += tl.load(bias + column, mask=ok, other=0.0)
    return y


@triton.jit
def convolution_step(
    x0, x1, x2, weight0, weight1, weight2, bias0, bias1, bias2, first, last, xq,
    positions, tables, width, offset0, offset1, offset2, n0, n1, n2,
    TAPS: tl.constexpr, BLOCK: tl.constexpr, COUNT: tl.constexpr, BIASES: tl.constexpr,
    ACTIVATION: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr, UNITS: tl.constexpr,
    QUANTIZE: tl.constexpr,
):  # fmt: skip
    """Up to three causal depthwise convolutions of one token of each sequence, in place.

    x_i [B, n_i] f32, weight_i [n_i, TAPS], states [TAPS - 1, n_i] f32 at offset_i in a page. Bit i
    of BIASES: there is a bias. ACTIVATION -1: none. With FIRST x0 is multiplied by `first` before,
    with LAST by `last` after; with QUANTIZE it is stored to `xq` alone. Grid: blocks of BLOCK
    channels of all, sequences.
    """
    block, b = tl.program_id(0), tl.program_id(1)
    before1 = tl.cdiv(n0, BLOCK)
    before2 = before1 + tl.cdiv(n1, BLOCK)
    if COUNT == 1 or block < before1:
        _convolution(
            x0, weight0, bias0, first, last, xq, positions, tables, width, offset0, n0, block, b,
            TAPS, BLOCK, BIASES >> 0 & 1, ACTIVATION, FIRST, LAST, UNITS, QUANTIZE,
        )  # fmt: skip
    elif COUNT == 2 or block < before2:
        _convolution(
            x1, weight1, bias1, first, last, xq, positions, tables, width, offset1, n1,
            block - before1, b,
            TAPS, BLOCK, BIASES >> 1 & 1, ACTIVATION, False, False, UNITS, False,
        )  # fmt: skip
    else:
        _convolution(
            x2, weight2, bias2, first, last, xq, positions, tables, width, offset2, n2,
            block - before2, b,
            TAPS, BLOCK, BIASES >> 2 & 1, ACTIVATION, False, False, UNITS, False,
        )  # fmt: skip


@triton.jit
def _convolution(
    x, weight, bias, first, last, xq, positions, tables, width, offset, n, block, b,
    TAPS: tl.constexpr, BLOCK: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    FIRST: tl.constexpr, LAST: tl.constexpr, UNITS: tl.constexpr, QUANTIZE: tl.constexpr,
):  # fmt: skip
    column = block * BLOCK + tl.arange(0, BLOCK)
    ok = column < n
    place = b * n + column
    before, after, exists = _states(positions, tables, width, b, offset, False)
    now = tl.load(x + place, mask=ok, other=0.0)
    if FIRST:
        now = now * tl.load(first + place, mask=ok, other=0.0)
    y = _convolved(now, weight, bias, before, after, exists, column, n, TAPS, BIAS)
    if ACTIVATION >= 0:
        y = activated(y, ACTIVATION)
    if LAST:
        y = y * tl.load(last + place, mask=ok, other=0.0)
    if QUANTIZE:
        unit = (block * (BLOCK // 32) + tl.arange(0, BLOCK // 32))[None, :]
        y = tl.reshape(tl.where(ok, y, 0.0), [1, BLOCK])
        store_quantized(y, xq + b * (_X * UNITS), unit, unit < UNITS, UNITS, 1, BLOCK)
    else:
        tl.store(x + place, y, mask=ok)


@triton.jit(do_not_specialize=["tokens"])
def convolution_rows(
    x, weight, bias, out, before, after, tokens,
    D: tl.constexpr, TAPS: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Causal depthwise convolution of a sequence's tokens x [tokens, D] f32 → out [tokens, D].

    Grid: blocks of BT tokens, blocks of BD channels. `before` and `after` are the states
    [TAPS - 1, D] f32; the programs of the first block of tokens write the one after.
    """
    t = tl.program_id(0) * BT + tl.arange(0, BT)[:, None]
    column = tl.program_id(1) * BD + tl.arange(0, BD)[None, :]
    inside = column < D
    y = tl.zeros([BT, BD], tl.float32)
    for tap in tl.static_range(TAPS):
        at = t + (tap - (TAPS - 1))  # of the input, negative in the state
        ok = (t < tokens) & inside
        one = tl.load(x + at.to(tl.int64) * D + column, mask=ok & (at >= 0), other=0.0)
        if tap < TAPS - 1:
            one += tl.load(before + (t + tap) * D + column, mask=ok & (at < 0), other=0.0)
        y += one * tl.load(weight + column * TAPS + tap, mask=inside, other=0.0)
    if BIAS:
        y += tl.load(bias + column, mask=inside, other=0.0)
    tl.store(out + t.to(tl.int64) * D + column, y, mask=(t < tokens) & inside)
    if tl.program_id(0) == 0:
        for row in tl.static_range(TAPS - 1):
            number = tokens + row - (TAPS - 1)
            place = tl.maximum(number, 0).to(tl.int64) * D + column
            from_x = (number >= 0).to(tl.int32)
            new = tl.load(x + place, mask=column < D * from_x, other=0.0)
            kept = tl.minimum(tokens + row, TAPS - 2) * D + column
            new += tl.load(before + kept, mask=column < D * (1 - from_x), other=0.0)
            tl.store(after + row * D + column, new, mask=inside)
