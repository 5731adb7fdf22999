"""Quantizers: float weights to the blocks of a format, in plain torch.

Where ggml's reference is a formula, this is that formula; where it is a search for scales (K-quants
and IQ4), this is a simpler search within ggml's error bounds. Every quantizer takes weights f32
[n, block] and returns blocks uint8 [n, size], the inverse of the decoder of the same name: that of a
format, in lower case. Weights must be finite. Formats without one need an importance matrix (IQ1 to
IQ3) or are of activations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.weights import decoders


def _halves(*values: Tensor) -> Tensor:
    """Vectors [n] as little-endian float16, side by side: uint8 [n, 2 * count]."""
    return torch.stack(values, dim=1).to(torch.float16).view(torch.uint8)


def _divide(x: Tensor, scale: Tensor) -> Tensor:
    """x [n, ...] / scale [n] or [n, groups]; 0 where the scale is 0."""
    scale = scale.view(*scale.shape, *[1] * (x.dim() - scale.dim()))
    return torch.where(scale == 0, torch.zeros_like(x), x / scale.where(scale != 0, 1.0))


def _codes(x: Tensor, least: int, most: int) -> Tensor:
    """Round half up and clamp to least .. most: uint8 codes, 0 for `least`."""
    return (torch.floor(x + 0.5).clamp(least, most) - least).to(torch.uint8)


def _extreme(x: Tensor) -> Tensor:
    """The value of largest magnitude of each row, with its sign: [n]."""
    return x.gather(-1, x.abs().argmax(-1, keepdim=True)).squeeze(-1)


def _pack_nibbles(codes: Tensor) -> Tensor:
    """uint8 [..., 2w] → [..., w]: the first half in low nibbles, the second in high ones."""
    low, high = codes.chunk(2, dim=-1)
    return low | high << 4


def _pack_bits(bits: Tensor) -> Tensor:
    """uint8 [n, 8w] of 0 and 1 → [n, w], lowest bit first."""
    powers = 1 << torch.arange(8, dtype=torch.uint8)
    return (bits.view(bits.shape[0], -1, 8) * powers).sum(-1, dtype=torch.uint8)


def _pack_neighbours(codes: Tensor) -> Tensor:
    """uint8 [n, 4w] of 2 bits → [n, w]: four consecutive codes per byte, lowest bits first."""
    four = codes.view(codes.shape[0], -1, 4) << torch.arange(0, 8, 2, dtype=torch.uint8)
    return four.sum(-1, dtype=torch.uint8)


def _pack_quarters(codes: Tensor) -> Tensor:
    """uint8 [n, 128k] of 2 bits → [n, 32k]: codes i, i + 32, i + 64 and i + 96 in byte i."""
    four = (
        codes.view(codes.shape[0], -1, 4, 32) << torch.arange(0, 8, 2, dtype=torch.uint8)[:, None]
    )
    return four.sum(2, dtype=torch.uint8).flatten(1)


# --- floats -------------------------------------------------------------------------------------


def f32(x: Tensor) -> Tensor:
    """F32: unchanged."""
    return x.contiguous().view(torch.uint8)


def f16(x: Tensor) -> Tensor:
    """F16: round to nearest."""
    return x.to(torch.float16).view(torch.uint8)


def bf16(x: Tensor) -> Tensor:
    """BF16: round to nearest."""
    return x.to(torch.bfloat16).view(torch.uint8)


def _f8(x: Tensor, largest: float, kind: torch.dtype) -> Tensor:
    d = (x.abs().amax(1) / largest).to(torch.float16).to(torch.float32)
    codes = _divide(x, d).clamp(-largest, largest).to(kind).view(torch.uint8)
    return torch.cat((codes, _halves(d)), dim=1)


def f8_e4m3(x: Tensor) -> Tensor:
    """F8_E4M3: scaled so that the largest magnitude is 448."""
    return _f8(x, 448.0, torch.float8_e4m3fn)


def f8_e5m2(x: Tensor) -> Tensor:
    """F8_E5M2: the largest magnitude is 448, not 57344, whose scales would underflow float16."""
    return _f8(x, 448.0, torch.float8_e5m2)


# --- groups of 32 -------------------------------------------------------------------------------


def q4_0(x: Tensor) -> Tensor:
    """Q4_0: the value of largest magnitude becomes -8."""
    d = _extreme(x) / -8
    return torch.cat((_halves(d), _pack_nibbles(_codes(_divide(x, d), -8, 7))), dim=1)


def q4_1(x: Tensor) -> Tensor:
    """Q4_1: minimum to maximum on codes 0 to 15."""
    m = x.amin(1)
    d = (x.amax(1) - m) / 15
    return torch.cat(
        (_halves(d, m), _pack_nibbles(_codes(_divide(x - m[:, None], d), 0, 15))), dim=1
    )


def q5_0(x: Tensor) -> Tensor:
    """Q5_0: the value of largest magnitude becomes -16."""
    d = _extreme(x) / -16
    q = _codes(_divide(x, d), -16, 15)
    return torch.cat((_halves(d), _pack_bits(q >> 4), _pack_nibbles(q & 15)), dim=1)


def q5_1(x: Tensor) -> Tensor:
    """Q5_1: minimum to maximum on codes 0 to 31."""
    m = x.amin(1)
    d = (x.amax(1) - m) / 31
    q = _codes(_divide(x - m[:, None], d), 0, 31)
    return torch.cat((_halves(d, m), _pack_bits(q >> 4), _pack_nibbles(q & 15)), dim=1)


def q8_0(x: Tensor) -> Tensor:
    """Q8_0: the largest magnitude becomes 127."""
    d = x.abs().amax(1) / 127
    scaled = _divide(x, d)
    q = (torch.floor(scaled.abs() + 0.5) * scaled.sign()).to(torch.int8)  # half away from zero
    return torch.cat((_halves(d), q.view(torch.uint8)), dim=1)


def _nearest(x: Tensor, levels: Tensor) -> Tensor:
    """Index of the nearest level of each value, the lower on ties: uint8."""
    order = levels.argsort(stable=True)
    middles = (levels[order][1:] + levels[order][:-1]) / 2
    return order[torch.bucketize(x, middles)].to(torch.uint8)


def _fit_nonlinear(x: Tensor) -> tuple[Tensor, Tensor]:
    """IQ4 scales f32 [...] and codes uint8 [..., w] of groups x [..., w], by least squares."""
    d = _extreme(x) / -127
    for _ in range(4):
        codes = _nearest(_divide(x, d), decoders.IQ4_LEVELS)
        levels = decoders.IQ4_LEVELS[codes.long()]
        size = levels.square().sum(-1)
        d = torch.where(size > 0, (levels * x).sum(-1) / size.where(size > 0, 1.0), d)
    return d, _nearest(_divide(x, d), decoders.IQ4_LEVELS)


def iq4_nl(x: Tensor) -> Tensor:
    """IQ4_NL: non-linear levels, with a least-squares scale."""
    d, q = _fit_nonlinear(x)
    return torch.cat((_halves(d), _pack_nibbles(q)), dim=1)


def mxfp4(x: Tensor) -> Tensor:
    """MXFP4: shared exponent (E8M0), floor(log2(largest magnitude)) - 2."""
    largest = x.abs().amax(1)
    exponent = torch.where(largest > 0, torch.log2(largest).floor() + 125, 0).clamp(0, 254)
    d = torch.exp2(exponent - 128)
    q = _nearest_float4(_divide(x, d))
    return torch.cat((exponent.to(torch.uint8)[:, None], _pack_nibbles(q)), dim=1)


def _nearest_float4(x: Tensor) -> Tensor:
    """Nearest E2M1 codes of doubled values, as in the decoder's table: uint8."""
    positive = torch.tensor([0.0, 1, 2, 3, 4, 6, 8, 12])
    return _nearest(x.abs(), positive) | (x < 0).to(torch.uint8) << 3


