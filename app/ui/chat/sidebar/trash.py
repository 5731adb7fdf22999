"""Trash page: the deleted conversations and models, to be restored or removed for good."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QDateTime, Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
)

from app.domain.chat import KEEP_DELETED_SECONDS, TrashedConversation
from app.state.chat import State
from app.state.library import LibraryState, TrashedModel
from app.system.byte_size import size
from app.system.translation import isolated, tr, trn
from app.ui.theme.theme import BODY, figures
from app.ui.widgets.controls import TextButton, label, set_margins
from app.ui.widgets.page import Page
from app.ui.widgets.row_list import RowList, buttons, lay_out
from app.ui.widgets.units import day

_DAY = 24 * 3600
Entry = TrashedConversation | TrashedModel


class ConfirmLine(QFrame):
    """The question before entries are removed for good, with both answers as buttons."""

    confirmed = Signal(list)  # of entries
    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("undo")
        self._entries: list[Entry] = []
        self.words = label(tr("This cannot be undone."))
        self.keep_button = TextButton(tr("Keep"), "outlined")
        self.remove_button = TextButton("", "outlined")
        self.keep_button.clicked.connect(self._close)
        self.remove_button.clicked.connect(self._confirm)
        layout = QHBoxLayout(self)
        set_margins(layout, 12, 6, 6, 6)
        layout.addWidget(self.words, 1)
        layout.addWidget(self.keep_button)
        layout.addWidget(self.remove_button)
        self.hide()

    def ask(self, entries: list[Entry]) -> None:
        """Show the question about these entries; Keep has the focus."""
        self._entries = entries
        self.remove_button.setText(_delete_words(entries))
        self.show()
        self.keep_button.setFocus(Qt.FocusReason.TabFocusReason)

    def _close(self) -> None:
        self.hide()
        self.closed.emit()

    def _confirm(self) -> None:
        self._close()
        self.confirmed.emit(self._entries)


class TrashPage(Page):
    """Shows the trash of the state; emits the user's requests as signals."""

    restore_requested = Signal(list)  # of ids
    remove_requested = Signal(list)  # of ids, confirmed
    models_restored = Signal(list)  # of TrashedModel
    models_removed = Signal(list)  # of TrashedModel, confirmed

    def __init__(self, state: State, library: LibraryState) -> None:
        super().__init__(tr("Trash"))
        self._state, self._library = state, library
        self.restore_button = TextButton(tr("Restore"), "outlined")
        self.remove_button = TextButton(tr("Delete now"), "outlined")
        self.empty_button = TextButton(tr("Empty trash"), "outlined", "trash")
        self.confirm = ConfirmLine()
        self.list = RowList(tr("Deleted chats and models"))
        self.nothing = label(tr("The trash is empty."), "secondary")
        self.first = self.list  # has the focus first; Tab would skip what is before a focus proxy
        self._lay_out()
        self._connect()
        self.refresh()

    def _lay_out(self) -> None:
        days = KEEP_DELETED_SECONDS // _DAY
        words = tr("Deleted chats and models are kept for {days} days.", days=days)
        self.words = label(words, "secondary", wraps=True)
        self.space = label("", "secondary")
        self.space.setFont(figures(BODY))
        row = buttons(self.restore_button, self.remove_button, last=self.empty_button)
        rows = self.words, self.space, row, self.confirm, self.nothing, self.list
        lay_out(self, rows)

    def _connect(self) -> None:
        self.restore_button.clicked.connect(self._restore)
        self.remove_button.clicked.connect(self._ask_about_selected)
        self.empty_button.clicked.connect(self._ask_about_all)
        self.list.entered.connect(self._restore)
        self.list.removed.connect(self._ask_about_selected)
        self.list.itemSelectionChanged.connect(self._show_buttons)
        self.confirm.confirmed.connect(self._remove)
        self.confirm.closed.connect(self.list.setFocus)
        self._state.trash_changed.connect(self.refresh)
        self._library.trash_changed.connect(self.refresh)

    def refresh(self) -> None:
        """Show the trash; the selection is kept."""
        kept = {_key(entry) for entry in self._selected()}
        self.confirm.hide()
        self.list.clear()
        for entry in self._entries():
            self.list.add_row(_words(entry), entry, selected=_key(entry) in kept)
        some = self.list.count() > 0
        held = sum(model.size_bytes for model in self._library.trash)
        self.space.setText(tr("The models in it take {size} of disk space.", size=size(held)))
        self.space.setVisible(held > 0)
        if some and not self._selected():
            self.list.setCurrentRow(0)
        if not some and self.list.hasFocus():
            self.close_button.setFocus()  # a hidden list would pass the focus out of the page
        self.list.setVisible(some)
        self.nothing.setVisible(not some)
        self.empty_button.setEnabled(some)
        self._show_buttons()

    def _entries(self) -> list[Entry]:
        """Everything in the trash, the last deleted first."""
        entries: list[Entry] = [*self._state.trash, *self._library.trash]
        return sorted(entries, key=lambda entry: -entry.deleted)

    def _selected(self) -> list[Entry]:
        return self.list.entries()

    def _show_buttons(self) -> None:
        some = bool(self._selected())
        self.restore_button.setEnabled(some)
        self.remove_button.setEnabled(some)

    def _restore(self) -> None:
        chats, models = _sorted_out(self._selected())
        if chats:
            self.restore_requested.emit(chats)
        if models:
            self.models_restored.emit(models)

    def _remove(self, entries: list[Entry]) -> None:
        chats, models = _sorted_out(entries)
        if chats:
            self.remove_requested.emit(chats)
        if models:
            self.models_removed.emit(models)

    def _ask_about_selected(self) -> None:
        if entries := self._selected():
            self.confirm.ask(entries)

    def _ask_about_all(self) -> None:
        self.confirm.ask(self._entries())


def _sorted_out(entries: Sequence[Entry]) -> tuple[list[int], list[TrashedModel]]:
    """The ids of the conversations, and the models."""
    models = [entry for entry in entries if isinstance(entry, TrashedModel)]
    return [entry.id for entry in entries if isinstance(entry, TrashedConversation)], models


def _key(entry: Entry) -> object:
    return entry.moves if isinstance(entry, TrashedModel) else entry.id


def _words(entry: Entry) -> str:
    """The two lines of a row: what it is, and when it is removed for good."""
    moment = QDateTime.fromSecsSinceEpoch(int(entry.deleted + KEEP_DELETED_SECONDS))
    removal = tr("Will be removed on {day}", day=day(moment.date()))
    if isinstance(entry, TrashedConversation):
        return f"{isolated(entry.title)}\n{removal}"
    kind = tr("Model, {size}", size=size(entry.size_bytes))
    return f"{isolated(entry.name)}\n{kind} · {removal}"


def _delete_words(entries: Sequence[Entry]) -> str:
    """What the button of the question does."""
    chats, models = _sorted_out(entries)
    some = trn("{count} chat", "{count} chats", len(chats)) if chats else ""
    amount = size(sum(model.size_bytes for model in models))
    more = trn("{count} model ({size})", "{count} models ({size})", len(models), size=amount)
    if not models:
        return tr("Delete {what}", what=some)
    return (
        tr("Delete {what} and {more}", what=some, more=more)
        if some
        else tr("Delete {what}", what=more)
    )
