"""Paints the card of a tool's call: its frame and its line, which is filled from both ends."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPen

from app.system.translation import isolated
from app.ui.blocks.style import ReadingStyle
from app.ui.theme.icons import pixmap
from app.ui.theme.theme import RADIUS_CARD, RADIUS_CONTROL
from app.ui.transcript.message.call_card import BUTTON, ICON, LINE, SECOND_LINE, mirrored
from app.ui.transcript.message.sections import Row
from app.ui.transcript.message.tool_call import CallLook

_SYMBOLS = {
    CallLook.WRITING: "edit",
    CallLook.NEXT: "more",
    CallLook.ASKING: "ask",
    CallLook.RUNNING: "play",
    CallLook.DONE: "check",
    CallLook.FAILED: "warning",
    CallLook.DENIED: "close",
    CallLook.STOPPED: "stop",
    CallLook.REFUSED: "warning",
    CallLook.LOST: "minus",
}
_ACTIVE = (CallLook.WRITING, CallLook.ASKING, CallLook.RUNNING, CallLook.DONE)
_WRONG = (CallLook.FAILED, CallLook.REFUSED)


def paint(
    painter: QPainter,
    row: Row,
    style: ReadingStyle,
    at: QPointF,
    mouse: QPointF | None,
    focused: str,
) -> None:
    """Paint the frame of a card and its line; `focused` is "row", "stop" or nothing."""
    call = row.call
    assert call is not None
    over_stop = mouse is not None and row.stop.contains(mouse)
    hovered = mouse is not None and row.usable and row.area.contains(mouse) and not over_stop
    _paint_frame(painter, row.frame.translated(at), call.look, style, hovered=hovered)
    area = row.area.translated(at)
    if focused == "row":
        painter.setPen(QPen(style.accent, 2))
        painter.drawRoundedRect(area.adjusted(3, 3, -3, -3), RADIUS_CARD - 3, RADIUS_CARD - 3)
    ratio = painter.device().devicePixelRatio()
    middle = area.top() + LINE / 2
    line = _Line(painter, area, middle, area.left() + 12.0, area.right() - 10.0)
    color = _color(call.look, style)
    symbol = pixmap(_SYMBOLS[call.look], color.name(), int(ICON), ratio)
    painter.drawPixmap(line.take_first(ICON, 10.0).topLeft(), symbol)
    if row.foldable:
        name = "chevron_right" if row.folded else "chevron_down"
        tint = style.ink if hovered else style.secondary
        place = line.take_last(ICON, 10.0)
        painter.drawPixmap(place.topLeft(), pixmap(name, tint.name(), int(ICON), ratio))
    if call.look is CallLook.RUNNING:
        line.last -= BUTTON + 2.0
        _paint_stop(painter, row.stop.translated(at), style, over_stop, focused == "stop")
    small, plain = QFont(style.note), QFont(style.note)
    plain.setWeight(QFont.Weight.Medium)
    line.write_last(call.state, small, color if call.look in _WRONG else style.secondary)
    short = "" if call.look is CallLook.ASKING else call.short  # they are below, in full
    two_lines = area.height() > LINE
    title_room = line.room if two_lines else max(line.room * 0.6, line.room - 120.0)
    line.write_first(call.title, plain, style.ink, title_room)
    if two_lines:
        below = area.top() + LINE + SECOND_LINE / 2 - 6
        line = _Line(painter, area, below, area.left() + 38.0, area.right() - 12.0)
    if call.server:
        _paint_server(line, call.server, style)
    if line.room > 40.0:
        line.write_first(short, small, style.secondary, line.room)


@dataclass(slots=True)
class _Line:
    """One line of a card that is filled from both ends; x as in a window from left to right."""

    painter: QPainter
    area: QRectF
    middle: float  # y
    first: float
    last: float

    @property
    def room(self) -> float:
        """What is left, in pixels."""
        return max(self.last - self.first, 0.0)

    def take_first(self, size: float, gap: float) -> QRectF:
        """A place at the beginning of what is left."""
        place = QRectF(self.first, self.middle - ICON / 2, size, ICON)
        self.first += size + gap
        return mirrored(place, self.area)

    def take_last(self, size: float, gap: float) -> QRectF:
        """A place at the end of what is left."""
        place = QRectF(self.last - size, self.middle - ICON / 2, size, ICON)
        self.last -= size + gap
        return mirrored(place, self.area)

    def write_first(self, text: str, face: QFont, color: QColor, room: float) -> None:
        """Write a text at the beginning, cut to some room."""
        self._write(text, face, color, room, Qt.AlignmentFlag.AlignLeading)

    def write_last(self, text: str, face: QFont, color: QColor) -> None:
        """Write a text at the end."""
        self._write(text, face, color, self.room, Qt.AlignmentFlag.AlignTrailing)

    def _write(
        self, text: str, face: QFont, color: QColor, room: float, side: Qt.AlignmentFlag
    ) -> None:
        metrics = QFontMetricsF(face)
        shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, max(room, 0.0))
        shown = isolated(shown)  # a text from left to right keeps its order
        wide = metrics.horizontalAdvance(shown) + 1
        at_end = side == Qt.AlignmentFlag.AlignTrailing
        place = self.take_last(wide, 12.0) if at_end else self.take_first(wide, 8.0)
        self.painter.setFont(face)
        self.painter.setPen(color)
        flags = Qt.AlignmentFlag.AlignVCenter | side | Qt.TextFlag.TextSingleLine
        self.painter.drawText(place.adjusted(-1, -4, 1, 4), flags, shown)


def _paint_frame(
    painter: QPainter, frame: QRectF, look: CallLook, style: ReadingStyle, *, hovered: bool
) -> None:
    edge = style.accent if look is CallLook.ASKING else style.hairline
    if hovered and not style.high_contrast:
        edge = style.faint
    wide = 2.0 if style.high_contrast else 1.0
    painter.setPen(QPen(edge, wide))
    painter.setBrush(QColor(style.palette.surface))
    inset = wide / 2
    painter.drawRoundedRect(frame.adjusted(inset, inset, -inset, -inset), RADIUS_CARD, RADIUS_CARD)
    painter.setBrush(Qt.BrushStyle.NoBrush)


def _paint_stop(
    painter: QPainter, button: QRectF, style: ReadingStyle, hovered: bool, focused: bool
) -> None:
    if hovered:
        painter.setPen(QPen(style.hairline, 2) if style.high_contrast else Qt.PenStyle.NoPen)
        painter.setBrush(style.card)
        painter.drawRoundedRect(button, RADIUS_CONTROL, RADIUS_CONTROL)
        painter.setBrush(Qt.BrushStyle.NoBrush)
    if focused:
        painter.setPen(QPen(style.accent, 2))
        painter.drawRoundedRect(button.adjusted(1, 1, -1, -1), RADIUS_CONTROL, RADIUS_CONTROL)
    ratio = painter.device().devicePixelRatio()
    inset = (BUTTON - ICON) / 2
    picture = pixmap("stop", style.ink.name(), int(ICON), ratio)
    painter.drawPixmap(button.topLeft() + QPointF(inset, inset), picture)


def _paint_server(line: _Line, server: str, style: ReadingStyle) -> None:
    """Paint the name of a server on a ground of its own, so that it is no part of the title."""
    metrics = QFontMetricsF(style.small)
    shown = metrics.elidedText(server, Qt.TextElideMode.ElideRight, min(120.0, line.room - 20.0))
    if not shown:
        return
    place = line.take_first(metrics.horizontalAdvance(shown) + 12.0, 8.0).adjusted(0, -1, 0, 1)
    painter = line.painter
    painter.setPen(QPen(style.hairline, 1) if style.high_contrast else Qt.PenStyle.NoPen)
    painter.setBrush(style.sunken)
    painter.drawRoundedRect(place, 4, 4)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setFont(style.small)
    painter.setPen(style.secondary)
    painter.drawText(place, Qt.AlignmentFlag.AlignCenter, shown)


def _color(look: CallLook, style: ReadingStyle) -> QColor:
    if look in _WRONG:
        return style.danger
    return style.accent if look in _ACTIVE else style.secondary
