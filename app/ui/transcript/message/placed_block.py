"""Parts of a message view: the blocks with their positions, their indentation and their gaps."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QSizeF

from app.markdown.blocks import Code, Formula, Heading, Level, Place, Rule, Table
from app.ui.blocks.blocks import BlockView
from app.ui.blocks.style import DEEPEST_INDENT, INDENT, QUOTE_INDENT

BOX_WIDTH = 20.0  # pixels: of the box between a number and its text
ROW_INDENT = 18.0  # pixels: of the blocks below a row


@dataclass(slots=True)
class PlacedBlock:
    """A block view with its position; coordinates are relative to the message."""

    view: BlockView
    path: tuple[Level, ...]
    section: int
    below_row: bool  # indented below the row of its section
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0

    @property
    def view_size(self) -> QSizeF:
        """The size of the block."""
        return QSizeF(self.width, self.view.height)


def indent(path: tuple[Level, ...]) -> float:
    """The indentation of a block inside these containers, in pixels."""
    return float(sum(map(level_indent, path[:DEEPEST_INDENT])))


def level_indent(level: Level) -> float:
    """The indentation inside one container, in pixels."""
    return QUOTE_INDENT if level.quote else INDENT + (BOX_WIDTH if level.is_numbered_task else 0)


def gap(before: PlacedBlock, part: PlacedBlock) -> float:
    """The vertical space between two parts, in pixels."""
    one, two = before.view.block, part.view.block
    place: Place = two.place
    if before.section != part.section:
        return 16.0
    if place.joined:
        return 0.0
    if place.tight and not isinstance(one, Formula) and not isinstance(two, Formula):
        return 4.0
    if isinstance(two, Heading):
        return 28.0 if two.level <= 2 else 22.0
    if isinstance(one, Heading):
        return 8.0
    if isinstance(one, Formula) or isinstance(two, Formula):
        return 10.0
    if isinstance(one, Code | Table | Rule) or isinstance(two, Code | Table | Rule):
        return 14.0
    in_list = [any(not level.quote for level in part.path) for part in (before, part)]
    return 8.0 if all(in_list) else 12.0
