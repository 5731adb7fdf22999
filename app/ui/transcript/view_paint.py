"""Paints the visible part of a transcript: its messages and the line where the memory begins."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from app.ui.transcript import column_header, memory_line, message_paint
from app.ui.transcript.find import Finder
from app.ui.transcript.keys import NOTHING, Keys
from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.pointer import Pointer
from app.ui.transcript.tools import Tools


class ViewPainter:
    """Reads the layout and the state of keyboard, mouse and search; it changes nothing."""

    def __init__(
        self, places: TranscriptLayout, tools: Tools, keys: Keys, pointer: Pointer, finder: Finder
    ) -> None:
        self._places = places
        self._tools = tools
        self._keys = keys
        self._pointer = pointer
        self._finder = finder

    def paint(self, painter: QPainter, clip: QRectF, *, has_focus: bool) -> None:
        """Paint everything inside `clip`, in viewport coordinates."""
        places = self._places
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setClipRect(clip)
        painter.fillRect(clip, places.style.paper)
        top = clip.top() + places.offset()
        for index in places.stack.between(top, top + clip.height()):
            self._paint_message(painter, index, clip, has_focus=has_focus)
        for area, words in places.headers():
            if area.intersects(clip):
                column_header.paint(painter, places.style, area, words)
        if (line := places.memory_line()).intersects(clip):
            memory_line.paint(painter, places.style, line)

    def _paint_message(
        self, painter: QPainter, index: int, clip: QRectF, *, has_focus: bool
    ) -> None:
        places = self._places
        view = places.stack.views[index]
        if not view.built:
            return
        tools, areas = self._tools.shown(index)
        mouse = self._pointer.point
        focused = has_focus and index == places.focused
        shown = message_paint.Shown(
            tools,
            areas,
            places.selection.in_message(index, view),
            places.local(index, mouse) if mouse is not None else None,
            self._keys.tool if focused else NOTHING,
            *self._finder.in_message(view.message.id),
            done=self._tools.done(view.message.id),
        )
        at = QPointF(places.left_of(index), places.message_top(index))
        message_paint.paint(painter, view, places.style, at, clip, shown)
