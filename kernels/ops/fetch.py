"""The weights of a paged layer, read from the disk."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.ops.pagers import Pager
from kernels.ops.running import Pass


@dataclass(frozen=True, slots=True, eq=False)
class Fetch:
    """The weights of a paged layer are in memory for the instructions up to the next Fetch."""

    pager: Pager
    layer: int  # number of the layer in the pager; -1: none, at the end of a body
    upcoming: tuple[
        int, ...
    ]  # the paged layers after it; after the last one, those of the next pass

    def run(self, on: Pass) -> None:
        self.pager.fetch(self.layer, self.upcoming, on.checkpoint)
