"""Checks of what GPU kernels compute: the error of results, and writes outside of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_GUARD = 64  # floats before and after a result


def check_close(found: Tensor, wanted: Tensor, most: float, energy: float | None = None) -> None:
    """The result is finite; its mean square error, normalized by the energy, is at most `most`.

    `energy` is the sum of squares to expect, if not that of `wanted`.
    """
    assert found.isfinite().all()
    squares = (found.double() - wanted).square().sum()
    error = float(squares / (wanted.double().square().sum() if energy is None else energy))
    assert error <= most, error


def guarded(*shape: int) -> tuple[Tensor, Callable[[], None]]:
    """An output of NaN f32, and a check that nothing around it was written."""
    count = math.prod(shape)
    around = torch.full((count + 2 * _GUARD,), math.nan)

    def check() -> None:
        assert around[:_GUARD].isnan().all()
        assert around[-_GUARD:].isnan().all()

    return around[_GUARD : _GUARD + count].view(shape), check
