"""Scroll position of the transcript: follows streamed text at the end, else keeps a scroll anchor.

The anchor is the first visible block; it stays in place while messages around it are laid out,
grow or are rewrapped at another width.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QScrollBar, QWidget

from app.ui.transcript.message.message_stack import MessageListLayout

FOLLOW = 12  # pixels: closer to the end the view follows new text
FAR = 100  # pixels: farther from the end the jump button is shown

Anchor = tuple[int, int, float]  # message, part (-1: the message), y of its top in the viewport


class Scroller:
    """Updates the range and value of the scroll bar from the layout of the messages.

    `moved(dy, everything)` is called to scroll the painted viewport by `dy` or repaint all of it,
    `end_seen(bool)` when the end becomes visible or invisible.
    """

    def __init__(
        self,
        bar: QScrollBar,
        viewport: QWidget,
        stack: MessageListLayout,
        moved: Callable[[int, bool], None],
        end_seen: Callable[[bool], None],
    ) -> None:
        self.follow = True
        self.at_end = True
        self.in_layout = False
        self._bar = bar
        self._viewport = viewport
        self._stack = stack
        self._moved = moved
        self._end_seen = end_seen
        self._last_anchor: Anchor | None = None

    @property
    def offset(self) -> int:
        """The vertical scroll offset, in pixels."""
        return self._bar.value()

    @property
    def page(self) -> int:
        """The height of the viewport, in pixels."""
        return self._viewport.height()

    @property
    def dragged(self) -> bool:
        """Whether the user holds the slider of the scroll bar."""
        return self._bar.isSliderDown()

    def top_of(self, index: int) -> float:
        """The y coordinate of a message's top, in viewport coordinates."""
        return self._stack.top(index) - self._bar.value()

    def scroll_to(self, value: float) -> None:
        """Scroll to an offset, as if the user did."""
        self._bar.setValue(round(value))

    def anchor(self) -> Anchor | None:
        """The scroll anchor: the first visible block of a message that is laid out."""
        value = self._bar.value()
        if value == 0 and len(self._stack):
            return 0, -1, self.top_of(0)
        visible = self._stack.between(value, value + self._viewport.height())
        for index in visible:
            view = self._stack.views[index]
            top = self.top_of(index)
            if not view.built or top + view.natural_height <= 0:
                continue  # also a short answer whose column is empty here
            part = view.part_at(-top)
            return index, part, top + (view.parts[part].y if part >= 0 else 0.0)
        return (visible[0], -1, self.top_of(visible[0])) if visible else None

    def scrolled(self, dy: int) -> None:
        """Handle a user's scroll: lay out newly visible messages; follow only at the end."""
        if self.in_layout:
            return
        self.follow = self._bar.value() >= self._bar.maximum() - FOLLOW
        self._moved(dy, False)
        self._last_anchor = self.anchor()
        self.relayout()

    def relayout(self, anchor: Anchor | None = None) -> bool:
        """Lay out the visible messages and keep the anchor in place; True if any was laid out."""
        bar, page = self._bar, self._viewport.height()
        last_anchor, built = self._last_anchor, False
        anchor = anchor or last_anchor
        self._stack.catch_up()
        self.in_layout = True
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
            self.in_layout = False
        if last_anchor is None:
            self._moved(0, True)
        else:  # compare screen positions: layout above the anchor changes the bar's value too
            self._moved(round(self._value_for(last_anchor)) - bar.value(), built)
        self._last_anchor = self.anchor()
        self._emit_end_seen()
        return built

    def _value_for(self, anchor: Anchor) -> float:
        index, part, y = anchor
        if index >= len(self._stack):
            return float(self._bar.maximum())
        view = self._stack.views[index]
        inside = view.parts[part].y if view.built and 0 <= part < len(view.parts) else 0.0
        return self._stack.top(index) + inside - y

    def _emit_end_seen(self) -> None:
        at_end = self.follow or self._bar.value() >= self._bar.maximum() - FAR
        if at_end != self.at_end:
            self.at_end = at_end
            self._end_seen(at_end)
