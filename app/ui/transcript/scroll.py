"""Where in the conversation the view is, and that it stays there.

At the end it follows new text; anywhere else the block the reader looks at keeps its place while
messages above and below it are laid out, grow or change their width.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QScrollBar, QWidget

from app.ui.transcript.message_stack import MessageStack

FOLLOW = 12  # pixels from the end within which new text is followed
FAR = 100  # pixels from the end from which on the way back is offered

Anchor = tuple[int, int, float]  # message, part (-1: all of it), where that begins in the viewport


class Scroller:
    """Keeps the scroll bar of a stack of messages right.

    `moved(dy, everything)` is called when the view has to be drawn elsewhere, `end_seen(bool)` when
    the end comes into sight or goes out of it.
    """

    def __init__(
        self,
        bar: QScrollBar,
        viewport: QWidget,
        stack: MessageStack,
        moved: Callable[[int, bool], None],
        end_seen: Callable[[bool], None],
    ) -> None:
        self.follow = True
        self.at_end = True
        self.settling = False
        self._bar = bar
        self._viewport = viewport
        self._stack = stack
        self._moved = moved
        self._end_seen = end_seen
        self._held: Anchor | None = None

    @property
    def offset(self) -> int:
        """How far the conversation is scrolled."""
        return self._bar.value()

    @property
    def page(self) -> int:
        """How high the viewport is."""
        return self._viewport.height()

    def top_of(self, index: int) -> float:
        """Where a message begins in the viewport."""
        return self._stack.top(index) - self._bar.value()

    def scroll_to(self, value: float) -> None:
        """Scroll there for the reader."""
        self._bar.setValue(round(value))

    def anchor(self) -> Anchor | None:
        """What the reader looks at: the first block in sight of a message that is laid out."""
        value = self._bar.value()
        if value == 0 and len(self._stack):
            return 0, -1, self.top_of(0)
        visible = self._stack.between(value, value + self._viewport.height())
        for index in visible:
            view = self._stack.views[index]
            top = self.top_of(index)
            if not view.built or top + view.height <= 0:
                continue
            part = view.part_at(-top)
            return index, part, top + (view.parts[part].y if part >= 0 else 0.0)
        return (visible[0], -1, self.top_of(visible[0])) if visible else None

    def scrolled(self, dy: int) -> None:
        """The reader moved the bar: lay out what came into sight, and follow only from the end."""
        if self.settling:
            return
        self.follow = self._bar.value() >= self._bar.maximum() - FOLLOW
        self._moved(dy, False)
        self._held = self.anchor()
        self.settle()

    def settle(self, anchor: Anchor | None = None) -> bool:
        """Lay out what can be seen, without moving it; True when something was laid out."""
        bar, page = self._bar, self._viewport.height()
        held, built = self._held, False
        anchor = anchor or held
        self._stack.catch_up()
        self.settling = True
        try:
            while True:
                bar.setPageStep(page)
                bar.setRange(0, max(0, round(self._stack.height) - page))
                if self.follow:
                    bar.setValue(bar.maximum())
                elif anchor:
                    bar.setValue(round(self._value_for(anchor)))
                if not self._stack.build_between(bar.value(), bar.value() + page):
                    break
                built = True
        finally:
            self.settling = False
        if held is None:
            self._moved(0, True)
        else:  # what counts is where things are on the screen, not the value of the bar
            self._moved(round(self._value_for(held)) - bar.value(), built)
        self._held = self.anchor()
        self._tell_end()
        return built

    def _value_for(self, anchor: Anchor) -> float:
        index, part, y = anchor
        if index >= len(self._stack):
            return float(self._bar.maximum())
        view = self._stack.views[index]
        inside = view.parts[part].y if view.built and 0 <= part < len(view.parts) else 0.0
        return self._stack.top(index) + inside - y

    def _tell_end(self) -> None:
        at_end = self.follow or self._bar.value() >= self._bar.maximum() - FAR
        if at_end != self.at_end:
            self.at_end = at_end
            self._end_seen(at_end)
