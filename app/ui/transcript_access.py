"""The transcript for screen readers: a list, and in it each message by its writer and its text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, QRect
from PySide6.QtGui import QAccessible, QAccessibleEvent, QAccessibleInterface, QColor, QWindow

from app.store import MessageState
from app.ui.message_tools import adapters_in_words
from engine import Role

if TYPE_CHECKING:
    from app.ui.transcript import Transcript

_WRITERS = {Role.USER: "You", Role.ASSISTANT: "Answer", Role.SYSTEM: "Instructions"}
_STATES = {
    MessageState.STOPPED: ", stopped",
    MessageState.INTERRUPTED: ", interrupted",
    MessageState.FAILED: ", failed",
    MessageState.STREAMING: ", being written",
}


class MessageAccess(QAccessibleInterface):
    """One message."""

    def __init__(self, view: Transcript, index: int, parent: TranscriptAccess) -> None:
        super().__init__()
        self._view, self._index, self._parent = view, index, parent

    def isValid(self) -> bool:
        return self._index < len(self._view.stack)

    def object(self) -> QObject | None:  # type: ignore[override]
        return None

    def role(self) -> QAccessible.Role:
        return QAccessible.Role.ListItem

    def state(self) -> QAccessible.State:
        state = QAccessible.State()
        state.readOnly = True  # type: ignore[attr-defined]
        state.focusable = True  # type: ignore[attr-defined]
        state.focused = self._view.keys.message == self._index  # type: ignore[attr-defined]
        return state

    def text(self, t: QAccessible.Text) -> str:
        if not self.isValid():
            return ""
        message = self._view.stack.views[self._index].message
        if t is QAccessible.Text.Name:
            return f"{_WRITERS[message.role]}{_STATES.get(message.state, '')}: {message.text}"
        if t is QAccessible.Text.Description:
            return "\n".join(filter(None, (adapters_in_words(message.adapters), message.error)))
        return ""

    def setText(self, t: QAccessible.Text, text: str) -> None:
        """Messages are not edited this way."""

    def rect(self) -> QRect:
        if not self.isValid():
            return QRect()
        view = self._view
        top = round(view.message_top(self._index))
        corner = view.viewport().mapToGlobal(QPoint(view.column_left(), top))
        height = round(view.stack.views[self._index].height)
        return QRect(corner.x(), corner.y(), round(view.stack.column), height)

    def parent(self) -> QAccessibleInterface:
        return self._parent

    def child(self, index: int) -> QAccessibleInterface | None:  # type: ignore[override]
        return None

    def childAt(self, x: int, y: int) -> QAccessibleInterface | None:  # type: ignore[override]
        return None

    def childCount(self) -> int:
        return 0

    def indexOfChild(self, arg__1: QAccessibleInterface) -> int:
        return -1

    def backgroundColor(self) -> QColor:
        return self._view.look.paper

    def foregroundColor(self) -> QColor:
        return self._view.look.ink

    def window(self) -> QWindow | None:  # type: ignore[override]
        return self._view.window().windowHandle()


class TranscriptAccess(QAccessibleInterface):
    """The list of messages."""

    def __init__(self, view: Transcript) -> None:
        super().__init__()
        self._view = view
        self._children: dict[int, MessageAccess] = {}

    def isValid(self) -> bool:
        return True

    def object(self) -> QObject:
        return self._view

    def role(self) -> QAccessible.Role:
        return QAccessible.Role.List

    def state(self) -> QAccessible.State:
        state = QAccessible.State()
        state.focusable = True  # type: ignore[attr-defined]
        state.focused = self._view.hasFocus()  # type: ignore[attr-defined]
        return state

    def text(self, t: QAccessible.Text) -> str:
        if t is QAccessible.Text.Name:
            return self._view.accessibleName()
        if t is QAccessible.Text.Description:
            count = len(self._view.stack)
            return "1 message" if count == 1 else f"{count} messages"
        return ""

    def setText(self, t: QAccessible.Text, text: str) -> None:
        """The name is fixed."""

    def rect(self) -> QRect:
        corner = self._view.mapToGlobal(QPoint(0, 0))
        return QRect(corner, self._view.size())

    def parent(self) -> QAccessibleInterface | None:  # type: ignore[override]
        parent = self._view.parentWidget()
        return QAccessible.queryAccessibleInterface(parent) if parent else None

    def child(self, index: int) -> QAccessibleInterface | None:  # type: ignore[override]
        if not 0 <= index < len(self._view.stack):
            return None
        if index not in self._children:
            self._children[index] = MessageAccess(self._view, index, self)
        return self._children[index]

    def childAt(self, x: int, y: int) -> QAccessibleInterface | None:  # type: ignore[override]
        point = self._view.viewport().mapFromGlobal(QPoint(x, y))
        return self.child(self._view.stack.at(point.y() + self._view.offset()))

    def childCount(self) -> int:
        return len(self._view.stack)

    def indexOfChild(self, arg__1: QAccessibleInterface) -> int:
        return next((n for n, child in self._children.items() if child is arg__1), -1)

    def backgroundColor(self) -> QColor:
        return self._view.look.paper

    def foregroundColor(self) -> QColor:
        return self._view.look.ink

    def window(self) -> QWindow | None:  # type: ignore[override]
        return self._view.window().windowHandle()


def tell_focus(view: Transcript, index: int) -> None:
    """Tell that a message has the keyboard now."""
    event = QAccessibleEvent(view, QAccessible.Event.Focus)
    event.setChild(index)
    QAccessible.updateAccessibility(event)
