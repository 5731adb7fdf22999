"""Paints the visible part of a transcript: messages with their cards, blocks, matches and tools.

All coordinates come from the layout and from `MessageView`; this module decides only on colours and
shapes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QGuiApplication, QPainter, QPen

from app.domain.message import MessageState
from app.markdown.blocks import BOX, BULLET, TICKED, Heading
from app.ui.blocks.blocks import Canvas, TextView
from app.ui.blocks.code import CodeView
from app.ui.blocks.style import CODE_PADDING, DEEPEST_INDENT, ReadingStyle, mixed
from app.ui.pictures.thumbnails import Thumbnails
from app.ui.theme.file_icons import file_icon
from app.ui.theme.icons import pixmap
from app.ui.theme.theme import RADIUS_CARD
from app.ui.transcript import column_header, memory_line
from app.ui.transcript.find import Finder, Match
from app.ui.transcript.keys import Keys
from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.message import message_tools, pictures
from app.ui.transcript.message.controls import Control
from app.ui.transcript.message.message_tools import Tool
from app.ui.transcript.message.message_view import ROW_TEXT, MessageView
from app.ui.transcript.message.placed_block import (
    BOX_WIDTH,
    ROW_INDENT,
    PlacedBlock,
    indent,
    level_indent,
)
from app.ui.transcript.message.sections import Kind, Row
from app.ui.transcript.pointer import Pointer
from app.ui.transcript.tools import Tools

DOT = 8.0  # pixels: diameter of the dot at the end of a streaming answer
_BAR = 3.0


@dataclass(frozen=True, slots=True)
class Shown:
    """Transient paint state of a message: visible tools, selection, hover and focus."""

    tools: Sequence[Tool]
    areas: Sequence[QRectF]  # of the tools, relative to the message
    selection: Sequence[tuple[int, int, int]] = ()  # part, first and last position
    mouse: QPointF | None = None  # relative to the message
    focused: Control | None = None  # with the keyboard focus
    matches: Sequence[Match] = ()  # of Find in conversation, in text order
    current_match: Match | None = None
    thumbnails: Thumbnails | None = None
    done: str = ""  # name of the tool that shows a tick because it was just used


def paint_message(
    painter: QPainter,
    view: MessageView,
    style: ReadingStyle,
    at: QPointF,
    clip: QRectF,
    shown: Shown,
) -> None:
    """Paint the message with the top-left corner of its column at `at`."""
    key = shown.focused.key if shown.focused else ""
    if view.is_user and not view.hidden_for_edit:
        painter.setPen(QPen(style.hairline, 2) if style.high_contrast else Qt.PenStyle.NoPen)
        painter.setBrush(style.card)
        painter.drawRoundedRect(view.card.translated(at), RADIUS_CARD, RADIUS_CARD)
        painter.setBrush(Qt.BrushStyle.NoBrush)
    if not view.hidden_for_edit:
        for number, row in enumerate(view.rows):
            has_match = any(m.in_file and m.row == number for m in shown.matches)
            if row.image is not None:
                _paint_picture(painter, row, style, at, clip, shown, focused=key == f"row-{number}")
            if has_match and row.call is None:
                _paint_found_row(painter, row, number, style, at, shown)
            if row.image is not None:
                continue
            if row.call is not None:
                from app.ui.transcript.message import call_painter

                if row.frame.translated(at).intersects(clip):
                    focused = {f"row-{number}": "row", f"stop-{number}": "stop"}.get(key, "")
                    call_painter.paint(painter, row, style, at, shown.mouse, focused)
                    if has_match:
                        _paint_found_row(painter, row, number, style, at, shown)
                continue
            is_focused = key == f"row-{number}"
            _paint_row(painter, view, row, style, at, shown, is_focused, has_match)
        selected = {part: (first, last) for part, first, last in shown.selection}
        for index in view.parts_between(clip.top() - at.y(), clip.bottom() - at.y()):
            _paint_part(painter, view, index, style, at, clip, selected.get(index), shown)
            if shown.matches:
                _paint_matches(painter, view, index, style, at, clip, shown)
    if shown.focused is not None and shown.focused.in_block:
        painter.setPen(QPen(style.accent, 2))
        ring = shown.focused.area.adjusted(-3, -1, 3, 1).translated(at)
        painter.drawRoundedRect(ring, 4, 4)
    if view.streaming:
        _paint_end(painter, view, style, at)
    if view.error:
        place = at + QPointF(0.0, view.content_end - view.error.height)
        failed = view.message.state is MessageState.FAILED
        view.error.paint(painter, place, style, style.danger if failed else style.secondary)
    for tool, area in zip(shown.tools, shown.areas, strict=True):
        message_tools.paint(
            painter,
            tool,
            area.translated(at),
            style,
            hovered=shown.mouse is not None and area.contains(shown.mouse),
            focused=key == f"tool {tool.name}",
            done=bool(shown.done) and tool.name == shown.done,
        )


def _paint_part(
    painter: QPainter,
    view: MessageView,
    index: int,
    style: ReadingStyle,
    at: QPointF,
    clip: QRectF,
    selected: tuple[int, int] | None,
    shown: Shown,
) -> None:
    part, mouse = view.parts[index], shown.mouse
    origin = at + QPointF(part.x, part.y)
    in_card = view.sections[part.section].call is not None
    quiet = (part.below_row and not in_card) or any(level.quote for level in part.path)
    color = style.secondary if quiet and not isinstance(part.view.block, Heading) else style.ink
    hover = mouse - QPointF(part.x, part.y) if mouse is not None else None
    _paint_path(painter, view, index, style, at)
    thumbnail = shown.thumbnails.of if shown.thumbnails else None
    part.view.paint(Canvas(painter, style, clip, color, hover, thumbnail), origin, selected)


def _paint_matches(
    painter: QPainter,
    view: MessageView,
    index: int,
    style: ReadingStyle,
    at: QPointF,
    clip: QRectF,
    shown: Shown,
) -> None:
    """Paint the matches of Find in conversation in one part."""
    first = bisect_left(shown.matches, index, key=lambda match: match.part)
    last = bisect_right(shown.matches, index, key=lambda match: match.part)
    if first < last and index < len(view.parts):
        part = view.parts[index]
        origin = at + QPointF(part.x, part.y)
        matches = shown.matches[first:last]
        paint_matches(painter, part, origin, style, clip, matches, shown.current_match)


def _paint_path(
    painter: QPainter, view: MessageView, index: int, style: ReadingStyle, at: QPointF
) -> None:
    """Paint the quote bars and the list marker at the leading edge of a part."""
    part = view.parts[index]
    above = view.parts[index - 1] if index else None
    top = part.y
    if above and above.section == part.section:
        top = above.y + above.view.height
    x = 0.0
    line = mixed(style.secondary, style.card, 0.5) if view.is_user else style.hairline
    if part.below_row and view.sections[part.section].call is None:
        _bar(painter, line, at, part, 0.0, top)
        x = ROW_INDENT
    for level in part.path[:DEEPEST_INDENT]:
        if level.quote:
            _bar(painter, line, at, part, x, part.y if level.begins else top)
        x += level_indent(level)
        if level.marker:
            paint_marker(painter, style, at, part, x, level.marker)


def _mirrored(part: PlacedBlock, x: float) -> float:
    """The x coordinate of a distance `x` from the leading edge; mirrored for right-to-left text."""
    if not part.view.right_to_left:
        return part.x + x - _inset_of(part)
    return part.x + part.width + _inset_of(part) - x


def _inset_of(part: PlacedBlock) -> float:
    return indent(part.path) + (ROW_INDENT if part.below_row else 0.0)


def _bar(
    painter: QPainter, color: QColor, at: QPointF, part: PlacedBlock, x: float, top: float
) -> None:
    left = _mirrored(part, x)
    if part.view.right_to_left:
        left -= _BAR
    area = QRectF(at.x() + left, at.y() + top, _BAR, part.y + part.view.height - top)
    painter.fillRect(area, color)


def paint_marker(
    painter: QPainter, style: ReadingStyle, at: QPointF, part: PlacedBlock, x: float, marker: str
) -> None:
    """Paint the marker of a list item whose text begins at `x`."""
    edge = _mirrored(part, x)
    drop = part.view.first_line_drop if isinstance(part.view, TextView) else 0.0
    middle = at.y() + part.y + drop + style.line / 2
    to_right = part.view.right_to_left
    if marker == BULLET:
        depth = sum(not level.quote for level in part.path) - 1
        center = QPointF(at.x() + edge + (13.5 if to_right else -13.5), middle)
        painter.setPen(QPen(style.secondary, 1.25))
        painter.setBrush(style.secondary if depth % 2 == 0 else Qt.BrushStyle.NoBrush)
        painter.drawEllipse(center, 2.2, 2.2)
        painter.setBrush(Qt.BrushStyle.NoBrush)
    else:
        number, _, box = marker.rpartition(" ")
        if box not in (BOX, TICKED):
            number, box = marker, ""
        beside = 0.0  # the width of the box
        if box:
            left = at.x() + edge + (6 if to_right else -22)
            _paint_box(painter, style, QRectF(left, middle - 8, 16, 16), ticked=box == TICKED)
            beside = BOX_WIDTH
        painter.setFont(style.body)
        painter.setPen(style.secondary)
        side = Qt.AlignmentFlag.AlignLeft if to_right else Qt.AlignmentFlag.AlignRight
        left = edge + 8 + beside if to_right else edge - 68 - beside
        area = QRectF(at.x() + left, middle - style.line / 2, 60, style.line)
        side |= Qt.AlignmentFlag.AlignAbsolute  # by the text's direction, not the window's
        directions, window = Qt.LayoutDirection, painter.layoutDirection()
        painter.setLayoutDirection(directions.RightToLeft if to_right else directions.LeftToRight)
        painter.drawText(area, side | Qt.AlignmentFlag.AlignVCenter, number)
        painter.setLayoutDirection(window)


def _paint_box(painter: QPainter, style: ReadingStyle, box: QRectF, *, ticked: bool) -> None:
    painter.setPen(QPen(style.accent if ticked else style.faint, 1.25))
    painter.setBrush(style.accent if ticked else Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(box.adjusted(1, 1, -1, -1), 4, 4)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    if ticked:
        pen = QPen(QColor(style.palette.on_accent), 1.75)
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
        painter.setPen(pen)
        points = [(4.5, 8.5), (7.0, 11.0), (11.5, 5.5)]
        painter.drawPolyline([box.topLeft() + QPointF(x, y) for x, y in points])


def _paint_picture(
    painter: QPainter,
    row: Row,
    style: ReadingStyle,
    at: QPointF,
    clip: QRectF,
    shown: Shown,
    *,
    focused: bool,
) -> None:
    """Paint the thumbnail of a picture, which is asked for only where it is seen."""
    area = row.area.translated(at)
    if row.image is None or not area.adjusted(-5, -5, 5, 5).intersects(clip):
        return
    picture = shown.thumbnails.of(row.image) if shown.thumbnails else None
    hovered = shown.mouse is not None and row.area.contains(shown.mouse)
    pictures.paint(painter, style, area, picture, hovered=hovered, focused=focused)


def _paint_found_row(
    painter: QPainter, row: Row, number: int, style: ReadingStyle, at: QPointF, shown: Shown
) -> None:
    """Mark the row of a file that has what Find in conversation looks for."""
    found = shown.current_match
    is_current = found is not None and found.in_file and found.row == number
    if row.image is not None:
        color = style.ink if style.high_contrast else style.accent
        painter.setPen(QPen(color if is_current else style.match, 3))
        painter.drawRoundedRect(row.area.translated(at).adjusted(-3, -3, 3, 3), 9, 9)
        return
    painter.setPen(QPen(style.ink, 2) if style.high_contrast else Qt.PenStyle.NoPen)
    painter.setBrush(style.current_match if is_current else style.match)
    painter.drawRoundedRect(row.area.translated(at).adjusted(0, 2, 0, -2), 6, 6)
    painter.setBrush(Qt.BrushStyle.NoBrush)


def _paint_row(
    painter: QPainter,
    view: MessageView,
    row: Row,
    style: ReadingStyle,
    at: QPointF,
    shown: Shown,
    focused: bool,
    has_match: bool,
) -> None:
    """Paint the row that stands for a part of a message."""
    area = row.area.translated(at)
    hovered = row.usable and shown.mouse is not None and row.area.contains(shown.mouse)
    color = style.ink if hovered or focused or has_match else style.secondary
    ratio = painter.device().devicePixelRatio()
    name = "chevron_right" if row.folded else "chevron_down"
    mirrored = QGuiApplication.isRightToLeft()
    middle = area.center().y()
    if row.file is not None:
        name = file_icon(row.file.name, row.file.kind)
    if row.usable:
        left = area.right() - 20 if mirrored else area.left() + 4
        painter.drawPixmap(QPointF(left, middle - 8), pixmap(name, color.name(), 16, ratio))
    painter.setFont(style.note)
    painter.setPen(color)
    beside = ROW_TEXT + 8
    place = area.adjusted(4, 0, -beside, 0) if mirrored else area.adjusted(beside, 0, -4, 0)
    words = painter.fontMetrics().elidedText(
        row.words, Qt.TextElideMode.ElideRight, round(place.width())
    )
    align = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading
    painter.drawText(place, align, words)
    width = painter.fontMetrics().horizontalAdvance(words)
    if row.kind is Kind.THOUGHT and view.thinking and row.folded and row == view.rows[-1]:
        end = place.right() - width - 12 if mirrored else place.left() + width + 12
        _dot(painter, style, QPointF(end, middle))
    if focused:
        painter.setPen(QPen(style.accent, 2))
        wide = width + ROW_TEXT + 16
        start = area.right() - wide if mirrored else area.left()
        ring = QRectF(start, area.top() + 1, wide, area.height() - 2)
        painter.drawRoundedRect(ring, 6, 6)


def _paint_end(painter: QPainter, view: MessageView, style: ReadingStyle, at: QPointF) -> None:
    """Paint the streaming dot after the last character, or before the waiting note."""
    if view.cards.are_busy or (view.thinking and view.rows[-1].folded):
        return
    point = view.end_point() + at
    if view.text_begun or (view.thinking and view.parts):
        behind = -10 if view.parts[-1].view.right_to_left else 10
        _dot(painter, style, point + QPointF(behind, 0))
        return
    mirrored = QGuiApplication.isRightToLeft()
    _dot(
        painter,
        style,
        QPointF(at.x() + view.column - DOT / 2, point.y())
        if mirrored
        else point + QPointF(DOT / 2, 0),
    )
    if view.note:
        painter.setFont(style.note)
        painter.setPen(style.secondary)
        left = at.x() if mirrored else point.x() + 18
        place = QRectF(left, point.y() - style.line / 2, view.column - 18, style.line)
        metrics = painter.fontMetrics()
        words = metrics.elidedText(view.note, Qt.TextElideMode.ElideRight, round(place.width()))
        painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, words)


def _dot(painter: QPainter, style: ReadingStyle, center: QPointF) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(mixed(style.accent, style.paper, 0.9))
    painter.drawEllipse(center, DOT / 2, DOT / 2)
    painter.setBrush(Qt.BrushStyle.NoBrush)


# --- matches of Find in conversation ------------------------------------------------------------


def paint_matches(
    painter: QPainter,
    part: PlacedBlock,
    origin: QPointF,
    style: ReadingStyle,
    clip: QRectF,
    matches: Sequence[Match],
    current: Match | None,
) -> None:
    """Paint the matches of one part; they must be in text order.

    The colour is mixed with what is painted already, darkening a light page and lightening a dark
    one, so that text, selection and syntax colours stay as they are.
    """
    view = part.view
    inset = CODE_PADDING - 2.0 if isinstance(view, CodeView) else -3.0
    inside = QRectF(origin, part.view_size).adjusted(inset, 0.0, -inset, 0.0) & clip
    if inside.isEmpty():
        return
    painter.save()
    painter.setClipRect(inside, Qt.ClipOperation.IntersectClip)
    modes = QPainter.CompositionMode
    mode = modes.CompositionMode_Screen if style.palette.dark else modes.CompositionMode_Multiply
    painter.setPen(Qt.PenStyle.NoPen)
    for match in _between(part, matches, inside.top() - origin.y(), inside.bottom() - origin.y()):
        color = style.current_match if match is current else style.match
        for area in view.areas(match.start, match.end):
            box = area.translated(origin).adjusted(-1, 1, 1, -1)
            painter.setCompositionMode(mode)
            painter.setBrush(color)
            painter.drawRoundedRect(box, 3, 3)
            if match is current and style.high_contrast:
                painter.setCompositionMode(modes.CompositionMode_SourceOver)
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.setPen(QPen(style.ink, 2))
                painter.drawRoundedRect(box, 3, 3)
                painter.setPen(Qt.PenStyle.NoPen)
    painter.restore()


def _between(
    part: PlacedBlock, matches: Sequence[Match], top: float, bottom: float
) -> Sequence[Match]:
    """The matches on the lines between two y coordinates, and possibly more."""
    view = part.view
    first = min(view.hit(0.0, max(top, 0.0)), view.hit(part.width, max(top, 0.0)))
    last = max(view.hit(0.0, bottom), view.hit(part.width, bottom))
    start = bisect_left(matches, first, key=lambda match: match.end)
    return matches[start : bisect_right(matches, last, key=lambda match: match.start)]


# --- the whole view -----------------------------------------------------------------------------


class ViewPainter:
    """Reads the layout and the state of keyboard, mouse and search; it changes nothing."""

    def __init__(
        self,
        layout: TranscriptLayout,
        tools: Tools,
        keys: Keys,
        pointer: Pointer,
        finder: Finder,
        thumbnails: Thumbnails,
    ) -> None:
        self._layout = layout
        self._thumbnails = thumbnails
        self._tools = tools
        self._keys = keys
        self._pointer = pointer
        self._finder = finder

    def paint(self, painter: QPainter, clip: QRectF, *, has_focus: bool) -> None:
        """Paint everything inside `clip`, in viewport coordinates."""
        layout = self._layout
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setClipRect(clip)
        painter.fillRect(clip, layout.style.paper)
        top = clip.top() + layout.offset()
        for index in layout.stack.between(top, top + clip.height()):
            self._paint_message(painter, index, clip, has_focus=has_focus)
        for area, words in layout.headers():
            if area.intersects(clip):
                column_header.paint(painter, layout.style, area, words)
        if (line := layout.memory_line()).intersects(clip):
            memory_line.paint(painter, layout.style, line)

    def _paint_message(
        self, painter: QPainter, index: int, clip: QRectF, *, has_focus: bool
    ) -> None:
        layout = self._layout
        view = layout.stack.views[index]
        if not view.built:
            return
        tools, areas = self._tools.shown(index)
        mouse = self._pointer.point
        focused = has_focus and index == layout.focused
        shown = Shown(
            tools,
            areas,
            layout.selection.in_message(index, view),
            layout.local(index, mouse) if mouse is not None else None,
            self._keys.focused_control() if focused else None,
            *self._finder.in_message(view.message.id),
            thumbnails=self._thumbnails,
            done=self._tools.done(view.message.id),
        )
        at = QPointF(layout.left_of(index), layout.message_top(index))
        paint_message(painter, view, layout.style, at, clip, shown)
