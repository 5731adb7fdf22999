"""Decoders (dequantization) of weight formats, in plain torch.

They repeat ggml's float operations one by one, in ggml's order, so that results are bit-identical.
Every decoder takes contiguous blocks uint8 [n, size] and returns weights f32 [n, block]; that of a
format has its name, in lower case. Names follow ggml's structs: d scale, m minimum, q codes, ql and qh their low and high bits.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


@cache
def on_device(table: Tensor, device: torch.device) -> Tensor:
    """A table of this module or `kernels.weights.codebooks` on a device, copied there once."""
    return table.to(device)


# --- one number a weight ------------------------------------------------------------------------


def f32(blocks: Tensor) -> Tensor:
    """F32: four bytes."""
    return blocks.view(torch.float32)


def f16(blocks: Tensor) -> Tensor:
    """F16: two bytes."""
    return blocks.view(torch.float16).to(torch.float32)


def bf16(blocks: Tensor) -> Tensor:
    """BF16: two bytes, the upper half of a float32."""
    return blocks.view(torch.bfloat16).to(torch.float32)


# --- parts that several layouts share -----------------------------------------------------------

PAIRS = torch.arange(0, 8, 2, dtype=torch.uint8)  # bit offsets of the four 2-bit codes of a byte
HALVES = torch.tensor([0, 4], dtype=torch.uint8)  # bit offsets of the two 4-bit codes
_EVERY_BYTE, _SHIFTS = torch.arange(256, dtype=torch.uint8), torch.arange(8, dtype=torch.uint8)
# The eight bits of every byte, lowest first, as eight bytes seen as one int64: [256].
_BITS = (_EVERY_BYTE[:, None] >> _SHIFTS & 1).view(torch.int64).view(256)


def half(blocks: Tensor, start: int) -> Tensor:
    """The float16 at byte `start` of every block, f32 [n, 1]."""
    return blocks[:, start : start + 2].view(torch.float16).to(torch.float32)


def nibbles(qs: Tensor) -> Tensor:
    """uint8 [..., w] → uint8 [..., 2w]: all low nibbles, then all high nibbles."""
    return torch.cat((qs & 15, qs >> 4), dim=-1)


def quarters(qs: Tensor) -> Tensor:
    """uint8 [n, 32k] → uint8 [n, k, 4, 32]: 2-bit codes, the lowest bits of 32 bytes first."""
    return qs.view(qs.shape[0], -1, 1, 32) >> on_device(PAIRS, qs.device)[:, None] & 3


def bits(qs: Tensor) -> Tensor:
    """uint8 [n, w] → uint8 [n, 8w]: the bits of each byte, lowest first."""
    # A table lookup is six times faster than shifts; Q5_0 and Q1_0 spend most of their time here.
    found = on_device(_BITS, qs.device).index_select(0, qs.reshape(-1).to(torch.int32))
    return found.view(torch.uint8).view(qs.shape[0], -1)


def planes(qs: Tensor) -> Tensor:
    """uint8 [n, 32] → uint8 [n, 8, 32]: bit g of byte i belongs to weight i of group g."""
    return qs.unsqueeze(1) >> on_device(_SHIFTS, qs.device)[:, None] & 1


def looked_up(codes: Tensor, values: Tensor) -> Tensor:
    """The f32 value of every code, in the shape of the codes; `values` f32 [number of codes]."""
    found = on_device(values, codes.device).index_select(0, codes.reshape(-1).to(torch.int32))
    return found.view(codes.shape)


# --- groups of 32 -------------------------------------------------------------------------------


def q4_0(blocks: Tensor) -> Tensor:
    """d f16, 16 bytes of nibbles: d · (q - 8)."""
    q = nibbles(blocks[:, 2:]).to(torch.float32)
    return q.sub_(8).mul_(half(blocks, 0))


def q4_1(blocks: Tensor) -> Tensor:
    """d f16, m f16, 16 bytes of nibbles: d · q + m."""
    q = nibbles(blocks[:, 4:]).to(torch.float32)
    return q.mul_(half(blocks, 0)).add_(half(blocks, 2))


def q5_0(blocks: Tensor) -> Tensor:
    """d f16, 4 bytes of fifth bits, 16 bytes of nibbles: d · (q - 16)."""
    q = nibbles(blocks[:, 6:]) | bits(blocks[:, 2:6]) << 4
    return q.to(torch.float32).sub_(16).mul_(half(blocks, 0))


def q5_1(blocks: Tensor) -> Tensor:
    """d f16, m f16, 4 bytes of fifth bits, 16 bytes of nibbles: d · q + m."""
    q = nibbles(blocks[:, 8:]) | bits(blocks[:, 4:8]) << 4
    return q.to(torch.float32).mul_(half(blocks, 0)).add_(half(blocks, 2))


def q8_0(blocks: Tensor) -> Tensor:
    """d f16, 32 signed bytes: d · q."""
    return blocks[:, 2:].view(torch.int8).to(torch.float32).mul_(half(blocks, 0))


def q8_1(blocks: Tensor) -> Tensor:
    """d f16, d times the sum of the codes, 32 signed bytes: d · q."""
    return blocks[:, 4:].view(torch.int8).to(torch.float32).mul_(half(blocks, 0))


# The 16 non-linear levels of IQ4_NL and IQ4_XS (ggml: kvalues_iq4nl), denser near zero.
IQ4_LEVELS = torch.tensor(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=torch.float32
)


def iq4_nl(blocks: Tensor) -> Tensor:
    """d f16, 16 bytes of nibbles, each the index of a non-linear level: d · level."""
    return looked_up(nibbles(blocks[:, 2:]), IQ4_LEVELS).mul_(half(blocks, 0))


# E2M1 floats (1 sign, 2 exponent, 1 mantissa bit), doubled to be integers; minus zero is zero.
E2M1 = torch.tensor([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=torch.float32)
# E8M0 powers of two by biased exponent, halved because the codes are doubled: 2**-128 to 2**127.
E8M0 = torch.tensor([2.0 ** (exponent - 128) for exponent in range(256)])


def mxfp4(blocks: Tensor) -> Tensor:
    """One byte of exponent, 16 bytes of nibbles, each a 4-bit float: 2**(e - 128) · doubled."""
    return looked_up(nibbles(blocks[:, 1:]), E2M1).mul_(looked_up(blocks[:, :1], E8M0))


# UE4M3 floats (4 exponent and 3 mantissa bits), halved because the codes are doubled. The
# sign bit is ignored, but for 0x7F, NaN in E4M3, which is 0, and 0xFF, which is 480.
_UE4M3 = (_EVERY_BYTE & 127).view(torch.float8_e4m3fn).to(torch.float32) / 2
_UE4M3[[0x7F, 0xFF]] = torch.tensor([0.0, 240.0])


def nvfp4(blocks: Tensor) -> Tensor:
    """Four bytes of scales for 16 weights each, 32 of nibbles, each a 4-bit float."""
    d = looked_up(blocks[:, :4], _UE4M3)
    q = looked_up(nibbles(blocks[:, 4:].view(-1, 4, 8)), E2M1)
    return q.mul_(d[:, :, None]).flatten(1)


# All 256 8-bit floats, as lookup tables: not every device supports torch's float8 types.
_E4M3 = _EVERY_BYTE.view(torch.float8_e4m3fn).to(torch.float32)
_E5M2 = _EVERY_BYTE.view(torch.float8_e5m2).to(torch.float32)


def f8_e4m3(blocks: Tensor) -> Tensor:
    """32 bytes, each a float of 4 exponent and 3 mantissa bits, then d f16: d · q.

    Largest 448, no infinity; the codes 0x7f and 0xff are NaN.
    """
    return looked_up(blocks[:, :32], _E4M3).mul_(half(blocks, 32))


def f8_e5m2(blocks: Tensor) -> Tensor:
    """32 bytes, each a float of 5 exponent and 2 mantissa bits, then d f16: d · q.

    Largest 57344; 0x7c and 0xfc are infinite, the three codes after each are NaN.
    """
    return looked_up(blocks[:, :32], _E5M2).mul_(half(blocks, 32))


# --- one and two bits ---------------------------------------------------------------------------


def q1_0(blocks: Tensor) -> Tensor:
    """d f16, 16 bytes of signs, lowest bit first: 1 is +d, 0 is -d."""
    sign = bits(blocks[:, 2:]).to(torch.float32).mul_(2).sub_(1)
    return sign.mul_(half(blocks, 0))


def q2_0(blocks: Tensor) -> Tensor:
    """d f16, bytes of four 2-bit codes, lowest bits first: d · (q - 1), q - 1 from -1 to 2."""
    q = blocks[:, 2:].unsqueeze(-1) >> on_device(PAIRS, blocks.device) & 3  # [n, bytes, 4]
    return q.flatten(1).to(torch.float32).sub_(1).mul_(half(blocks, 0))


pq2_0 = q2_0  # of larger blocks


def tq2_0_g128(blocks: Tensor) -> Tensor:
    """32 bytes of four 2-bit codes, lowest bits first, then d f16: codes 0 to 3 are -d, 0, d, 0."""
    q = (blocks[:, :32].unsqueeze(-1) >> on_device(PAIRS, blocks.device) & 3).flatten(1)
    return q.masked_fill_(q == 3, 1).to(torch.float32).sub_(1).mul_(half(blocks, 32))


def tq2_0(blocks: Tensor) -> Tensor:
    """64 bytes of 2-bit codes in two runs of 32 bytes, then d f16: d · (q - 1)."""
    return quarters(blocks[:, :64]).flatten(1).to(torch.float32).sub_(1).mul_(half(blocks, 64))


_POWERS_OF_3 = torch.tensor([[1], [3], [9], [27], [81]], dtype=torch.uint8)


def trits(qs: Tensor, digits: int) -> Tensor:
    """uint8 [n, w] → int16 [n, digits · w]: the first base-3 digit of all bytes, then the next.

    A byte is a fraction of 256: the carry of its product with 3 is the first digit. Multiplying by
    a power of three modulo 256 drops the digits before.
    """
    powers = on_device(_POWERS_OF_3, qs.device)[:digits]
    left = qs.unsqueeze(1) * powers  # [n, digits, w], modulo 256
    return (left.to(torch.int16) * 3 >> 8).flatten(1)


def tq1_0(blocks: Tensor) -> Tensor:
    """48 bytes of five trits each (runs of 32 and 16), 4 bytes of four, d f16: d · (q - 1)."""
    runs = trits(blocks[:, :32], 5), trits(blocks[:, 32:48], 5), trits(blocks[:, 48:52], 4)
    return torch.cat(runs, dim=1).to(torch.float32).sub_(1).mul_(half(blocks, 52))


def ptq1_0(blocks: Tensor) -> Tensor:
    """24 bytes of five trits each (runs of 16 and 8), 2 bytes of four, d f16: d · (q - 1)."""
    runs = trits(blocks[:, :16], 5), trits(blocks[:, 16:24], 5), trits(blocks[:, 24:26], 4)
    return torch.cat(runs, dim=1).to(torch.float32).sub_(1).mul_(half(blocks, 26))


# --- blocks of 256 ------------------------------------------------------------------------------


def q2_k(blocks: Tensor) -> Tensor:
    """16 bytes of scales and minimums, 64 of codes, d f16, m f16: d · scale · q - m · minimum."""
    scales = blocks[:, :16]
    d = (scales & 15).to(torch.float32).mul_(half(blocks, 80))
    m = (scales >> 4).to(torch.float32).mul_(half(blocks, 82))
    q = quarters(blocks[:, 16:80]).to(torch.float32)  # [n, 2, 4, 32]
    return q.view(-1, 16, 16).mul_(d[:, :, None]).sub_(m[:, :, None]).flatten(1)


def q3_k(blocks: Tensor) -> Tensor:
    """32 bytes of third bits, 64 of codes, 12 of scales, d f16: d · (scale - 32) · (q - 4)."""
    low = nibbles(blocks[:, 96:104])
    pairs = on_device(PAIRS, blocks.device)
    high = blocks[:, 104:108].unsqueeze(1) >> pairs[:, None] & 3  # [n, 4, 4]
    scales = (low | high.flatten(1) << 4).to(torch.float32).sub_(32)
    d = scales.mul_(half(blocks, 108))
    q = quarters(blocks[:, 32:96]).view(-1, 8, 32) | planes(blocks[:, :32]) << 2
    return q.to(torch.float32).sub_(4).view(-1, 16, 16).mul_(d[:, :, None]).flatten(1)


def k_numbers(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and minimums of a Q4_K or Q5_K block's eight groups, uint8 [n, 8] each.

    Twelve bytes at offset 4 contain sixteen 6-bit numbers: the first four of each kind whole, the
    low bits of the others in the last four, their high bits in the top bits of the first eight.
    """
    scales, minimums, low = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat((scales & 63, low & 15 | scales >> 2 & 48), dim=1)
    minimums = torch.cat((minimums & 63, low >> 4 | minimums >> 2 & 48), dim=1)
    return scales, minimums


