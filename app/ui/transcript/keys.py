"""Keyboard navigation of the transcript: between messages, and between the controls of one.

With a focused message Up and Down move to its neighbours; Left, Right and Tab move between its
rows, links and tools, and Left and Right between two compared answers; Enter activates one. Tab
after the last tool leaves the transcript, however long it is.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence

from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.message.controls import Control, Controls


class Keys(QObject):
    """Handles key presses and keeps the focused message and its focused control."""

    copy_requested = Signal()
    select_all_requested = Signal()
    moved = Signal(int, str)  # index of the focused message, key of its focused control or ""

    def __init__(self, layout: TranscriptLayout, controls: Controls) -> None:
        super().__init__(layout)
        self._layout = layout
        self._controls = controls
        self.control = ""  # key of the focused one; "": none
        self._left = -1, ""  # what had the focus when the view lost it
        self._told = -1, ""  # by the last `moved`

    def forget(self) -> None:
        """Clear the focused message."""
        self._layout.focused, self.control = -1, ""

    def focused_control(self) -> Control | None:
        """The control with the focus, as it is now."""
        return self._controls.find(self._layout.focused, self.control) if self.control else None

    def tell_again(self) -> None:
        """Emit `moved` again: Qt has told a screen reader that the whole view has the focus."""
        if self._layout.focused >= 0 and self._layout.focused == self._told[0]:
            self.moved.emit(*self._told)

    def _tell(self, index: int, key: str) -> None:
        self._told = index, key
        self.moved.emit(index, key)

    def leave(self) -> None:
        """Clear the focused message; `come_back` focuses it again."""
        self._left = self._layout.focused, self.control
        self.forget()

    def come_back(self) -> None:
        """Focus the message and the control that had the focus, when a card or a menu is closed."""
        index, key = self._left
        if 0 <= index < len(self._layout.stack):
            self._focus_message(index)
            if found := next((each for each in self._stops() if each.key == key), None):
                self._focus_control(found)

    def enter(self, *, backwards: bool) -> None:
        """Focus the last visible message, when Tab moved the focus into the view."""
        layout = self._layout
        if len(layout.stack):
            bottom = layout.offset() + layout.page() - 40
            self._focus_message(layout.stack.at(bottom))
            stops = self._stops()
            if backwards and stops:
                self.control = stops[-1].key

    def step(self, *, forward: bool) -> bool:
        """Focus the next or previous control; False if there is none, so the focus leaves the view."""
        if self._layout.focused < 0:
            return False
        stops = self._stops()
        at = next((n for n, each in enumerate(stops) if each.key == self.control), -1)
        at = at + 1 if forward else at - 1
        if not 0 <= at < len(stops):
            return False
        self._focus_control(stops[at])
        return True

    def _focus_control(self, control: Control) -> None:
        """Focus a control of the focused message, and scroll it into view."""
        layout = self._layout
        self.control = control.key
        area = control.area.translated(0.0, layout.message_top(layout.focused))
        if control.in_block and not 0 <= area.top() <= area.bottom() <= layout.page():
            layout.scroll_to(layout.offset() + area.center().y() - layout.page() / 2)
        self._tell(layout.focused, control.key)
        layout.message_changed.emit(layout.focused)

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
        self.control = stops[0].key if stops else ""
        top = layout.message_top(index)
        height, page = stack.views[index].height, layout.page()
        if not beside and (top < 0 or height > page):
            layout.scroll_to(stack.top(index) - 24)
        elif not beside and top + height > page:
            layout.scroll_to(stack.top(index) + height - page + 16)
        self._tell(index, "")
        layout.changed.emit()

    def _stops(self) -> list[Control]:
        """The controls of the focused message that can be used."""
        return [each for each in self._controls.of(self._layout.focused) if each.use is not None]

    def _use(self) -> bool:
        if self._layout.focused < 0:
            return False
        found = self.focused_control()
        if found is not None and found.use is not None:
            found.use()
        return True
