"""What images change in the batches of GPU backends: positions of RoPE, and spans."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.ops import Attend, Segment, Spans
from kernels.ops.running import rope_positions


class Turns:
    """Positions of RoPE with several axes of a recorded step, in fixed places of device memory.

    Attention without axes has none: it turns by the place of a token in its text.
    """

    def __init__(self, sequences: int, device: torch.device) -> None:
        self._sequences, self._device = sequences, device
        self._made: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}  # axes, and positions

    def of(self, axes: Tensor | None) -> Tensor | None:
        """The positions i64 [sequences, pairs] by these axes; those of layers alike are one tensor."""
        if axes is None:
            return None
        key = tuple(axes.tolist())
        if key not in self._made:
            shape = self._sequences, len(key)
            self._made[key] = axes, torch.zeros(shape, dtype=torch.int64, device=self._device)
        return self._made[key][1]

    def fill(self, batch: Sequence[Segment]) -> None:
        """Write the positions of the next step, of one token of each of the sequences."""
        for axes, positions in self._made.values():
            positions.copy_(rope_positions(batch, axes))


class BatchTurns:
    """Positions of RoPE with several axes of a batch, copied to a device once."""

    def __init__(self, batch: Sequence[Segment], device: torch.device) -> None:
        self._batch, self._device = batch, device
        self._made: dict[tuple[int, ...], Tensor] = {}

    def of(self, axes: Tensor | None) -> Tensor | None:
        """The positions i64 [T, pairs] by these axes; None: there are none."""
        if axes is None:
            return None
        key = tuple(axes.tolist())
        if key not in self._made:
            self._made[key] = rope_positions(self._batch, axes).to(self._device)
        return self._made[key]


def is_token(segment: Segment) -> bool:
    """Whether a segment is one token of a text, as steps have; an image may be before it."""
    return len(segment.tokens) == 1 and (segment.images is None or segment.images.rows is None)


def span_pieces(one: Attend, segment: Segment) -> list[tuple[range, Spans]]:
    """The tokens of a segment that kernels attend at once: each span alone, and those between."""
    if not one.spans:
        return [(range(len(segment.tokens)), Spans.CAUSAL)]
    return [(piece, spans) for piece, _, spans in one.pieces(segment)]
