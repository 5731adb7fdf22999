"""Kernels that draw tokens from logits, so that one number for each sequence leaves the device.

Filters keep a prefix of the tokens in descending order, so only those above a bound that the
filters cannot pass are collected, sorted and raced. The race is that of
`engine.sampling.random_stream`: the token with the shortest waiting time divided by its weight.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Columns of the parameters of a draw.
TEMPERATURE: tl.constexpr = tl.constexpr(0)
TOP_K: tl.constexpr = tl.constexpr(1)
TOP_P: tl.constexpr = tl.constexpr(2)
MIN_P: tl.constexpr = tl.constexpr(3)
REPEAT: tl.constexpr = tl.constexpr(4)
FREQUENCY: tl.constexpr = tl.constexpr(5)
PRESENCE: tl.constexpr = tl.constexpr(6)
COLUMNS: tl.constexpr = tl.constexpr(8)

_GREEDY_BELOW: tl.constexpr = tl.constexpr(1e-6)
_ROUNDING_MARGIN: tl.constexpr = tl.constexpr(1e-4)
# Below the best logit: what top-p alone could keep. If that is not enough, the host draws.
_NUCLEUS_MARGIN: tl.constexpr = tl.constexpr(12.0)
_GAMMA: tl.constexpr = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST: tl.constexpr = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND: tl.constexpr = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def masked(logits, masks, row, V, WORDS, HAS_MASK: tl.constexpr, BLOCK: tl.constexpr):
    """row [B, V] f32 = logits, -inf for tokens whose bit is 0. Grid: B, blocks of the vocabulary.

    `masks` i32 [B, WORDS].
    """
    b = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + b * V + at, mask=at < V, other=float("-inf"))
    if HAS_MASK:
        words = tl.load(masks + b * WORDS + at // 32, mask=at // 32 < WORDS, other=0)
        x = tl.where((words >> (at % 32)) & 1 == 1, x, float("-inf"))
    tl.store(row + b * V + at, x, mask=at < V)


@triton.jit
def changed(row, ids, biases, counts, numbers, parameters, V, MOST, BLOCK: tl.constexpr):
    """Add biases to logits, then penalize the tokens that occurred. Grid: B, blocks of changes.

    `ids` i32, `biases` and `counts` f32 [B, MOST], the first `numbers` [B] i32 of them.
    """
    b = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = n < tl.load(numbers + b)
    token = tl.load(ids + b * MOST + n, mask=ok, other=0)
    x = tl.load(row + b * V + token, mask=ok, other=0.0)
    x = x + tl.load(biases + b * MOST + n, mask=ok, other=0.0)
    count = tl.load(counts + b * MOST + n, mask=ok, other=0.0)
    own = parameters + b * COLUMNS
    repeat = tl.load(own + REPEAT)
    y = tl.where(x > 0, x / repeat, x * repeat)
    y = y - count * tl.load(own + FREQUENCY) - tl.load(own + PRESENCE)
    tl.store(row + b * V + token, tl.where(count > 0, y, x), mask=ok)


@triton.jit
def block_maxima(row, maxima, sums, V, BLOCKS, BLOCK: tl.constexpr):
    """Of each block the largest logit, inf if one is no number, and the sum of exp relative to it.

    Grid: B, BLOCKS.
    """
    b, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(row + b * V + at, mask=at < V, other=float("-inf"))
    most = tl.max(tl.where(x == x, x, float("inf")), 0)
    base = tl.where(most == float("-inf"), 0.0, most)
    tl.store(maxima + b * BLOCKS + block, most)
    tl.store(sums + b * BLOCKS + block, tl.sum(tl.exp(x - base), 0))


@triton.jit
def bounds(maxima, sums, parameters, least, total, counters, BLOCKS, NB: tl.constexpr):
    """The bound `least` [B] f32 of what the filters may keep, and the logsumexp `total` [B] f64.

    `least` is inf where the host must draw. Grid: B. NB is a power of two, at least BLOCKS.
    """
    b = tl.program_id(0)
    block = tl.arange(0, NB)
    most = tl.load(maxima + b * BLOCKS + block, mask=block < BLOCKS, other=float("-inf"))
    best = tl.max(most, 0)
    weights = tl.load(sums + b * BLOCKS + block, mask=block < BLOCKS, other=0.0)
    shares = weights.to(tl.float64) * tl.exp(tl.where(most > float("-inf"), most - best, 0.0))
    tl.store(total + b, best.to(tl.float64) + tl.log(tl.sum(shares, 0)))
    own = parameters + b * COLUMNS
    k = tl.load(own + TOP_K).to(tl.int32)
    min_p, top_p = tl.load(own + MIN_P), tl.load(own + TOP_P)
    bound = float("inf")
    if tl.load(own + TEMPERATURE) < _GREEDY_BELOW:
        bound = best
    elif k > 0:
        bound = -3.4028234e38
        if k <= BLOCKS:  # so many blocks have a logit of at least this, so as many logits do
            ordered = tl.sort(most, 0, descending=True)
            bound = tl.maximum(tl.sum(tl.where(block == k - 1, ordered, 0.0), 0), bound)
    elif min_p > 0:
        bound = best + (tl.log(min_p) - _ROUNDING_MARGIN)
    elif top_p < 1:
        bound = best - _NUCLEUS_MARGIN
    is_finite = (best > float("-inf")) & (best < float("inf"))
    tl.store(least + b, tl.where(is_finite, bound, float("inf")))
    tl.store(counters + b, 0)


@triton.jit
def collected(row, maxima, least, keys, counters, V, BLOCKS, MOST, BLOCK: tl.constexpr):
    """Append the logits of at least the bound to `keys` i64 [B, MOST]. Grid: B, BLOCKS.

    Keys ascend as logits descend, equal ones by id. `counters` i32 [B] count all of them.
    """
    b, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    bound = tl.load(least + b)
    if tl.load(maxima + b * BLOCKS + block) >= bound:
        at = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(row + b * V + at, mask=at < V, other=float("-inf"))
        kept = (x >= bound) & (at < V)
        count = tl.sum(kept.to(tl.int32), 0)
        first = tl.atomic_add(counters + b, count)
        place = first + tl.cumsum(kept.to(tl.int32), 0) - 1
        bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0 becomes 0
        ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        key = ((~ascending).to(tl.int64) << 32) | at.to(tl.int64)
        tl.store(keys + b * MOST + place, key, mask=kept & (place < MOST))


@triton.jit
def drawn(keys, counters, least, total, parameters, random, out, MOST: tl.constexpr):
    """The tokens `out` i32 [B]; -1 where the host must draw. Grid: B. `random` i64 [B]."""
    b = tl.program_id(0)
    n = tl.arange(0, MOST)
    count = tl.load(counters + b)
    key = tl.load(keys + b * MOST + n, mask=n < count, other=0x7FFFFFFFFFFFFFFF)
    key = tl.sort(key, 0)
    ok = n < count
    token = (key & 0xFFFFFFFF).to(tl.int32)
    ascending = ~((key >> 32).to(tl.int32))
    bits = ascending ^ ((ascending >> 31) & 0x7FFFFFFF)
    x = tl.where(ok, bits.to(tl.float32, bitcast=True), float("-inf"))
    best = tl.max(x, 0)
    own = parameters + b * COLUMNS
    temperature, k = tl.load(own + TEMPERATURE), tl.load(own + TOP_K).to(tl.int32)
    top_p, min_p = tl.load(own + TOP_P), tl.load(own + MIN_P)
    kept = tl.minimum(count, MOST)
    weights = tl.where(ok, tl.exp((x - best).to(tl.float64)), 0.0)
    decided = (count > 0) & (count <= MOST) & (tl.load(least + b) < float("inf"))
    if k > 0:
        kept = tl.minimum(kept, k)
    if top_p < 1:
        some = tl.where(n < kept, weights, 0.0)
        whole = tl.sum(some, 0)
        if k == 0:  # what was not collected counts too
            whole = tl.exp(tl.load(total + b) - best.to(tl.float64))
        shares = tl.cumsum(some / whole, 0).to(tl.float32)
        below = tl.sum(((shares < top_p) & (n < kept)).to(tl.int32), 0)
        # Tokens that were not collected might be kept too; min-p would have dropped them.
        decided = decided & ((below < kept) | (k > 0) | (min_p > 0))
        kept = tl.minimum(kept, below + 1)
    if min_p > 0:
        likely = tl.sum(((weights.to(tl.float32) >= min_p) & (n < kept)).to(tl.int32), 0)
        kept = tl.minimum(kept, tl.maximum(likely, 1))
    winner = tl.sum(tl.where(n == 0, token, 0), 0)
    if temperature >= _GREEDY_BELOW:
        heated = x / temperature
        weights = tl.exp((heated - best / temperature).to(tl.float64))
        mixed = (token.to(tl.uint64) + 1) * _GAMMA + tl.load(random + b).to(tl.uint64)
        mixed = (mixed ^ (mixed >> 30)) * _FIRST
        mixed = (mixed ^ (mixed >> 27)) * _SECOND
        mixed = mixed ^ (mixed >> 31)
        uniform = ((mixed >> 11).to(tl.float64) + 0.5) * 1.1102230246251565e-16
        times = -tl.log(uniform) / weights
        times = tl.where(n < kept, times, float("inf"))
        first = tl.min(times, 0)
        place = tl.min(tl.where(times == first, n, MOST - 1), 0)
        winner = tl.sum(tl.where(n == place, token, 0), 0)
    tl.store(out + b, tl.where(decided, winner, -1))
