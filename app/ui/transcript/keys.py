"""Keyboard navigation of the transcript: between messages, and between the tools of one.

With a focused message Up and Down move to its neighbours; Left, Right and Tab move between its
tools, and Left and Right between two compared answers; Enter activates a tool. Tab after the last
tool leaves the transcript, however long it is.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence

from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.tools import Tools

NOTHING = -1_000_000  # no tool and no row; the rows that can be used are -1 and less, the last -1


class Keys(QObject):
    """Handles key presses and keeps the focused message and its focused tool."""

    copy_requested = Signal()
    select_all_requested = Signal()
    moved = Signal(int, str)  # index of the focused message, key of its focused control or ""

    def __init__(self, layout: TranscriptLayout, tools: Tools) -> None:
        super().__init__(layout)
        self._layout = layout
        self._tools = tools
        self.tool = NOTHING
        self._left = -1, NOTHING  # what had the focus when the view lost it

    def forget(self) -> None:
        """Clear the focused message."""
        self._layout.focused, self.tool = -1, NOTHING

    def leave(self) -> None:
        """Clear the focused message; `come_back` focuses it again."""
        self._left = self._layout.focused, self.tool
        self.forget()

    def come_back(self) -> None:
        """Focus the message and the tool that had the focus, when a card or a menu is closed."""
        index, tool = self._left
        if 0 <= index < len(self._layout.stack):
            self._focus_message(index)
            if tool in self._stops():
                self._focus_tool(tool)

    def enter(self, *, backwards: bool) -> None:
        """Focus the last visible message, when Tab moved the focus into the view."""
        layout = self._layout
        if len(layout.stack):
            bottom = layout.offset() + layout.page() - 40
            self._focus_message(layout.stack.at(bottom))
            stops = self._stops()
            if backwards and stops:
                self.tool = stops[-1]

    def step(self, *, forward: bool) -> bool:
        """Focus the next or previous tool; False if there is none, so the focus leaves the view."""
        if self._layout.focused < 0:
            return False
        stops = self._stops()
        after = [n for n in stops if (n > self.tool if forward else n < self.tool)]
        if not after:
            return False
        self._focus_tool(after[0] if forward else after[-1])
        return True

    def _focus_tool(self, tool: int) -> None:
        """Focus a tool, or a row that can be used, of the focused message."""
        self.tool = tool
        tools, _ = self._tools.shown(self._layout.focused)
        row = self._row()
        control = f"row-{row}" if row is not None else f"tool {tools[self.tool].name}"
        self.moved.emit(self._layout.focused, control)
        self._layout.message_changed.emit(self._layout.focused)

    def press(self, event: QKeyEvent) -> bool:
        """Handle a key press; False if the key is not used here."""
        layout, key = self._layout, event.key()
        page = layout.page()
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_requested.emit()
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self.select_all_requested.emit()
        elif key in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            self._up_or_down(1 if key == Qt.Key.Key_Down else -1)
        elif key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            forward = key == Qt.Key.Key_Right
            return self.step(forward=forward) or self._across(forward=forward)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            return self._use()
        elif key == Qt.Key.Key_Home:
            layout.scroll_to(0)
        elif key == Qt.Key.Key_End:
            layout.jump_to_end()
        elif key == Qt.Key.Key_PageUp:
            layout.scroll_to(layout.offset() - page + 48)
        elif key == Qt.Key.Key_PageDown:
            layout.scroll_to(layout.offset() + page - 48)
        elif key == Qt.Key.Key_Escape and (self._layout.focused >= 0 or not layout.selection.empty):
            self.forget()
            layout.selection.clear()
            layout.changed.emit()
        else:
            return False
        return True

    def _up_or_down(self, step: int) -> None:
        """Focus the next message; scroll if none has the focus or the focused one is cut off."""
        layout = self._layout
        if self._layout.focused < 0:
            layout.scroll_to(layout.offset() + 72 * step)
            return
        top = layout.message_top(self._layout.focused)
        bottom = top + layout.stack.views[self._layout.focused].height
        hidden = top < -8 if step < 0 else bottom > layout.page() + 8
        if hidden:
            layout.scroll_to(layout.offset() + 72 * step)
        elif 0 <= self._layout.focused + step < len(layout.stack):
            self._focus_message(self._layout.focused + step)

    def _across(self, *, forward: bool) -> bool:
        """Focus the other of two compared answers; False if there is none on that side."""
        index = self._layout.focused
        wanted = 1 if forward else 2
        if index < 0 or self._layout.stack.place_in_pair(index) != wanted:
            return False
        self._focus_message(index + 1 if forward else index - 1)
        return True

    def _focus_message(self, index: int) -> None:
        layout, stack = self._layout, self._layout.stack
        pair = {stack.place_in_pair(n) for n in (layout.focused, index) if n >= 0}
        beside = stack.side_by_side and pair == {1, 2}  # its tools are in view already
        layout.focused = index
        stops = self._stops()
        self.tool = stops[0] if stops else NOTHING
        top = layout.message_top(index)
        height, page = stack.views[index].height, layout.page()
        if not beside and (top < 0 or height > page):
            layout.scroll_to(stack.top(index) - 24)
        elif not beside and top + height > page:
            layout.scroll_to(stack.top(index) + height - page + 16)
        self.moved.emit(index, "")
        layout.changed.emit()

    def _stops(self) -> list[int]:
        """The tool indices of the focused message that can take the focus."""
        tools, _ = self._tools.shown(self._layout.focused)
        stops = [n for n, tool in enumerate(tools) if tool.can_act]
        rows = self._layout.stack.views[self._layout.focused].rows
        return [*(n - len(rows) for n, row in enumerate(rows) if row.usable), *stops]

    def _row(self) -> int | None:
        """The focused row of the focused message, counted from 0 at the top."""
        count = len(self._layout.stack.views[self._layout.focused].rows)
        return self.tool + count if -count <= self.tool < 0 else None

    def _use(self) -> bool:
        if self._layout.focused < 0:
            return False
        tools, _ = self._tools.shown(self._layout.focused)
        if (row := self._row()) is not None:
            self._layout.use_row(self._layout.focused, row)
        elif 0 <= self.tool < len(tools):
            self._tools.use(self._layout.focused, tools[self.tool])
        return True
