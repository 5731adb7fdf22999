"""Launches of LoRA terms, for a few tokens: two for the products of one x."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from kernels.cuda import launch, weights
from kernels.cuda.jit import adapters as jit
from kernels.cuda.launch import run
from kernels.cuda.weights import Operand
from kernels.ops import LoraDelta
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

_ROWS = 64  # of a program


def dense(weight: Weight) -> Tensor:
    """A factor as f32 [rows, columns]; factors are F32."""
    operand = weights.operand(weight)
    return operand.arrays[0].view(torch.float32).view(operand.rows, operand.columns)


class Terms:
    """LoRA terms of up to three products of one x, with their factors in two arrays."""

    def __init__(self, deltas: Sequence[LoraDelta], tokens: int, device: torch.device) -> None:
        self._ups = [dense(one.up).contiguous() for one in deltas]
        downs = torch.cat([dense(one.down) for one in deltas])  # [ranks, D]
        self._scales = torch.cat([one.scales for one in deltas])
        self._tokens = tokens
        kind = Weight(downs, by_name("F32"), tuple(downs.shape))
        self._down: Operand = weights.operand(kind)
        self._low = torch.zeros(launch.padded(tokens), len(downs), device=device)

    def add(self, x: Tensor, outs: Sequence[Tensor]) -> None:
        """Add the terms of x [padded tokens, D] f32 to products [padded tokens, rows] f32."""
        tokens = self._tokens
        launch.linear(x, None, [self._down], [self._low], tokens)
        missing = 3 - len(self._ups)
        ups = [*self._ups, *[self._ups[0]] * missing]
        every = [*outs, *[outs[0]] * missing]
        ranks = [one.shape[1] for one in self._ups] + [0] * missing
        run(
            jit.lora_added,
            (sum(-(-one.shape[0] // _ROWS) for one in self._ups), tokens),
            self._low,
            self._scales,
            *ups,
            *every,
            *(one.shape[0] for one in ups),
            R0=ranks[0],
            R1=ranks[1],
            R2=ranks[2],
            RP0=triton.next_power_of_2(max(ranks[0], 1)),
            RP1=triton.next_power_of_2(max(ranks[1], 1)),
            RP2=triton.next_power_of_2(max(ranks[2], 1)),
            COUNT=len(self._ups),
            BN=_ROWS,
            num_warps=4,
        )
