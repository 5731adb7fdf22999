"""Writes rows into a KV cache as a forward pass does."""

from __future__ import annotations

from torch import Tensor

from engine.state.kv_cache import Cache
from kernels import kv_rows
from kernels.quantized_kv import QuantizedKV


def write(
    cache: Cache, layer: int, keys: Tensor, values: Tensor
) -> tuple[Tensor | QuantizedKV, Tensor | QuantizedKV]:
    """Store [T, K, C] f32 after the committed tokens of a layer; returns what attention reads."""
    kv = cache.buffers_for(len(keys))
    return (
        kv_rows.append(keys, kv.keys[layer], cache.length),
        kv_rows.append(values, kv.values[layer], cache.length),
    )
