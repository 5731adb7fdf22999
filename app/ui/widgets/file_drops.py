"""Drops of files and texts on the window: what is dragged is named, and what is dropped is emitted."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QWidget

from app.ui.widgets.drop_area import DropArea
from app.ui.widgets.message_field import can_be_used, files_in


class FileDrops(QObject):
    """Event filter of a widget that accepts drops where no child does."""

    files_dropped = Signal(list)  # paths
    text_dropped = Signal(object)  # QMimeData

    def __init__(self, widget: QWidget, area: DropArea, takes_text: Callable[[], bool]) -> None:
        """`area` says what a drop does; `takes_text` is whether texts are accepted now."""
        super().__init__(widget)
        self._area, self._takes_text = area, takes_text
        widget.setAcceptDrops(True)
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if kind == QEvent.Type.DragEnter and isinstance(event, QDragEnterEvent):
            data = event.mimeData()
            files = files_in(data)
            if files:
                self._area.show_for(files)
            if files or (can_be_used(data) and self._takes_text()):
                event.acceptProposedAction()
        elif kind == QEvent.Type.DragLeave:
            self._area.hide()
        elif kind == QEvent.Type.Drop and isinstance(event, QDropEvent):
            self._area.hide()
            event.acceptProposedAction()
            if files := files_in(event.mimeData()):
                self.files_dropped.emit(files)
            elif self._takes_text():
                self.text_dropped.emit(event.mimeData())
        else:
            return False
        return True
