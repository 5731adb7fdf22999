"""Decoders of ggml's codebook formats (IQ1, IQ2, IQ3), in plain torch.

Groups of four or eight weights are one entry of a fixed table, a scale and signs. Like the others
these are definitions: the same bytes give ggml's bits. Every decoder takes blocks uint8 [n, size]
and returns weights f32 [n, 256]. The tables are the gguf package's, read when they are first used.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from kernels.decoders import half

_EIGHT = torch.arange(8, dtype=torch.int32)
# Signs of eight weights from seven bits: minus where a bit is set, and the eighth makes the number
# of minus signs even. f32 [128, 8].
_SEVEN = torch.arange(128, dtype=torch.int32)
_MINUS = _SEVEN[:, None] >> _EIGHT & 1
_MINUS[:, 7] = _MINUS.sum(1) & 1
_EVEN_SIGNS = 1.0 - 2.0 * _MINUS
# Signs of eight weights from eight bits, f32 [256, 8].
_SIGNS = 1.0 - 2.0 * (torch.arange(256, dtype=torch.int32)[:, None] >> _EIGHT & 1)


@cache
def _table(name: str) -> Tensor:
    """A format's entries, f32 [entries, weights]."""
    # The package brings the tables of all formats with it; few models need them.
    from gguf import quants  # noqa: PLC0415

    layout = getattr(quants, name)
    layout.init_grid()
    entries = torch.from_numpy(layout.grid.copy())
    return entries.view(layout.grid_shape)


def _entries(name: str, index: Tensor) -> Tensor:
    """Entries of a format's table: index int32 [n, ...] → f32 [n, ..., weights]."""
    return _taken(_table(name), index)


def _taken(rows: Tensor, index: Tensor) -> Tensor:
    found = rows.to(index.device).index_select(0, index.reshape(-1))
    return found.view(*index.shape, rows.shape[1])


def _bytes(blocks: Tensor, start: int, end: int) -> Tensor:
    return blocks[:, start:end].to(torch.int32)


def _words(blocks: Tensor, start: int, end: int, kind: torch.dtype) -> Tensor:
    """Little-endian whole numbers from byte `start` to `end`, int32 [n, count]."""
    found = blocks[:, start:end].clone(memory_format=torch.contiguous_format).view(kind)
    found = found.to(torch.int32)
    return found & 0xFFFF if kind == torch.int16 else found


def _shifted(x: Tensor, *shifts: int) -> Tensor:
    """int32 [n, w] → int32 [n, w, len(shifts)]: each number shifted right by each of them."""
    return x.unsqueeze(-1) >> torch.tensor(shifts, dtype=torch.int32, device=x.device)


def _fine_scales(scales: Tensor) -> Tensor:
    """Bytes of two scales of four bits, the low half first: int32 [n, w] → f32 [n, 2w]."""
    return (_shifted(scales, 0, 4) & 15).flatten(1).to(torch.float32)


