"""Shows formulas once they are typeset: one new layout for all that became ready meanwhile.

`check` costs a comparison, so it may follow every paint; layout itself never waits for a formula.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

from app.ui.blocks.typesetting import TYPESETTER
from app.ui.transcript.message.message_stack import MessageListLayout
from app.ui.transcript.scroll import Scroller

INTERVAL = 60  # milliseconds between two layouts


class FormulaUpdates:
    """Updates the messages of one transcript while formulas are being typeset."""

    def __init__(
        self,
        parent: QObject,
        stack: MessageListLayout,
        scroller: Scroller,
        repaint: Callable[[int, float], None],
    ) -> None:
        self._stack = stack
        self._scroller = scroller
        self._repaint = repaint
        self._misses = 0
        self._timer = QTimer(parent)
        self._timer.setSingleShot(True)
        self._timer.setInterval(INTERVAL)
        self._timer.timeout.connect(self._show_ready)

    @property
    def waiting(self) -> bool:
        """Whether formulas may become ready."""
        return self._timer.isActive()

    def check(self) -> None:
        """Start waiting if a formula was asked for that is not ready."""
        if self._misses != TYPESETTER.misses and not self._timer.isActive():
            self._timer.start()

    def _show_ready(self) -> None:
        self._misses = TYPESETTER.misses
        busy = TYPESETTER.busy
        anchor = self._scroller.anchor()
        changed = [
            index
            for index, view in enumerate(self._stack.views)
            if view.built and view.show_typeset()
        ]
        if changed:
            self._stack.refresh(changed[0])
            self._scroller.relayout(anchor)
            for index in changed:
                self._repaint(index, self._stack.views[index].changed_from)
        if busy:
            self._timer.start()
