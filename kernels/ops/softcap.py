"""Soft cap of values, such as logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.ops.running import Pass
from kernels.ops.table import Table, dtype_name


@dataclass(frozen=True, slots=True, eq=False)
class Softcap:
    """x = cap * tanh(x / cap)."""

    x: str
    cap: float

    def run(self, on: Pass) -> None:
        on.set(self.x, checked_softcap(on.ops, on.buffers[self.x], self.cap))


def checked_softcap(ops: Table, x: Tensor, cap: float) -> Tensor:
    """cap * tanh(x / cap): x [...] f32 → [...] f32, within ±cap.

    Source: https://arxiv.org/abs/2408.00118 section 2
    """
    if x.dtype != torch.float32:
        raise ValueError(f"softcap: x {list(x.shape)} is {dtype_name(x)}, not float32")
    if cap <= 0:
        raise ValueError(f"softcap: the cap is {cap}, not above 0")
    return ops.find("softcap")(x, cap)


def softcap(x: Tensor, cap: float) -> Tensor:
    """Soft cap: cap * tanh(x / cap), within (-cap, cap)."""
    return torch.tanh(x / cap) * cap
