"""Decoders of ggml's codebook formats (IQ1, IQ2, IQ3), in plain torch.

A group of four or eight weights is stored as the index of a codebook entry, with a scale and sign
bits. As in `kernels.weights.decoders`, results are bit-identical to ggml's. Every decoder takes blocks
uint8 [n, size] and returns weights f32 [n, 256]. Codebooks come from the gguf package, on first
use.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from kernels.weights.decoders import half, on_device

_EIGHT = torch.arange(8, dtype=torch.int32)
# Signs of eight weights by 7-bit code, f32 [128, 8]: a set bit is a minus sign, and the eighth sign
# is the parity bit, which makes the number of minus signs even.
_SEVEN = torch.arange(128, dtype=torch.int32)
_MINUS = _SEVEN[:, None] >> _EIGHT & 1
_MINUS[:, 7] = _MINUS.sum(1) & 1
_EVEN_SIGNS = 1.0 - 2.0 * _MINUS
# Signs of eight weights by 8-bit code, f32 [256, 8].
_SIGNS = 1.0 - 2.0 * (torch.arange(256, dtype=torch.int32)[:, None] >> _EIGHT & 1)


@cache
def _codebook(name: str) -> Tensor:
    """A format's codebook, f32 [entries, weights]."""
    # Imported here: the package loads the codebooks of all formats, and few models need one.
    from gguf import quants  # noqa: PLC0415

    layout = getattr(quants, name)
    layout.init_grid()
    entries = torch.from_numpy(layout.grid.copy())
    return entries.view(layout.grid_shape)


def _entries(name: str, index: Tensor) -> Tensor:
    """Codebook entries of a format: index int32 [n, ...] → f32 [n, ..., weights]."""
    return _gather(_codebook(name), index)


def _gather(rows: Tensor, index: Tensor) -> Tensor:
    """Gather rows f32 [count, w] by index int32 [n, ...] → f32 [n, ..., w]."""
    found = on_device(rows, index.device).index_select(0, index.reshape(-1))
    return found.view(*index.shape, rows.shape[1])


def _bytes(blocks: Tensor, start: int, end: int) -> Tensor:
    return blocks[:, start:end].to(torch.int32)


def _integers(blocks: Tensor, start: int, end: int, kind: torch.dtype) -> Tensor:
    """Little-endian unsigned integers in bytes `start` to `end`, int32 [n, count]."""
    found = blocks[:, start:end].clone(memory_format=torch.contiguous_format).view(kind)
    found = found.to(torch.int32)
    return found & 0xFFFF if kind == torch.int16 else found


def _shifted(x: Tensor, *shifts: int) -> Tensor:
    """int32 [n, w] → int32 [n, w, len(shifts)]: each number shifted right by each shift."""
    return x.unsqueeze(-1) >> _shifts(shifts, x.device)


