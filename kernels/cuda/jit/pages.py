"""Functions of kernels that read and write KV pages, in the layout of `kernels.states.kv_pages`.

A page is given by its address, since a sequence's pages lie anywhere; `KEYS` and the like are byte
offsets of a layer's parts in it. TYPE of the cache: 0 float32, 1 float16, 2 int8 with scales. C is
the width of a head, CP the next power of two. Keys and values of int8 are Hadamard transformed, so
that queries must be too, and results are transformed back.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def page_at(table, index):
    """The page of a table of addresses."""
    return tl.load(table + index).to(tl.pointer_type(tl.uint8))


@triton.jit
def _part(page, offset, TYPE: tl.constexpr):
    """A part of a page, which starts on a cache line: floats of the cache's type, or int8."""
    if TYPE == 0:
        return tl.multiple_of((page + offset).to(tl.pointer_type(tl.float32)), 64)
    else:
        if TYPE == 1:
            return tl.multiple_of((page + offset).to(tl.pointer_type(tl.float16)), 64)
        else:
            return tl.multiple_of((page + offset).to(tl.pointer_type(tl.int8)), 64)


@triton.jit
def _key_place(head, at, c, TYPE: tl.constexpr, C: tl.constexpr):
    """Place of a channel c of the key at a page's position, in elements."""
    if TYPE == 2:
        WIDTH: tl.constexpr = (C + 31) // 32 * 32
        return (head * 16 + at // 16) * (WIDTH * 16) + c // 4 * 64 + at % 16 * 4 + c % 4
    else:
        return (head * 16 + at // 16) * (C * 16) + c * 16 + at % 16


@triton.jit
def _value_place(head, at, c, TYPE: tl.constexpr, C: tl.constexpr):
    """Place of a channel c of the value at a page's position, in elements."""
    if TYPE == 2:
        WIDTH: tl.constexpr = (C + 31) // 32 * 32
        return (head * 64 + at // 4) * (WIDTH * 4) + c * 4 + at % 4
    else:
        PADDED: tl.constexpr = (C + 15) // 16 * 16
        return (head * 256 + at) * PADDED + c


@triton.jit
def _loaded(page, place, head, at, c, OFFSET, SCALES, TYPE: tl.constexpr, C: tl.constexpr):
    """Keys or values f32 at their places; 0 beyond C channels."""
    x = tl.load(_part(page, OFFSET, TYPE) + place, mask=c < C, other=0).to(tl.float32)
    if TYPE == 2:
        block = (head * ((C + 31) // 32) + c // 32) * 256 + at
        x = x * tl.load(_part(page, SCALES, 1) + block, mask=c < C, other=0.0).to(tl.float32)
    return x


@triton.jit
def key_tile(
    page, head, p, KEYS, KEY_SCALES,
    TYPE: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Keys [CP, positions] f32 of a page's positions p."""
    c, at = tl.arange(0, CP)[:, None], p[None, :]
    place = _key_place(head, at, c, TYPE, C)
    if TYPE != 2:
        place = tl.max_contiguous(tl.multiple_of(place, [1, 16]), [1, 16])  # a tile of positions
    return _loaded(page, place, head, at, c, KEYS, KEY_SCALES, TYPE, C)


@triton.jit
def value_tile(
    page, head, p, VALUES, VALUE_SCALES,
    TYPE: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Values [positions, CP] f32 of a page's positions p."""
    c, at = tl.arange(0, CP)[None, :], p[:, None]
    place = _value_place(head, at, c, TYPE, C)
    return _loaded(page, place, head, at, c, VALUES, VALUE_SCALES, TYPE, C)


@triton.jit
def rotated(
    x, c, position, turns, norm, epsilon, frequencies, rope_scale,
    C: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr, NORM: tl.constexpr,
    TURNS: tl.constexpr,
):  # fmt: skip
    """Norm and RoPE of heads: x [R, 1] their addresses, c [1, CP] channels → [R, CP] f32.

    NORM: 0 none, 1 before RoPE, 2 after it. RoPE turns each pair by `position` or, with TURNS, by
    the pair's own of the positions `turns` i64 [PAIRS].
    """
    ok = tl.broadcast_to(c < C, (x + c).shape)
    y = tl.load(x + c, mask=ok, other=0.0)
    if NORM == 1:
        factor = tl.rsqrt(tl.sum(y * y, 1) / C + epsilon)[:, None]
        y = y * factor * tl.load(norm + c, mask=c < C, other=0.0)
    if PAIRS > 0:
        turned = c < 2 * PAIRS
        if INTERLEAVED:
            partner = tl.where(turned, c ^ 1, c)
            pair = tl.where(turned, c // 2, 0)
            sign = tl.where(c % 2 == 0, -1.0, 1.0)
        else:
            partner = tl.where(turned, (c + PAIRS) % (2 * PAIRS), c)
            pair = tl.where(turned, c % PAIRS, 0)
            sign = tl.where(c < PAIRS, -1.0, 1.0)
        other = tl.load(x + partner, mask=ok, other=0.0)
        if NORM == 1:
            other = other * factor * tl.load(norm + partner, mask=c < C, other=0.0)
        turn = tl.load(turns + pair).to(tl.float32) if TURNS else position.to(tl.float32)
        angle = turn * tl.load(frequencies + pair)
        cos, sin = tl.cos(angle) * rope_scale, tl.sin(angle) * rope_scale
        y = tl.where(turned, y * cos + sign * other * sin, y)
    if NORM == 2:
        y = y * tl.rsqrt(tl.sum(y * y, 1) / C + epsilon)[:, None]
        y = y * tl.load(norm + c, mask=c < C, other=0.0)
    return y


@triton.constexpr_function
def _span(width):
    """Channels that are transformed together; see `kernels.states.quantized_kv.hadamard`."""
    return min(width & -width, 256)


@triton.constexpr_function
def _rounds(width):
    """Butterfly rounds of the transform."""
    return min(width & -width, 256).bit_length() - 1


@triton.jit
def transformed(x, R: tl.constexpr, C: tl.constexpr, CP: tl.constexpr):
    """Hadamard transform of rows x [R, CP] f32, in the order of additions of its definition."""
    S: tl.constexpr = _span(C)
    B: tl.constexpr = R * CP // S
    y = tl.reshape(x, [B, S])
    for _ in tl.static_range(_rounds(C)):
        first, second = tl.split(tl.permute(tl.reshape(y, [B, 2, S // 2]), [0, 2, 1]))
        y = tl.reshape(tl.join(first + second, first - second), [B, S])
    return tl.reshape(y * S**-0.5, [R, CP])


@triton.jit
def store_key(
    x, c, page, head, at, KEYS, KEY_SCALES,
    TYPE: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Write a key x [1, CP] f32 at the position `at` of a page."""
    place = _key_place(head, at, c, TYPE, C)
    _stored(x, c, page, place, c < C, head, at, KEYS, KEY_SCALES, TYPE, C, CP)


@triton.jit
def store_value(
    x, c, page, head, at, VALUES, VALUE_SCALES,
    TYPE: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Write a value x [1, CP] f32 at the position `at` of a page."""
    place = _value_place(head, at, c, TYPE, C)
    padded = c < (C + 15) // 16 * 16
    _stored(x, c, page, place, padded, head, at, VALUES, VALUE_SCALES, TYPE, C, CP)


@triton.jit
def _stored(
    x, c, page, place, ok, head, at, OFFSET, SCALES,
    TYPE: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Write a row x [1, CP] f32, rounded to the cache's type; int8 with a scale for 32 channels."""
    if TYPE != 0:
        x = tl.minimum(tl.maximum(x, -65504.0), 65504.0)
    if TYPE == 2:
        N: tl.constexpr = CP // 32
        BLOCKS: tl.constexpr = (C + 31) // 32
        blocks = tl.reshape(transformed(x, 1, C, CP), [N, 32])
        size = tl.maximum(tl.max(blocks, 1) / 127.0, tl.max(-blocks, 1) / 128.0)
        size = tl.minimum(tl.maximum(size, 0.0), 65504.0).to(tl.float16)
        exact = size.to(tl.float32)
        step = tl.where(exact > 0.0, 1.0 / tl.maximum(exact, 1e-9), 0.0)
        z = blocks * step[:, None]
        z = tl.minimum(tl.maximum(tl.where(z >= 0.0, z + 0.5, z - 0.5), -128.0), 127.0)
        codes = tl.reshape(z.to(tl.int32), [1, CP]).to(tl.int8)
        tl.store(_part(page, OFFSET, 2) + place, codes, mask=c < BLOCKS * 32)
        n = tl.arange(0, N)
        block = (head * BLOCKS + n) * 256 + at
        tl.store(_part(page, SCALES, 1) + block, size, mask=n < BLOCKS)
    else:
        if TYPE == 1:
            x = x.to(tl.float16)
        tl.store(_part(page, OFFSET, TYPE) + place, x, mask=ok)
