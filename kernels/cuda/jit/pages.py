"""Functions of kernels that read and write KV pages, in the layout of `kernels.kv_pages`.

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
def key_tile(
    page, head, p, KEYS, KEY_SCALES,
    TYPE: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Keys [CP, positions] f32 of a page's positions p."""
    c = tl.arange(0, CP)[:, None]
    at = p[None, :]
    if TYPE == 2:
        WIDTH: tl.constexpr = (C + 31) // 32 * 32
        place = (head * 16 + at // 16) * (WIDTH * 16) + c // 4 * 64 + at % 16 * 4 + c % 4
        codes = _part(page, KEYS, 2)
        scales = _part(page, KEY_SCALES, 1)
        code = tl.load(codes + place, mask=c < C, other=0).to(tl.float32)
        block = (head * (WIDTH // 32) + c // 32) * 256 + at
        return code * tl.load(scales + block, mask=c < C, other=0.0).to(tl.float32)
    else:
        place = (head * 16 + at // 16) * (C * 16) + c * 16 + at % 16
        place = tl.max_contiguous(tl.multiple_of(place, [1, 16]), [1, 16])  # a tile of positions
        return tl.load(_part(page, KEYS, TYPE) + place, mask=c < C, other=0.0).to(tl.float32)


@triton.jit
def value_tile(
    page, head, p, VALUES, VALUE_SCALES,
    TYPE: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Values [positions, CP] f32 of a page's positions p."""
    c = tl.arange(0, CP)[None, :]
    at = p[:, None]
    if TYPE == 2:
        WIDTH: tl.constexpr = (C + 31) // 32 * 32
        place = (head * 64 + at // 4) * (WIDTH * 4) + c * 4 + at % 4
        codes = _part(page, VALUES, 2)
        scales = _part(page, VALUE_SCALES, 1)
        code = tl.load(codes + place, mask=c < C, other=0).to(tl.float32)
        block = (head * (WIDTH // 32) + c // 32) * 256 + at
        return code * tl.load(scales + block, mask=c < C, other=0.0).to(tl.float32)
    else:
        PADDED: tl.constexpr = (C + 15) // 16 * 16
        place = (head * 256 + at) * PADDED + c
        return tl.load(_part(page, VALUES, TYPE) + place, mask=c < C, other=0.0).to(tl.float32)


@triton.jit
def rotated(
    x, c, position, norm, epsilon, frequencies, rope_scale,
    C: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Norm and RoPE of heads: x [R, 1] their addresses, c [1, CP] channels → [R, CP] f32."""
    ok = tl.broadcast_to(c < C, (x + c).shape)
    y = tl.load(x + c, mask=ok, other=0.0)
    factor = tl.full(y.shape, 1.0, tl.float32)
    if NORM:
        factor += tl.rsqrt(tl.sum(y * y, 1) / C + epsilon)[:, None] - 1.0
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
        if NORM:
            other = other * factor * tl.load(norm + partner, mask=c < C, other=0.0)
        angle = position.to(tl.float32) * tl.load(frequencies + pair)
        cos, sin = tl.cos(angle) * rope_scale, tl.sin(angle) * rope_scale
        y = tl.where(turned, y * cos + sign * other * sin, y)
    return y


@triton.constexpr_function
def _span(width):
    """Channels that are transformed together; see `kernels.quantized_kv.hadamard`."""
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
def _store_codes(x, codes, c, place, scales, head, at, C: tl.constexpr, CP: tl.constexpr):
    """Quantize a row x [1, CP] f32 to int8 at `place` [1, CP], with a scale for 32 channels."""
    N: tl.constexpr = CP // 32
    WIDTH: tl.constexpr = (C + 31) // 32 * 32
    blocks = tl.reshape(x, [N, 32])
    size = tl.maximum(tl.max(blocks, 1) / 127.0, tl.max(-blocks, 1) / 128.0)
    size = tl.minimum(tl.maximum(size, 0.0), 65504.0).to(tl.float16)
    exact = size.to(tl.float32)
    step = tl.where(exact > 0.0, 1.0 / tl.maximum(exact, 1e-9), 0.0)
    z = blocks * step[:, None]
    z = tl.minimum(tl.maximum(tl.where(z >= 0.0, z + 0.5, z - 0.5), -128.0), 127.0)
    z = tl.reshape(z.to(tl.int32), [1, CP])
    tl.store(codes + place, z.to(tl.int8), mask=c < WIDTH)
    n = tl.arange(0, N)
    block = (head * (WIDTH // 32) + n) * 256 + at
    tl.store(scales + block, size, mask=n < WIDTH // 32)


@triton.jit
def store_key(
    x, c, page, head, at, KEYS, KEY_SCALES,
    TYPE: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Write a key x [1, CP] f32 at the position `at` of a page."""
    if TYPE == 2:
        WIDTH: tl.constexpr = (C + 31) // 32 * 32
        x = transformed(tl.minimum(tl.maximum(x, -65504.0), 65504.0), 1, C, CP)
        place = (head * 16 + at // 16) * (WIDTH * 16) + c // 4 * 64 + at % 16 * 4 + c % 4
        codes = _part(page, KEYS, 2)
        scales = _part(page, KEY_SCALES, 1)
        _store_codes(x, codes, c, place, scales, head, at, C, CP)
    else:
        place = (head * 16 + at // 16) * (C * 16) + c * 16 + at % 16
        _store_floats(x, page, KEYS, place, c < C, TYPE)


@triton.jit
def store_value(
    x, c, page, head, at, VALUES, VALUE_SCALES,
    TYPE: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Write a value x [1, CP] f32 at the position `at` of a page."""
    if TYPE == 2:
        WIDTH: tl.constexpr = (C + 31) // 32 * 32
        x = transformed(tl.minimum(tl.maximum(x, -65504.0), 65504.0), 1, C, CP)
        place = (head * 64 + at // 4) * (WIDTH * 4) + c * 4 + at % 4
        codes = _part(page, VALUES, 2)
        scales = _part(page, VALUE_SCALES, 1)
        _store_codes(x, codes, c, place, scales, head, at, C, CP)
    else:
        PADDED: tl.constexpr = (C + 15) // 16 * 16
        _store_floats(x, page, VALUES, (head * 256 + at) * PADDED + c, c < PADDED, TYPE)


@triton.jit
def _store_floats(x, page, offset, place, ok, TYPE: tl.constexpr):
    if TYPE == 1:
        x = tl.minimum(tl.maximum(x, -65504.0), 65504.0).to(tl.float16)
    tl.store(_part(page, offset, TYPE) + place, x, mask=ok)
