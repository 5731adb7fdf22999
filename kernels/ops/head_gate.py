"""Gate of every head."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.ops.gate import Activation, checked_gated
from kernels.ops.running import Pass


@dataclass(frozen=True, slots=True, eq=False)
class HeadGate:
    """x = x * activation(gate) of each of the heads of x [T, H*C], with gate [T, H]."""

    x: str
    gate: str
    activation: Activation

    def run(self, on: Pass) -> None:
        gate = checked_gated(on.ops, on.buffers[self.gate], None, self.activation)  # [T, H]
        heads = on.buffers[self.x].unflatten(1, (gate.shape[1], -1))
        on.set(self.x, (heads * gate[..., None]).flatten(1))
