"""Calls of tools in the transcript: what is known of them, consent, and the seconds of running ones.

The widget that asks for consent is made when its card is first seen, and stands over the place that
the layout keeps for it. The timer runs only while a running call is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QRect, QTimer, Signal
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QApplication, QWidget

from app.domain.tool_activity import ToolActivity
from app.state.tools import CallPhase, Consent, LiveCall, ToolsState
from app.system.translation import tr
from app.ui.blocks.style import ReadingStyle
from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.message.tool_call import NOTHING_KNOWN, CallLook, KnownCalls, ShownCall
from app.ui.widgets import accessibility

if TYPE_CHECKING:
    from app.domain.tools import ToolSpec
    from app.ui.transcript.message.consent import ConsentCard

OUTPUT_MILLISECONDS = 80  # between two updates of what running calls print
_TICK_MILLISECONDS = 1000
_ABOVE = 44  # pixels above a consent that are shown with it: the line of its card
Key = tuple[int, str]  # message and call


class Calls(QObject):
    """Shows the state of tools in the messages of a transcript.

    `changed(index)` is called when a message's height has changed, and `closed()` when the widget
    with the focus is gone.
    """

    decided = Signal(object, str, object, str)  # message, call, Consent, arguments

    def __init__(
        self,
        viewport: QWidget,
        layout: TranscriptLayout,
        changed: Callable[[int], None],
        closed: Callable[[], None],
    ) -> None:
        super().__init__(viewport)
        self.consents: dict[Key, ConsentCard] = {}
        self._viewport, self._layout = viewport, layout
        self._changed, self._closed = changed, closed
        self._state: ToolsState | None = None
        self._title: Callable[[int], str] = lambda conversation: ""
        self._edited: dict[Key, str] = {}  # arguments of consents that are not shown now
        self._tools: Mapping[str, ToolSpec] = {}
        self._made: dict[int, dict[str, ToolActivity]] = {}  # by message and call
        self._waiting: set[int] = set()  # messages whose output has grown
        self._wanted: Key | None = None  # consent that is to have the focus when it is there
        self._sought: Key | None = None  # call that is to be scrolled to when its chat is shown
        self._focus_before: QWidget | None = None
        self._output = QTimer(self, singleShot=True, interval=OUTPUT_MILLISECONDS)
        self._output.timeout.connect(self._show_waiting)
        self._seconds = QTimer(self, interval=_TICK_MILLISECONDS)
        self._seconds.timeout.connect(self._tick)
        layout.stack.calls_of = self.known

    def use(self, state: ToolsState, title: Callable[[int], str]) -> None:
        """Show what this state says; `title` is that of a chat."""
        self._state, self._title = state, title
        state.live_changed.connect(self._on_live)
        state.asked.connect(self._announce_asked)
        state.rows_changed.connect(self._on_rows)
        state.activity_changed.connect(self._on_activity)
        self._on_rows()
        self._on_activity()

    # --- what is known --------------------------------------------------------------------------

    def known(self, message: int) -> KnownCalls:
        """What is known of the calls of a message."""
        if self._state is None:
            return NOTHING_KNOWN
        live = self._state.of_message(message)
        return KnownCalls(self._tools, live, self._made.get(message, {}))

    def _on_rows(self) -> None:
        assert self._state is not None
        self._tools = {row.tool.name: row.tool for row in self._state.rows}
        self._show_all()

    def _on_activity(self) -> None:
        assert self._state is not None
        before, self._made = self._made, {}
        for made in self._state.activity:
            self._made.setdefault(made.message, {})[made.call] = made
        for message, calls in self._made.items():
            if calls != before.get(message):
                self._show(message)

    def _show_all(self) -> None:
        for index, view in enumerate(self._layout.stack.views):
            if view.set_calls(self.known(view.message.id)):
                self._changed(index)
        self._layout.changed.emit()

    # --- calls in progress ----------------------------------------------------------------------

    def _on_live(self, message: int) -> None:
        index = self._layout.stack.index_of(message)
        if index is None:
            return
        before, now = self._layout.stack.views[index].calls.live, self.known(message).live
        phases = [{id: live.phase for id, live in each.items()} for each in (before, now)]
        asks = any(live.phase is CallPhase.ASKING for live in now.values())
        if phases[0] == phases[1] and not asks:
            self._waiting.add(message)
            if not self._output.isActive():
                self._output.start()
            return
        self._show(message)
        self._announce(message, before, now)

    def _show_waiting(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for message in waiting:
            self._show(message)

    def _show(self, message: int) -> None:
        index = self._layout.stack.index_of(message)
        if index is None:
            return
        if self._layout.stack.views[index].set_calls(self.known(message)):
            self._changed(index)
        self._layout.message_changed.emit(index)
        self.sync()

    def _tick(self) -> None:
        """Count the seconds of the running calls that are seen."""
        running = self._running()
        for index in running:
            self._layout.message_changed.emit(index)
        if not running:
            self._seconds.stop()

    def _running(self) -> list[int]:
        """The messages with running calls whose cards are on the screen."""
        layout = self._layout
        if self._state is None or not self._state.live or not self._viewport.isVisible():
            return []
        found = set[int]()
        for (message, call), live in self._state.live.items():
            index = layout.stack.index_of(message) if live.phase is CallPhase.RUNNING else None
            if index is None or index in found or not layout.stack.is_built(index):
                continue
            area = layout.stack.views[index].cards.area_of(call)
            top = layout.message_top(index) + area.top()
            if area.height() and -area.height() < top < layout.page():
                found.add(index)
        return sorted(found)

    # --- consent --------------------------------------------------------------------------------

    def sync(self) -> None:
        """Show the consents of the shown messages, and no others."""
        asking = self._asking()
        for key in [key for key in self.consents if key not in asking]:
            self._close(key)
        for key, card in self.consents.items():
            card.show_call(asking[key])
        self.move()
        if self._sought is not None:
            self.show_call(*self._sought)

    def show_call(self, message: int, call: str) -> None:
        """Scroll to the card of a call, now or when its chat is shown."""
        layout, self._sought = self._layout, (message, call)
        index = layout.stack.index_of(message)
        if index is None:
            return
        self._sought = None
        layout.stack.build(index)
        layout.scroller.relayout()
        area = layout.stack.views[index].cards.area_of(call)
        layout.scroll_to(layout.offset() + layout.message_top(index) + area.top() - _ABOVE)

    def _asking(self) -> dict[Key, LiveCall]:
        if self._state is None:
            return {}
        known = self._layout.stack.index_of
        return {
            (live.message, live.call): live
            for live in self._state.asking
            if known(live.message) is not None
        }

    def move(self) -> None:
        """Move the consents to their places; make those that are seen for the first time."""
        if self._state is None or not self._state.live:
            return
        if self._running() and not self._seconds.isActive():
            self._seconds.start()
        for key, live in self._asking().items():
            place = self._place(key)
            card = self.consents.get(key)
            if card is None and not place.isEmpty() and self._is_near(place):
                card = self._make(key, live)
                place = self._place(key)
            if card is None:
                continue
            if not place.isEmpty():
                card.setGeometry(place)
            card.setVisible(not place.isEmpty() and self._is_near(place))
            if key == self._wanted:
                self._wanted = None
                card.take_focus()

    def _is_near(self, place: QRect) -> bool:
        page = self._layout.page()
        return place.bottom() >= 0 and place.top() <= page

    def _place(self, key: Key) -> QRect:
        """Where a consent stands in the viewport; empty: its message is not laid out."""
        layout = self._layout
        index = layout.stack.index_of(key[0])
        if index is None or not layout.stack.is_built(index):
            return QRect()
        area = layout.stack.views[index].cards.consent_area(key[1])
        return area.translated(layout.left_of(index), layout.message_top(index)).toRect()

    def _make(self, key: Key, live: LiveCall) -> ConsentCard:
        from app.ui.transcript.message.consent import ConsentCard

        card = ConsentCard(live, self._title(live.conversation), self._layout.style, self._viewport)
        if (text := self._edited.pop(key, None)) is not None:
            card.edit(text)
        self.consents[key] = card
        card.decided.connect(partial(self._decide, key))
        card.resized.connect(partial(self._fit, key))
        card.left.connect(self._leave)
        QWidget.setTabOrder(self._viewport, card.field)
        self._fit(key)
        return card

    def _fit(self, key: Key) -> None:
        """Give a consent the height that it needs."""
        card, index = self.consents.get(key), self._layout.stack.index_of(key[0])
        if card is None or index is None:
            return
        view = self._layout.stack.views[index]
        height = float(card.wanted_height(round(self._layout.stack.width(index))))
        if view.cards.consent_heights.get(key[1]) != height:
            view.cards.consent_heights[key[1]] = height
            if view.built:
                view.layout()
                self._changed(index)

    def fit(self) -> None:
        """Give all consents the heights that they need at the width of the column."""
        for key in list(self.consents):
            self._fit(key)
        self.move()

    def apply_style(self, style: ReadingStyle) -> None:
        """Show the consents in another theme or text size."""
        for card in self.consents.values():
            card.apply_style(style)
        self.fit()

    def _decide(self, key: Key, answer: Consent, text: str) -> None:
        self.decided.emit(*key, answer, text)

    def _close(self, key: Key) -> None:
        card = self.consents.pop(key)
        if self._state is not None and key in self._state.live and card.edited is not None:
            self._edited[key] = card.edited  # another chat is shown meanwhile
        if card.isAncestorOf(QApplication.focusWidget() or self._viewport):
            self._leave()
        card.hide()
        card.deleteLater()

    def _leave(self) -> None:
        """Put the focus back to where it was before a consent had it."""
        before, self._focus_before = self._focus_before, None
        focused = QApplication.focusWidget()
        if focused is None or not any(c.isAncestorOf(focused) for c in self.consents.values()):
            return
        if before is not None and before.isVisible():
            before.setFocus()
        else:
            self._closed()

    def focus(self, live: LiveCall) -> None:
        """Scroll to a consent and focus its first answer, now or when its chat is shown."""
        self._wanted = live.message, live.call
        index = self._layout.stack.index_of(live.message)
        if index is None:
            return
        focused = QApplication.focusWidget()
        if focused is not None and not self._viewport.isAncestorOf(focused):
            self._focus_before = focused
            focused.destroyed.connect(self._forget_focus)
        self._layout.stack.build(index)
        self._layout.scroller.relayout()
        for _ in range(4):  # it is made on the way, and what is around it is laid out
            place, page = self._place((live.message, live.call)), self._layout.page()
            top = place.top() - _ABOVE
            if top >= 0 and place.bottom() <= page:
                break
            fits = place.height() + _ABOVE < page
            past = place.bottom() - page + 8 if fits and top > 0 else top
            self._layout.scroll_to(self._layout.offset() + past)
        self.move()

    def _forget_focus(self) -> None:
        self._focus_before = None

    # --- screen readers -------------------------------------------------------------------------

    def _announce_asked(self, live: LiveCall) -> None:
        tool, chat = ShownCall(None, live=live).title, self._title(live.conversation)
        words = tr("“{tool}” waits for your permission in “{chat}”", tool=tool, chat=chat)
        accessibility.announce(self._viewport, words)

    def _announce(
        self, message: int, before: Mapping[str, LiveCall], now: Mapping[str, LiveCall]
    ) -> None:
        """Say that calls of a shown message have begun or ended."""
        if not QAccessible.isActive():
            return
        begun = [id for id, live in now.items() if live.phase is CallPhase.RUNNING]
        changed = [id for id in begun if id not in before or before[id].phase is CallPhase.ASKING]
        changed += [id for id in before if id not in now]
        QTimer.singleShot(0, self, lambda: self._say(message, changed))

    def _say(self, message: int, calls: list[str]) -> None:
        index = self._layout.stack.index_of(message)
        if index is None:
            return
        for section in self._layout.stack.views[index].sections:
            call = section.call
            if call is not None and call.id in calls and call.look is not CallLook.ASKING:
                words = tr("{tool}: {state}", tool=call.title, state=call.state)
                accessibility.announce(self._viewport, words)
