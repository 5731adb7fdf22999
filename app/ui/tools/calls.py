"""The list of every call of a tool, newest first, which is read in pages while it is scrolled."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QIcon, QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.domain.tool_activity import CallState, ToolActivity
from app.settings.table import Setting
from app.state.tools import ToolsState
from app.system.translation import sentences, tr, trn
from app.ui.settings.fields import ChoiceButton
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette
from app.ui.tools.call_details import CallDetails
from app.ui.tools.words import apart, facts, short_arguments, tool_words
from app.ui.widgets.controls import label
from app.ui.widgets.row_list import RowList
from app.ui.widgets.tips import plain_tip

PAGE = 200  # calls
_NEAR_END = 120  # pixels above the end of the list, where more calls are read
_ICON = 18  # pixels
_FILTER_MILLISECONDS = 150
_LOW = 420  # pixels: a lower view shows a call in place of the list
_LEAST_HEIGHT = 108  # pixels of the list: two rows
_ALL = "all"
_ICONS = {  # the icon of a state, and its colour in a palette
    CallState.RUNNING: ("play", "secondary"),
    CallState.DONE: ("check", "secondary"),
    CallState.FAILED: ("warning", "warning"),
    CallState.DENIED: ("close", "danger"),
    CallState.STOPPED: ("stop", "secondary"),
    CallState.REFUSED: ("close", "warning"),
}


class CallsView(QWidget):
    """Shows the calls of the state; emits the user's requests as signals."""

    more_requested = Signal(int)  # how many calls the state is to have
    chat_requested = Signal(object, object, str)  # ids of a chat, a message in it, and a call

    def __init__(self, state: ToolsState) -> None:
        super().__init__()
        self._state = state
        self._calls: list[ToolActivity] = []  # of the rows
        self._icons: dict[CallState, QIcon] = {}
        self._is_stale = False  # the rows are to be made again
        self._asked = 0  # calls that were asked for
        self.words = label("", "secondary", wraps=True)
        self.search = QLineEdit(placeholderText=tr("Find in calls"), clearButtonEnabled=True)
        self.search.setAccessibleName(tr("Find in calls"))
        self._icon = self.search.addAction(QIcon(), QLineEdit.ActionPosition.LeadingPosition)
        self._icon.setText(tr("Find"))  # the accessible name of its button
        choices = {
            _ALL: tr("All states"),
            CallState.DONE.value: tr("Done"),
            CallState.FAILED.value: tr("Failed"),
            CallState.DENIED.value: tr("Denied"),
            CallState.STOPPED.value: tr("Stopped"),
            CallState.REFUSED.value: tr("Refused"),
            CallState.RUNNING.value: tr("Without a result"),
        }
        shown = Setting(tr("State"), choices=tuple(choices), words=tuple(choices.values()))
        self.state_choice = ChoiceButton(shown)
        self.state_choice.show_value(_ALL)
        self.list = RowList(tr("Calls"), several=False)
        self.list.setIconSize(QSize(_ICON, _ICON))
        self.list.setMinimumHeight(_LEAST_HEIGHT)
        self.nothing = label("", "secondary", wraps=True)
        self.details = CallDetails()
        self._filter = QWidget()
        self._timer = QTimer(self, singleShot=True, interval=0)
        self._filter_timer = QTimer(self, singleShot=True, interval=_FILTER_MILLISECONDS)
        self._chosen_state = _ALL
        self._lay_out()
        self._connect()
        follow_palette(self._recolor)  # shows the calls too

    def _lay_out(self) -> None:
        line = QHBoxLayout(self._filter)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(8)
        line.addWidget(self.search, 1)
        line.addWidget(self.state_choice)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(12)
        layout.addWidget(self.words)
        layout.addWidget(self._filter)
        layout.addWidget(self.nothing)
        layout.addWidget(self.list, 3)
        layout.addWidget(self.details, 4)
        layout.addStretch()  # takes the room of a list that is hidden while it is empty

    def _connect(self) -> None:
        state, bar = self._state, self.list.verticalScrollBar()
        self._timer.timeout.connect(self.refresh)
        self._filter_timer.timeout.connect(self.refresh)
        self.search.textChanged.connect(lambda: self._filter_timer.start())
        self.state_choice.picked.connect(self._pick_state)
        self.list.itemClicked.connect(self.open_call)
        self.list.entered.connect(self.open_call)
        self.list.currentRowChanged.connect(self._show_details)
        self.details.closed.connect(self._close_details)
        self.details.chat_requested.connect(self._open_chat)
        bar.valueChanged.connect(self._ask_for_more)
        bar.rangeChanged.connect(self._ask_for_more)
        state.activity_changed.connect(self._refresh_soon)
        state.rows_changed.connect(self._make_again)
        state.live_changed.connect(self._make_again)

    # --- called by the page ---------------------------------------------------------------------

    @property
    def first(self) -> QWidget:
        """What has the focus first."""
        return self.list if self.list.count() else self.search

    def open_call(self, *_: object) -> None:
        """Show the chosen call in full."""
        if self._chosen is not None:
            self.details.show()
            self._show_details()
            self._fit()

    def refresh(self) -> None:
        """Show the calls that fit the filter; the chosen one stays chosen."""
        state, query = self._state, self.search.text().casefold().split()
        titles = self._titles()
        found = [
            call
            for call in state.activity
            if self._chosen_state in (_ALL, call.state) and _matches(call, query, titles)
        ]
        self._fill(found)
        count = state.activity_count
        so_far = trn("{count} call so far.", "{count} calls so far.", count)
        rule = tr("Denied ones are listed too; the list cannot be changed.")
        self.words.setText(sentences(so_far, rule))
        none = tr("No call is like this.") if count else tr("No tool was called yet.")
        self.nothing.setText(none)
        self.nothing.setVisible(not found)
        if self._chosen is None:
            self.details.hide()
        self._show_details()
        self._fit()
        QTimer.singleShot(0, self, self._ask_for_more)  # the list is laid out by then

    # --- steps ----------------------------------------------------------------------------------

    def _refresh_soon(self) -> None:
        if self.isVisible():
            self._timer.start()

    def _make_again(self, *_: object) -> None:
        self._is_stale = True  # other titles, or a call runs no more
        self._refresh_soon()

    def _fill(self, calls: list[ToolActivity]) -> None:
        """Make the rows those of these calls; only what came at their end is added."""
        chosen, bar = self._chosen, self.list.verticalScrollBar()
        place, kept = bar.value(), len(self._calls)
        blocked = self.list.blockSignals(True)
        if self._is_stale or calls[:kept] != self._calls:
            before = self._calls[0].id if self._calls else None
            new = next((n for n, call in enumerate(calls) if call.id == before), 0)
            place += new * self.list.height_of_rows // max(kept, 1) if place else 0
            self.list.clear()
            kept = 0
        titles = self._titles()
        for call in calls[kept:]:
            self._add(call, titles)
        self._calls, self._is_stale = calls, False
        ids = [call.id for call in calls]
        if chosen is not None and chosen.id in ids and self._chosen != chosen:
            self.list.setCurrentRow(ids.index(chosen.id))
        self.list.blockSignals(blocked)
        self.list.doItemsLayout()
        bar.setValue(place)

    def _add(self, call: ToolActivity, titles: dict[str, str]) -> None:
        about = facts(call, is_live=self._is_live(call))
        arguments = apart(short_arguments(call.arguments))
        name = tool_words(call, titles)
        text = f"{name}: {arguments}\n{about}" if arguments else f"{name}\n{about}"
        self.list.add_row(text, call)
        item = self.list.item(self.list.count() - 1)
        item.setIcon(self._icons[call.state])
        item.setToolTip(plain_tip(text))

    @property
    def _chosen(self) -> ToolActivity | None:
        row = self.list.currentRow()
        return self._calls[row] if 0 <= row < len(self._calls) else None

    def _titles(self) -> dict[str, str]:
        """The titles of tools by their ids."""
        return {row.tool.id: row.tool.title for row in self._state.rows}

    def _is_live(self, call: ToolActivity) -> bool:
        return (call.message, call.call) in self._state.live

    def _show_details(self, *_: object) -> None:
        if (call := self._chosen) is not None and not self.details.isHidden():
            self.details.show_call(call, self._titles(), is_live=self._is_live(call))

    def _close_details(self) -> None:
        self.details.hide()
        self._fit()
        self.list.setFocus()

    def _open_chat(self) -> None:
        if (call := self._chosen) is not None and call.title:
            self.chat_requested.emit(call.conversation, call.message, call.call)

    def _pick_state(self, value: object) -> None:
        self._chosen_state = str(value)
        self.refresh()

    def _ask_for_more(self, *_: object) -> None:
        state, bar = self._state, self.list.verticalScrollBar()
        read = len(state.activity)
        if not self.isVisible() or read >= state.activity_count:
            return
        if bar.value() >= bar.maximum() - _NEAR_END and self._asked < read + PAGE:
            self._asked = read + PAGE
            self.more_requested.emit(self._asked)

    def _fit(self) -> None:
        """A low view shows the call alone."""
        alone = not self.details.isHidden() and self.height() < _LOW
        self.list.setVisible(bool(self._calls) and not alone)
        for part in (self.words, self._filter):
            part.setVisible(self._state.activity_count > 0 and not alone)

    def _recolor(self, palette: Palette) -> None:
        self._icon.setIcon(icons.icon("search", palette.secondary, 16))
        self._icons = {
            state: icons.icon(name, getattr(palette, color), _ICON)
            for state, (name, color) in _ICONS.items()
        }
        self._is_stale = True  # its icons have the old colours
        self.refresh()

    # --- Qt -------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not event.spontaneous():
            self._asked = max(len(self._state.activity), PAGE)
            self.more_requested.emit(self._asked)
            self.refresh()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and not self.details.isHidden():
            self._close_details()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()


def _matches(call: ToolActivity, query: Sequence[str], titles: dict[str, str]) -> bool:
    """Whether all words are in what is known of a call."""
    if not query:
        return True
    parts = (call.name, tool_words(call, titles), call.title, call.arguments, call.result)
    text = " ".join(parts).casefold()
    return all(word in text for word in query)
