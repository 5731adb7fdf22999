"""The transcript by keyboard: from message to message, and along the tools of one.

Up and Down go between messages once one has the focus, Left and Right and Tab along its tools,
Enter uses one. Tab leaves after the last tool, so that nobody is caught in a long conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent, QKeySequence

if TYPE_CHECKING:
    from app.ui.transcript import Transcript

THOUGHTS = -1  # the place of the line that unfolds the thoughts, before the tools


class Keys:
    """Which message has the keyboard, and which of its tools."""

    def __init__(self, view: Transcript) -> None:
        self._view = view
        self.message = -1
        self.tool = -2

    def forget(self) -> None:
        """No message has the keyboard."""
        self.message, self.tool = -1, -2

    def enter(self, *, backwards: bool) -> None:
        """The view got the focus by the Tab key: go to the last message that is in sight."""
        view = self._view
        if len(view.stack):
            bottom = view.offset() + view.viewport().height() - 40
            self._go(view.stack.at(bottom))
            stops = self._stops()
            if backwards and stops:
                self.tool = stops[-1]

    def step(self, *, forward: bool) -> bool:
        """Go along the tools; False at the end, where the focus leaves the view."""
        if self.message < 0:
            return False
        stops = self._stops()
        after = [n for n in stops if (n > self.tool if forward else n < self.tool)]
        if not after:
            return False
        self.tool = after[0] if forward else after[-1]
        tools, _ = self._view.tools.shown(self.message)
        control = "thoughts" if self.tool == THOUGHTS else f"tool {tools[self.tool].name}"
        self._view.access.focus(self.message, control)
        self._view.redraw_message(self.message)
        return True

    def press(self, event: QKeyEvent) -> bool:
        """Act on a key; False when it means nothing here."""
        view, key = self._view, event.key()
        page = view.viewport().height()
        if event.matches(QKeySequence.StandardKey.Copy):
            view.copy()
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            view.select_all()
        elif key in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            self._up_or_down(1 if key == Qt.Key.Key_Down else -1)
        elif key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            return self.step(forward=key == Qt.Key.Key_Right)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            return self._use()
        elif key == Qt.Key.Key_Home:
            view.scroll_to(0)
        elif key == Qt.Key.Key_End:
            view.jump_to_end()
        elif key == Qt.Key.Key_PageUp:
            view.scroll_to(view.offset() - page + 48)
        elif key == Qt.Key.Key_PageDown:
            view.scroll_to(view.offset() + page - 48)
        elif key == Qt.Key.Key_Escape and (self.message >= 0 or not view.selection.empty):
            self.forget()
            view.selection.clear()
            view.viewport().update()
        else:
            return False
        return True

    def _up_or_down(self, step: int) -> None:
        """Go to the next message; without one, or inside a long one, scroll."""
        view = self._view
        if self.message < 0:
            view.scroll_to(view.offset() + 72 * step)
            return
        top = view.message_top(self.message)
        bottom = top + view.stack.views[self.message].height
        hidden = top < -8 if step < 0 else bottom > view.viewport().height() + 8
        if hidden:
            view.scroll_to(view.offset() + 72 * step)
        elif 0 <= self.message + step < len(view.stack):
            self._go(self.message + step)

    def _go(self, index: int) -> None:
        view = self._view
        self.message = index
        stops = self._stops()
        self.tool = stops[0] if stops else -2
        top = view.message_top(index)
        height, page = view.stack.views[index].height, view.viewport().height()
        if top < 0 or height > page:
            view.scroll_to(view.stack.top(index) - 24)
        elif top + height > page:
            view.scroll_to(view.stack.top(index) + height - page + 16)
        view.access.focus(index)
        view.viewport().update()

    def _stops(self) -> list[int]:
        """The places the focus can take in the message."""
        tools, _ = self._view.tools.shown(self.message)
        stops = [n for n, tool in enumerate(tools) if tool.can_act]
        thoughts = self._view.stack.views[self.message].has_thoughts
        return [THOUGHTS, *stops] if thoughts else stops

    def _use(self) -> bool:
        if self.message < 0:
            return False
        tools, _ = self._view.tools.shown(self.message)
        if self.tool == THOUGHTS:
            self._view.toggle_thoughts(self.message)
        elif 0 <= self.tool < len(tools):
            self._view.tools.use(self.message, tools[self.tool])
        return True
