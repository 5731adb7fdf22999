"""A chat as a PDF: the blocks of the transcript on pages, in short steps between events.

A page ends between two lines of text or code or two rows of a table, whose header is on each page; a
heading stays with what follows it, and of a paragraph at least two lines stay together. Text is text,
and formulas are drawn as curves, so both are sharp at any size; the fonts are embedded.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from PySide6.QtCore import QBuffer, QIODevice, QLocale, QMarginsF, QPointF, QRectF, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QPageLayout,
    QPageSize,
    QPainter,
    QPdfWriter,
    QTextLayout,
    QTextOption,
)
from PySide6.QtWidgets import QApplication, QStyle

from app.domain.chat_tree import ChatTree
from app.domain.document import Section, one_line, sections, when
from app.markdown.blocks import Block, Code, Formula, Heading, Paragraph, Rule, Table
from app.system.translation import isolated
from app.ui.blocks.blocks import BlockView, Canvas, RuleView, TextView
from app.ui.blocks.code import CodeView
from app.ui.blocks.formula import FormulaView, formula_view
from app.ui.blocks.formula_paint import draw_formula
from app.ui.blocks.highlight import exact_spans, lexer_of
from app.ui.blocks.style import DEEPEST_INDENT, ReadingStyle, font
from app.ui.blocks.table import TableView
from app.ui.blocks.text import units
from app.ui.blocks.typesetting import TYPESETTER, Picture
from app.ui.theme.palette import LIGHT
from app.ui.theme.theme import BODY, TEXT_FONT
from app.ui.transcript.message.placed_block import PlacedBlock, gap, indent, level_indent
from app.ui.transcript.paint import paint_marker

_PIXELS = 96  # an inch
_DOTS = 1200  # an inch of the file: Qt places letters at whole dots
_MARGIN = 18.0  # millimetres around a page
_ZOOM = 0.87  # of the sizes on the screen, which gives text of 10 points
_FOOT = 26.0  # pixels below the text, for the number of the page
_CARD = 10.0  # pixels around the text of the user
_LONGEST_CODE = 200_000  # characters of a block that is highlighted
_LINES = 40  # of code that are laid out in one step
_CODE_EDGE, _CODE_SIDE = 8.0, 12.0  # pixels above and below code, and beside it
_BAR = 2.0  # pixels: width of the bar beside a quote
_SMALLEST = 0.35  # scale of a table that is wider than the page
_TOGETHER = 2  # lines of a paragraph that are never alone on a page


class Rows(Protocol):
    """What a page is filled with: rows, which are not cut."""

    tops: Sequence[float]  # of the rows, and the end of the last one; pixels

    def paint(self, painter: QPainter, at: QPointF, first: int, last: int) -> None:
        """Paint the rows [first, last), so that the first one begins at a point."""
        ...


def pdf_steps(tree: ChatTree) -> Generator[None, None, bytes]:
    """Make the file of one chat, and return its content; each step takes some milliseconds."""
    file = QBuffer()
    file.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QPdfWriter(file)
    title = one_line(tree.title)
    writer.setTitle(title)
    writer.setCreator("Tokonoma")
    writer.setResolution(_DOTS)
    writer.setPageSize(QPageSize(_page_size()))
    margins = QMarginsF(_MARGIN, _MARGIN, _MARGIN, _MARGIN)
    writer.setPageMargins(margins, QPageLayout.Unit.Millimeter)
    pages = _Pages(writer, title)
    try:
        yield from pages.fill(tree)
    finally:
        pages.end()  # in any case: Qt crashes if a painter outlives what it paints on
    return bytes(file.data().data())


def _page_size() -> QPageSize.PageSizeId:
    """Letter where paper is measured in inches, or else A4."""
    imperial = QLocale.system().measurementSystem() is not QLocale.MeasurementSystem.MetricSystem
    return QPageSize.PageSizeId.Letter if imperial else QPageSize.PageSizeId.A4


class _Pages:
    """Fills pages from top to bottom."""

    def __init__(self, writer: QPdfWriter, title: str) -> None:
        self._writer, self._title = writer, title
        self._painter = QPainter(writer)
        self._painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._painter.setLayoutDirection(QApplication.layoutDirection())  # of the foot
        self.style = ReadingStyle(replace(LIGHT, background="#FFFFFF", sunken="#F5F3EE"), _ZOOM)
        scale = _DOTS / _PIXELS
        self._painter.scale(scale, scale)
        self.width = writer.width() / scale
        self.height = writer.height() / scale - _FOOT
        self.y = 0.0
        self._page = 1
        self._card: QColor | None = None  # behind the rows that are painted now
        self._kept: list[tuple[float, Rows, float]] = []  # rows that stay with what follows

    def fill(self, tree: ChatTree) -> Iterator[None]:
        """Paint the whole chat."""
        head = font(TEXT_FONT, round(24 * _ZOOM), QFont.Weight.DemiBold)
        yield from self._add(
            0.0, _Words(isolated(self._title), head, self.style.ink, self.width), keep=True
        )
        if made := when(tree.created):
            note = _Words(f"\u2066{made}\u2069", self.style.note, self.style.secondary, self.width)
            yield from self._add(2.0, note, keep=True)
        for section in sections(tree):
            yield from self._section(section)
        self._flush(0.0)

    def end(self) -> None:
        """End the last page."""
        self._number_page()
        self._painter.end()

    def _section(self, section: Section) -> Iterator[None]:
        self._flush(0.0)
        style = self.style
        face = font(TEXT_FONT, round(BODY * _ZOOM), QFont.Weight.DemiBold)
        # Marked as one piece: behind an Arabic heading the parts of the date would change places.
        date = f"\u2066{section.when}\u2069" if section.when else ""
        words = f"{section.heading}   {date}".strip()
        inset = _CARD if section.is_user else 0.0
        if self.y:
            self.y += 22.0
        self._card = style.card if section.is_user else None
        self._kept.append((0.0, _Space(8.0 if section.is_user else 0.0), 0.0))
        author = _Words(words, face, style.secondary, self.width - 2 * inset)
        yield from self._add(0.0, author, keep=True, left=inset)
        before: PlacedBlock | None = None
        for block in section.blocks:
            x = inset + indent(block.place.path)
            width = max(self.width - x - inset, 60.0)
            view, inner = yield from self._lay_out(block, width)
            left = inset if view.right_to_left else x
            part = PlacedBlock(view, block.place.path, 0, below_row=False, x=left, width=width)
            space = 6.0 if before is None else gap(before, part) * _ZOOM
            rows = _BlockRows(inner, part, style, space if before else 0.0)
            yield from self._add(space, rows, keep=isinstance(block, Heading))
            before = part
        if section.is_user:
            yield from self._add(0.0, _Space(8.0), keep=False)
        self._flush(0.0)

    def _lay_out(self, block: Block, width: float) -> Generator[None, None, tuple[BlockView, Rows]]:
        """The view of a block and its rows, when its formulas are typeset."""
        style = self.style
        if isinstance(block, Code):
            rows = _CodeRows(block, style, width)
            yield from rows.lay_out()
            return CodeView(block, style, lambda _: None), rows
        view: BlockView = RuleView(block) if isinstance(block, Rule) else _view_of(block, style)
        while view.waiting:
            for tex in view.waiting:
                while TYPESETTER.ask(tex) is None and not TYPESETTER.ready(tex):
                    yield
            view = _view_of(block, style)
        view.layout(width)
        if isinstance(view, FormulaView):
            return view, _FormulaRow(view.picture, style, width)
        if isinstance(view, TableView):
            return view, _TableRows(view, style, width)
        tops = view.line_tops if isinstance(view, TextView) else (0.0, view.height)
        return view, _ViewRows(view, style, tops)

    def _add(self, space: float, rows: Rows, *, keep: bool, left: float = 0.0) -> Iterator[None]:
        """Add rows below what is there; with `keep` they stay on one page with what follows."""
        if keep and rows.tops[-1] < self.height / 3:
            self._kept.append((space, rows, left))
            return
        first = together(rows, 0, self.height)
        self._flush(space + rows.tops[first])
        if self.y:
            self._paint_gap(space)
        at, count, top = 0, len(rows.tops) - 1, 0.0
        while at < count:
            room = self.height - self.y
            end = rows_that_fit(rows, at, room, is_page_empty=self.y <= top)
            if end == at:
                self._new_page()
                if at and self._has_header(rows):
                    self._paint(rows, 0, 1, left)
                    top = self.y
                continue
            self._paint(rows, at, end, left)
            at = end
            yield

    def _has_header(self, rows: Rows) -> bool:
        """Whether the first row is repeated on each page."""
        is_table = isinstance(rows, _BlockRows) and isinstance(rows.block, Table)
        return is_table and rows.tops[1] < self.height / 3

    def _flush(self, needed: float) -> None:
        """Paint the rows that stay together with what needs so much room."""
        kept, self._kept = self._kept, []
        height = sum(space + rows.tops[-1] for space, rows, _ in kept)
        if self.y and self.y + height + needed > self.height:
            self._new_page()
        for space, rows, left in kept:
            if self.y:
                self._paint_gap(space)
            self._paint(rows, 0, len(rows.tops) - 1, left)

    def _paint_gap(self, space: float) -> None:
        space = min(space, max(self.height - self.y, 0.0))
        self._paint_card(space)
        self.y += space

    def _paint_card(self, height: float) -> None:
        if self._card is not None and height > 0:
            # Half a pixel more: no light line between two rows.
            self._painter.fillRect(QRectF(0.0, self.y, self.width, height + 0.5), self._card)

    def _paint(self, rows: Rows, first: int, last: int, left: float) -> None:
        height = rows.tops[last] - rows.tops[first]
        self._paint_card(height)
        self._painter.save()
        rows.paint(self._painter, QPointF(left, self.y), first, last)
        self._painter.restore()
        self.y += height

    def _new_page(self) -> None:
        self._number_page()
        self._writer.newPage()
        self._page += 1
        self.y = 0.0

    def _number_page(self) -> None:
        painter = self._painter
        painter.setFont(self.style.small)
        painter.setPen(self.style.secondary)
        area = QRectF(0.0, self.height + 6.0, self.width, _FOOT - 6.0)
        metrics = painter.fontMetrics()
        words = metrics.elidedText(self._title, Qt.TextElideMode.ElideRight, int(self.width * 0.8))
        bottom = Qt.AlignmentFlag.AlignBottom
        painter.drawText(area, Qt.AlignmentFlag.AlignLeft | bottom, isolated(words))
        painter.drawText(area, Qt.AlignmentFlag.AlignRight | bottom, str(self._page))


def together(rows: Rows, first: int, height: float) -> int:
    """The end of the rows from `first` on that must be on one page, as far as they fit on one."""
    count = len(rows.tops) - 1
    whole = isinstance(rows, _BlockRows) and rows.whole
    end = count if whole or count - first <= _TOGETHER + 1 else first + _TOGETHER
    while end > first + 1 and rows.tops[end] - rows.tops[first] > height:
        end -= 1
    return end


def rows_that_fit(rows: Rows, first: int, room: float, *, is_page_empty: bool) -> int:
    """The end of the rows from `first` on that fit; `first` if they go to the next page.

    A row that is higher than a page is painted nevertheless, and cut at its end.
    """
    count = len(rows.tops) - 1
    end = first
    while end < count and rows.tops[end + 1] - rows.tops[first] <= room:
        end += 1
    if end == count:
        return end
    if count - end < _TOGETHER and end - first > _TOGETHER:
        end = count - _TOGETHER  # the last line is not alone on the next page
    if not is_page_empty and end < together(rows, first, math.inf):
        return first
    return max(end, first + 1) if is_page_empty else end


# --- rows ----------------------------------------------------------------------------------------


class _Space:
    """Empty rows."""

    def __init__(self, height: float) -> None:
        self.tops: Sequence[float] = (0.0, height)

    def paint(self, painter: QPainter, at: QPointF, first: int, last: int) -> None:
        """Nothing to paint."""


class _Words:
    """One plain text in one font, from the side where the window's lines begin."""

    def __init__(self, text: str, face: QFont, color: QColor, width: float) -> None:
        self._color = color
        self._layout = QTextLayout(text, face)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        option.setTextDirection(direction := QApplication.layoutDirection())
        option.setAlignment(QStyle.visualAlignment(direction, Qt.AlignmentFlag.AlignLeft))
        self._layout.setTextOption(option)
        self.tops: Sequence[float] = _broken(self._layout, width)

    def paint(self, painter: QPainter, at: QPointF, first: int, last: int) -> None:
        """Paint the lines."""
        painter.setPen(self._color)
        for n in range(first, last):
            line = self._layout.lineAt(n)
            line.draw(painter, QPointF(at.x(), at.y() - self.tops[first]))


