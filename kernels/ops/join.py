"""Channels of two buffers beside each other, by head."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.ops.running import Pass


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """out [T, H*(A+B)] = of each of `heads` heads the channels of [T, H*A], then of [T, H*B]."""

    xs: tuple[str, ...]
    out: str
    heads: int = 1

    def run(self, on: Pass) -> None:
        heads = [on.buffers[x].unflatten(1, (self.heads, -1)) for x in self.xs]
        on.set(self.out, torch.cat(heads, -1).flatten(1))
