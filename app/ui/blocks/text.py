"""Text flow: a paragraph of styled text broken into lines, the transcript's only text primitive.

One QTextLayout per paragraph, which is much cheaper than a QTextDocument. Positions count UTF-16
code units, as in Qt. The line height is fixed, so that fallback fonts do not change the spacing.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, reduce
from typing import cast

from PySide6.QtCore import QPointF, QRectF, Qt, QTextBoundaryFinder
from PySide6.QtGui import (
    QColor,
    QPainter,
    QTextCharFormat,
    QTextLayout,
    QTextLine,
    QTextOption,
)

from app.markdown.blocks import Runs
from app.ui.blocks.style import Face, ReadingStyle


def units(text: str) -> int:
    """The length of a text in UTF-16 code units."""
    if text.isascii() or max(text) <= "\uffff":
        return len(text)
    return len(text.encode("utf-16-le")) // 2


def cut(text: str, start: int, end: int) -> str:
    """The slice of a text between two positions in UTF-16 code units."""
    if text.isascii() or max(text) <= "\uffff":
        return text[start:end]
    return text.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le", errors="replace")


def word_around(text: str, position: int) -> tuple[int, int]:
    """The start and end of the word (or of the white space) at a position."""
    finder = QTextBoundaryFinder(QTextBoundaryFinder.BoundaryType.Word, text)
    finder.setPosition(min(position + 1, units(text)))
    start = finder.toPreviousBoundary()
    finder.setPosition(max(start, 0))
    end = finder.toNextBoundary()
    return max(start, 0), end if end >= 0 else units(text)


def runs_right_to_left(text: str) -> bool:
    """Whether the first strongly directional character is right-to-left, as in Arabic or Hebrew."""
    if text.isascii():
        return False
    for letter in text[:400]:
        kind = unicodedata.bidirectional(letter)
        if kind in ("R", "AL"):
            return True
        if kind == "L":
            return False
    return False


@cache
def _option(align: str, *, right_to_left: bool) -> QTextOption:
    option = QTextOption()
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    directions = Qt.LayoutDirection
    option.setTextDirection(directions.RightToLeft if right_to_left else directions.LeftToRight)
    flags = Qt.AlignmentFlag
    side = flags.AlignRight if align == "right" else flags.AlignHCenter
    if align == "left":
        side = flags.AlignRight if right_to_left else flags.AlignLeft
    option.setAlignment(side | flags.AlignAbsolute)
    return option


@dataclass(frozen=True, slots=True)
class Link:
    """A link: its text, its address and its bounding rectangle."""

    text: str
    address: str
    area: QRectF

    def moved(self, x: float, y: float) -> Link:
        """The link with its area translated into the coordinates of a container."""
        return Link(self.text, self.address, self.area.translated(x, y))


class Flow:
    """A paragraph of styled runs: line breaking, hit testing and painting."""

    def __init__(
        self,
        runs: Runs,
        style: ReadingStyle,
        face: Face,
        *,
        align: str = "left",
    ) -> None:
        self.text = "".join(run.text for run in runs).replace("\n", "\u2028")
        self.length = units(self.text)
        self.height = self._line_height = face.line
        self.natural_width = 0.0
        self._face = face
        self._right_to_left = runs_right_to_left(self.text)
        # With bidirectional text a range of positions may be several rectangles of one line.
        self._mixed = not self.text.isascii() and any(
            unicodedata.bidirectional(letter) in ("R", "AL") for letter in self.text
        )
        self._align = align
        self._width = -1.0
        self._code: list[tuple[int, int]] = []
        self._starts: list[int] = []
        self._links: list[str] = []
        self._layout = QTextLayout(self.text, face.font)
        self._layout.setCacheEnabled(True)
        self._layout.setTextOption(_option(align, right_to_left=self._right_to_left))
        ranges = self._ranges(runs, style)
        if ranges:
            self._layout.setFormats(ranges)

    @property
    def right_to_left(self) -> bool:
        """Whether the base direction of the text is right-to-left."""
        return self._right_to_left

    def _ranges(self, runs: Runs, style: ReadingStyle) -> list[QTextLayout.FormatRange]:
        ranges: list[QTextLayout.FormatRange] = []
        at = 0
        size = self._face.font.pixelSize()
        for index, run in enumerate(runs):
            length = units(run.text)
            if run.bold or run.italic or run.strike or run.code or run.link:
                look = style.run_format(run, size)
                if run.code and self._mixed:
                    look = QTextCharFormat(look)
                    look.setBackground(style.code_ground)
                ranges.append(_range(at, length, look))
            else:  # widen the spaces beside inline code, because its background extends into them
                if index and runs[index - 1].code and run.text.startswith(" "):
                    ranges.append(_range(at, 1, style.wide_space))
                if runs[index + 1 : index + 2] and runs[index + 1].code and run.text.endswith(" "):
                    ranges.append(_range(at + length - 1, 1, style.wide_space))
            if run.code and not self._mixed:
                self._code.append((at, at + length))
            self._starts.append(at)
            self._links.append(run.link)
            at += length
        return ranges

    @property
    def widest_word(self) -> float:
        """The width of the widest word, in pixels: narrower lines break words."""
        return self._layout.minimumWidth()

    # --- layout -----------------------------------------------------------------------------

    def layout(self, width: float) -> float:
        """Break the lines for a width; returns the height."""
        width = max(width, 1.0)
        one_line = self._layout.lineCount() == 1 and self._align == "left"
        if width == self._width or (
            one_line and not self._right_to_left and self.natural_width <= width
        ):
            return self.height
        self._width = width
        baseline, step = self._face.baseline, self._line_height
        y = widest = 0.0
        layout = self._layout
        layout.beginLayout()
        while True:
            line = layout.createLine()
            if not line.isValid():
                break
            line.setLineWidth(width)
            line.setPosition(QPointF(0.0, y + baseline - line.ascent()))
            widest = max(widest, line.naturalTextWidth())
            y += step
        layout.endLayout()
        self.natural_width = widest
        self.height = max(y, self._line_height)
        return self.height

    def end_point(self) -> QPointF:
        """The end of the last line, vertically centred on that line."""
        count = self._layout.lineCount()
        if not count:
            return QPointF(0.0, self._line_height / 2)
        line = self._layout.lineAt(count - 1)
        x = x_of(line, line.textStart() + line.textLength())
        return QPointF(x, (count - 0.5) * self._line_height)

    # --- positions --------------------------------------------------------------------------

    def hit(self, x: float, y: float) -> int:
        """The position nearest to a point."""
        count = self._layout.lineCount()
        if not count or y < 0:
            return 0
        index = int(y // self._line_height)
        if index >= count:
            return self.length
        return int(self._layout.lineAt(index).xToCursor(x))

    def over_text(self, x: float, y: float) -> bool:
        """Whether a point lies on the text of a line."""
        index = int(y // self._line_height)
        if not 0 <= index < self._layout.lineCount():
            return False
        line = self._layout.lineAt(index)
        text = line.naturalTextRect()
        return text.left() <= x <= text.right()

    def link_at(self, x: float, y: float) -> str:
        """The address of the link under a point, or an empty text."""
        if not any(self._links) or not self.over_text(x, y):
            return ""
        line = self._layout.lineAt(int(y // self._line_height))
        position = line.xToCursor(x, QTextLine.CursorPosition.CursorOnCharacter)
        return self._links[bisect_right(self._starts, position) - 1]

    def links(self) -> list[Link]:
        """The links in order; adjacent runs with one address are merged into one link."""
        ends = [*self._starts[1:], self.length]
        spans: list[tuple[str, int, int]] = []
        for address, start, end in zip(self._links, self._starts, ends, strict=True):
            if address and spans and spans[-1][0] == address and spans[-1][2] == start:
                spans[-1] = (address, spans[-1][1], end)
            elif address:
                spans.append((address, start, end))
        return [
            Link(
                cut(self.text, start, end).replace("\u2028", " "),
                address,
                reduce(QRectF.united, self._areas(start, end), QRectF()),
            )
            for address, start, end in spans
        ]

    def line_around(self, position: int) -> tuple[int, int]:
        """The start and end of the visual line at a position."""
        line = self._layout.lineForTextPosition(position)
        if not line.isValid():
            return 0, self.length
        return line.textStart(), line.textStart() + line.textLength()

    # --- painting ---------------------------------------------------------------------------

    def paint(
        self,
        painter: QPainter,
        origin: QPointF,
        style: ReadingStyle,
        color: QColor,
        selected: tuple[int, int] | None = None,
        clip: QRectF | None = None,
    ) -> None:
        """Paint the lines inside `clip` (painter coordinates), with a range selected."""
        for start, end in self._code:
            self._paint_code(painter, origin, style, start, end)
        ranges: list[QTextLayout.FormatRange] = []
        if selected and selected[0] < selected[1]:
            if not self._mixed:
                for area in self._areas(*selected):
                    painter.fillRect(area.translated(origin), style.selection)
            else:
                ranges.append(selection_range(selected, style))
        painter.setPen(color)
        self._layout.draw(painter, origin, ranges, clip if clip is not None else QRectF())

    def _areas(self, start: int, end: int) -> Iterator[QRectF]:
        for index in range(self._layout.lineCount()):
            line = self._layout.lineAt(index)
            first = max(start, line.textStart())
            last = min(end, line.textStart() + line.textLength())
            if first < last:
                left, right = x_of(line, first), x_of(line, last)
                yield QRectF(left, index * self._line_height, right - left, self._line_height)

    def _paint_code(
        self, painter: QPainter, origin: QPointF, style: ReadingStyle, start: int, end: int
    ) -> None:
        painter.setPen(Qt.PenStyle.NoPen if not style.high_contrast else style.hairline)
        painter.setBrush(style.code_ground)
        inset = (self._line_height - style.code_metrics.height()) / 2 - 1
        for area in self._areas(start, end):
            box = area.adjusted(-3, inset, 3, -inset).translated(origin)
            painter.drawRoundedRect(box, 4, 4)
        painter.setBrush(Qt.BrushStyle.NoBrush)


def _range(start: int, length: int, look: QTextCharFormat) -> QTextLayout.FormatRange:
    part = QTextLayout.FormatRange()
    part.start, part.length, part.format = start, length, look
    return part


def selection_range(selected: tuple[int, int], style: ReadingStyle) -> QTextLayout.FormatRange:
    """A format range that paints the background of the selected characters."""
    look = QTextCharFormat()
    look.setBackground(style.selection)
    return _range(selected[0], selected[1] - selected[0], look)


def x_of(line: QTextLine, position: int) -> float:
    """The x coordinate of a position in a line; PySide returns it with the adjusted position."""
    found = cast("tuple[float, int]", line.cursorToX(position))
    return found[0]