def _broken(layout: QTextLayout, width: float) -> list[float]:
    """Break the lines of a layout; returns their tops, and the end of the last one."""
    tops = [0.0]
    layout.beginLayout()
    while (line := layout.createLine()).isValid():
        line.setLineWidth(width)
        line.setPosition(QPointF(0.0, tops[-1]))
        tops.append(tops[-1] + line.height())
    layout.endLayout()
    return tops


def _view_of(block: Block, style: ReadingStyle) -> BlockView:
    if isinstance(block, Formula):
        return formula_view(block, style)
    if isinstance(block, Table):
        return TableView(block, style)
    assert isinstance(block, Paragraph | Heading)
    return TextView(block, style)


def _ink(block: Block, style: ReadingStyle) -> QColor:
    """The colour of the text of a block, which is quieter in a quote."""
    is_quiet = any(level.quote for level in block.place.path) and not isinstance(block, Heading)
    return style.secondary if is_quiet else style.ink


class _ViewRows:
    """Rows of a view, which paints only those inside a clip."""

    def __init__(self, view: BlockView, style: ReadingStyle, tops: Sequence[float]) -> None:
        self.tops = tops
        self._view, self._style = view, style

    def paint(self, painter: QPainter, at: QPointF, first: int, last: int) -> None:
        """Paint the rows."""
        top, bottom = self.tops[first], self.tops[last]
        area = QRectF(at.x() - 4, at.y(), 1e4, bottom - top)
        painter.setClipRect(area, Qt.ClipOperation.IntersectClip)
        # A little less, else the rows beside these would be in the file, though hidden.
        clip = area.adjusted(0, 1, 0, -1)
        canvas = Canvas(painter, self._style, clip, _ink(self._view.block, self._style))
        self._view.paint(canvas, QPointF(at.x(), at.y() - top), None)


