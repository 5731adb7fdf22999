"""Weights of the Metal backend: re-laid by the processor, in pieces, when a model is loaded.

For the layout see `kernels.gpu.layout`. A kernel is given one buffer a weight, and where its arrays
start in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.gpu.layout import (
    LAYOUTS,
    UNIT,
    Codes,
    Layout,
    arrays,
    layout_of,
    store,
    stored_bytes,
    units,
)
from kernels.gpu.weights import WeightStore, fields
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

LAYOUT = "metal"  # layout name of weights stored here

# enum Storage of decoding.metal, by torch's type and by `Codes`.
_FLOATS = {"float32": 1, "float16": 2, "bfloat16": 3}
_CODES = {Codes.UNSIGNED: 0, Codes.SIGNED: 0, Codes.E4M3: 4, Codes.E5M2: 5}


@dataclass(frozen=True, slots=True)
class Operand:
    """A weight as kernels read it."""

    data: Tensor  # u8
    format: str  # name of its format
    rows: int
    columns: int
    fields: tuple[int, ...]  # of `Matrix` in decoding.metal


def fill(weight: Weight, first: int, end: int, rows: Tensor) -> None:
    """Re-lay rows u8, as in a file, into the rows from `first` to before `end` of a weight."""
    layout, columns = layout_of(weight.format), weight.columns
    row_bytes = weight.format.row_bytes(columns)
    stored = rows.reshape(end - first, row_bytes)
    if layout is None:
        weight.data.view(-1, row_bytes)[first:end] = stored.to(weight.data.device)
        return
    # By the processor, whose memory this is: torch has not every operation on bytes for Metal.
    piece = torch.empty(stored_bytes(layout, end - first, columns), dtype=torch.uint8)
    made = arrays(layout, piece, end - first, columns)
    store(layout, stored.cpu().reshape(-1, weight.format.size), made, columns)
    whole = arrays(layout, weight.data, math.prod(weight.shape[:-1]), columns)
    for to, array in zip(fields(whole), fields(made), strict=True):
        if to.numel():
            to[first:end].copy_(array)


STORE = WeightStore(LAYOUT, fill)


def operand(weight: Weight) -> Operand:
    """A weight as kernels read it: one of this layout, or an F32 matrix as in a file."""
    rows, columns, format = math.prod(weight.shape[:-1]), weight.columns, weight.format
    layout, data = layout_of(format), weight.data
    if layout is None:
        data = data.view(torch.uint8).flatten()
        return Operand(data, format.name, rows, columns, (rows, columns, 0, 0, 0, 0, 0, 0))
    assert STORE.has(weight), weight.layout
    found = arrays(layout, data, rows, columns)
    starts = (_start(array, data) for array in fields(found)[1:])
    return Operand(data, format.name, rows, columns, (rows, columns, units(columns), *starts))


def shader_format(name: str) -> str:
    """The format of a weight as a type of decoding.metal."""
    if name not in LAYOUTS:
        return f"Format<{_FLOATS[by_name(name).dtype]}, 8, 0, 1, 1, 0, 1, 0, 0>"
    one: Layout = LAYOUTS[name]
    facts = (
        _CODES[one.read_as],
        one.bits,
        one.high_bits,
        UNIT // min(one.group, UNIT),
        max(one.group // UNIT, 1),
        int(one.scales),
        one.multiplier,
        one.offset,
        int(one.read_as is Codes.SIGNED),
    )
    return f"Format<{', '.join(map(str, facts))}>"


def _start(array: Tensor, data: Tensor) -> int:
    """First byte of an array in the buffer of a weight; 0 for one that the layout does not have."""
    if not array.numel():
        return 0
    return int(array.storage_offset()) * array.element_size() - int(data.storage_offset())
