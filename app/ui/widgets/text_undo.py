"""Text fields with nothing to undo leave the Undo key to the window's action.

Qt's text fields claim the key whenever they have the focus, also while their history is empty.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QKeyEvent, QKeySequence
from PySide6.QtWidgets import QLineEdit, QPlainTextEdit, QTextEdit, QWidget

from app.ui.widgets.focus_filter import FocusFilter

UNDOABLE = "undoable"  # property of a field that can undo more than edits of its text


class TextUndo(FocusFilter):
    """Filters the Undo key of the focused text field."""

    def watches(self, widget: QWidget) -> bool:
        return isinstance(widget, _FIELDS)

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
