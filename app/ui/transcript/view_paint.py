"""Paints the visible part of a transcript: its messages and the line where the memory begins."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from app.ui.transcript import column_header, memory_line, message_paint
from app.ui.transcript.find import Finder
from app.ui.transcript.keys import Keys
from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.pointer import Pointer
from app.ui.transcript.tools import Tools


class ViewPainter:
    """Reads the layout and the state of keyboard, mouse and search; it changes nothing."""

    def __init__(
        self, layout: TranscriptLayout, tools: Tools, keys: Keys, pointer: Pointer, finder: Finder
    ) -> None:
        self._layout = layout
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
        shown = message_paint.Shown(
            tools,
            areas,
            layout.selection.in_message(index, view),
            layout.local(index, mouse) if mouse is not None else None,
            self._keys.focused_control() if focused else None,
            *self._finder.in_message(view.message.id),
            done=self._tools.done(view.message.id),
        )
        at = QPointF(layout.left_of(index), layout.message_top(index))
        message_paint.paint(painter, view, layout.style, at, clip, shown)
