"""Accessibility tree of the transcript: a list of messages with their links, code and tools.

Qt requests these interfaces one by one and caches each by its address, so every message and every
control keeps one interface until the message is removed.
"""

# ruff: noqa: N803  (Qt names the arguments of the methods that are overridden)
from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, QPoint, QRect, QRectF, QTimer
from PySide6.QtGui import (
    QAccessible,
    QAccessibleActionInterface,
    QAccessibleEvent,
    QAccessibleInterface,
    QColor,
    QWindow,
)
from PySide6.QtWidgets import QAbstractScrollArea, QWidget
from shiboken6 import isValid

from app.domain.message import Message, MessageState
from app.system.translation import tr, trn
from app.ui.transcript import memory_line
from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.message.controls import Control, Controls
from app.ui.transcript.message.endings import ending
from app.ui.transcript.message.message_tools import adapters_in_words
from app.ui.widgets.accessibility import NO_INTERFACE
from engine import Role


class AccessibleMessages:
    """Creates, caches and deletes the accessible interfaces of a transcript's messages.

    `view` maps coordinates to the screen; `widgets()` returns those that stand over messages: the
    open message editor, and what asks for consent.
    """

    def __init__(
        self,
        view: QAbstractScrollArea,
        layout: TranscriptLayout,
        controls: Controls,
        widgets: Callable[[], Sequence[QWidget]],
    ) -> None:
        self.view = view
        self.layout = layout
        self.widgets = widgets
        self.controls = controls
        self._interfaces: dict[int, AccessibleMessage] = {}
        self._known: set[int] = set()
        self._focused = ""  # key of the focused control in the focused message; empty: none
        view.destroyed.connect(lambda: self._forget(set()))

    def message(self, message_id: int) -> AccessibleMessage:
        """The cached interface of a message."""
        if message_id not in self._interfaces:
            self._interfaces[message_id] = AccessibleMessage(self, message_id)
        return self._interfaces[message_id]

    def changed(self) -> None:
        """Update to the shown messages: delete interfaces of removed ones, report new ones."""
        ids = [view.message.id for view in self.layout.stack.views]
        self._forget(set(ids))
        if QAccessible.isActive():
            for message_id in ids:
                if message_id not in self._known:
                    _send_event(self.message(message_id), QAccessible.Event.ObjectCreated)
            self._known = set(ids)

    def focus(self, index: int, control: str = "") -> None:
        """Report the keyboard focus of a message or of one of its controls."""
        self._focused = control
        if QAccessible.isActive():
            message = self.message(self.layout.stack.views[index].message.id)
            item = message.control_access(control) if control else message
            _send_event(item, QAccessible.Event.Focus)

    def has_focus(self, index: int, control: str = "") -> bool:
        """Whether a message or, if given, one of its controls has the keyboard focus."""
        return self.layout.focused == index and self._focused == control

    def _forget(self, kept: set[int]) -> None:
        """Delete the interfaces of all messages that are not in `kept`."""
        for message_id in [known for known in self._interfaces if known not in kept]:
            message = self._interfaces.pop(message_id)
            for item in (*message.controls.values(), message):
                QAccessible.deleteAccessibleInterface(QAccessible.uniqueId(item))


class _PaintedItem(QAccessibleInterface):
    """Base of the interfaces of painted items, which are not QObjects."""

    def __init__(self, messages: AccessibleMessages) -> None:
        super().__init__()
        self._messages = messages
        self._view = messages.view
        self._layout = messages.layout

    def object(self) -> QObject | None:  # type: ignore[override]
        return None

    def setText(self, t: QAccessible.Text, text: str) -> None:
        """Do nothing: messages are read-only."""

    def state(self) -> QAccessible.State:
        state = QAccessible.State()
        if not self.isValid():
            state.invalid = True  # type: ignore[attr-defined]
            return state
        port = self._view.viewport()
        seen = QRect(port.mapToGlobal(QPoint(0, 0)), port.size())
        state.focusable = True  # type: ignore[attr-defined]
        state.invisible = not self._view.isVisible()  # type: ignore[attr-defined]
        state.offscreen = not self.rect().intersects(seen)  # type: ignore[attr-defined]
        return state

    def child(self, index: int) -> QAccessibleInterface | None:  # type: ignore[override]
        return None

    def childAt(self, x: int, y: int) -> QAccessibleInterface | None:  # type: ignore[override]
        children = (self.child(n) for n in range(self.childCount()))
        return next((child for child in children if child and child.rect().contains(x, y)), None)

    def childCount(self) -> int:
        return 0

    def indexOfChild(self, arg__1: QAccessibleInterface) -> int:
        return -1

    def backgroundColor(self) -> QColor:
        return self._layout.style.paper

    def foregroundColor(self) -> QColor:
        return self._layout.style.ink

    def window(self) -> QWindow | None:  # type: ignore[override]
        return self._view.window().windowHandle()

    def _on_screen(self, index: int, area: QRectF) -> QRect:
        """A rectangle of a message in screen coordinates."""
        layout = self._layout
        inside = area.translated(layout.left_of(index), layout.message_top(index)).toAlignedRect()
        return QRect(self._view.viewport().mapToGlobal(inside.topLeft()), inside.size())


