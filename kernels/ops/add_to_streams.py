"""A buffer that is added to residual streams (AltUp), see `kernels.ops.mix_streams`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kernels.ops.running import Pass
from kernels.ops.table import Table, check_floats


@dataclass(frozen=True, slots=True, eq=False)
class AddToStreams:
    """Each stream j of x, from the stream `first` on, = itself + y * coefficients[j]."""

    x: str  # [T, S*D]
    y: str  # [T, D]
    coefficients: str = ""  # [T, S]; "": 1 each
    first: int = 0

    def run(self, on: Pass) -> None:
        x, y = on.buffers[self.x], on.buffers[self.y]
        some = on.buffers[self.coefficients] if self.coefficients else None
        on.set(self.x, checked_add_to_streams(on.ops, x, y, some, self.first))


def checked_add_to_streams(
    ops: Table, x: Tensor, y: Tensor, coefficients: Tensor | None, first: int
) -> Tensor:
    """Streams from `first` on plus y, times coefficients: x [T, S*D], y [T, D] → [T, S*D], f32.

    coefficients [T, S] f32, or None for 1 each.
    """
    fits = x.dim() == y.dim() == 2 and len(x) == len(y) and x.shape[1] % y.shape[1] == 0
    count = x.shape[-1] // y.shape[-1]
    known = coefficients is None or coefficients.shape == (len(x), count)
    if not fits or not known or not 0 <= first < count:
        raise ValueError(
            f"add_to_streams: x {list(x.shape)}, y {list(y.shape)} and the coefficients do not "
            f"fit, or there is no stream {first}"
        )
    check_floats("add_to_streams", x, y, *(() if coefficients is None else (coefficients,)))
    return ops.find("add_to_streams")(x, y, coefficients, first)


def add_to_streams(x: Tensor, y: Tensor, coefficients: Tensor | None, first: int) -> Tensor:
    """AddToStreams of x [T, S*D] and y [T, D] with coefficients [T, S]."""
    streams = x.unflatten(1, (-1, y.shape[1])).clone()
    added = y[:, None] if coefficients is None else y[:, None] * coefficients[:, first:, None]
    streams[:, first:] += added
    return streams.flatten(1)
