"""Products of heads, each with a separate matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from kernels.ops.linear import LoraDelta, checked_linear, lora_term
from kernels.ops.running import Pass
from kernels.weights.weight import Weight


@dataclass(frozen=True, slots=True, eq=False)
class HeadLinear:
    """Product of each head of x with that head's matrix.

    Of each head of x [T, H*n] the columns from `start` on, as many as the matrices have.
    """

    x: str
    weights: tuple[Weight, ...]  # H of [N, columns]
    out: str  # [T, H*N]
    start: int = 0
    deltas: tuple[LoraDelta, ...] = ()  # one for each head; empty: no LoRA

    def run(self, on: Pass) -> None:
        heads = on.buffers[self.x].unflatten(1, (len(self.weights), -1))
        end = self.start + self.weights[0].columns
        some = heads[..., self.start : end].transpose(0, 1).contiguous()  # [H, T, columns]
        products = list(map(partial(checked_linear, on.ops), some, self.weights))
        for head, delta in enumerate(self.deltas):
            low = checked_linear(on.ops, some[head], delta.down)
            products[head] = products[head] + lora_term(on.ops, low, delta)
        on.set(self.out, torch.cat(products, 1))
