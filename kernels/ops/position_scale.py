"""Scale that grows with the position."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.ops.running import Pass


@dataclass(frozen=True, slots=True, eq=False)
class PositionScale:
    """x = x * (1 + strength * log(1 + floor((position + offset) / length))), by token."""

    x: str
    strength: float
    length: float
    offset: float = 0.0

    def run(self, on: Pass) -> None:
        x = on.buffers[self.x]
        steps = ((on.rows[1].cpu().float() + self.offset) / self.length).floor()
        # In double precision, which gives every backend the same factor.
        growth = (1 + steps.double()).log().float()
        factors = (1 + self.strength * growth)[:, None].to(x.device)
        on.set(self.x, x * factors)
