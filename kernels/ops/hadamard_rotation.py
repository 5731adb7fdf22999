"""Hadamard rotation of activations, for matrices that are stored in a rotated basis.

A rotation by an orthogonal matrix R of both x and the rows of a matrix leaves their products as
they are, and spreads outliers, so that the rows lose less when they are quantized.
Source: https://arxiv.org/abs/2404.00456
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

Transform = Callable[[Tensor, int], Tensor]  # of rows and the columns of a block


@dataclass(frozen=True, slots=True, eq=False)
class HadamardRotation:
    """HadamardRotation of x, for a matrix of rotated rows: Hadamard transform of the blocks of x * signs.

    With `heads` (A, B) the A*B heads of x are first reordered: x is
    read as [A, B, channels], and B comes first.
    """

    block: int  # columns that are transformed together, a power of two
    signs: Tensor | None = None  # f32 [width of x], 1 and -1
    heads: tuple[int, int] = (1, 1)


def rotated(x: Tensor, one: HadamardRotation, transform: Transform | None = None) -> Tensor:
    """R x of rows x [T, D] f32: heads in their other order, then signs, then the transform.

    `transform` computes `hadamard`, which is taken without one.
    """
    if one.heads != (1, 1):
        x = x.unflatten(1, (*one.heads, -1)).transpose(1, 2).flatten(1)
    return (transform or hadamard)(x if one.signs is None else x * one.signs, one.block)


def rotated_back(y: Tensor, one: HadamardRotation, transform: Transform | None = None) -> Tensor:
    """The rows x [T, D] f32 of which y is R x: the transform is its own inverse."""
    x = (transform or hadamard)(y, one.block)
    x = x if one.signs is None else x * one.signs
    if one.heads != (1, 1):
        x = x.unflatten(1, (*one.heads[::-1], -1)).transpose(1, 2).flatten(1)
    return x


def hadamard(x: Tensor, block: int) -> Tensor:
    """Hadamard transform of every block of columns of x [T, D] f32, in Sylvester's order.

    Entry (i, j) of the matrix is -1 where i & j has an odd number of bits, else 1, divided by the
    root of `block`, which is a power of two. The matrix is the Kronecker product of two smaller
    ones, which takes 2 * sqrt(block) multiply-adds for each column.
    """
    right = 1 << (block.bit_length() - 1) // 2
    blocks = x.unflatten(1, (-1, block // right, right))
    some = _signs(block // right, x.device) @ (blocks @ _signs(right, x.device))
    return (some * block**-0.5).flatten(1)


@cache
def _signs(size: int, device: torch.device) -> Tensor:
    """The Hadamard matrix [size, size] of entries 1 and -1."""
    signs = torch.ones(1, 1)
    while len(signs) < size:
        signs = torch.cat((torch.cat((signs, signs), 1), torch.cat((signs, -signs), 1)))
    return signs.to(device)
