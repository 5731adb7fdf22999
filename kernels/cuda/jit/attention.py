"""Kernels of attention over KV pages: of one token for each sequence, and of a prompt's tokens.

Rows are queries that share keys: the heads of a group, of one token or several. Position, length
and page addresses are read from device memory, so that a recorded launch serves any of them. The
keys of a long context are cut among programs; the one that finishes last combines their results.
How many take part follows from the length, on the device: a short context is one program's alone.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.cuda.jit.pages import (
    key_tile,
    page_at,
    rotated,
    store_key,
    store_value,
    transformed,
    value_tile,
)
from kernels.cuda.jit.products import X_WORDS, store_quantized
from kernels.ops import Spans

_X: tl.constexpr = tl.constexpr(X_WORDS)
# f32 on tensor cores as three products of its parts: as exact as f32, with fewer registers.
EXACT: tl.constexpr = tl.constexpr("tf32x3")
WHOLE: tl.constexpr = tl.constexpr(int(Spans.WHOLE))
WINDOWED: tl.constexpr = tl.constexpr(int(Spans.WINDOWED))


@triton.jit
def _attended(
    q, table, kv_head, first, end, position, start_of_span, last, scale, cap, window, chunk,
    KEYS, KEY_SCALES, VALUES, VALUE_SCALES,
    R: tl.constexpr, BS: tl.constexpr, TYPE: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
    SPANS: tl.constexpr,
):  # fmt: skip
    """Softmax attention of rows q [R, CP] f32 at `position` [R] to the blocks first .. end of keys.

    SPANS is a number of `Spans`; the positions of the rows' span are start_of_span .. last. No row
    sees a key behind `last`. → unscaled sums [R, CP], their maximum [R] and denominator [R].
    """
    most = tl.full([R], float("-inf"), tl.float32)
    total = tl.zeros([R], tl.float32)
    sums = tl.zeros([R, CP], tl.float32)
    if TYPE != 0:
        q = q.to(tl.float16)
    for block in range(first, end):
        start = block * BS
        page = page_at(table, start // 256)
        p = start % 256 + tl.arange(0, BS)
        key = start + tl.arange(0, BS)
        keys = key_tile(page, kv_head, p, KEYS, KEY_SCALES, TYPE, C, CP)
        if TYPE == 0:
            scores = tl.dot(q, keys, input_precision=EXACT)
        else:
            scores = tl.dot(q, keys.to(tl.float16))
        scores = scores * scale
        if cap > 0.0:
            scores = (2.0 * tl.sigmoid(2.0 * scores / cap) - 1.0) * cap  # cap * tanh
        seen = key[None, :] <= position[:, None]
        if window > 0:
            seen = seen & (key[None, :] > position[:, None] - window)
        if chunk > 0:
            seen = seen & (key[None, :] >= (position // chunk * chunk)[:, None])
        if SPANS == WHOLE:
            seen = seen | ((key >= start_of_span) & (key <= last))[None, :]
        if SPANS == WINDOWED:
            seen = seen | ((key[None, :] >= position[:, None]) & (key <= last)[None, :])
        scores = tl.where(seen, scores, float("-inf"))
        new = tl.maximum(most, tl.max(scores, 1))
        base = tl.where(new == float("-inf"), 0.0, new)  # a row that has seen no key yet
        kept = tl.exp(most - base)
        shares = tl.exp(scores - base[:, None])
        total = total * kept + tl.sum(shares, 1)
        values = value_tile(page, kv_head, p, VALUES, VALUE_SCALES, TYPE, C, CP)
        # Rows of a page that no token was written to may hold anything, NaN too.
        values = tl.where((key <= last)[:, None], values, 0.0)
        sums = sums * kept[:, None]
        if TYPE == 0:
            sums = tl.dot(shares, values, sums, input_precision=EXACT)
        else:
            sums = tl.dot(shares.to(tl.float16), values.to(tl.float16), sums)
        most = new
    return sums, most, total


@triton.jit
def _with_sinks(sums, most, total, sinks, head):
    """The sums, denominators and maxima of rows with one more score each, of a value of zeros."""
    sink = tl.load(sinks + head)
    new = tl.maximum(most, sink)
    kept = tl.exp(most - new)
    return sums * kept[:, None], total * kept + tl.exp(sink - new)


@triton.jit
def attend_step(
    q, k, v, out, xq, positions, turns, tables, width, partial, counters,
    query_norm, key_norm, epsilon, frequencies, rope_scale, sinks,
    scale, cap, window, chunk, KEYS, KEY_SCALES, VALUES, VALUE_SCALES,
    H: tl.constexpr, K: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, G: tl.constexpr,
    R: tl.constexpr, BS: tl.constexpr, SPLITS: tl.constexpr, LEAST: tl.constexpr,
    PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr, NORM: tl.constexpr, WRITE: tl.constexpr, TYPE: tl.constexpr,
    UNITS: tl.constexpr, QUANTIZE: tl.constexpr, SINKS: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Attention of one token of each sequence, from q, k and v as products left them.

    Norm and RoPE of q and k, k and v to their page, softmax over the pages, and the result as
    floats to `out` [B, H * C] or quantized to `xq`. Grid: sequences, K, SPLITS. `positions` i64 [B],
    with TURNS those of RoPE `turns` i64 [B, PAIRS], `tables` i64 [B, width] page addresses,
    `partial` f32 [B, K, SPLITS, R, CP + 2], `counters` i32 [B, K] of zeros, which are zero again
    afterwards. R is at least G and 16. A program has at least LEAST blocks of keys, unless it has
    all; those that are left without any end at once.
    """
    b, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    position = tl.load(positions + b)
    turned = turns + b * PAIRS
    table = tables + b.to(tl.int64) * width
    blocks = (position // BS + 1).to(tl.int32)
    start = 0
    if window > 0:
        start = (tl.maximum(position - window + 1, 0) // BS).to(tl.int32)
    if chunk > 0:
        start = tl.maximum(start, (position // chunk * chunk // BS).to(tl.int32))
    share = tl.maximum(tl.cdiv(blocks - start, SPLITS), LEAST)
    used = tl.cdiv(blocks - start, share)
    if split >= used:
        return
    first = start + split * share
    end = tl.minimum(first + share, blocks)
    c = tl.arange(0, CP)[None, :]
    if WRITE:
        if end == blocks:  # this program reads the last block
            page = page_at(table, position // 256)
            at = (position % 256).to(tl.int32)
            row = (b * K + head) * C + tl.arange(0, 1)[:, None]
            key = rotated(
                k + row, c, position, turned, key_norm, epsilon, frequencies, rope_scale,
                C, PAIRS, INTERLEAVED, NORM, TURNS,
            )  # fmt: skip
            value = tl.load(v + row + c, mask=c < C, other=0.0)
            store_key(key, c, page, head, at, KEYS, KEY_SCALES, TYPE, C, CP)
            store_value(value, c, page, head, at, VALUES, VALUE_SCALES, TYPE, C, CP)
            tl.debug_barrier()  # the rows are read back below, as they were rounded
    g = tl.arange(0, R)
    rows = q + ((b * H + head * G + tl.minimum(g, G - 1)) * C)[:, None]
    query = rotated(
        rows, c, position, turned, query_norm, epsilon, frequencies, rope_scale,
        C, PAIRS, INTERLEAVED, NORM, TURNS,
    )  # fmt: skip
    if TYPE == 2:
        query = transformed(query, R, C, CP)
    at_position = tl.full([R], 0, tl.int64) + position
    sums, most, total = _attended(
        query, table, head, first, end, at_position, 0, position, scale, cap, window, chunk,
        KEYS, KEY_SCALES, VALUES, VALUE_SCALES, R, BS, TYPE, C, CP, 0,
    )  # fmt: skip
    last = True
    if used > 1:
        place = partial + ((b * K + head) * SPLITS).to(tl.int64) * (R * (CP + 2))
        mine = place + split * (R * (CP + 2)) + g * (CP + 2)
        tl.store(mine[:, None] + c, sums, mask=(g < G)[:, None])
        tl.store(mine + CP, most, mask=g < G)
        tl.store(mine + CP + 1, total, mask=g < G)
        tl.debug_barrier()
        counter = counters + b * K + head
        arrived = tl.atomic_add(counter, 1, sem="acq_rel")
        last = arrived == used - 1
        if last:
            tl.debug_barrier()
            tl.store(counter, 0)
            most = tl.full([R], float("-inf"), tl.float32)
            total = tl.zeros([R], tl.float32)
            sums = tl.zeros([R, CP], tl.float32)
            for one in tl.range(used, loop_unroll_factor=4):
                other = place + one * (R * (CP + 2)) + g * (CP + 2)
                theirs = tl.load(other + CP, mask=g < G, other=0.0, cache_modifier=".cg")
                weight = tl.load(other + CP + 1, mask=g < G, other=1.0, cache_modifier=".cg")
                more = tl.load(
                    other[:, None] + c, mask=(g < G)[:, None], other=0.0, cache_modifier=".cg"
                )
                new = tl.maximum(most, theirs)
                base = tl.where(new == float("-inf"), 0.0, new)
                kept, added = tl.exp(most - base), tl.exp(theirs - base)
                total = total * kept + weight * added
                sums = sums * kept[:, None] + more * added[:, None]
                most = new
    if last:
        if SINKS:
            sums, total = _with_sinks(sums, most, total, sinks, head * G + tl.minimum(g, G - 1))
        y = sums / total[:, None]
        if TYPE == 2:
            y = transformed(y, R, C, CP)
        if QUANTIZE:
            N: tl.constexpr = CP // 32
            n = tl.arange(0, N)[None, :]
            unit = (head * G + g)[:, None] * (C // 32) + n
            ok = (g < G)[:, None] & (n < C // 32)
            store_quantized(y, xq + b * (_X * UNITS), unit, ok, UNITS, R, CP)
        else:
            row = (b * H + head * G + g)[:, None] * C
            tl.store(out + row + c, y, mask=(g < G)[:, None] & (c < C))


@triton.jit(do_not_specialize=["start"])
def append_rows(
    q, k, v, turns, table, start, query_norm, key_norm, epsilon, frequencies, rope_scale,
    KEYS, KEY_SCALES, VALUES, VALUE_SCALES,
    H: tl.constexpr, K: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, PAIRS: tl.constexpr,
    INTERLEAVED: tl.constexpr, NORM: tl.constexpr, WRITE: tl.constexpr, TYPE: tl.constexpr,
    TURNS: tl.constexpr,
):  # fmt: skip
    """Norm and RoPE of the queries of a segment, in place; its keys and values to their pages.

    Grid: tokens, H + K heads. `start` is the position of the first token; with TURNS `turns`
    i64 [tokens, PAIRS] are those of RoPE.
    """
    t, head = tl.program_id(0), tl.program_id(1)
    position = start + t
    turned = turns + t.to(tl.int64) * PAIRS
    c = tl.arange(0, CP)[None, :]
    one = tl.arange(0, 1)[:, None]
    if head < H:
        queries = q + (t.to(tl.int64) * H + head) * C + one
        y = rotated(
            queries, c, position, turned, query_norm, epsilon, frequencies, rope_scale,
            C, PAIRS, INTERLEAVED, NORM, TURNS,
        )  # fmt: skip
        tl.debug_barrier()  # a channel is read by the thread of its partner too
        tl.store(queries + c, y, mask=c < C)
    elif WRITE:
        number = head - H
        page = page_at(table, position // 256)
        at = position % 256
        at_head = (t.to(tl.int64) * K + number) * C + one
        key = rotated(
            k + at_head, c, position, turned, key_norm, epsilon, frequencies, rope_scale,
            C, PAIRS, INTERLEAVED, NORM, TURNS,
        )  # fmt: skip
        value = tl.load(v + at_head + c, mask=c < C, other=0.0)
        store_key(key, c, page, number, at, KEYS, KEY_SCALES, TYPE, C, CP)
        store_value(value, c, page, number, at, VALUES, VALUE_SCALES, TYPE, C, CP)


@triton.jit(do_not_specialize=["start", "tokens"])
def attend_rows(
    q, out, table, start, tokens, sinks, scale, cap, window, chunk,
    KEYS, KEY_SCALES, VALUES, VALUE_SCALES,
    H: tl.constexpr, K: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, G: tl.constexpr,
    R: tl.constexpr, BS: tl.constexpr, TYPE: tl.constexpr, SINKS: tl.constexpr,
    SPANS: tl.constexpr,
):  # fmt: skip
    """Attention of a segment's tokens, whose keys are in their pages → out [tokens, H * C] f32.

    Grid: blocks of R rows, K heads; row r is head r % G of token r // G. With SPANS, a number of
    `Spans`, the tokens are a span.
    """
    head = tl.program_id(1)
    row = tl.program_id(0) * R + tl.arange(0, R)
    t = row // G
    ok = t < tokens
    position = start + tl.minimum(t, tokens - 1)
    c = tl.arange(0, CP)[None, :]
    at = ((t.to(tl.int64) * H + head * G + row % G) * C)[:, None] + c
    mask = ok[:, None] & (c < C)
    query = tl.load(q + at, mask=mask, other=0.0)
    if TYPE == 2:
        query = transformed(query, R, C, CP)
    first = 0
    if window > 0:
        first = tl.maximum(tl.min(position, 0) - window + 1, 0) // BS
    if chunk > 0:
        first = tl.maximum(first, tl.min(position, 0) // chunk * chunk // BS)
    last = tl.max(position, 0)
    if SPANS != 0:
        last = start + tokens - 1
    if SPANS == WHOLE:
        first = tl.minimum(first, start // BS)
    end = last // BS + 1
    sums, most, total = _attended(
        query, table, head, first, end, position, start, last, scale, cap, window, chunk,
        KEYS, KEY_SCALES, VALUES, VALUE_SCALES, R, BS, TYPE, C, CP, SPANS,
    )  # fmt: skip
    if SINKS:
        sums, total = _with_sinks(sums, most, total, sinks, head * G + row % G)
    y = sums / total[:, None]
    if TYPE == 2:
        y = transformed(y, R, C, CP)
    tl.store(out + at, y, mask=mask)
