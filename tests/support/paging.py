"""KV pages for tests of kernels: poisoned until rows are stored."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, LayerShape, PagedKV, PageTable
from kernels.states.quantized_kv import BLOCK, QuantizedKV
from rotation import rotation

POISON = 0xFF  # in every byte: NaN in every float type


def tables(layout: KVLayout, tokens: int, fill: int = POISON) -> list[PageTable]:
    """Page tables of a sequence with pages for so many tokens."""
    made = [PageTable() for _ in range(layout.groups)]
    for table, size in zip(made, layout.page_bytes, strict=True):
        for _ in range(-(-tokens // PAGE_TOKENS)):
            table.append(torch.full((size,), fill, dtype=torch.uint8))
    return made


def no_attention() -> KVLayout:
    """The layout of a program that has no attention."""
    return KVLayout((), torch.float32)


def stored(
    keys: Tensor, values: Tensor, dtype: torch.dtype, fill: int = POISON, once: bool = False
) -> PagedKV:
    """Rows [S, K, C] f32 in pages of their own, from position 0 on; `once`: keys are values."""
    layout = KVLayout((LayerShape(*keys.shape[1:], values_are_keys=once),), dtype)
    kv = PagedKV(layout.layers[0], tables(layout, len(keys), fill)[0])
    kv.append(keys, values, 0)
    return kv


def exact(rows: Tensor | QuantizedKV) -> Tensor:
    """The numbers that stored rows [S, K, C] stand for, in double precision."""
    if not isinstance(rows, QuantizedKV):
        return rows.double()
    width = rows.shape[-1]
    each = rows.scales.double().repeat_interleave(BLOCK, -1)[..., :width]
    return rows.codes.double() * each @ rotation(width)
