"""Pictures as rows of patches: their order, their learned positions, and rows of several of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Grid(NamedTuple):
    """Patches of a picture."""

    rows: int
    columns: int


def grid_of(pixels: Tensor, patch: int) -> Grid:
    """The patches of a picture [height, width, 3]; ValueError if its sides are not whole patches."""
    height, width, channels = pixels.shape
    if channels != 3 or height % patch or width % patch or not height * width:
        raise ValueError(f"pixels {list(pixels.shape)} are not whole patches of {patch} x {patch}")
    return Grid(height // patch, width // patch)


def patch_rows(pixels: Tensor, patch: int) -> Tensor:
    """The patches of a picture [height, width, 3], row by row → [T, 3 * patch²], by channel."""
    grid = grid_of(pixels, patch)
    cut = pixels.view(grid.rows, patch, grid.columns, patch, 3)
    return cut.permute(0, 2, 4, 1, 3).reshape(grid.rows * grid.columns, -1)


def square_order(grid: Grid, side: int) -> Tensor:
    """Numbers [T] of the patches in the order of squares of `side` x `side`, row by row."""
    numbers = torch.arange(grid.rows * grid.columns)
    cut = numbers.view(grid.rows // side, side, grid.columns // side, side)
    return cut.permute(0, 2, 1, 3).reshape(-1)


def squares(rows: Tensor, grid: Grid, side: int) -> Tensor:
    """The rows [T, D] of the patches of each square beside each other: [T / side², side² * D]."""
    ordered = rows[square_order(grid, side).to(rows.device)]
    return ordered.reshape(-1, side * side * rows.shape[1])


def square_means(rows: Tensor, grid: Grid, side: int) -> Tensor:
    """The mean of the rows [T, D] of the patches of each square: [T / side², D]."""
    ordered = rows[square_order(grid, side).to(rows.device)]
    return ordered.view(-1, side * side, rows.shape[1]).mean(1)


def coordinates(grid: Grid) -> Tensor:
    """Row and column [T, 2] i64 of every patch."""
    rows, columns = torch.meshgrid(*map(torch.arange, grid), indexing="ij")
    return torch.stack((rows.flatten(), columns.flatten()), 1)


def fixed_positions(table: Tensor, side: int, grid: Grid) -> Tensor:
    """The table, if the picture has the size of `side` x `side` patches that it is for."""
    if grid != (side, side):
        raise ValueError(f"a picture of {grid.rows} x {grid.columns} patches, not {side} x {side}")
    return table


def summed_positions(tables: Tensor, grid: Grid) -> Tensor:
    """The sum of the learned positions of every patch's column and row: of [2, n, D], [T, D]."""
    if max(grid) > tables.shape[1]:
        raise ValueError(f"a picture of {grid.rows} x {grid.columns} patches is too large")
    rows, columns = coordinates(grid).unbind(1)
    return tables[0][columns] + tables[1][rows]


def nearest_positions(table: Tensor, grid: Grid) -> Tensor:
    """Of learned positions [side, side, D] those nearest to the patches, as shares of the sides."""
    side = len(table)
    bounds = torch.arange(1 / side, 1.0, 1 / side)
    rows, columns = (
        torch.bucketize(torch.arange(count) / count, bounds, right=True) for count in grid
    )
    return table[rows[:, None], columns].flatten(0, 1)


def resized_positions(table: Tensor, grid: Grid, *, corners: bool, bicubic: bool = False) -> Tensor:
    """Learned positions [side, side, D] of a square, resized bilinearly to a grid: [T, D].

    With `corners` the corner patches of both have the same position; else the areas of both are
    the same, and where the grid is smaller, each position is a mean of those around it: but not if
    they are resized bicubically.
    """
    square = table.permute(2, 0, 1)[None]
    found = functional.interpolate(
        square,
        size=tuple(grid),
        mode="bicubic" if bicubic else "bilinear",
        align_corners=corners,
        antialias=not (corners or bicubic),
    )
    return found[0].flatten(1).T.contiguous()
