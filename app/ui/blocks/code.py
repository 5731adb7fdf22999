"""Code block view: a card with a header (language, Copy button) above the lines of code.

Each line has a QTextLayout that is created when the line is first painted, so a block of 2,000
lines costs no more than the 30 in the viewport, and a streamed line costs one line. With
`wraps`, a long source line is laid out as several lines; copied text has no line breaks there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen, QTextLayout, QTextOption

from app.markdown.blocks import Block, Code
from app.markdown.formulas import Tex
from app.system.translation import tr
from app.ui.blocks.blocks import BlockButton, Canvas
from app.ui.blocks.highlight import Span, exact_spans, is_ready, lexer_for, line_spans
from app.ui.blocks.scrolling import GRAB_HEIGHT, HorizontalScroll
from app.ui.blocks.style import CODE_HEADER, CODE_PADDING, ReadingStyle
from app.ui.blocks.text import Link, cut, selection_range, units, word_around, x_of
from app.ui.theme.icons import pixmap
from app.ui.theme.theme import RADIUS_CARD, RADIUS_CONTROL

IMMEDIATE_LINES = (
    120  # blocks of up to so many lines are highlighted when first painted, longer ones later
)
TAB_COLUMNS = 4  # tab width in columns
_COPY_WIDTH = 104.0  # pixels: room for the word in other languages


class CodeView:
    """Layout, highlighting, painting and hit testing of one code block."""

    def __init__(
        self, block: Code, style: ReadingStyle, highlight_later: Callable[[CodeView], None]
    ) -> None:
        self.block: Block = block
        self.height = 0.0
        self.right_to_left = False
        self.waiting: list[Tex] = []
        self.copied = False
        self.changed_from = 0.0  # y from which the last update needs a repaint
        self.horizontal_scroll = HorizontalScroll()
        self._code = block
        self._style = style
        self._highlight_later = highlight_later
        self._column = style.code_metrics.horizontalAdvance("0")
        self._lines: list[str] = [""]
        self._starts: list[int] = [0]  # position of the first character of each line
        self._widest = 0.0
        self._width = 0.0
        self._spans: list[list[Span] | None] = [None]
        self._exact_spans: Iterator[list[Span]] | None = None
        self._next_exact_line = 0
        self._highlighting_requested = False
        self._line_layouts: dict[int, QTextLayout] = {}
        self._extend(block.text)

    # --- content ----------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """The number of text positions in the block."""
        return self._starts[-1] + units(self._lines[-1])

    @property
    def natural_width(self) -> float:
        """The width of the card without scrolling, in pixels."""
        return self._widest + 2 * CODE_PADDING

    @property
    def code(self) -> str:
        """The text without its fences."""
        return self._code.text

    def update(self, block: Block) -> bool:
        """Append streamed text; False if earlier text changed, which needs a new view."""
        if not isinstance(block, Code) or block.language != self._code.language:
            return False
        before = self._code.text
        self.changed_from = self.height - 2 * self._style.code_line - GRAB_HEIGHT - 12
        if not block.text.startswith(before):
            # The last line loses characters that turned out to be the closing fence.
            if not before.startswith(block.text) or "\n" in before[len(block.text) + 1 :]:
                return False
            self._shorten(block.text)
            before = block.text
        self.block = self._code = block
        if len(block.text) > len(before):
            self._extend(block.text[len(before) :])
        self.layout(self._width)
        return True

    def _shorten(self, text: str) -> None:
        count = text.count("\n") + 1
        del self._lines[count:], self._starts[count:], self._spans[count:]
        self._lines[-1] = text.rsplit("\n", 1)[-1]
        self._invalidate_from(count - 1)

    def _extend(self, text: str) -> None:
        first, *rest = text.split("\n")
        at = len(self._lines) - 1
        self._lines[at] += first
        self._invalidate_from(at)
        for line in rest:
            self._starts.append(self._starts[-1] + units(self._lines[-1]) + 1)
            self._lines.append(line)
            self._spans.append(None)
        for line in self._lines[at:]:
            self._widest = max(self._widest, self._line_width(line))

    def _invalidate_from(self, index: int) -> None:
        self._spans[index:] = [None] * (len(self._spans) - index)
        for later in [n for n in self._line_layouts if n >= index]:
            del self._line_layouts[later]

    def _line_width(self, line: str) -> float:
        if line.isascii():
            return len(line.expandtabs(TAB_COLUMNS)) * self._column
        return self._style.code_metrics.horizontalAdvance(line.expandtabs(TAB_COLUMNS))

    # --- layout -----------------------------------------------------------------------------

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        self._width = width
        if self._code.wraps:
            self._wrap(max(width - 2 * CODE_PADDING, self._column))
        self.horizontal_scroll.fit(self._widest, width - 2 * CODE_PADDING)
        foot = GRAB_HEIGHT if self.horizontal_scroll.overflows else 0
        self.height = float(CODE_HEADER + len(self._lines) * self._style.code_line + 12 + foot)
        return self.height

    def _wrap(self, room: float) -> None:
        """Break the lines that are wider than `room`."""
        self._lines, self._starts, self._widest = [], [], 0.0
        position = 0
        for line in self._code.text.split("\n"):
            for piece in self._pieces(line, room):
                self._lines.append(piece)
                self._starts.append(position)
                self._widest = max(self._widest, min(self._line_width(piece), room))
                position += units(piece)
            position += 1
        self._spans = [None] * len(self._lines)
        self._line_layouts.clear()

    def _pieces(self, line: str, room: float) -> Iterator[str]:
        if self._line_width(line) <= room:
            yield line
            return
        layout = QTextLayout(line, self._style.code)
        option = self._text_option()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        layout.setTextOption(option)
        layout.beginLayout()
        while (made := layout.createLine()).isValid():
            made.setLineWidth(room)
            yield cut(line, made.textStart(), made.textStart() + made.textLength())
        layout.endLayout()

    def _text_option(self) -> QTextOption:
        option = QTextOption()
        option.setTabStopDistance(TAB_COLUMNS * self._column)
        option.setTextDirection(Qt.LayoutDirection.LeftToRight)
        return option

    def _line(self, index: int) -> QTextLayout:
        """The cached layout of a line, created on first use."""
        found = self._line_layouts.get(index)
        if found:
            return found
        layout = QTextLayout(self._lines[index], self._style.code)
        option = self._text_option()
        option.setWrapMode(QTextOption.WrapMode.NoWrap)
        layout.setTextOption(option)
        layout.setCacheEnabled(True)
        layout.setFormats(self._formats(index))
        layout.beginLayout()
        layout.createLine().setLineWidth(1e6)
        layout.endLayout()
        if len(self._line_layouts) > 400:
            self._line_layouts.clear()
        self._line_layouts[index] = layout
        return layout

    # --- highlighting -----------------------------------------------------------------------

    def roles(self, index: int) -> list[Span]:
        """The highlighted spans of a line: exact if computed already, else provisional."""
        spans = self._spans[index]
        if spans is None:
            lexer = lexer_for(self._code.language)
            spans = self._spans[index] = line_spans(lexer, self._lines[index]) if lexer else []
        return spans

    def _formats(self, index: int) -> list[QTextLayout.FormatRange]:
        line, spans = self._lines[index], self.roles(index)
        wide = not line.isascii() and max(line) > "\uffff"
        ranges: list[QTextLayout.FormatRange] = []
        for start, length, role in spans:
            part = QTextLayout.FormatRange()
            part.start = units(line[:start]) if wide else start
            part.length = units(line[start : start + length]) if wide else length
            part.format = self._style.syntax[role]
            ranges.append(part)
        return ranges

    def _request_highlighting(self) -> None:
        """Schedule exact highlighting once the lexer is loaded and the block is complete."""
        if self._highlighting_requested:
            return
        if not is_ready(self._code.language):
            self._highlighting_requested = True
            self._highlight_later(self)
        elif self._code.closed:
            self._highlighting_requested = True
            if len(self._lines) <= IMMEDIATE_LINES:
                self.highlight_some(lambda: True)
            else:
                self._highlight_later(self)

    @property
    def lexer_ready(self) -> bool:
        """Whether the lexer of the block's language is loaded."""
        return is_ready(self._code.language)

    def highlight_some(self, start_next: Callable[[], bool]) -> bool:
        """Highlight lines exactly while `start_next()` is true; returns whether any are left."""
        lexer = lexer_for(self._code.language)
        if self._exact_spans is None:
            self._invalidate_from(0)
            self._highlighting_requested = self._code.closed
            if lexer is None or not self._code.closed:
                return False
            self._exact_spans = exact_spans(lexer, self._code.text)
            self._next_exact_line = 0
        for spans in self._exact_spans:
            index = self._next_exact_line
            if index >= len(self._spans):
                break
            if self._spans[index] != spans:
                self._spans[index] = spans
                self._line_layouts.pop(index, None)
            self._next_exact_line += 1
            if not start_next():
                return True
        self._exact_spans = None
        return False

    # --- painting ---------------------------------------------------------------------------

    def buttons(self) -> list[BlockButton]:
        """The Copy button."""
        return [BlockButton("copy", tr("Copy code"), self._copy_area(), labelled=True)]

    def _copy_area(self) -> QRectF:
        return QRectF(self._width - _COPY_WIDTH - 6, 4, _COPY_WIDTH, CODE_HEADER - 8)

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Paint the card, its header and the lines inside the clip rectangle."""
        painter, style = canvas.painter, canvas.style
        self._request_highlighting()
        card = QRectF(origin.x(), origin.y(), self._width, self.height)
        painter.setPen(QPen(style.hairline, 2) if style.high_contrast else QPen(style.card_line, 1))
        painter.setBrush(style.sunken)
        painter.drawRoundedRect(card.adjusted(0.5, 0.5, -0.5, -0.5), RADIUS_CARD, RADIUS_CARD)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if canvas.clip.top() < origin.y() + CODE_HEADER:
            self._paint_header(canvas, origin)
        painter.save()
        inner = card.adjusted(CODE_PADDING - 2, CODE_HEADER, 2 - CODE_PADDING, 0)
        painter.setClipRect(inner & canvas.clip, Qt.ClipOperation.IntersectClip)
        top = origin.y() + CODE_HEADER
        first = max(0, int((canvas.clip.top() - top) // self._style.code_line))
        last = min(len(self._lines), int((canvas.clip.bottom() - top) // self._style.code_line) + 1)
        for index in range(first, last):
            self._paint_line(canvas, origin, index, selected)
        painter.restore()
        self.horizontal_scroll.paint(
            painter, origin.x() + CODE_PADDING, card.bottom() - 6, style.hairline
        )

    def _paint_header(self, canvas: Canvas, origin: QPointF) -> None:
        painter, style = canvas.painter, canvas.style
        header = QRectF(origin.x(), origin.y(), self._width, CODE_HEADER)
        painter.setFont(style.small)
        painter.setPen(style.secondary)
        middle = Qt.AlignmentFlag.AlignVCenter
        label = self._code.label or self._code.language or tr("text")
        beside = -self._copy_area().width() - 16
        left = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignAbsolute
        painter.drawText(header.adjusted(CODE_PADDING, 2, beside, 0), middle | left, label)
        area = self._copy_area()
        hovered = canvas.hover is not None and area.contains(canvas.hover)
        area.translate(origin)
        if hovered:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(style.card if not style.high_contrast else style.hairline)
            painter.drawRoundedRect(area, RADIUS_CONTROL, RADIUS_CONTROL)
            painter.setBrush(Qt.BrushStyle.NoBrush)
        color = style.accent if self.copied else style.ink if hovered else style.secondary
        self._paint_copy(painter, area, tr("Copied") if self.copied else tr("Copy"), color.name())

    def _paint_copy(self, painter: QPainter, area: QRectF, word: str, color: str) -> None:
        advance = painter.fontMetrics().horizontalAdvance(word)
        left = area.right() - advance - 32
        ratio = painter.device().devicePixelRatio()
        picture = pixmap("check" if self.copied else "copy", color, 16, ratio)
        painter.drawPixmap(QPointF(left, area.center().y() - 8), picture)
        painter.setPen(color)
        place = QRectF(left + 22, area.top() + 1, advance + 4, area.height())
        painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, word)

    def _paint_line(
        self, canvas: Canvas, origin: QPointF, index: int, selected: tuple[int, int] | None
    ) -> None:
        layout = self._line(index)
        x = origin.x() + CODE_PADDING - self.horizontal_scroll.offset
        y = origin.y() + CODE_HEADER + index * self._style.code_line
        ranges: list[QTextLayout.FormatRange] = []
        if selected:
            start, length = self._starts[index], units(self._lines[index])
            first, last = max(selected[0] - start, 0), min(selected[1] - start, length)
            if first < last:
                ranges.append(selection_range((first, last), canvas.style))
            if first <= length < selected[1] - start:  # the line break is selected too
                edge = x + self._line_x(index, length)
                mark = QRectF(edge, y, self._column / 2, self._style.code_line)
                canvas.painter.fillRect(mark, canvas.style.selection)
        canvas.painter.setPen(canvas.style.ink)
        drop = (self._style.code_line - canvas.style.code_metrics.height()) / 2
        layout.draw(canvas.painter, QPointF(x, y + drop), ranges)

    # --- positions --------------------------------------------------------------------------

    def _line_x(self, index: int, position: int) -> float:
        return x_of(self._line(index).lineAt(0), position)

    def _line_of(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1

    def hit(self, x: float, y: float) -> int:
        """The position nearest to a point."""
        index = int((y - CODE_HEADER) // self._style.code_line)
        if index < 0:
            return 0
        if index >= len(self._lines):
            return self.length
        inside = x - CODE_PADDING + self.horizontal_scroll.offset
        return self._starts[index] + int(self._line(index).lineAt(0).xToCursor(inside))

    def over_text(self, x: float, y: float) -> bool:
        """Whether a point lies on the lines of code."""
        inside = CODE_HEADER <= y < CODE_HEADER + len(self._lines) * self._style.code_line
        return inside and CODE_PADDING <= x <= self._width - CODE_PADDING

    def over_scroll_bar(self, y: float) -> bool:
        """Whether `y` hits the horizontal scroll bar."""
        return self.horizontal_scroll.overflows and y >= self.height - GRAB_HEIGHT - 4

    def link_at(self, x: float, y: float) -> str:
        """Empty: code has no links."""
        del x, y
        return ""

    def links(self) -> list[Link]:
        """Empty: code has no links."""
        return []

    def areas(self, start: int, end: int) -> Iterator[QRectF]:
        """The rectangles of a range of positions, one per line."""
        for index in range(self._line_of(start), self._line_of(end) + 1):
            first = max(start - self._starts[index], 0)
            last = min(end - self._starts[index], units(self._lines[index]))
            if first < last:
                left, right = self._line_x(index, first), self._line_x(index, last)
                x = CODE_PADDING - self.horizontal_scroll.offset + left
                y = CODE_HEADER + index * self._style.code_line
                yield QRectF(x, y, right - left, self._style.code_line)

    def text(self, start: int, end: int) -> str:
        """The code between two positions."""
        return cut(self._code.text, start, end)

    def word_around(self, position: int) -> tuple[int, int]:
        """The start and end of the word at a position."""
        index = self._line_of(position)
        start, end = word_around(self._lines[index], position - self._starts[index])
        return self._starts[index] + start, self._starts[index] + end

    def line_around(self, position: int) -> tuple[int, int]:
        """The start and end of the line at a position, including its line break."""
        index = self._line_of(position)
        following = self._starts[index + 1 : index + 2]
        return self._starts[index], following[0] if following else self.length

    def end_point(self) -> QPointF:
        """The end of the code, vertically centred on its last line."""
        index = len(self._lines) - 1
        x = CODE_PADDING + self._line_width(self._lines[index]) - self.horizontal_scroll.offset
        y = CODE_HEADER + (index + 0.5) * self._style.code_line
        return QPointF(min(x, self._width - CODE_PADDING - 8), y)
