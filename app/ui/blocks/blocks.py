"""Block views: layout, painting and hit testing of paragraphs, headings and rules.

`BlockView` is the interface of every block view. A position is an offset in UTF-16 code units into
the block's plain text; coordinates are pixels relative to the block's top-left corner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QColor, QPainter, QPixmap

from app.domain.parts import ImagePart
from app.markdown.blocks import Block, Formula, Heading, Paragraph, Rule, Run
from app.markdown.formulas import Tex
from app.ui.blocks.style import ReadingStyle
from app.ui.blocks.text import Flow, Link, cut, word_around


@dataclass(frozen=True, slots=True)
class Canvas:
    """Paint context of a block: painter, style, clip rectangle, text colour, mouse position."""

    painter: QPainter
    style: ReadingStyle
    clip: QRectF  # the area to repaint, in painter coordinates
    color: QColor  # of plain text
    hover: QPointF | None = None  # the mouse position, in block coordinates
    # The thumbnail of a picture, or why there is none; None: it is asked for.
    thumbnail: Callable[[ImagePart], QPixmap | str | None] | None = None


@dataclass(frozen=True, slots=True)
class BlockButton:
    """A button in a block."""

    name: str  # within the block
    words: str  # what it does
    area: QRectF  # in block coordinates
    checked: bool | None = None  # None: it does not switch anything
    labelled: bool = False  # it shows a word


@runtime_checkable
class ButtonHolder(Protocol):
    """A block view with buttons."""

    def buttons(self) -> list[BlockButton]:
        """The buttons in reading order."""
        ...


class BlockView(Protocol):
    """Interface of a laid-out block; points are relative to its top-left corner."""

    block: Block
    height: float
    right_to_left: bool
    waiting: list[Tex]  # formulas that are shown as source until they are typeset

    @property
    def length(self) -> int:
        """The number of text positions in the block."""
        ...

    @property
    def natural_width(self) -> float:
        """The width of the widest line, in pixels."""
        ...

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        ...

    def update(self, block: Block) -> bool:
        """Update to a later state of the same block; False if a new view is needed."""
        ...

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Paint at `origin`, with the range of positions `selected` highlighted."""
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

    def areas(self, start: int, end: int) -> Iterator[QRectF]:
        """The rectangles of a range of positions, scrolled but not clipped."""
        ...

    def text(self, start: int, end: int) -> str:
        """The plain text of a range of positions."""
        ...

    def word_around(self, position: int) -> tuple[int, int]:
        """The start and end of the word at a position."""
        ...

    def line_around(self, position: int) -> tuple[int, int]:
        """The start and end of the line at a position."""
        ...

    def end_point(self) -> QPointF:
        """The end of the text, vertically centred on its last line."""
        ...


class TextView:
    """A paragraph, a heading or the source of a formula."""

    def __init__(self, block: Paragraph | Heading | Formula, style: ReadingStyle) -> None:
        self.block: Block = block
        face = style.body_face
        if isinstance(block, Heading):
            face = style.heading_faces[block.level - 1]
        runs = (Run(block.source),) if isinstance(block, Formula) else block.runs
        self._flow = Flow(runs, style, face)
        self.waiting = self._flow.waiting
        self.height = self._flow.height
        self.right_to_left = self._flow.right_to_left

    @property
    def length(self) -> int:
        """The number of text positions in the block."""
        return self._flow.length

    @property
    def natural_width(self) -> float:
        """The width of the widest line, in pixels."""
        return self._flow.natural_width

    @property
    def line_tops(self) -> Sequence[float]:
        """The y coordinates of the lines, and of the end of the last one."""
        return self._flow.line_tops

    @property
    def first_line_drop(self) -> float:
        """How much lower than usual the first baseline is, because of a formula."""
        return self._flow.first_line_drop

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        self.height = self._flow.layout(width)
        return self.height

    def update(self, block: Block) -> bool:
        """True only for an equal block: changed text needs a new layout."""
        return block == self.block

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Paint the lines of text."""
        self._flow.paint(canvas.painter, origin, canvas.style, canvas.color, selected, canvas.clip)

    def hit(self, x: float, y: float) -> int:
        """The position nearest to a point."""
        return self._flow.hit(x, y)

    def over_text(self, x: float, y: float) -> bool:
        """Whether a point lies on the text of a line."""
        return self._flow.over_text(x, y)

    def link_at(self, x: float, y: float) -> str:
        """The address of the link under a point, or an empty text."""
        return self._flow.link_at(x, y)

    def links(self) -> list[Link]:
        """The links from first to last."""
        return self._flow.links()

    def areas(self, start: int, end: int) -> Iterator[QRectF]:
        """The rectangles of a range of positions, one or more per line."""
        return self._flow.areas(start, end)

    def text(self, start: int, end: int) -> str:
        """The plain text of a range of positions."""
        return cut(self._flow.text, start, end).replace("\u2028", "\n")

    def word_around(self, position: int) -> tuple[int, int]:
        """The start and end of the word or formula at a position."""
        return self._flow.formula_around(position) or word_around(self._flow.text, position)

    def formula_at(self, x: float, y: float) -> str:
        """The source of the typeset formula under a point, or an empty text."""
        return self._flow.formula_at(x, y)

    def line_around(self, position: int) -> tuple[int, int]:
        """The whole paragraph: a triple click selects it."""
        del position
        return 0, self._flow.length

    def end_point(self) -> QPointF:
        """The end of the text, vertically centred on its last line."""
        return self._flow.end_point()


class RuleView:
    """A thematic break, painted as a horizontal line."""

    def __init__(self, block: Rule) -> None:
        self.block: Block = block
        self.height = 17.0
        self.right_to_left = False
        self.waiting: list[Tex] = []
        self._width = 0.0

    @property
    def length(self) -> int:
        """One position, so that the rule can be selected."""
        return 1

    @property
    def natural_width(self) -> float:
        """The width of the last layout: a rule fills the column."""
        return self._width

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        self._width = width
        return self.height

    def update(self, block: Block) -> bool:
        """True for any rule: all rules look the same."""
        if not isinstance(block, Rule):
            return False
        self.block = block
        return True

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Draw the line."""
        if selected:
            area = QRectF(origin.x(), origin.y(), self._width, self.height)
            canvas.painter.fillRect(area, canvas.style.selection)
        line = QRectF(
            origin.x(), origin.y() + 8, self._width, 2 if canvas.style.high_contrast else 1
        )
        canvas.painter.fillRect(line, canvas.style.hairline)

    def hit(self, x: float, y: float) -> int:
        """The position nearest to a point."""
        del x
        return int(y > self.height / 2)

    def over_text(self, x: float, y: float) -> bool:
        """False: a rule has no text."""
        del x, y
        return False

    def link_at(self, x: float, y: float) -> str:
        """Empty: a rule has no links."""
        del x, y
        return ""

    def links(self) -> list[Link]:
        """Empty: a rule has no links."""
        return []

    def areas(self, start: int, end: int) -> Iterator[QRectF]:
        """The whole rule."""
        if start < end:
            yield QRectF(0.0, 0.0, self._width, self.height)

    def text(self, start: int, end: int) -> str:
        """The rule as Markdown, or an empty text for an empty range."""
        return "---" if end > start else ""

    def word_around(self, position: int) -> tuple[int, int]:
        """The whole rule."""
        del position
        return 0, 1

    def line_around(self, position: int) -> tuple[int, int]:
        """The whole rule."""
        del position
        return 0, 1

    def end_point(self) -> QPointF:
        """The left edge below the rule, where following text begins."""
        return QPointF(0.0, self.height + 8)