def nvfp4(x: Tensor) -> Tensor:
    """NVFP4: one E4M3 scale per 16 weights, so that the largest magnitude becomes 6."""
    groups = x.view(-1, 4, 16)
    scale = (groups.abs().amax(2) / 6).to(torch.float8_e4m3fn)
    q = _nearest_float4(_divide(groups, scale.to(torch.float32) / 2))
    return torch.cat((scale.view(torch.uint8), _pack_nibbles(q).flatten(1)), dim=1)


# --- one and two bits ---------------------------------------------------------------------------


def q1_0(x: Tensor) -> Tensor:
    """Q1_0: signs, with the mean magnitude as scale."""
    return torch.cat((_halves(x.abs().mean(1)), _pack_bits((x >= 0).to(torch.uint8))), dim=1)


def _ternary(x: Tensor) -> tuple[Tensor, Tensor]:
    """Largest magnitude d, and codes 0, 1, 2 for x / d rounded to -1, 0, 1."""
    d = x.abs().amax(1)
    return d, (torch.round(_divide(x, d)) + 1).to(torch.uint8)


def q2_0(x: Tensor) -> Tensor:
    """Q2_0 and PQ2_0: ternary codes, the scale first."""
    d, q = _ternary(x)
    return torch.cat((_halves(d), _pack_neighbours(q)), dim=1)


