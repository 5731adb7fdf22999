"""Text flow: a paragraph of styled text broken into lines, the transcript's only text primitive.

One QTextLayout per paragraph, which is much cheaper than a QTextDocument. Positions count UTF-16
code units, as in Qt. The line height is fixed, so that fallback fonts do not change the spacing; only
a formula may make its line higher.

A typeset formula is one invisible character of its width in the layout, which QTextLayout can place
without a document. Outside this class positions count the characters of its source, so that neither a
selection nor a copy changes when it is typeset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from math import ceil
from typing import cast

from PySide6.QtCore import QPointF, QRectF, Qt, QTextBoundaryFinder
from PySide6.QtGui import (
    QColor,
    QFont,
    QPainter,
    QTextCharFormat,
    QTextLayout,
    QTextLine,
    QTextOption,
)

from app.markdown.blocks import Run, Runs, passage_number
from app.markdown.formulas import Tex, inline_tex
from app.ui.blocks.formula_paint import draw_formula
from app.ui.blocks.style import PLACEHOLDER, Face, ReadingStyle
from app.ui.blocks.typesetting import TYPESETTER, Picture
from app.ui.widgets.direction import has_right_to_left, runs_right_to_left


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


def cut_runs(runs: Runs, start: int, end: int) -> Runs:
    """The runs between two positions; a formula that is cut is text."""
    made: list[Run] = []
    for run in runs:
        length = units(run.text)
        if start < length and end > 0:
            whole = start <= 0 and end >= length
            text = cut(run.text, max(start, 0), min(end, length))
            made.append(run if whole else replace(run, text=text, formula=False))
        start, end = start - length, end - length
    return tuple(made)


def word_around(text: str, position: int) -> tuple[int, int]:
    """The start and end of the word (or of the white space) at a position."""
    finder = QTextBoundaryFinder(QTextBoundaryFinder.BoundaryType.Word, text)
    finder.setPosition(min(position + 1, units(text)))
    start = finder.toPreviousBoundary()
    finder.setPosition(max(start, 0))
    end = finder.toNextBoundary()
    return max(start, 0), end if end >= 0 else units(text)


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


@dataclass(slots=True)
class _Formula:
    """A typeset formula in the text: positions of its source, and its place in the layout."""

    start: int
    end: int
    at: int  # the position of its character in the layout
    picture: Picture
    link: bool
    scale: float = 1.0  # below 1 if it is wider than the column


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
        self._mixed = has_right_to_left(self.text)
        self._align = align
        self._width = -1.0
        self._code: list[tuple[int, int]] = []
        self._starts: list[int] = []
        self._links: list[str] = []
        self._tops: list[float] = []  # of the lines, and the end of the last one
        self.waiting: list[Tex] = []  # formulas that are not typeset yet
        self._formulas: list[_Formula] = []
        self._size = face.font.pixelSize()
        text = self.text
        if any(run.formula for run in runs):
            text = self._place_formulas(runs)
        self._layout = QTextLayout(text, face.font)
        self._layout.setCacheEnabled(True)
        self._layout.setTextOption(_option(align, right_to_left=self._right_to_left))
        self._formats = self._ranges(runs, style)
        if self._formulas:
            self._layout.setFormats([*self._formats, *self._formula_formats()])
        elif self._formats:
            self._layout.setFormats(self._formats)

    @property
    def right_to_left(self) -> bool:
        """Whether the base direction of the text is right-to-left."""
        return self._right_to_left

    def _place_formulas(self, runs: Runs) -> str:
        """Look up the formulas; returns the text of the layout."""
        pieces: list[str] = []
        start = at = 0
        for run in runs:
            piece = run.text.replace("\n", "\u2028")
            length = units(run.text)
            if run.formula:
                tex = inline_tex(run.text)
                picture = TYPESETTER.ask(tex)
                if picture:
                    link = bool(run.link)
                    self._formulas.append(_Formula(start, start + length, at, picture, link))
                    piece = PLACEHOLDER
                elif not TYPESETTER.ready(tex):
                    self.waiting.append(tex)
            pieces.append(piece)
            start += length
            at += units(piece)
        return "".join(pieces)

    def _formula_formats(self) -> list[QTextLayout.FormatRange]:
        """Formats that give the invisible characters the widths of their formulas."""
        ranges: list[QTextLayout.FormatRange] = []
        for formula in self._formulas:
            look = QTextCharFormat()
            look.setForeground(QColor(0, 0, 0, 0))
            look.setFontLetterSpacingType(QFont.SpacingType.AbsoluteSpacing)
            width = formula.picture.width * self._size * formula.scale
            look.setFontLetterSpacing(width - self._face.placeholder)
            ranges.append(_range(formula.at, 1, look))
        return ranges

    def _ranges(self, runs: Runs, style: ReadingStyle) -> list[QTextLayout.FormatRange]:
        ranges: list[QTextLayout.FormatRange] = []
        start = 0
        typeset = {formula.start for formula in self._formulas}
        for index, run in enumerate(runs):
            length = units(run.text)
            at = self._inner(start) if typeset else start
            if start in typeset and run.formula:
                pass
            elif run.bold or run.italic or run.strike or run.code or run.link:
                look = style.run_format(run, self._size)
                if run.code and self._mixed:
                    look = QTextCharFormat(look)
                    look.setBackground(style.code_ground)
                if run.link and not passage_number(run.link):  # Qt makes it a link of a PDF
                    look = QTextCharFormat(look)
                    look.setAnchor(True)
                    look.setAnchorHref(run.link)
                ranges.append(_range(at, length, look))
            else:  # widen the spaces beside inline code, because its background extends into them
                if index and runs[index - 1].code and run.text.startswith(" "):
                    ranges.append(_range(at, 1, style.wide_space))
                if runs[index + 1 : index + 2] and runs[index + 1].code and run.text.endswith(" "):
                    ranges.append(_range(at + length - 1, 1, style.wide_space))
            if run.code and not self._mixed:
                self._code.append((start, start + length))
            self._starts.append(start)
            self._links.append(run.link)
            start += length
        return ranges

    def _inner(self, position: int, *, after: bool = False) -> int:
        """The position in the layout; inside a formula that before it, or `after` it."""
        shift = 0
        for formula in self._formulas:
            if position <= formula.start:
                break
            if position < formula.end:
                return formula.at + after
            shift = formula.at + 1 - formula.end
        return position + shift

    def _outer(self, position: int) -> int:
        """The position in the text of a position in the layout."""
        shift = 0
        for formula in self._formulas:
            if position <= formula.at:
                break
            shift = formula.end - formula.at - 1
        return position + shift

    @property
    def line_tops(self) -> Sequence[float]:
        """The y coordinates of the lines, and of the end of the last one."""
        return self._tops or (0.0, self.height)

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
        if self._formulas:
            self._fit_formulas(width)
        y = widest = 0.0
        layout = self._layout
        self._tops = [0.0]
        layout.beginLayout()
        while True:
            line = layout.createLine()
            if not line.isValid():
                break
            line.setLineWidth(width)
            above, below = self._line_extent(line)
            line.setPosition(QPointF(0.0, y + above - line.ascent()))
            widest = max(widest, line.naturalTextWidth())
            y += above + below
            self._tops.append(y)
        layout.endLayout()
        self.natural_width = widest
        self.height = max(y, self._line_height)
        return self.height

    def _fit_formulas(self, width: float) -> None:
        """Scale down the formulas that are wider than a line."""
        changed = False
        for formula in self._formulas:
            scale = min(1.0, (width - 1) / (formula.picture.width * self._size))
            changed = changed or scale != formula.scale
            formula.scale = scale
        if changed:
            self._layout.setFormats([*self._formats, *self._formula_formats()])

    def _line_extent(self, line: QTextLine) -> tuple[float, float]:
        """The height of a line above and below its baseline."""
        above = self._face.baseline
        below = self._line_height - above
        if self._formulas:
            start, end = line.textStart(), line.textStart() + line.textLength()
            for formula in self._formulas:
                if start <= formula.at < end:
                    size = self._size * formula.scale
                    above = max(above, ceil(formula.picture.ascent * size) + 2.0)
                    below = max(below, ceil(formula.picture.descent * size) + 2.0)
        return above, below

    @property
    def first_line_drop(self) -> float:
        """How much lower than usual the first baseline is, because of a formula."""
        if not self._formulas or not self._layout.lineCount():
            return 0.0
        return self._line_extent(self._layout.lineAt(0))[0] - self._face.baseline

    def _line_at(self, y: float) -> int:
        """The index of the line at `y`; the number of lines if it is below them."""
        return bisect_right(self._tops, y) - 1

    def end_point(self) -> QPointF:
        """The end of the last line, vertically centred on that line."""
        count = self._layout.lineCount()
        if not count:
            return QPointF(0.0, self._line_height / 2)
        line = self._layout.lineAt(count - 1)
        x = x_of(line, line.textStart() + line.textLength())
        return QPointF(x, (self._tops[count - 1] + self._tops[count]) / 2)

    # --- positions --------------------------------------------------------------------------

    def hit(self, x: float, y: float) -> int:
        """The position nearest to a point."""
        count = self._layout.lineCount()
        if not count or y < 0:
            return 0
        index = self._line_at(y)
        if index >= count:
            return self.length
        return self._outer(int(self._layout.lineAt(index).xToCursor(x)))

    def over_text(self, x: float, y: float) -> bool:
        """Whether a point lies on the text of a line."""
        index = self._line_at(y)
        if not 0 <= index < self._layout.lineCount():
            return False
        line = self._layout.lineAt(index)
        text = line.naturalTextRect()
        return text.left() <= x <= text.right()

    def link_at(self, x: float, y: float) -> str:
        """The address of the link under a point, or an empty text."""
        if not any(self._links) or not self.over_text(x, y):
            return ""
        return self._links[bisect_right(self._starts, self._character_at(x, y)) - 1]

    def _character_at(self, x: float, y: float) -> int:
        line = self._layout.lineAt(self._line_at(y))
        return self._outer(int(line.xToCursor(x, QTextLine.CursorPosition.CursorOnCharacter)))

    def formula_at(self, x: float, y: float) -> str:
        """The source of the typeset formula under a point, or an empty text."""
        if not self._formulas or not self.over_text(x, y):
            return ""
        return cut(self.text, *(self.formula_around(self._character_at(x, y)) or (0, 0)))

    def formula_around(self, position: int) -> tuple[int, int] | None:
        """The start and end of the typeset formula at a position."""
        for formula in self._formulas:
            if formula.start <= position < formula.end:
                return formula.start, formula.end
        return None

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
                reduce(QRectF.united, self.areas(start, end), QRectF()),
            )
            for address, start, end in spans
        ]

    def line_around(self, position: int) -> tuple[int, int]:
        """The start and end of the visual line at a position."""
        line = self._layout.lineForTextPosition(self._inner(position))
        if not line.isValid():
            return 0, self.length
        end = line.textStart() + line.textLength()
        return self._outer(line.textStart()), self._outer(end)

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
                for area in self.areas(*selected):
                    painter.fillRect(area.translated(origin), style.selection)
            else:
                inner = self._inner(selected[0]), self._inner(selected[1], after=True)
                ranges.append(selection_range(inner, style))
        painter.setPen(color)
        self._layout.draw(painter, origin, ranges, clip if clip is not None else QRectF())
        for formula in self._formulas:
            line = self._layout.lineForTextPosition(formula.at)
            left = min(x_of(line, formula.at), x_of(line, formula.at + 1))
            place = origin + QPointF(left, line.y() + line.ascent())
            size = self._size * formula.scale
            above, below = formula.picture.ascent * size + 1, formula.picture.descent * size + 1
            if clip is None or clip.top() - below < place.y() < clip.bottom() + above:
                ink = style.accent if formula.link else color
                draw_formula(painter, formula.picture, place, size, ink)

    def areas(self, start: int, end: int) -> Iterator[QRectF]:
        """The rectangles of a range of positions, as high as their lines."""
        start, end = self._inner(start), self._inner(end, after=True)
        for index in range(self._layout.lineCount()):
            line = self._layout.lineAt(index)
            first = max(start, line.textStart())
            last = min(end, line.textStart() + line.textLength())
            if first >= last:
                continue
            top, bottom = self._tops[index], self._tops[index + 1]
            if self._mixed:
                for glyphs in line.glyphRuns(first, last - first):
                    box = glyphs.boundingRect()
                    yield QRectF(box.left(), top, box.width(), bottom - top)
                continue
            left, right = x_of(line, first), x_of(line, last)
            yield QRectF(left, top, right - left, bottom - top)

    def _paint_code(
        self, painter: QPainter, origin: QPointF, style: ReadingStyle, start: int, end: int
    ) -> None:
        painter.setPen(Qt.PenStyle.NoPen if not style.high_contrast else style.hairline)
        painter.setBrush(style.code_ground)
        inset = (self._line_height - style.code_metrics.height()) / 2 - 1
        for area in self.areas(start, end):
            line = self._layout.lineAt(self._line_at(area.center().y()))
            area.setTop(line.y() + line.ascent() - self._face.baseline)
            area.setHeight(self._line_height)
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
