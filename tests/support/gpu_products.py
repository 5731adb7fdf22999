"""Matrices and activations for tests of products on GPUs, and the error that a product may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import gpu_results
from kernels.weights.formats import Format, by_name
from kernels.weights.weight import Weight

MakeRows = Callable[[Format, int, int], Tensor]  # of a format, rows and columns


@dataclass(frozen=True)
class Matrix:
    """A weight as the kernels of a backend read it, and its values [rows, columns] f64."""

    operand: Any
    dense: Tensor


MakeMatrix = Callable[[str, int, int], Matrix]  # of a format's name, rows and columns


def weight_of(name: str, rows: int, columns: int, even_rows: MakeRows) -> Weight:
    """A weight [rows, columns] as in a file, without blocks of zeros."""
    format = by_name(name)
    data = even_rows(format, rows + 1, columns)[1:]  # the first holds a block of zeros
    return Weight.from_bytes(data.numpy().data.cast("B"), format, (rows, columns))


def matrices(even_rows: MakeRows, operand: Callable[[Weight], Any]) -> MakeMatrix:
    """Makes matrices of random values; `operand` stores a weight for a backend."""

    def make(name: str, rows: int, columns: int) -> Matrix:
        weight = weight_of(name, rows, columns, even_rows)
        return Matrix(operand(weight), weight.dense().double())

    return make


def activations(tokens: int, columns: int, random: torch.Generator) -> Tensor:
    """Rows [tokens, columns] f32; tokens and stretches of channels of unlike size."""
    x = torch.randn(tokens, columns, generator=random)
    x *= torch.exp(torch.randn(tokens, 1, generator=random))
    sizes = torch.exp(torch.randn(1, -(-columns // 32), generator=random))
    return x * sizes.repeat_interleave(32, 1)[:, :columns]


def energy_of(x: Tensor, dense: Tensor) -> float:
    """Sum of squares to expect of the product of x [T, D] with a matrix [N, D]."""
    return float((x.double().square() @ dense.square().T).sum())


def check_close(found: Tensor, wanted: Tensor, most: float, energy: float | None = None) -> None:
    """By the energy expected: a single result may be zero by chance."""
    expected = float(wanted.square().sum()) if energy is None else energy
    gpu_results.check_close(found, wanted, most, expected or 1.0)
