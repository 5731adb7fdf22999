"""What can be done with the messages of the transcript: which tools show, and what each does.

The tools of a message are laid out by `message_tools`; here they meet the signals of the view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData, QPoint, QRectF, Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMenu

from app.ui import message_tools
from app.ui.code_block import CodeView
from app.ui.message_tools import Tool

if TYPE_CHECKING:
    from app.ui.transcript import Transcript

DONE = 1400  # milliseconds a tool shows that it worked


class Tools:
    """The tools of all messages."""

    def __init__(self, view: Transcript) -> None:
        self._view = view
        self.busy = False  # an answer is being made
        self._done: tuple[int, str] = (0, "")
        self._copied: CodeView | None = None
        self._timer = QTimer(view)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._forget_done)

    def all(self, index: int) -> tuple[list[Tool], list[QRectF]]:
        """The tools of a message, and where each is or would be, relative to the message."""
        view, stack = self._view, self._view.stack
        message = stack.views[index]
        if message.hidden_for_edit:
            return [], []
        tools = message_tools.tools_for(message.message, busy=self.busy)
        edge = stack.column if message.own else 0.0
        areas = message_tools.place(
            tools, view.look, edge, message.tools_top, from_right=message.own
        )
        return tools, areas

    def shown(self, index: int) -> tuple[list[Tool], list[QRectF]]:
        """The tools of a message that show now, and where."""
        view, stack = self._view, self._view.stack
        message = stack.views[index]
        tools, areas = self.all(index)
        last = index == len(stack) - 1 and not message.own
        if last or index in (view.pointer.message, view.keys.message):
            return tools, areas
        shown = [n for n, tool in enumerate(tools) if tool.lasting]
        return [tools[n] for n in shown], [areas[n] for n in shown]

    def done(self, message_id: int) -> str:
        """The tool of a message that just did its work."""
        return self._done[1] if self._done[0] == message_id else ""

    def use(self, index: int, tool: Tool) -> None:
        """Do what a tool says."""
        view = self._view
        message = view.stack.views[index].message
        match tool.name:
            case "copy":
                self.copy(message.text)
                self._done = (message.id, "copy")
                self._timer.start(DONE)
                view.redraw_message(index)
            case "regenerate":
                view.regenerate_requested.emit(message.id)
            case "edit":
                view.edit_message(message.id)
            case "leaf":
                view.adapters_requested.emit()
            case "leaf_off":
                view.compare_requested.emit(message.id)
            case "continue":
                view.continue_requested.emit(message.id)
            case _:
                view.sibling_requested.emit(message.id, 1 if tool.name == "next" else -1)

    def copy_code(self, code: CodeView) -> None:
        """Copy a code block without its fences, and say so for a moment."""
        self.copy(code.code)
        self._forget_done()
        self._copied = code
        code.copied = True
        self._timer.start(DONE)

    def _forget_done(self) -> None:
        self._done = (0, "")
        if self._copied:
            self._copied.copied = False
            self._copied = None
        self._view.viewport().update()

    def copy(self, text: str, html: str = "") -> None:
        """Put text on the clipboard, with HTML beside it where there is any."""
        data = QMimeData()
        data.setText(text)
        if html:
            data.setHtml(html)
        QGuiApplication.clipboard().setMimeData(data)
        self._view.copied.emit(text)

    def menu(self, index: int, link: str, at: QPoint) -> None:
        """Open the menu of a message; index -1: of none."""
        view = self._view
        menu = QMenu(view)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction("Copy", view.copy).setEnabled(not view.selection.empty)
        if link:
            menu.addAction("Copy link address", lambda: self.copy(link))
        if index >= 0:
            text = view.stack.views[index].message.text
            menu.addAction("Copy message", lambda: self.copy(text)).setEnabled(bool(text))
        menu.addSeparator()
        menu.addAction("Select all", view.select_all)
        menu.popup(at)
