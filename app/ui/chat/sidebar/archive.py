"""Archive page: the chats that are not listed, to be opened, put back into the list, or deleted."""

from __future__ import annotations

from PySide6.QtCore import QDateTime, Signal

from app.domain.chat import Conversation
from app.domain.folders import path_text
from app.state.chat import State
from app.system.translation import tr
from app.ui.widgets.controls import TextButton, label
from app.ui.widgets.page import Page
from app.ui.widgets.row_list import RowList, buttons, lay_out
from app.ui.widgets.units import day


class ArchivePage(Page):
    """Shows the archived chats of the state; emits the user's requests as signals."""

    opened = Signal(object)  # id
    restore_requested = Signal(list)  # of ids
    delete_requested = Signal(list)  # of ids

    def __init__(self, state: State) -> None:
        super().__init__(tr("Archived chats"))
        self._state = state
        self.open_button = TextButton(tr("Open"), "outlined")
        self.restore_button = TextButton(tr("Put back in the list"), "outlined")
        self.delete_button = TextButton(tr("Delete"), "outlined", "trash")
        self.list = RowList(tr("Archived chats"))
        self.nothing = label(tr("No chat is archived."), "secondary")
        self.first = self.list  # has the focus first; Tab would skip what is before a focus proxy
        self._lay_out()
        self._connect()
        self.refresh()

    def _lay_out(self) -> None:
        words = label(tr("They are not in the list. Search finds them."), "secondary", wraps=True)
        row = buttons(self.open_button, self.restore_button, last=self.delete_button)
        lay_out(self, (words, row, self.nothing, self.list))

    def _connect(self) -> None:
        self.open_button.clicked.connect(self._open)
        self.restore_button.clicked.connect(self._restore)
        self.delete_button.clicked.connect(self._delete)
        self.list.entered.connect(self._open)
        self.list.removed.connect(self._delete)
        self.list.itemDoubleClicked.connect(self._open)
        self.list.itemSelectionChanged.connect(self._show_buttons)
        self._state.conversations_changed.connect(self.refresh)
        self._state.folders_changed.connect(self.refresh)

    def refresh(self) -> None:
        """Show the archived chats, the last used first; the selection is kept."""
        kept = set(self.list.entries())
        shown = [chat for chat in self._state.conversations if chat.archived]
        texts = [self._words(chat) for chat in shown]
        if texts != [self.list.item(row).text() for row in range(self.list.count())]:
            self.list.clear()
            for chat, text in zip(shown, texts, strict=True):
                self.list.add_row(text, chat.id, selected=chat.id in kept)
        if shown and not self.list.entries():
            self.list.setCurrentRow(0)
        if not shown and self.list.hasFocus():
            self.close_button.setFocus()  # a hidden list would pass the focus out of the page
        self.list.setVisible(bool(shown))
        self.nothing.setVisible(not shown)
        self._show_buttons()

    def _words(self, chat: Conversation) -> str:
        """The two lines of a row: its title, and its folder and when it was used last."""
        then = QDateTime.fromSecsSinceEpoch(int(chat.updated))
        used = tr("Last used on {day}", day=day(then.date()))
        place = path_text(self._state.folders, chat.folder)
        return f"{chat.title}\n{' · '.join(filter(None, (place, used)))}"

    def _show_buttons(self) -> None:
        chosen = len(self.list.entries())
        self.open_button.setEnabled(chosen == 1)
        self.restore_button.setEnabled(chosen > 0)
        self.delete_button.setEnabled(chosen > 0)

    def _open(self) -> None:
        if len(chosen := self.list.entries()) == 1:
            self.opened.emit(chosen[0])

    def _restore(self) -> None:
        self.restore_requested.emit(self.list.entries())

    def _delete(self) -> None:
        self.delete_requested.emit(self.list.entries())