def _product(scale: Tensor, entries: Tensor, signs: Tensor, groups: int) -> Tensor:
    """scale f32 [n, groups] · entries · signs, both f32 of 256 a block → f32 [n, 256]."""
    values = entries.view(-1, 256).mul_(signs.view(-1, 256)).view(-1, groups, 256 // groups)
    return values.mul_(scale.unsqueeze(-1)).flatten(1)


def iq2_xxs(blocks: Tensor) -> Tensor:
    """d f16, then for each 32 weights four bytes of entries and 28 bits of signs under a scale."""
    parts = blocks[:, 2:].reshape(-1, 8, 8)
    packed = parts[..., 4:].clone(memory_format=torch.contiguous_format)
    packed = packed.view(torch.int32).view(-1, 8)
    scale = ((packed >> 28 & 15).to(torch.float32) + 0.5) * half(blocks, 0) * 0.25
    signs = _taken(_EVEN_SIGNS, _shifted(packed, 0, 7, 14, 21) & 127)
    return _product(scale, _entries("IQ2_XXS", parts[..., :4].to(torch.int32)), signs, 8)


def iq2_xs(blocks: Tensor) -> Tensor:
    """d f16, 32 numbers of 9 bits of entry and 7 of signs, 8 bytes of scales for 16 weights each."""
    packed = _words(blocks, 2, 66, torch.int16)
    scale = (_fine_scales(_bytes(blocks, 66, 74)) + 0.5) * half(blocks, 0) * 0.25
    return _product(scale, _entries("IQ2_XS", packed & 511), _taken(_EVEN_SIGNS, packed >> 9), 16)


def iq2_s(blocks: Tensor) -> Tensor:
    """d f16, 32 bytes of entries, 32 of signs, 8 of upper bits, 8 of scales for 16 weights each."""
    high = (_shifted(_bytes(blocks, 66, 74), 0, 2, 4, 6) & 3).flatten(1)
    scale = (_fine_scales(_bytes(blocks, 74, 82)) + 0.5) * half(blocks, 0) * 0.25
    entries = _entries("IQ2_S", _bytes(blocks, 2, 34) | high << 8)
    return _product(scale, entries, _taken(_SIGNS, _bytes(blocks, 34, 66)), 16)


def iq3_xxs(blocks: Tensor) -> Tensor:
    """d f16, 64 bytes of entries of four weights, then 28 bits of signs under a scale for each 32."""
    packed = _words(blocks, 66, 98, torch.int32)
    scale = ((packed >> 28 & 15).to(torch.float32) + 0.5) * half(blocks, 0) * 0.5
    signs = _taken(_EVEN_SIGNS, _shifted(packed, 0, 7, 14, 21) & 127)
    return _product(scale, _entries("IQ3_XXS", _bytes(blocks, 2, 66)), signs, 8)


def iq3_s(blocks: Tensor) -> Tensor:
    """d f16, 64 bytes of entries, 8 of ninth bits, 32 of signs, 4 of scales for 32 weights each."""
    high = (_shifted(_bytes(blocks, 66, 74), *range(8)) & 1).flatten(1)
    scale = (_fine_scales(_bytes(blocks, 106, 110)) * 2 + 1) * half(blocks, 0)
    entries = _entries("IQ3_S", _bytes(blocks, 2, 66) | high << 8)
    return _product(scale, entries, _taken(_SIGNS, _bytes(blocks, 74, 106)), 8)


_STEP = 0.125  # by how much the entries of IQ1 are moved, up or down


def iq1_s(blocks: Tensor) -> Tensor:
    """d f16, 32 bytes of entries, then for each 32 weights their upper bits, a scale and a move."""
    high = _words(blocks, 34, 50, torch.int16)  # [n, 8]
    scale = ((high >> 12 & 7) * 2 + 1).to(torch.float32) * half(blocks, 0)
    move = _STEP - 2 * _STEP * (high >> 15).to(torch.float32)
    index = _bytes(blocks, 2, 34) | (_shifted(high, 0, 3, 6, 9) & 7).flatten(1) << 8
    moved = _entries("IQ1_S", index).view(-1, 8, 32).add_(move.unsqueeze(-1))
    return moved.mul_(scale.unsqueeze(-1)).flatten(1)


def iq1_m(blocks: Tensor) -> Tensor:
    """32 bytes of entries, 16 of upper bits and moves, 8 of scales with the bits of d on top."""
    scales = _words(blocks, 48, 56, torch.int16)  # [n, 4], each four scales and four bits of d
    quarters = torch.tensor([12, 8, 4, 0], dtype=torch.int32, device=blocks.device)
    bits = ((scales & 0xF000) >> quarters).sum(1, dtype=torch.int32)
    d = bits.to(torch.int16).view(torch.float16).to(torch.float32)
    fine = (_shifted(scales, 0, 3, 6, 9) & 7).flatten(1)  # [n, 16], for 16 weights each
    scale = (fine * 2 + 1).to(torch.float32) * d.unsqueeze(-1)
    high = (_shifted(_bytes(blocks, 32, 48), 0, 4) & 15).flatten(1)  # [n, 32], one an entry
    move = _STEP - 2 * _STEP * (high >> 3).to(torch.float32)
    entries = _entries("IQ1_S", _bytes(blocks, 0, 32) | (high & 7) << 8)
    moved = entries.add_(move.unsqueeze(-1))
    return moved.view(-1, 16, 16).mul_(scale.unsqueeze(-1)).flatten(1)
