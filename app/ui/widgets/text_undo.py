"""Text fields with nothing to undo leave the Undo key to the window's action.

Qt's text fields claim the key whenever they have the focus, also while their history is empty.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QKeyEvent, QKeySequence
from PySide6.QtWidgets import QApplication, QLineEdit, QPlainTextEdit, QTextEdit, QWidget

UNDOABLE = "undoable"  # property of a field that can undo more than edits of its text


class TextUndo(QObject):
    """Watches only the focused text field: a filter on the application would slow every event."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._watched: QWidget | None = None
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        application.focusChanged.connect(self._watch)

    def _watch(self, _old: QWidget | None, focused: QWidget | None) -> None:
        if self._watched is not None:
            self._watched.removeEventFilter(self)
            self._watched.destroyed.disconnect(self._forget)
        self._watched = focused if isinstance(focused, _FIELDS) else None
        if self._watched is not None:
            self._watched.installEventFilter(self)
            self._watched.destroyed.connect(self._forget)

    def _forget(self) -> None:
        self._watched = None

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is not QEvent.Type.ShortcutOverride or not isinstance(event, QKeyEvent):
            return False
        if not event.matches(QKeySequence.StandardKey.Undo) or _can_undo(watched):
            return False
        event.ignore()
        return True


_FIELDS = (QLineEdit, QPlainTextEdit, QTextEdit)


def _can_undo(field: QObject) -> bool:
    """Whether a text field has an edit to undo."""
    if field.property(UNDOABLE):
        return True
    if isinstance(field, QLineEdit):
        return field.isUndoAvailable()
    return isinstance(field, QPlainTextEdit | QTextEdit) and field.document().isUndoAvailable()
