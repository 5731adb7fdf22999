"""View of a typeset formula on lines of its own: centred, scaled down a little or scrolled if wide.

Positions count the characters of its source, as before it was typeset, but a selection contains all
of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QPointF, QRectF

from app.markdown.blocks import Block, Formula
from app.markdown.formulas import Tex
from app.ui.blocks.blocks import BlockView, Canvas, TextView
from app.ui.blocks.code import CodeView
from app.ui.blocks.formula_paint import draw_formula
from app.ui.blocks.scrolling import GRAB_HEIGHT, HorizontalScroll
from app.ui.blocks.style import ReadingStyle
from app.ui.blocks.table import TableView
from app.ui.blocks.text import Link, cut, units
from app.ui.blocks.typesetting import TYPESETTER, Picture

SMALLEST_SCALE = 0.8  # of a formula that is wider than the column; one still wider scrolls
_PADDING = 4.0  # pixels above and below


def formula_view(block: Formula, style: ReadingStyle) -> BlockView:
    """The view of a formula: its picture, or its source if it is wrong or not typeset yet."""
    tex = Tex(block.tex, display=True)
    picture = TYPESETTER.ask(tex)
    if picture:
        return FormulaView(block, picture, style)
    view = TextView(block, style)
    if not TYPESETTER.ready(tex):
        view.waiting = [tex]
    return view


class FormulaView:
    """Layout, painting and hit testing of a typeset formula."""

    def __init__(self, block: Formula, picture: Picture, style: ReadingStyle) -> None:
        self.block: Block = block
        self.height = 0.0
        self.right_to_left = False
        self.waiting: list[Tex] = []
        self.horizontal_scroll = HorizontalScroll()
        self._source = block.source
        self._picture = picture
        self._reading_size = self._size = float(style.body_face.font.pixelSize())
        self._width = 0.0

    @property
    def picture(self) -> Picture:
        """The typeset formula."""
        return self._picture

    @property
    def length(self) -> int:
        """The number of text positions in the source."""
        return units(self._source)

    @property
    def natural_width(self) -> float:
        """The width of the formula, in pixels."""
        return self._picture.width * self._reading_size

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        self._width = width
        scale = min(1.0, max(width / self.natural_width, SMALLEST_SCALE))
        self._size = self._reading_size * scale
        self.horizontal_scroll.fit(self.natural_width * scale, width)
        height = (self._picture.ascent + self._picture.descent) * self._size
        foot = GRAB_HEIGHT if self.horizontal_scroll.overflows else 0
        self.height = float(round(height + 2 * _PADDING)) + foot
        return self.height

    def update(self, block: Block) -> bool:
        """True only for an equal block."""
        return block == self.block

    def _area(self) -> QRectF:
        """The rectangle of the formula."""
        width = self._picture.width * self._size
        left = max((self._width - width) / 2, 0.0) - self.horizontal_scroll.offset
        height = (self._picture.ascent + self._picture.descent) * self._size
        return QRectF(left, _PADDING, width, height)

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Paint the formula and, if it is wider than the column, its scroll bar."""
        painter, style = canvas.painter, canvas.style
        area = self._area().translated(origin)
        painter.save()
        view = QRectF(origin.x() - 3, origin.y(), self._width + 6, self.height)
        painter.setClipRect(view & canvas.clip)
        if selected and selected[0] < selected[1]:
            painter.fillRect(area.adjusted(-3, -2, 3, 2), style.selection)
        baseline = area.topLeft() + QPointF(0.0, self._picture.ascent * self._size)
        draw_formula(painter, self._picture, baseline, self._size, canvas.color)
        painter.restore()
        self.horizontal_scroll.paint(
            painter, origin.x(), origin.y() + self.height - 4, style.hairline
        )

    def hit(self, x: float, y: float) -> int:
        """The start or the end, whichever is nearer to a point."""
        area = self._area()
        if y < 0 or y > self.height:
            return self.length if y > 0 else 0
        return self.length if x > area.center().x() else 0

    def over_text(self, x: float, y: float) -> bool:
        """Whether a point lies on the formula."""
        return self._area().contains(QPointF(x, y))

    def over_scroll_bar(self, y: float) -> bool:
        """Whether `y` hits the horizontal scroll bar."""
        return self.horizontal_scroll.overflows and y >= self.height - GRAB_HEIGHT - 4

    def formula_at(self, x: float, y: float) -> str:
        """The source of the formula if a point lies on it, or an empty text."""
        return self._source if self.over_text(x, y) else ""

    def link_at(self, x: float, y: float) -> str:
        """Empty: a formula has no links."""
        del x, y
        return ""

    def links(self) -> list[Link]:
        """Empty: a formula has no links."""
        return []

    def areas(self, start: int, end: int) -> Iterator[QRectF]:
        """The whole formula."""
        if start < end:
            yield self._area().adjusted(-3, -2, 3, 2)

    def text(self, start: int, end: int) -> str:
        """The source of a range of positions."""
        return cut(self._source, start, end)

    def word_around(self, position: int) -> tuple[int, int]:
        """The whole formula."""
        del position
        return 0, self.length

    def line_around(self, position: int) -> tuple[int, int]:
        """The whole formula."""
        del position
        return 0, self.length

    def end_point(self) -> QPointF:
        """The right edge of the formula, vertically centred."""
        area = self._area()
        return QPointF(min(area.right(), self._width), area.center().y())


ScrollingView = CodeView | TableView | FormulaView  # views that may scroll horizontally
FormulaHolder = TextView | TableView | FormulaView  # views that may contain formulas
