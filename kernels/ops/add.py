"""Sum of two buffers."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.ops.running import Pass


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    """x = x + y * scale; y may be overwritten where the scale is not 1."""

    x: str
    y: str
    scale: float = 1.0

    def run(self, on: Pass) -> None:
        y = on.buffers[self.y] if self.scale == 1.0 else on.buffers[self.y] * self.scale
        on.set(self.x, on.buffers[self.x] + y)
