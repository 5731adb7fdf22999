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

from kernels.weights.formats import Format, decode_rows

# Formats with a torch dtype; all others are blocks of bytes.
_TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Storage(Enum):
    """Storage of a prepared weight in memory."""

    BACKEND = "backend"  # repacked in the layout of its kernels
    FLOAT32 = "float32"  # decoded once; runs on the reference
    FILE = "file"  # packed as in the file; the reference decodes them for every product


def file_dtype(format: Format) -> torch.dtype:
    """The type of `Weight.data` in the layout of a file."""
    return _TYPES.get(format.name, torch.uint8)


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
    def packed(self) -> bool:
        """Whether `data` holds quantized blocks."""
        return self.format.name not in _TYPES

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
        if self.packed:
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
        if self.packed:
            return decode_rows(data, self.format, self.columns)
        return data.to(torch.float32)
