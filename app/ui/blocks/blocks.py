"""Blocks of a message as they are laid out and drawn: paragraphs, headings, rules.

Every view of a block answers the same questions, gathered in `BlockView`: how high at this width,
what to draw, which position is under a point, what text lies between two positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QColor, QPainter

from app.markdown.blocks import Block, Heading, Paragraph, Rule
from app.ui.blocks.style import ReadingStyle
from app.ui.blocks.text import Flow, Link, cut, word_around


@dataclass(frozen=True, slots=True)
class Canvas:
    """What a block needs to draw itself."""

    painter: QPainter
    style: ReadingStyle
    clip: QRectF  # painter coordinates: what has to be drawn
    color: QColor  # of plain text
    hover: QPointF | None = None  # the mouse, in coordinates of the block


class BlockView(Protocol):
    """One block, laid out; points are relative to its upper left corner."""

    block: Block
    height: float
    right_to_left: bool

    @property
    def length(self) -> int:
        """How many positions the block has."""
        ...

    @property
    def natural_width(self) -> float:
        """How wide the widest line is."""
        ...

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        ...

    def update(self, block: Block) -> bool:
        """Take over a later state of the same block; False when a new view is needed."""
        ...

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Draw at `origin`, with the positions of `selected` marked."""
        ...

    def hit(self, x: float, y: float) -> int:
        """The position nearest to a point."""
        ...

    def over_text(self, x: float, y: float) -> bool:
        """Whether a point lies on text that can be selected."""
        ...

    def link_at(self, x: float, y: float) -> str:
        """The address of the link under a point, or an empty text."""
        ...

    def links(self) -> list[Link]:
        """The links from first to last."""
        ...

    def text(self, start: int, end: int) -> str:
        """The plain text between two positions."""
        ...

    def word_around(self, position: int) -> tuple[int, int]:
        """The positions of the word at a position."""
        ...

    def line_around(self, position: int) -> tuple[int, int]:
        """The positions of the line at a position."""
        ...

    def end_point(self) -> QPointF:
        """Where the text ends, at the middle of its last line."""
        ...


class TextView:
    """A paragraph or a heading."""

    def __init__(self, block: Paragraph | Heading, style: ReadingStyle) -> None:
        self.block: Block = block
        face = style.body_face
        if isinstance(block, Heading):
            face = style.heading_faces[block.level - 1]
        self._flow = Flow(block.runs, style, face)
        self.height = self._flow.height
        self.right_to_left = self._flow.right_to_left

    @property
    def length(self) -> int:
        """How many positions the block has."""
        return self._flow.length

    @property
    def natural_width(self) -> float:
        """How wide the widest line is."""
        return self._flow.natural_width

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        self.height = self._flow.layout(width)
        return self.height

    def update(self, block: Block) -> bool:
        """Text is laid out afresh each time: only an equal block can be taken over."""
        return block == self.block

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Draw the lines."""
        self._flow.paint(canvas.painter, origin, canvas.style, canvas.color, selected, canvas.clip)

    def hit(self, x: float, y: float) -> int:
        """The position nearest to a point."""
        return self._flow.hit(x, y)

    def over_text(self, x: float, y: float) -> bool:
        """Whether a point lies on the letters."""
        return self._flow.over_text(x, y)

    def link_at(self, x: float, y: float) -> str:
        """The address of the link under a point, or an empty text."""
        return self._flow.link_at(x, y)

    def links(self) -> list[Link]:
        """The links from first to last."""
        return self._flow.links()

    def text(self, start: int, end: int) -> str:
        """The plain text between two positions."""
        return cut(self._flow.text, start, end).replace("\u2028", "\n")

    def word_around(self, position: int) -> tuple[int, int]:
        """The positions of the word at a position."""
        return word_around(self._flow.text, position)

    def line_around(self, position: int) -> tuple[int, int]:
        """A third click takes the paragraph, as everywhere."""
        del position
        return 0, self._flow.length

    def end_point(self) -> QPointF:
        """Where the text ends, at the middle of its last line."""
        return self._flow.end_point()


class RuleView:
    """A horizontal line."""

    def __init__(self, block: Rule) -> None:
        self.block: Block = block
        self.height = 17.0
        self.right_to_left = False
        self._width = 0.0

    @property
    def length(self) -> int:
        """A rule counts as one position, so that it can be selected."""
        return 1

    @property
    def natural_width(self) -> float:
        """A rule is as wide as it may be."""
        return self._width

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        self._width = width
        return self.height

    def update(self, block: Block) -> bool:
        """One rule is as good as another."""
        if not isinstance(block, Rule):
            return False
        self.block = block
        return True

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Draw the line."""
        if selected:
            area = QRectF(origin.x(), origin.y(), self._width, self.height)
            canvas.painter.fillRect(area, canvas.style.selection)
        line = QRectF(origin.x(), origin.y() + 8, self._width, 2 if canvas.style.bare else 1)
        canvas.painter.fillRect(line, canvas.style.hairline)

    def hit(self, x: float, y: float) -> int:
        """The position nearest to a point."""
        del x
        return int(y > self.height / 2)

    def over_text(self, x: float, y: float) -> bool:
        """There is no text."""
        del x, y
        return False

    def link_at(self, x: float, y: float) -> str:
        """There are no links."""
        del x, y
        return ""

    def links(self) -> list[Link]:
        """There are no links."""
        return []

    def text(self, start: int, end: int) -> str:
        """A rule as a person would type it."""
        return "---" if end > start else ""

    def word_around(self, position: int) -> tuple[int, int]:
        """The rule."""
        del position
        return 0, 1

    def line_around(self, position: int) -> tuple[int, int]:
        """The rule."""
        del position
        return 0, 1

    def end_point(self) -> QPointF:
        """Below the rule, where text goes on."""
        return QPointF(0.0, self.height + 8)