class AccessibleMessage(_PaintedItem):
    """Interface of a message; the accessible name is its author, its state and its text."""

    def __init__(self, messages: AccessibleMessages, message_id: int) -> None:
        super().__init__(messages)
        self.message_id = message_id
        self.controls: dict[str, AccessibleControl] = {}

    @property
    def index(self) -> int:
        """The index of the message; -1 after its removal."""
        if not isValid(self._view):
            return -1
        found = self._layout.stack.index_of(self.message_id)
        return -1 if found is None else found

    def isValid(self) -> bool:
        return self.index >= 0

    def role(self) -> QAccessible.Role:
        return QAccessible.Role.ListItem

    def state(self) -> QAccessible.State:
        state = super().state()
        state.readOnly = True  # type: ignore[attr-defined]
        focused = self.isValid() and self._messages.has_focus(self.index)
        state.focused = focused  # type: ignore[attr-defined]
        return state

    def text(self, t: QAccessible.Text) -> str:
        if not self.isValid():
            return ""
        view = self._layout.stack.views[self.index]
        message = view.message
        if t is QAccessible.Text.Name and message.role is Role.SYSTEM:
            return view.spoken  # its row says what it is
        if t is QAccessible.Text.Name:
            writer = _writer(message)
            if words := self._layout.header_words(self.index):
                writer = tr("{writer}, {manner}", writer=writer, manner=words)
            return tr("{writer}: {text}", writer=writer, text=view.spoken)
        if t is QAccessible.Text.Description:
            begins = memory_line.words() if self._layout.stack.memory_line == self.index else ""
            parts = (begins, adapters_in_words(message.adapters), ending(message))
            return "\n".join(filter(None, parts))
        return ""

    def rect(self) -> QRect:
        if not self.isValid():
            return QRect()
        stack = self._layout.stack
        height = stack.views[self.index].height
        return self._on_screen(self.index, QRectF(0.0, 0.0, stack.width(self.index), height))

    def parent(self) -> QAccessibleInterface:
        return QAccessible.queryAccessibleInterface(self._view)

    def _controls(self) -> list[Control]:
        return self._messages.controls.of(self.index) if self.isValid() else []

    def control(self, key: str) -> Control | None:
        """The current state of a control; None if the message no longer has it."""
        return next((found for found in self._controls() if found.key == key), None)

    def control_access(self, key: str) -> AccessibleControl:
        """The cached interface of a control."""
        if key not in self.controls:
            self.controls[key] = AccessibleControl(self._messages, self, key)
        return self.controls[key]

    def child(self, index: int) -> QAccessibleInterface | None:  # type: ignore[override]
        found = self._controls()
        return self.control_access(found[index].key) if 0 <= index < len(found) else None

    def childCount(self) -> int:
        return len(self._controls())

    def indexOfChild(self, arg__1: QAccessibleInterface) -> int:
        if not isinstance(arg__1, AccessibleControl):
            return -1
        keys = [found.key for found in self._controls()]
        return keys.index(arg__1.key) if arg__1.key in keys else -1


