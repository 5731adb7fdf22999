"""Kernel of LoRA terms: the products with the second factors of up to three matrices."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _added(
    low, scales, up, out, n, block, first, t, width,
    R: tl.constexpr, RP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    row = block * BN + tl.arange(0, BN)
    rank = tl.arange(0, RP)
    x = tl.load(low + t * width + first + rank, mask=rank < R, other=0.0)
    x = x * tl.load(scales + first + rank, mask=rank < R, other=0.0)
    ok = (row < n)[:, None] & (rank < R)[None, :]
    weights = tl.load(up + row[:, None] * R + rank[None, :], mask=ok, other=0.0)
    at = out + t.to(tl.int64) * n + row
    y = tl.load(at, mask=row < n, other=0.0) + tl.sum(weights * x[None, :], 1)
    tl.store(at, y, mask=row < n)


@triton.jit
def lora_added(
    low, scales, up0, up1, up2, out0, out1, out2, n0, n1, n2,
    R0: tl.constexpr, R1: tl.constexpr, R2: tl.constexpr,
    RP0: tl.constexpr, RP1: tl.constexpr, RP2: tl.constexpr,
    COUNT: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """out_i [tokens, n_i] f32 += (low_i * scales_i) up_i^T of up to three matrices.

    `low` f32 [tokens, R0 + R1 + R2] are the products with the first factors, `up_i` f32 [n_i, R_i].
    Grid: blocks of BN rows of all matrices, tokens. RP_i is a power of two, at least R_i.
    """
    block, t = tl.program_id(0), tl.program_id(1)
    width: tl.constexpr = R0 + R1 + R2
    before1 = tl.cdiv(n0, BN)
    before2 = before1 + tl.cdiv(n1, BN)
    if COUNT == 1 or block < before1:
        _added(low, scales, up0, out0, n0, block, 0, t, width, R0, RP0, BN)
    elif COUNT == 2 or block < before2:
        _added(low, scales, up1, out1, n1, block - before1, R0, t, width, R1, RP1, BN)
    else:
        _added(low, scales, up2, out2, n2, block - before2, R0 + R1, t, width, R2, RP2, BN)
