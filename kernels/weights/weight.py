"""Weight: the values of one tensor, packed as a file stores them or decoded, and their format.

A weight carries its format, by which `linear(x, weight)` selects the kernel: models are independent
of formats. Packed weights are views of the mapped file, so opening a model copies nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from torch import Tensor

from kernels.weights.formats import Format

# Weights decoded at once: 2.5 MB of temporaries at most, which fit a core's L2 cache.
_CHUNK = 1 << 18


class Storage(Enum):
    """Storage of a prepared weight in memory."""

    BACKEND = "backend"  # repacked in the layout of its kernels
    FLOAT32 = "float32"  # decoded once; runs on the reference
    FILE = "file"  # packed as in the file; the reference decodes them for every product


def file_dtype(format: Format) -> torch.dtype:
    """The type of `Weight.data` in the layout of a file."""
    found: torch.dtype = getattr(torch, format.dtype)
    return found


def decode_rows(
    data: Tensor, format: Format, columns: int, out: Tensor | None = None, chunk: int = _CHUNK
) -> Tensor:
    """Decode packed rows: data uint8 [rows, row_bytes] → f32 [rows, columns].

    `out` f32 [rows, columns], contiguous, is filled and returned when given. `chunk` is the
    number of weights decoded at once; temporary memory is ten bytes for each. Raises ValueError
    for a shape or dtype that does not match.
    """
    rows, row_bytes = data.shape[0], format.row_bytes(columns)
    if data.dtype != torch.uint8 or data.shape != (rows, row_bytes):
        raise ValueError(
            f"decode_rows: {format.name} rows of {columns} weights are uint8 [rows, {row_bytes}], "
            f"got {data.dtype} {list(data.shape)}"
        )
    if out is None:
        out = torch.empty(rows, columns, device=data.device)
    if out.dtype != torch.float32 or out.shape != (rows, columns) or not out.is_contiguous():
        raise ValueError(
            f"decode_rows: out must be contiguous float32 [{rows}, {columns}], "
            f"got {out.dtype} {list(out.shape)}"
        )
    packed = data.reshape(-1, format.size)
    decoded = out.view(-1, format.block)
    step = max(chunk // format.block, 1)
    for start in range(0, packed.shape[0], step):
        decoded[start : start + step] = format.decode(packed[start : start + step])
    return out


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix [rows, columns] of one format; a vector is one row, more dimensions are more rows.

    `data` is uint8 [rows, row_bytes] for a packed format, and [rows, columns] of the format's dtype
    for F32, F16 and BF16. It may be a view of read-only memory and is never written to. In another
    layout than "file" it is uint8 [size], readable only by the backend of that name.
    """

    data: Tensor
    format: Format
    shape: tuple[int, ...]  # in torch's order: columns last
    layout: str = "file"  # or the name of the backend that has repacked it

    @classmethod
    def from_bytes(cls, buffer: memoryview | bytes, format: Format, shape: Sequence[int]) -> Weight:
        """The weight stored in `buffer`, without a copy; the weight keeps the buffer alive.

        Raises ValueError when the buffer's length does not match format and shape.
        """
        if not shape or min(shape) < 1:
            raise ValueError(f"Weight: a shape has one or more positive sizes, got {list(shape)}")
        # torch.frombuffer warns about read-only memory; DLPack shares it without a warning.
        data = torch.from_dlpack(np.frombuffer(buffer, dtype=np.uint8))
        row_bytes = format.row_bytes(shape[-1])
        wanted = math.prod(shape[:-1]) * row_bytes
        if data.shape[0] != wanted:
            raise ValueError(
                f"Weight: {format.name} {list(shape)} takes {wanted} bytes, got {data.shape[0]}"
            )
        data = data.view(-1, row_bytes)
        return cls(data.view(file_dtype(format)), format, tuple(shape))

    @property
    def columns(self) -> int:
        """Weights in one row."""
        return self.shape[-1]

    @property
    def size_bytes(self) -> int:
        """Size of `data` in bytes."""
        return self.data.numel() * self.data.element_size()

    def dense(self) -> Tensor:
        """All weights, f32 [rows, columns]; for F32 this is `data` itself, not a copy.

        This and the methods below raise ValueError for a weight in another layout than the file's.
        """
        self._check_layout()
        return self._decode(self.data)

    def rows(self, ids: Tensor) -> Tensor:
        """Only the rows `ids` [T] i64, f32 [T, columns]; IndexError for a row out of range."""
        self._check_layout()
        return self._decode(self.data.index_select(0, ids))

    def decode(self, start: int, end: int, out: Tensor) -> None:
        """Write the rows from `start` to before `end` into `out` f32 [end - start, columns]."""
        self._check_layout()
        if self.format.packed:
            decode_rows(self.data[start:end], self.format, self.columns, out)
        else:
            out.copy_(self.data[start:end])

    def _check_layout(self) -> None:
        if self.layout != "file":
            raise ValueError(
                f"Weight: this {self.format.name} {list(self.shape)} is packed for the backend "
                f"'{self.layout}'; to use another backend, load the model again with it."
            )

    def _decode(self, data: Tensor) -> Tensor:
        if self.format.packed:
            return decode_rows(data, self.format, self.columns)
        return data.to(torch.float32)
