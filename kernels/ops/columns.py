"""Some columns of a buffer."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.ops.running import Pass


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """out = `width` columns of x, from `start` on."""

    x: str
    start: int
    width: int
    out: str

    def run(self, on: Pass) -> None:
        on.set(self.out, on.buffers[self.x][:, self.start : self.start + self.width])