@cache
def _shifts(shifts: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(shifts, dtype=torch.int32).to(device)


def _fine_scales(scales: Tensor) -> Tensor:
    """Unpack 4-bit scales, low nibble first: int32 [n, w] → f32 [n, 2w]."""
    return (_shifted(scales, 0, 4) & 15).flatten(1).to(torch.float32)


def _product(scale: Tensor, entries: Tensor, signs: Tensor, groups: int) -> Tensor:
    """scale f32 [n, groups] · entries · signs, both 256 f32 per block → f32 [n, 256]."""
    values = entries.view(-1, 256).mul_(signs.view(-1, 256)).view(-1, groups, 256 // groups)
    return values.mul_(scale.unsqueeze(-1)).flatten(1)


def iq2_xxs(blocks: Tensor) -> Tensor:
    """d f16, then per 32 weights 4 bytes of indices and 4 of 28 sign bits and a 4-bit scale."""
    parts = blocks[:, 2:].reshape(-1, 8, 8)
    packed = parts[..., 4:].clone(memory_format=torch.contiguous_format)
    packed = packed.view(torch.int32).view(-1, 8)
    scale = ((packed >> 28 & 15).to(torch.float32) + 0.5) * half(blocks, 0) * 0.25
    signs = _gather(_EVEN_SIGNS, _shifted(packed, 0, 7, 14, 21) & 127)
    return _product(scale, _entries("IQ2_XXS", parts[..., :4].to(torch.int32)), signs, 8)


def iq2_xs(blocks: Tensor) -> Tensor:
    """d f16, 32 words of a 9-bit index and 7 sign bits, 8 bytes of 4-bit scales per 16 weights."""
    packed = _integers(blocks, 2, 66, torch.int16)
    scale = (_fine_scales(_bytes(blocks, 66, 74)) + 0.5) * half(blocks, 0) * 0.25
    return _product(scale, _entries("IQ2_XS", packed & 511), _gather(_EVEN_SIGNS, packed >> 9), 16)


def iq2_s(blocks: Tensor) -> Tensor:
    """d f16, 32 bytes of indices, 32 of signs, 8 of upper bits, 8 of scales per 16 weights."""
    high = (_shifted(_bytes(blocks, 66, 74), 0, 2, 4, 6) & 3).flatten(1)
    scale = (_fine_scales(_bytes(blocks, 74, 82)) + 0.5) * half(blocks, 0) * 0.25
    entries = _entries("IQ2_S", _bytes(blocks, 2, 34) | high << 8)
    return _product(scale, entries, _gather(_SIGNS, _bytes(blocks, 34, 66)), 16)


def iq3_xxs(blocks: Tensor) -> Tensor:
    """d f16, 64 bytes of indices of four weights, then per 32 weights 28 sign bits and a scale."""
    packed = _integers(blocks, 66, 98, torch.int32)
    scale = ((packed >> 28 & 15).to(torch.float32) + 0.5) * half(blocks, 0) * 0.5
    signs = _gather(_EVEN_SIGNS, _shifted(packed, 0, 7, 14, 21) & 127)
    return _product(scale, _entries("IQ3_XXS", _bytes(blocks, 2, 66)), signs, 8)


def iq3_s(blocks: Tensor) -> Tensor:
    """d f16, 64 bytes of indices, 8 of ninth bits, 32 of signs, 4 of scales per 32 weights."""
    high = (_shifted(_bytes(blocks, 66, 74), *range(8)) & 1).flatten(1)
    scale = (_fine_scales(_bytes(blocks, 106, 110)) * 2 + 1) * half(blocks, 0)
    entries = _entries("IQ3_S", _bytes(blocks, 2, 66) | high << 8)
    return _product(scale, entries, _gather(_SIGNS, _bytes(blocks, 74, 106)), 8)


_IQ1_DELTA = 0.125  # added to or subtracted from IQ1 entries; ggml: IQ1S_DELTA


def iq1_s(blocks: Tensor) -> Tensor:
    """d f16, 32 bytes of indices, per 32 weights upper index bits, a scale and a delta sign."""
    high = _integers(blocks, 34, 50, torch.int16)  # [n, 8]
    scale = ((high >> 12 & 7) * 2 + 1).to(torch.float32) * half(blocks, 0)
    delta = _IQ1_DELTA - 2 * _IQ1_DELTA * (high >> 15).to(torch.float32)
    index = _bytes(blocks, 2, 34) | (_shifted(high, 0, 3, 6, 9) & 7).flatten(1) << 8
    shifted = _entries("IQ1_S", index).view(-1, 8, 32).add_(delta.unsqueeze(-1))
    return shifted.mul_(scale.unsqueeze(-1)).flatten(1)


def iq1_m(blocks: Tensor) -> Tensor:
    """32 bytes of indices, 16 of upper index bits and delta signs, 8 of scales and bits of d."""
    # [n, 4], each four 3-bit scales and four bits of d
    scales = _integers(blocks, 48, 56, torch.int16)
    quarters = _shifts((12, 8, 4, 0), blocks.device)
    bits = ((scales & 0xF000) >> quarters).sum(1, dtype=torch.int32)
    d = bits.to(torch.int16).view(torch.float16).to(torch.float32)
    fine = (_shifted(scales, 0, 3, 6, 9) & 7).flatten(1)  # [n, 16], for 16 weights each
    scale = (fine * 2 + 1).to(torch.float32) * d.unsqueeze(-1)
    high = (_shifted(_bytes(blocks, 32, 48), 0, 4) & 15).flatten(1)  # [n, 32], one per entry
    delta = _IQ1_DELTA - 2 * _IQ1_DELTA * (high >> 3).to(torch.float32)
    entries = _entries("IQ1_S", _bytes(blocks, 0, 32) | (high & 7) << 8)
    shifted = entries.add_(delta.unsqueeze(-1))
    return shifted.view(-1, 16, 16).mul_(scale.unsqueeze(-1)).flatten(1)
