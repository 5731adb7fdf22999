"""A picture of a prompt, made ready for one picture encoder: what the rows of each part are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """What the encoder sees at once: a picture, or a part of one that is divided."""

    key: str  # SHA-256 of its pixels and of how rows are made of them
    lines: int  # rows of the encoder's result, one below the other
    columns: int  # rows of a line
    count: int  # rows in all: with those that a projector adds at the end of lines
    pixels: Callable[[], Tensor]  # [height, width, 3] f32, normalised
    pixel_bytes: int = 0  # that `pixels` holds


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A picture as a model reads it."""

    width: int  # of the picture as it is seen, in pixels
    height: int
    tiles: tuple[Tile, ...]  # one, or those of a grid in reading order
    grid: tuple[int, int] = (1, 1)  # lines and columns of tiles
    overview: Tile | None = None  # the whole picture, small, beside the tiles of a grid

    @property
    def rows(self) -> int:
        """Rows for the text model, without the tokens around them."""
        overview = 0 if self.overview is None else self.overview.count
        return overview + sum(tile.count for tile in self.tiles)
