"""Product of two buffers, element by element."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.ops.running import Pass


@dataclass(frozen=True, slots=True, eq=False)
class Multiply:
    """x = x * y, element by element."""

    x: str
    y: str

    def run(self, on: Pass) -> None:
        on.set(self.x, on.buffers[self.x] * on.buffers[self.y])