def _k_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The same times the block's two floats, f32 [n, 8, 1] each."""
    scales, minimums = k_numbers(blocks)
    d = scales.to(torch.float32).mul_(half(blocks, 0))
    m = minimums.to(torch.float32).mul_(half(blocks, 2))
    return d[:, :, None], m[:, :, None]


def q4_k(blocks: Tensor) -> Tensor:
    """d f16, m f16, 12 bytes of scales and minimums, 128 of nibbles: d · scale · q - m · min."""
    d, m = _k_scales(blocks)
    q = nibbles(blocks[:, 16:].view(-1, 4, 32)).to(torch.float32)  # [n, 4, 64]
    return q.view(-1, 8, 32).mul_(d).sub_(m).flatten(1)


def q5_k(blocks: Tensor) -> Tensor:
    """As Q4_K, with 32 bytes of fifth bits before the nibbles."""
    d, m = _k_scales(blocks)
    ql = nibbles(blocks[:, 48:].view(-1, 4, 32)).view(-1, 8, 32)
    q = (ql | planes(blocks[:, 16:48]) << 4).to(torch.float32)
    return q.mul_(d).sub_(m).flatten(1)


def q6_k(blocks: Tensor) -> Tensor:
    """128 bytes of nibbles, 64 of upper bits, 16 signed scales, d f16: d · scale · (q - 32)."""
    ql = nibbles(blocks[:, :128].view(-1, 2, 64)).view(-1, 2, 4, 32)
    q = (ql | quarters(blocks[:, 128:192]) << 4).to(torch.float32).sub_(32)
    d = blocks[:, 192:208].view(torch.int8).to(torch.float32).mul_(half(blocks, 208))
    return q.view(-1, 16, 16).mul_(d[:, :, None]).flatten(1)


def iq4_xs(blocks: Tensor) -> Tensor:
    """d f16, 6 bytes of eight 6-bit scales, 128 of nibbles: d · (scale - 32) · level."""
    halves, pairs = (on_device(shifts, blocks.device) for shifts in (HALVES, PAIRS))
    high = (blocks[:, 2:4].unsqueeze(-1) >> pairs & 3).flatten(1)  # [n, 8]
    low = (blocks[:, 4:8].unsqueeze(-1) >> halves & 15).flatten(1)
    d = (low | high << 4).to(torch.float32).sub_(32).mul_(half(blocks, 0))
    q = looked_up(nibbles(blocks[:, 8:].view(-1, 8, 16)), IQ4_LEVELS)  # [n, 8, 32]
    return q.mul_(d[:, :, None]).flatten(1)


def q8_k(blocks: Tensor) -> Tensor:
    """d f32, 256 signed bytes, 16 sums of them: d · q."""
    d = blocks[:, :4].clone(memory_format=torch.contiguous_format).view(torch.float32)
    return blocks[:, 4:260].view(torch.int8).to(torch.float32).mul_(d)