class AccessibleControl(_PaintedItem):
    """Interface of one control of a message."""

    def __init__(self, messages: AccessibleMessages, message: AccessibleMessage, key: str) -> None:
        super().__init__(messages)
        self.key = key
        self._message = message
        self._action = _PressAction(self)

    def control(self) -> Control | None:
        """The current state of the control; None if the message no longer has it."""
        return self._message.control(self.key)

    def isValid(self) -> bool:
        return self.control() is not None

    def role(self) -> QAccessible.Role:
        found = self.control()
        return found.role if found else QAccessible.Role.NoRole

    def state(self) -> QAccessible.State:
        state, found = super().state(), self.control()
        if found is None:
            return state
        word = found.role is QAccessible.Role.StaticText
        state.focusable = not word  # type: ignore[attr-defined]
        focused = self._messages.has_focus(self._message.index, self.key)
        state.focused = focused  # type: ignore[attr-defined]
        state.disabled = found.use is None and not word  # type: ignore[attr-defined]
        if found.expanded is not None:
            state.expandable = True  # type: ignore[attr-defined]
            state.expanded = found.expanded  # type: ignore[attr-defined]
            state.collapsed = not found.expanded  # type: ignore[attr-defined]
        if found.checked is not None:
            state.checkable = True  # type: ignore[attr-defined]
            state.checked = found.checked  # type: ignore[attr-defined]
        return state

    def text(self, t: QAccessible.Text) -> str:
        found = self.control()
        if found is None:
            return ""
        texts = {QAccessible.Text.Name: found.name, QAccessible.Text.Description: found.description}
        return texts.get(t, "")

    def rect(self) -> QRect:
        found = self.control()
        return self._on_screen(self._message.index, found.area) if found else QRect()

    def parent(self) -> QAccessibleInterface:
        return self._message

    def interface_cast(self, t: QAccessible.InterfaceType) -> object:  # type: ignore[override]
        found = self.control()
        if t is QAccessible.InterfaceType.ActionInterface and found and found.use:
            return self._action
        return NO_INTERFACE


class _PressAction(QAccessibleActionInterface):
    """Action interface of a control: press."""

    def __init__(self, access: AccessibleControl) -> None:
        super().__init__()
        self._access = access

    def actionNames(self) -> list[str]:
        return [QAccessibleActionInterface.pressAction()]

    def doAction(self, actionName: str) -> None:
        found = self._access.control()
        if found and found.use and actionName == QAccessibleActionInterface.pressAction():
            QTimer.singleShot(0, found.use)  # deferred: it may delete the message and this object

    def keyBindingsForAction(self, actionName: str) -> list[str]:
        return []


class AccessibleTranscript(_PaintedItem):
    """Interface of the transcript: a list of messages, then the widgets that stand over them."""

    def isValid(self) -> bool:
        return isValid(self._view)

    def object(self) -> QObject:
        return self._view

    def role(self) -> QAccessible.Role:
        return QAccessible.Role.List

    def state(self) -> QAccessible.State:
        state = super().state()
        state.focused = self._view.hasFocus()  # type: ignore[attr-defined]
        return state

    def text(self, t: QAccessible.Text) -> str:
        if t is QAccessible.Text.Name:
            return self._view.accessibleName()
        if t is QAccessible.Text.Description:
            count = len(self._layout.stack)
            return trn("{count} message", "{count} messages", count)
        return ""

    def rect(self) -> QRect:
        return QRect(self._view.mapToGlobal(QPoint(0, 0)), self._view.size())

    def parent(self) -> QAccessibleInterface | None:  # type: ignore[override]
        parent = self._view.parentWidget()
        return QAccessible.queryAccessibleInterface(parent) if parent else None

    def child(self, index: int) -> QAccessibleInterface | None:  # type: ignore[override]
        views, widgets = self._layout.stack.views, self._messages.widgets()
        if 0 <= index < len(views):
            return self._messages.message(views[index].message.id)
        if 0 <= index - len(views) < len(widgets):
            return QAccessible.queryAccessibleInterface(widgets[index - len(views)])
        return None

    def childCount(self) -> int:
        return len(self._layout.stack) + len(self._messages.widgets())

    def indexOfChild(self, arg__1: QAccessibleInterface) -> int:
        if isinstance(arg__1, AccessibleMessage):
            return arg__1.index
        found = (n for n, each in enumerate(self._messages.widgets()) if each is arg__1.object())
        place = next(found, -1)
        return len(self._layout.stack) + place if place >= 0 else -1


def _send_event(item: QAccessibleInterface, event: QAccessible.Event) -> None:
    QAccessible.updateAccessibility(QAccessibleEvent(item, event))


def _writer(message: Message) -> str:
    """Who wrote a message and, for an answer that is not complete, why."""
    if message.role is Role.USER:
        return tr("You")
    match message.state:
        case MessageState.STOPPED:
            return tr("Answer, stopped")
        case MessageState.INTERRUPTED:
            return tr("Answer, interrupted")
        case MessageState.FAILED:
            return tr("Answer, failed")
        case MessageState.STREAMING:
            return tr("Answer, being written")
        case _:
            return tr("Answer")
