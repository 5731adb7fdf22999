"""What 8-bit keys and values are rotated by, made from its definition and not from sums."""

from __future__ import annotations

import torch
from torch import Tensor


def rotation(width: int) -> Tensor:
    """f64 [width, width]: Sylvester's matrices over their root, as wide as a power of two divides the width."""
    span = next(2**i for i in range(8, -1, -1) if width % 2**i == 0)
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < span:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64), matrix)
    return torch.block_diag(*[matrix / span**0.5] * (width // span))
