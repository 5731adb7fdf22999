"""Preparation of weights for GPUs: re-laid in pieces, when a model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from kernels.backend import reference
from kernels.gpu.layout import FORMATS, Arrays, weight_bytes
from kernels.weights.formats import Format
from kernels.weights.weight import Weight

_PIECE = 1 << 22  # weights re-laid between two calls of the checkpoint


@dataclass(frozen=True, slots=True)
class WeightStore:
    """How a backend stores weights: the name of its layout, and what writes rows in it."""

    layout: str
    fill: Callable[[Weight, int, int, Tensor], None]  # see `Backend.fill`

    def entries(self, device: torch.device) -> dict[tuple[str, str], reference.Kernel]:
        """The entries of a backend's table that make weights on a device."""
        made: dict[tuple[str, str], reference.Kernel] = {}
        for name in FORMATS:
            made["prepare", name] = partial(self.prepare, device=device)
            made["held_bytes", name] = held_bytes
            made["empty", name] = self.empty
            made["fill", name] = self.fill
        return made

    def prepare(
        self,
        weight: Weight,
        checkpoint: Callable[[], None] = lambda: None,
        done: Callable[[int, int], None] = lambda first, end: None,
        device: torch.device | None = None,
    ) -> Weight:
        """Re-lay a matrix for the device; see `Backend.prepare`. A vector is decoded to float32."""
        if self.has(weight):
            return weight
        place = device or weight.data.device
        if len(weight.shape) == 1:
            return reference.prepare(weight, checkpoint, done, place)
        size = weight_bytes(weight.format, weight.shape)
        memory = torch.empty(size, dtype=torch.uint8, device=place)
        made = self.empty(weight.format, weight.shape, memory)
        rows = weight.data.shape[0]
        step = max(_PIECE // weight.columns, 1)
        stored = weight.data.view(torch.uint8).view(rows, -1)
        for first in range(0, rows, step):
            checkpoint()
            end = min(first + step, rows)
            self.fill(made, first, end, stored[first:end])
            done(first, end)
        return made

    def empty(self, format: Format, shape: Sequence[int], memory: Tensor) -> Weight:
        """A weight over the beginning of `memory` u8; `fill` writes its rows."""
        size = weight_bytes(format, shape)
        assert size <= memory.numel(), (format.name, shape)
        return Weight(memory[:size], format, tuple(shape), self.layout)

    def has(self, weight: Weight) -> bool:
        """Whether kernels can read this weight."""
        return weight.layout == self.layout


def held_bytes(format: Format, shape: Sequence[int]) -> int:
    """Bytes that `prepare` allocates for a weight."""
    return 4 * shape[0] if len(shape) == 1 else weight_bytes(format, shape)


def fields(found: Arrays) -> tuple[Tensor, ...]:
    """The arrays of a weight in the order in which kernels are given them."""
    return found.codes, found.high, found.d, found.m, found.scales, found.minimums
