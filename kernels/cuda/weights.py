"""Weights of the CUDA backend: re-laid on the device, in pieces, when a model is loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from kernels import reference
from kernels.formats import Format
from kernels.gpu.layout import (
    FORMATS,
    Arrays,
    arrays,
    layout_of,
    store,
    units,
    weight_bytes,
)
from kernels.weight import Weight, file_dtype

LAYOUT = "cuda"  # layout name of weights stored here

_PIECE = 1 << 22  # weights re-laid between two calls of the checkpoint


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


def entries(device: torch.device) -> dict[tuple[str, str], reference.Kernel]:
    """The entries of a backend's table that make weights on a device."""
    made: dict[tuple[str, str], reference.Kernel] = {}
    for name in FORMATS:
        made["prepare", name] = partial(prepare, device=device)
        made["held_bytes", name] = held_bytes
        made["empty", name] = empty
        made["fill", name] = fill
    return made


def prepare(
    weight: Weight,
    checkpoint: Callable[[], None] = lambda: None,
    done: Callable[[int, int], None] = lambda first, end: None,
    device: torch.device | None = None,
) -> Weight:
    """Re-lay a matrix on the device; see `Backend.prepare`. A vector is decoded to float32."""
    if is_stored(weight):
        return weight
    place = device or weight.data.device
    if len(weight.shape) == 1:
        return reference.prepare(weight, checkpoint, done, place)
    size = weight_bytes(weight.format, weight.shape)
    made = empty(weight.format, weight.shape, torch.empty(size, dtype=torch.uint8, device=place))
    rows = weight.data.shape[0]
    step = max(_PIECE // weight.columns, 1)
    stored = weight.data.view(torch.uint8).view(rows, -1)
    for first in range(0, rows, step):
        checkpoint()
        end = min(first + step, rows)
        fill(made, first, end, stored[first:end])
        done(first, end)
    return made


def empty(format: Format, shape: Sequence[int], memory: Tensor) -> Weight:
    """A weight over the beginning of `memory` u8; `fill` writes its rows."""
    size = weight_bytes(format, shape)
    assert size <= memory.numel(), (format.name, shape)
    return Weight(memory[:size], format, tuple(shape), LAYOUT)


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
    part = Arrays(*(_part(array, first, end) for array in _fields(whole)))
    store(layout, moved.reshape(-1, weight.format.size), part, weight.columns)


def held_bytes(format: Format, shape: Sequence[int]) -> int:
    """Bytes that `prepare` allocates for a weight."""
    return 4 * shape[0] if len(shape) == 1 else weight_bytes(format, shape)


def is_stored(weight: Weight) -> bool:
    """Whether kernels can read this weight."""
    return weight.layout == LAYOUT


def operand(weight: Weight) -> Operand:
    """A weight as kernels read it: one of this layout, or an F32 matrix as in a file."""
    rows, columns, format = math.prod(weight.shape[:-1]), weight.columns, weight.format
    kind = FORMATS.index(format.name)
    layout = layout_of(format)
    if layout is None:
        data = weight.data if weight.layout != LAYOUT else weight.data.view(file_dtype(format))
        return Operand((data,) * 6, kind, rows, columns, reads_floats=True)
    assert is_stored(weight), weight.layout
    found = arrays(layout, weight.data, rows, columns)
    # A kernel is given six arrays; it does not read those that the layout does not have.
    each = tuple(array if array.numel() else found.codes for array in _fields(found))
    return Operand(each, kind, rows, columns, reads_floats(format))


def reads_floats(format: Format) -> bool:
    """Whether products with weights of a format read x as floats, not its quantized copy."""
    return layout_of(format) is None or format.name.startswith("F8")


def _fields(found: Arrays) -> tuple[Tensor, ...]:
    return found.codes, found.high, found.d, found.m, found.scales, found.minimums


def _part(array: Tensor, first: int, end: int) -> Tensor:
    return array[first:end] if array.numel() else array