class _TableRows:
    """Rows of a table; one that is wider than the page is scaled down."""

    def __init__(self, view: TableView, style: ReadingStyle, width: float) -> None:
        self._scale = 1.0
        if view.natural_width > width:
            self._scale = max(width / view.natural_width, _SMALLEST)
            view.layout(width / self._scale)
        self._rows = _ViewRows(view, style, view.row_tops)
        self.tops: Sequence[float] = tuple(top * self._scale for top in view.row_tops)

    def paint(self, painter: QPainter, at: QPointF, first: int, last: int) -> None:
        """Paint the rows."""
        painter.translate(at)
        painter.scale(self._scale, self._scale)
        self._rows.paint(painter, QPointF(), first, last)


class _FormulaRow:
    """A display formula, which is not cut; one that is wider than the page is scaled down."""

    def __init__(self, picture: Picture, style: ReadingStyle, width: float) -> None:
        self._picture, self._color = picture, style.ink
        self._size = float(style.body_face.font.pixelSize())
        self._size *= min(1.0, width / (picture.width * self._size))
        self._left = max((width - picture.width * self._size) / 2, 0.0)
        self.tops: Sequence[float] = (0.0, (picture.ascent + picture.descent) * self._size + 8.0)

    def paint(self, painter: QPainter, at: QPointF, first: int, last: int) -> None:
        """Paint the formula."""
        baseline = QPointF(self._left, 4.0 + self._picture.ascent * self._size)
        draw_formula(painter, self._picture, at + baseline, self._size, self._color)