pq2_0 = q2_0


def tq2_0_g128(x: Tensor) -> Tensor:
    """TQ2_0_G128: ternary codes, the scale last."""
    d, q = _ternary(x)
    return torch.cat((_pack_neighbours(q), _halves(d)), dim=1)


def tq2_0(x: Tensor) -> Tensor:
    """TQ2_0: ternary codes of 2 bits, a byte for weights i, i + 32, i + 64 and i + 96."""
    d, q = _ternary(x)
    return torch.cat((_pack_quarters(q), _halves(d)), dim=1)


def _pack_trits(q: Tensor, digits: int) -> Tensor:
    """Base-3 digits uint8 [n, digits · w] → [n, w]: as fractions of 256, rounded up."""
    left = q.view(q.shape[0], digits, -1).to(torch.int32)
    powers = torch.tensor([3 ** (4 - digit) for digit in range(digits)], dtype=torch.int32)
    value = (left * powers[:, None]).sum(1)
    return ((value * 256 + 242) // 243).to(torch.uint8)


def tq1_0(x: Tensor) -> Tensor:
    """TQ1_0: ternary codes, five per byte."""
    d, q = _ternary(x)
    runs = _pack_trits(q[:, :160], 5), _pack_trits(q[:, 160:240], 5), _pack_trits(q[:, 240:], 4)
    return torch.cat((*runs, _halves(d)), dim=1)


def ptq1_0(x: Tensor) -> Tensor:
    """PTQ1_0: ternary codes, five per byte, in groups of 128."""
    d, q = _ternary(x)
    runs = _pack_trits(q[:, :80], 5), _pack_trits(q[:, 80:120], 5), _pack_trits(q[:, 120:], 4)
    return torch.cat((*runs, _halves(d)), dim=1)


# --- blocks of 256 ------------------------------------------------------------------------------


def _fit_range(x: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Least-squares scales and minimums (≥ 0) f32 [n, g] for codes 0 .. most of x [n, g, w]."""
    low = x.amin(-1).clamp(max=0)
    scale = (x.amax(-1) - low) / most
    best_scale, best_low = scale, low
    best = torch.full_like(scale, torch.inf)
    for shrink in torch.linspace(0.8, 1.0, 9).tolist():
        tried = scale * shrink
        codes = torch.round(_divide(x - low[..., None], tried)).clamp(0, most)
        # The least squares of x = scale · codes + low, for these codes.
        n, s, ss = x.shape[-1], codes.sum(-1), codes.square().sum(-1)
        sx, sxc = x.sum(-1), (x * codes).sum(-1)
        det = n * ss - s * s  # of the normal equations
        fitted = torch.where(det > 0, (n * sxc - s * sx) / det.where(det > 0, 1.0), tried)
        offset = ((sx - fitted * s) / n).clamp(max=0)
        error = (codes * fitted[..., None] + offset[..., None] - x).square().sum(-1)
        better = (error < best) & (fitted > 0)
        best = torch.where(better, error, best)
        best_scale = torch.where(better, fitted, best_scale)
        best_low = torch.where(better, offset, best_low)
    return best_scale, -best_low


def _quantize_scales(values: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Values ≥ 0 [n, g] as a float16 factor [n] times integers up to `most`, uint8 [n, g]."""
    d = (values.amax(1) / most).to(torch.float16).to(torch.float32)
    return d, _codes(_divide(values, d), 0, most)


def _quantize_with_minimum(x: Tensor, most: int, finest: int) -> tuple[Tensor, ...]:
    """d, m [n], scales and minimums uint8 [n, g], codes uint8 [n, g, w] of groups x [n, g, w]."""
    scale, minimum = _fit_range(x, most)
    (d, scales), (m, minimums) = _quantize_scales(scale, finest), _quantize_scales(minimum, finest)
    step, low = scales * d[:, None], minimums * m[:, None]
    return d, m, scales, minimums, _codes(_divide(x + low[..., None], step), 0, most)


def q2_k(x: Tensor) -> Tensor:
    """Q2_K: groups of 16 with 4-bit scales and minimums."""
    d, m, scales, minimums, q = _quantize_with_minimum(x.view(-1, 16, 16), 3, 15)
    parts = scales | minimums << 4, _pack_quarters(q.flatten(1)), _halves(d, m)
    return torch.cat(parts, dim=1)


def _pack_k_scales(scales: Tensor, minimums: Tensor) -> Tensor:
    """Eight 6-bit numbers of each kind, [n, 8], packed in the twelve bytes of Q4_K and Q5_K."""
    (s, high_s), (m, high_m) = scales.chunk(2, dim=1), minimums.chunk(2, dim=1)
    low = high_s & 15 | (high_m & 15) << 4
    return torch.cat((s | high_s >> 4 << 6, m | high_m >> 4 << 6, low), dim=1)


def q4_k(x: Tensor) -> Tensor:
    """Q4_K: groups of 32 with 6-bit scales and minimums."""
    d, m, scales, minimums, q = _quantize_with_minimum(x.view(-1, 8, 32), 15, 63)
    nibbles = _pack_nibbles(q.view(-1, 4, 64)).flatten(1)
    return torch.cat((_halves(d, m), _pack_k_scales(scales, minimums), nibbles), dim=1)


def q5_k(x: Tensor) -> Tensor:
    """Q5_K: as Q4_K, with the fifth bits in planes: bit g of byte i is of weight i of group g."""
    d, m, scales, minimums, q = _quantize_with_minimum(x.view(-1, 8, 32), 31, 63)
    planes = (q >> 4 << torch.arange(8, dtype=torch.uint8)[:, None]).sum(1, dtype=torch.uint8)
    nibbles = _pack_nibbles((q & 15).view(-1, 4, 64)).flatten(1)
    return torch.cat((_halves(d, m), _pack_k_scales(scales, minimums), planes, nibbles), dim=1)


def _fit_symmetric(x: Tensor, least: int) -> Tensor:
    """Scales f32 [n, g], of either sign, for codes least .. -least - 1 of groups x [n, g, w]."""
    best_scale = _extreme(x) / least
    best = torch.full_like(best_scale, torch.inf)
    for steps in range(-9, 10):
        tried = _extreme(x) / (least + 0.1 * steps)
        codes = torch.round(_divide(x, tried)).clamp(least, -least - 1)
        size = codes.square().sum(-1)
        fitted = torch.where(size > 0, (codes * x).sum(-1) / size.where(size > 0, 1.0), tried)
        error = (codes * fitted[..., None] - x).square().sum(-1)
        best_scale = torch.where(error < best, fitted, best_scale)
        best = torch.minimum(error, best)
    return best_scale


def _signed_scales(scale: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """Scales [n, g] as a float16 factor [n] times integers from `least` on, f32 [n, g]."""
    d = (_extreme(scale) / least).to(torch.float16).to(torch.float32)
    return d, torch.round(_divide(scale, d)).clamp(least, -least - 1)


def q3_k(x: Tensor) -> Tensor:
    """Q3_K: groups of 16 with 6-bit signed scales, third bits in planes."""
    groups = x.view(-1, 16, 16)
    d, scales = _signed_scales(_fit_symmetric(groups, -4), -32)
    q = _codes(_divide(groups, scales * d[:, None]), -4, 3).view(-1, 8, 32)
    planes = (q >> 2 << torch.arange(8, dtype=torch.uint8)[:, None]).sum(1, dtype=torch.uint8)
    stored = (scales + 32).to(torch.uint8)
    high = (stored >> 4).view(-1, 4, 4) << torch.arange(0, 8, 2, dtype=torch.uint8)[:, None]
    packed = torch.cat((_pack_nibbles(stored & 15), high.sum(1, dtype=torch.uint8)), dim=1)
    return torch.cat((planes, _pack_quarters((q & 3).flatten(1)), packed, _halves(d)), dim=1)


def q6_k(x: Tensor) -> Tensor:
    """Q6_K: groups of 16 with 8-bit signed scales."""
    groups = x.view(-1, 16, 16)
    d, scales = _signed_scales(_fit_symmetric(groups, -32), -128)
    q = _codes(_divide(groups, scales * d[:, None]), -32, 31).flatten(1)
    low = (q & 15).view(-1, 2, 2, 64)
    low = (low[:, :, 0] | low[:, :, 1] << 4).flatten(1)
    high = _pack_quarters(q >> 4)
    return torch.cat((low, high, scales.to(torch.int8).view(torch.uint8), _halves(d)), dim=1)


def iq4_xs(x: Tensor) -> Tensor:
    """IQ4_XS: groups of 32 non-linear codes with 6-bit signed scales."""
    groups = x.view(-1, 8, 32)
    d, scales = _signed_scales(_fit_nonlinear(groups)[0], -32)
    q = _nearest(_divide(groups, scales * d[:, None]), decoders.IQ4_LEVELS)
    stored = (scales + 32).to(torch.uint8)
    high = _pack_neighbours(stored >> 4)
    low = stored[:, 0::2] & 15 | (stored[:, 1::2] & 15) << 4
    return torch.cat((_halves(d), high, low, _pack_nibbles(q).flatten(1)), dim=1)
