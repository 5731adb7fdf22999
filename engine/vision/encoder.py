"""Picture encoder: a tower over patches and a projector, from pixels to rows for a text model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.machine.device import trim_heap
from engine.vision.patches import Grid, grid_of, patch_rows
from engine.vision.projector_file import VisionConfig
from kernels.backend.backend import Backend
from kernels.ops import ImageRows, Segment
from kernels.programs.program import Program, Recorded

Rows = Callable[[Tensor, Grid], Tensor]  # rows and the grid of patches → rows


def unchanged(rows: Tensor, grid: Grid) -> Tensor:
    """The rows themselves."""
    del grid
    return rows


@dataclass(frozen=True, slots=True)
class Stage:
    """A program between tower and projector, over rows made of those of the program before it."""

    program: Program
    given: Rows = unchanged  # [T, W] → [n, W']
    group: int = 0  # rows that attend to each other; 0: all


@dataclass(frozen=True, slots=True)
class Wiring:
    """A picture encoder as programs: a vision tower over patches, perhaps more, and a projector.

    Before the projector `merged` makes its input of the last result, on the device of both. The
    other functions prepare the patches and complete the projector's rows, on the host.
    """

    config: VisionConfig
    tower: Program
    projector: Program
    merged: Rows  # [T, W] → [n, W']
    # [T, D], added to the patches; rows beyond theirs are tokens without pixels.
    positions: Callable[[Grid], Tensor] | None = None
    axes: Callable[[Grid], Tensor] | None = None  # [T, 2] i64, positions for RoPE
    order: Callable[[Grid], Tensor] | None = None  # [T] i64: another order of the patches
    finished: Rows = unchanged  # of the projector's rows
    is_unsigned: bool = False  # pixels of 0 to 1, which become those of -1 to 1
    stages: tuple[Stage, ...] = ()  # behind the tower

    @property
    def programs(self) -> tuple[Program, ...]:
        """All programs, in order."""
        return (self.tower, *(one.program for one in self.stages), self.projector)


class Encoder:
    """A picture encoder, recorded by a backend; used by one thread at a time."""

    def __init__(self, wiring: Wiring, backend: Backend) -> None:
        self.config, self.wiring = wiring.config, wiring
        self.programs: tuple[Recorded, ...] = tuple(map(backend.record, wiring.programs))

    def encode(self, pixels: Tensor, checkpoint: Callable[[], None] = lambda: None) -> Tensor:
        """A picture [height, width, 3] f32, normalised → rows [n, W] f32 for the text model.

        Pixels and rows are on the host, where the rows stay if a device fails.
        W is its width, or several times that if deeper layers of it add more rows. `checkpoint` is
        called between layers and may raise to cancel. Raises ValueError for pixels that are not
        whole squares of patches, or of a size that the learned positions are not for.
        """
        wiring = self.wiring
        grid = grid_of(pixels, self.config.patch)
        if grid.rows % self.config.merge or grid.columns % self.config.merge:
            raise ValueError(
                f"{grid.rows} x {grid.columns} patches are not whole squares of {self.config.merge}"
            )
        with torch.inference_mode():
            given = self._given(pixels, grid)
            trim_heap()  # what was freed meanwhile would stay beside the tower's buffers
            tower, *stages, projector = self.programs
            hidden = _run(tower, *given, checkpoint)
            del given
            for stage, one in zip(wiring.stages, stages, strict=True):
                hidden = _run(one, stage.given(hidden, grid), None, checkpoint, stage.group)
            merged = wiring.merged(hidden, grid)
            del hidden
            rows = _run(projector, merged, None, checkpoint)
            return wiring.finished(rows.cpu(), grid)

    def _given(self, pixels: Tensor, grid: Grid) -> tuple[Tensor, Tensor | None]:
        """What the tower begins with: rows [T, W] f32, and positions for RoPE, [T, 2] i64."""
        wiring = self.wiring
        rows = patch_rows(pixels * 2 - 1 if wiring.is_unsigned else pixels, self.config.patch)
        if wiring.positions is not None:
            positions = wiring.positions(grid)
            if more := len(positions) - len(rows):
                rows = functional.pad(rows, (0, 0, 0, more))
            rows = torch.cat((rows, positions), 1)
        axes = None if wiring.axes is None else wiring.axes(grid)
        if wiring.order is not None:
            order = wiring.order(grid)
            rows, axes = rows[order], None if axes is None else axes[order]
        return rows, axes


def _run(
    program: Recorded,
    rows: Tensor,
    axes: Tensor | None,
    checkpoint: Callable[[], None],
    group: int = 0,
) -> Tensor:
    """A program over given rows [T, W], one for each of T tokens, in groups of so many."""
    count = group or len(rows)
    at = torch.arange(count)
    batch = [
        Segment([0] * count, 0, (), ImageRows(some, at, axes))
        for some in rows.contiguous().split(count)
    ]
    return program.hidden(batch, checkpoint)