class _CodeRows:
    """Lines of code, wrapped where they are wider than the page."""

    def __init__(self, block: Code, style: ReadingStyle, width: float) -> None:
        self._block, self._style, self._width = block, style, width
        self._lines: list[tuple[QTextLayout, int]] = []  # a layout, and which of its lines
        self.tops: Sequence[float] = (0.0,)

    def lay_out(self) -> Iterator[None]:
        """Break all lines, some in each step."""
        block, style = self._block, self._style
        lexer = lexer_of(block.language) if len(block.text) <= _LONGEST_CODE else None
        yield
        spans = exact_spans(lexer, block.text) if lexer else iter(())
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAnywhere)
        option.setTextDirection(Qt.LayoutDirection.LeftToRight)
        option.setTabStopDistance(4 * style.code_metrics.horizontalAdvance("0"))
        for n, text in enumerate(block.text.split("\n")):
            layout = QTextLayout(text, style.code)
            layout.setTextOption(option)
            layout.setFormats(
                [_span(text, start, length, style, role) for start, length, role in next(spans, ())]
            )
            tops = _broken(layout, self._width - 2 * _CODE_SIDE)
            self._lines += [(layout, at) for at in range(max(len(tops) - 1, 1))]
            if n % _LINES == _LINES - 1:
                yield
        line = float(style.code_line)
        count = len(self._lines)
        ends = [_CODE_EDGE + line * n for n in range(1, count)]
        self.tops = (0.0, *ends, 2 * _CODE_EDGE + line * count)

    def paint(self, painter: QPainter, at: QPointF, first: int, last: int) -> None:
        """Paint the lines on their background."""
        style = self._style
        top, line = self.tops[first], float(style.code_line)
        area = QRectF(at.x(), at.y(), self._width, self.tops[last] - top)
        painter.fillRect(area, style.sunken)
        painter.setPen(style.ink)
        drop = (line - style.code_metrics.height()) / 2
        for n in range(first, last):
            layout, number = self._lines[n]
            if number >= layout.lineCount():
                continue
            found = layout.lineAt(number)
            y = at.y() + _CODE_EDGE + line * n - top + drop - found.y()
            found.draw(painter, QPointF(at.x() + _CODE_SIDE, y))


