"""Idle work of the transcript: layout of invisible messages, and exact code highlighting."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, QTimer, Signal

from app.ui.blocks.code import CodeView
from app.ui.transcript.formulas import FormulaUpdates
from app.ui.transcript.message.message_stack import MessageListLayout
from app.ui.transcript.scroll import Scroller

SLICE = 0.008  # seconds between two events
RELAYOUT_SECONDS = 0.06  # seconds between two scroll bar updates during idle layout


class IdleLayout(QObject):
    """Works in time slices between events until every message is laid out and highlighted."""

    highlighted = Signal()  # a block of code has its exact colours

    def __init__(
        self,
        scroller: Scroller,
        stack: MessageListLayout,
        formulas: FormulaUpdates,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._scroller = scroller
        self._stack = stack
        self._formulas = formulas
        self._last_relayout = 0.0
        self._code: list[CodeView] = []  # to be highlighted
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._work)

    @property
    def active(self) -> bool:
        """Whether work is scheduled."""
        return self._timer.isActive()

    def start(self, milliseconds: int) -> None:
        """Begin after a delay."""
        self._timer.start(milliseconds)

    def highlight(self, code: CodeView) -> None:
        """Highlight a block of code when its lexer is loaded."""
        self._code.append(code)
        if not self._timer.isActive():
            self._timer.start(0)

    def forget_code(self) -> None:
        """Forget the blocks to highlight: they were replaced."""
        self._code.clear()

    def _work(self) -> None:
        """Lay out and highlight for one time slice, then reschedule if any is left."""
        if self._scroller.dragged:
            self._timer.start(100)
            return
        until = time.perf_counter() + SLICE
        more = self._stack.build_some(SLICE)
        if not more or until - self._last_relayout > RELAYOUT_SECONDS:
            self._last_relayout = until
            self._scroller.relayout()
        ready = [code for code in self._code if code.lexer_ready]
        while ready and time.perf_counter() < until:
            if not ready[0].highlight_some(lambda: time.perf_counter() < until):
                self._code.remove(ready.pop(0))
                self.highlighted.emit()
        self._formulas.check()
        if more or self._code:
            self._timer.start(0 if more or ready else 20)
