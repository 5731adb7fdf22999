"""A constant factor."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.ops.running import Pass


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """x = x * scale."""

    x: str
    scale: float

    def run(self, on: Pass) -> None:
        on.set(self.x, on.buffers[self.x] * self.scale)