def _span(
    text: str, start: int, length: int, style: ReadingStyle, role: str
) -> QTextLayout.FormatRange:
    part = QTextLayout.FormatRange()
    part.start, part.length = units(text[:start]), units(text[start : start + length])
    part.format = style.syntax[role]
    return part


class _BlockRows:
    """The rows of a block with the quote bars and the list marker beside it."""

    def __init__(self, rows: Rows, part: PlacedBlock, style: ReadingStyle, space: float) -> None:
        """`space` is between it and the block above, which quote bars go through."""
        self.tops = rows.tops
        self.block = part.view.block
        self.whole = isinstance(self.block, Heading)
        self._begun = False  # the first row may be painted again
        self._rows, self._part, self._style, self._space = rows, part, style, space

    def paint(self, painter: QPainter, at: QPointF, first: int, last: int) -> None:
        """Paint the rows."""
        part, height = self._part, self.tops[last] - self.tops[first]
        to_right = part.view.right_to_left
        edge = part.x + part.width + indent(part.path) if to_right else part.x - indent(part.path)
        x = 0.0
        for level in part.path[:DEEPEST_INDENT]:
            if level.quote:
                above = 0.0 if self._begun or level.begins else self._space
                left = edge - x - _BAR if to_right else edge + x
                bar = QRectF(at.x() + left, at.y() - above, _BAR, height + above)
                painter.fillRect(bar, self._style.hairline)
            x += level_indent(level)
            if level.marker and not self._begun:
                paint_marker(painter, self._style, at, part, x, level.marker)
        self._begun = True
        self._rows.paint(painter, QPointF(at.x() + part.x, at.y()), first, last)
