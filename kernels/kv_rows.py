"""Rows of keys and values in the KV cache: encoding, appending, and the view attention reads.

Attention always reads the stored, rounded values, so a cache that was saved to a file and loaded
gives the same bits as one that stayed in memory. Native kernels store the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kernels.program import LayerKV
from kernels.quantized_kv import BLOCK, QuantizedKV, hadamard

_FLOAT16_MAX = 65504.0


def encoded(rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Rows [K, T, C] f32 as stored in a cache of f32, f16 or i8 (with scales).

    f16 saturates, since an infinity would persist; it is rounded when it is copied to the cache.
    """
    if dtype == torch.float32:
        return (rows,)
    rows = rows.clamp(-_FLOAT16_MAX, _FLOAT16_MAX)
    if dtype == torch.float16:
        return (rows,)
    width = rows.shape[-1]
    blocks = functional.pad(hadamard(rows), (0, -width % BLOCK)).unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1)  # [K, T, B]
    scales = (largest / 127).clamp(max=_FLOAT16_MAX).to(torch.float16)
    steps = torch.where(scales > 0, 1 / scales.float(), 0.0)[..., None]
    codes = (blocks * steps).round().clamp(-127, 127)
    return codes.flatten(-2)[..., :width], scales


def append(rows: Tensor, layer: LayerKV, position: int) -> Tensor | QuantizedKV:
    """Store rows [T, K, C] f32 at `position`; returns all rows up to there, [S, K, C]."""
    end = position + len(rows)
    assert end <= layer.data.shape[1], f"{end} tokens in a buffer for {layer.data.shape[1]}"
    parts = [layer.data] if layer.scales is None else [layer.data, layer.scales]
    for part, code in zip(parts, encoded(rows.transpose(0, 1), layer.data.dtype), strict=True):
        part[:, position:end] = code
    data, *scales = (part[:, :end].transpose(0, 1) for part in parts)
    return QuantizedKV(data, scales[0]) if scales else data
