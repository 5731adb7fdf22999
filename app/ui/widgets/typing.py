"""Typing while another widget has the focus: the key goes to the text field that it is meant for.

The field handles the key itself, so it accepts what it would have accepted with the focus. An
input method (dead keys, Japanese, …) works only where Qt enables it: it is enabled for the other
widget too, what it composes is shown in the field, and the field gets the focus when that is
committed. A change of focus before would end the composition with its first letter.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QGuiApplication, QInputMethodEvent, QInputMethodQueryEvent, QKeyEvent
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QApplication,
    QLineEdit,
    QPlainTextEdit,
    QTextEdit,
    QWidget,
)

from app.ui.widgets.focus_filter import FocusFilter

Field = QLineEdit | QPlainTextEdit


def types_text(event: QKeyEvent, platform: str = sys.platform) -> bool:
    """Whether a key press enters a character, also by the keypad, AltGr or Option."""
    text, keys = event.text(), Qt.KeyboardModifier
    if not text or unicodedata.category(text[0]) == "Cc":
        return False
    command = event.modifiers() & (keys.ControlModifier | keys.AltModifier | keys.MetaModifier)
    graphic = keys.AltModifier if platform == "darwin" else keys.ControlModifier | keys.AltModifier
    return command in (keys.NoModifier, graphic)


def type_into(field: Field, event: QKeyEvent) -> None:
    """Give a text field the focus and a key press."""
    field.setFocus()
    field.keyPressEvent(event)


class ComposingElsewhere(FocusFilter):
    """Lets input methods compose into a text field while another widget has the focus."""

    def __init__(self, window: QWidget, field_for: Callable[[QWidget], Field | None]) -> None:
        """`field_for` is the field that a key typed in this widget goes to; None: nowhere."""
        super().__init__(window)
        self._field_for = field_for

    def watches(self, widget: QWidget) -> bool:
        texts = (QLineEdit, QPlainTextEdit, QTextEdit, QAbstractSpinBox)
        if isinstance(widget, texts) or not widget.isVisible():  # hidden: it may be being deleted
            return False
        return self._field_for(widget) is not None

    def _on_focus(self, _old: QWidget | None, focused: QWidget | None) -> None:
        super()._on_focus(_old, focused)
        if self.watched is not None:
            QGuiApplication.inputMethod().update(Qt.InputMethodQuery.ImEnabled)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() not in (QEvent.Type.InputMethod, QEvent.Type.InputMethodQuery):
            return False  # at once: most events are others
        field = None
        if isinstance(watched, QWidget) and watched.isVisible():
            field = self._field_for(watched)
        if field is None or not isinstance(watched, QWidget):
            return False
        if isinstance(event, QInputMethodQueryEvent):
            _answer(event, watched, field)
            return True
        if isinstance(event, QInputMethodEvent):
            QApplication.sendEvent(field, event)
            if not event.preeditString():
                field.setFocus()
            return True
        return False


def _answer(event: QInputMethodQueryEvent, widget: QWidget, field: Field) -> None:
    """Answer an input method that asks a widget as if it had asked the field."""
    moved = widget.mapFromGlobal(field.mapToGlobal(QPoint()))
    for query in Qt.InputMethodQuery:
        if event.queries() & query == query and query.value.bit_count() == 1:
            event.setValue(query, _moved(field.inputMethodQuery(query), moved))
    event.accept()


def _moved(value: Any, by: QPoint) -> Any:
    """A place in the field as a place in the other widget; other values as they are."""
    if isinstance(value, QRect):
        return value.translated(by)
    if isinstance(value, QRectF):
        return value.translated(QPointF(by))
    return value + by if isinstance(value, QPoint | QPointF) else value
