"""Rows that are added to those of tokens, of a table that may be outside of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from kernels.ops.running import Pass


class RowTable(Protocol):
    """A table whose rows are read when tokens need them; the table itself need not be in memory."""

    def rows(self, ids: Tensor) -> Tensor:
        """The rows `ids` [T] i64 of the host, f32 [T, columns] there."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class AddRows:
    """x = x + rows of the table for the tokens * scale."""

    x: str
    table: RowTable  # [V, columns of x]
    scale: float = 1.0

    def run(self, on: Pass) -> None:
        x = on.buffers[self.x]
        rows = self.table.rows(on.tokens).to(x.device)
        on.set(self.x, x + rows * self.scale)
