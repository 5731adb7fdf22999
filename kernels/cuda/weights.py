"""Weights of the CUDA backend: re-laid on the device, in pieces, when a model is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from kernels.gpu.layout import (
    FORMATS,
    Arrays,
    arrays,
    layout_of,
    store,
    units,
)
from kernels.gpu.weights import WeightStore, fields
from kernels.weights.formats import Format
from kernels.weights.weight import Weight, file_dtype

LAYOUT = "cuda"  # layout name of weights stored here


@dataclass(frozen=True, slots=True)
class Operand:
    """A weight as kernels read it."""

    arrays: tuple[Tensor, ...]  # codes, high, d, m, scales, minimums
    kind: int  # number of its format
    rows: int
    columns: int
    reads_floats: bool  # of x; else its quantized copy

    @property
    def units(self) -> int:
        """Units of 32 columns of a row, padded."""
        return units(self.columns)


def fill(weight: Weight, first: int, end: int, rows: Tensor) -> None:
    """Re-lay rows u8, as in a file, into the rows from `first` to before `end` of a weight."""
    layout = layout_of(weight.format)
    place = weight.data.device
    row_bytes = weight.format.row_bytes(weight.columns)
    moved = rows.reshape(end - first, row_bytes).to(place)
    if layout is None:
        weight.data.view(-1, row_bytes)[first:end] = moved
        return
    whole = arrays(layout, weight.data, math.prod(weight.shape[:-1]), weight.columns)
    part = Arrays(*(_part(array, first, end) for array in fields(whole)))
    store(layout, moved.reshape(-1, weight.format.size), part, weight.columns)


STORE = WeightStore(LAYOUT, fill)


def operand(weight: Weight) -> Operand:
    """A weight as kernels read it: one of this layout, or an F32 matrix as in a file."""
    rows, columns, format = math.prod(weight.shape[:-1]), weight.columns, weight.format
    kind = FORMATS.index(format.name)
    layout = layout_of(format)
    if layout is None:
        data = weight.data if weight.layout != LAYOUT else weight.data.view(file_dtype(format))
        return Operand((data,) * 6, kind, rows, columns, reads_floats=True)
    assert STORE.has(weight), weight.layout
    found = arrays(layout, weight.data, rows, columns)
    # A kernel is given six arrays; it does not read those that the layout does not have.
    each = tuple(array if array.numel() else found.codes for array in fields(found))
    return Operand(each, kind, rows, columns, reads_floats(format))


def reads_floats(format: Format) -> bool:
    """Whether products with weights of a format read x as floats, not its quantized copy."""
    layout = layout_of(format)
    return layout is None or layout.read_as.are_floats


def _part(array: Tensor, first: int, end: int) -> Tensor:
    return array[first:end] if array.numel() else array
