"""Rows that a batch brings along, such as those of images, in place of or added to its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.ops.running import Pass
from kernels.ops.table import dtype_name


@dataclass(frozen=True, slots=True, eq=False)
class GivenRows:
    """x = some columns of the rows given for its tokens; `added`: x = x + these columns.

    The columns are as many as x has, from `start` on. Rows of other tokens stay as they are; they
    are 0 if nothing has written x before. See `ImageRows`.
    """

    x: str
    start: int = 0
    added: bool = False

    def run(self, on: Pass) -> None:
        width = on.width(self.x)
        x = on.buffers.get(self.x)
        x = torch.zeros(len(on.tokens), width, device=on.device) if x is None else x.clone()
        for segment in range(len(on.batch)):
            if (found := on.image_rows(segment, x.device)) is not None:
                rows, at = found
                rows = checked_rows(rows, self.start + width)[:, self.start :][:, :width]
                x[at] = x[at] + rows if self.added else rows
        on.set(self.x, x)


def checked_rows(rows: Tensor, columns: int) -> Tensor:
    """Given rows [n, W] f32, if they have so many columns; else ValueError."""
    if rows.dim() != 2 or rows.shape[1] < columns or rows.dtype != torch.float32:
        shape = f"{dtype_name(rows)} {list(rows.shape)}"
        raise ValueError(f"given_rows: rows {shape} are not float32 [n, {columns} or more]")
    return rows
