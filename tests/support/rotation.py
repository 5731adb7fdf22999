"""Reference Hadamard matrix that rotates keys and values before 8-bit quantization.

Built from Sylvester's definition, unlike `kernels.states.quantized_kv.hadamard`, which adds and subtracts.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rotation(width: int) -> Tensor:
    """f64 [width, width]: orthonormal Hadamard blocks of the largest power of two dividing `width`.

    Blocks have at most 256 rows.
    """
    span = next(2**i for i in range(8, -1, -1) if width % 2**i == 0)
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < span:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64), matrix)
    return torch.block_diag(*[matrix / span**0.5] * (width // span))
