"""Sidebar: New chat, the search field, the list of chats and folders, Undo, archive and trash.

A row shows whether an answer of its conversation is written or waits, and offers to stop it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import date

from PySide6.QtCore import (
    QItemSelection,
    QItemSelectionModel,
    QItemSelectionRange,
    QModelIndex,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import QIcon, QKeyEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QLineEdit,
    QVBoxLayout,
    QWidget,
)

from app.domain.folders import chain
from app.state.chat import Deletion, State
from app.state.library import LibraryState
from app.system.translation import tr, trn
from app.ui.chat.sidebar.conversation_list import ConversationList
from app.ui.chat.sidebar.sidebar_list import FOLDER_ROLE, ConversationListModel, RowPainter
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import SIDEBAR_WIDTH, SMALL
from app.ui.widgets.controls import IconButton, TextButton, label, set_margins
from app.ui.widgets.undo_line import UndoLine

_SEARCH_MILLISECONDS = 150
_CLOCK_MILLISECONDS = 30_000  # between two looks at the date


def _undo_words(deletion: Deletion) -> str:
    """What Undo would undo."""
    chats = len(deletion.conversations)
    if deletion.message is not None:
        return tr("Message deleted")
    if deletion.moved_folders:
        return tr("Folder moved")
    if deletion.archived:
        return trn("Chat archived", "{count} chats archived", len(deletion.moved))
    if deletion.moved:
        return trn("Chat moved", "{count} chats moved", len(deletion.moved))
    if not deletion.folders:
        return trn("Chat deleted", "{count} chats deleted", chats)
    if not chats:
        return trn("Folder deleted", "{count} folders deleted", len(deletion.folders))
    folders = trn("{count} folder", "{count} folders", len(deletion.folders))
    held = trn("{count} chat", "{count} chats", chats)
    return tr("{folders} and {chats} deleted", folders=folders, chats=held)


class Sidebar(QWidget):
    """Shows the conversations of the state; emits the user's requests as signals."""

    new_requested = Signal(object)  # a chat in this folder; None: in none
    opened = Signal(object)
    result_opened = Signal(object, str)  # a search result: the conversation and the query
    renamed = Signal(object, str)
    delete_requested = Signal(list)
    export_requested = Signal(list, object)  # ids and ExportFormat
    copy_requested = Signal(list)  # of ids
    folders_deleted = Signal(list, list)  # ids of chats, and of folders
    folder_requested = Signal(object, list)  # a new one: in which folder, and with which chats
    folder_renamed = Signal(object, str)
    folder_toggled = Signal(list)  # ids of all folders that are closed now
    stop_requested = Signal(object)
    undo_requested = Signal()
    searched = Signal(str)

    def __init__(self, state: State, library: LibraryState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedWidth(SIDEBAR_WIDTH)
        self._state, self._library = state, library
        self._opens_first = False  # Enter was pressed before the results were there
        self._outdated = False  # the list was not refreshed while a title was edited
        self.new_button = TextButton(tr("New chat"), "outlined", "plus")
        self.preset_button = IconButton("chevron_down", tr("New chat with a preset"))
        self.folder_button = IconButton("folder_plus", tr("New folder"))
        self.hide_button = IconButton("sidebar", tr("Hide the sidebar (Ctrl+B)"))
        self.search = QLineEdit(placeholderText=tr("Search all chats"), clearButtonEnabled=False)
        self.search.setAccessibleName(tr("Search all chats"))
        self._search_action = self.search.addAction(
            QIcon(), QLineEdit.ActionPosition.LeadingPosition
        )
        self._search_action.setText(tr("Search"))  # the accessible name of its button
        self.model = ConversationListModel(self)
        self.painter = RowPainter(self)
        # Created without a parent: the layout adds it in visual order, which sets the Tab order.
        self.list = ConversationList(state, self.model, self.painter)
        self.menu = self.list.menu_signals
        self.nothing = label("", "secondary", SMALL, wraps=True)
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.undo = UndoLine()
        self.archive_button = TextButton(tr("Archived"), "quiet", "archive")
        self.archive_button.hide()
        self.trash_button = TextButton(tr("Trash"), "quiet", "trash")
        self.trash_button.hide()
        self._closed: set[int] = set()  # ids of folders
        self._search_debounce = QTimer(self, singleShot=True, interval=_SEARCH_MILLISECONDS)
        self._shown = state.current  # conversation that was shown last
        self._day = date.today()  # of the headings
        self._clock = QTimer(self, interval=_CLOCK_MILLISECONDS)  # a timer for midnight would sleep
        self._clock.start()
        self._lay_out()
        self._connect()
        follow_palette(self._recolor)

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.setSpacing(4)
        top.addWidget(self.new_button, 1)
        top.addWidget(self.preset_button)
        top.addWidget(self.hide_button)
        head = QVBoxLayout()
        head.setContentsMargins(12, 12, 12, 8)
        head.setSpacing(8)
        head.addLayout(top)
        second = QHBoxLayout()
        second.setSpacing(8)
        second.addWidget(self.search, 1)
        second.addWidget(self.folder_button)
        head.addLayout(second)
        foot = QVBoxLayout()
        foot.setContentsMargins(12, 0, 12, 12)
        foot.setSpacing(8)
        foot.addWidget(self.undo)
        foot.addWidget(self.archive_button, 0, Qt.AlignmentFlag.AlignLeading)
        foot.addWidget(self.trash_button, 0, Qt.AlignmentFlag.AlignLeading)
        layout = QVBoxLayout(self)
        set_margins(layout, 0, 0, 1, 0)
        layout.setSpacing(0)
        layout.addLayout(head)
        layout.addWidget(self.nothing)
        layout.addWidget(self.list, 1)
        layout.addLayout(foot)

    def _connect(self) -> None:
        state = self._state
        self.new_button.clicked.connect(self.request_new)
        self.folder_button.clicked.connect(self._request_folder)
        self.list.opened.connect(self._open)
        self.list.toggled.connect(self.toggle_folder)
        self.list.delete_requested.connect(self.delete_requested)
        self.list.folders_deleted.connect(self.folders_deleted)
        self.menu.delete_requested.connect(self.list.delete_selected)
        self.menu.stop_requested.connect(self.stop_requested)
        self.menu.new_requested.connect(self.new_requested)
        self.menu.folder_requested.connect(self.folder_requested)
        self.menu.export_requested.connect(self.export_requested)
        self.menu.copy_requested.connect(self.copy_requested)
        self.painter.new_requested.connect(self.new_requested)
        self.painter.delete_requested.connect(self._delete_one)
        self.painter.stop_requested.connect(self.stop_requested)
        # After the list has left its editing state:
        self.painter.closeEditor.connect(self._on_renamed, Qt.ConnectionType.QueuedConnection)
        self.model.renamed.connect(self.renamed)
        self.model.folder_renamed.connect(self.folder_renamed)
        self.undo.undone.connect(self.undo_requested)
        self.search.textChanged.connect(self._on_search_typed)
        self.search.returnPressed.connect(self._open_first)
        self._search_debounce.timeout.connect(lambda: self.searched.emit(self.search.text()))
        self._clock.timeout.connect(self._follow_date)
        state.conversations_changed.connect(self.refresh)
        state.folders_changed.connect(self.refresh)
        state.new_folder_changed.connect(self._show_current)
        state.conversation_changed.connect(self._on_shown)
        state.generations_changed.connect(self._show_busy)
        state.deletions_changed.connect(self._show_undo)
        state.trash_changed.connect(self._show_trash)
        self._library.trash_changed.connect(self._show_trash)

    def _recolor(self, palette: Palette) -> None:
        self._search_action.setIcon(icons.icon("search", palette.secondary, 16))

    def refresh(self) -> None:
        """Show the conversations of the state; keeps the selection and the scroll position."""
        if self.renaming:  # new rows would close the editor, and the typing go elsewhere
            self._outdated = True
            return
        self._outdated = False
        state, selected, folders = self._state, self.list.selected(), self.list.selected_folders()
        held = self.list.currentIndex().data(FOLDER_ROLE)
        self._day = date.fromtimestamp(time.time())
        place = self.list.verticalScrollBar().value()
        conversations = state.shown_conversations
        moved = self.model.set_conversations(
            conversations, state.folders, self._closed, grouped=not state.query
        )
        self.model.set_hits(state.hits)
        if bool(self.painter.query) != bool(state.query):
            self.list.scheduleDelayedItemsLayout()  # the rows have another height
        self.painter.query = state.query
        self._show_busy()
        if moved:
            chosen = [self.model.find(each) for each in selected]
            self._select(chosen + [self.model.find_folder(each) for each in folders])
            self.list.verticalScrollBar().setValue(place)
        some = self.model.rowCount() > 0
        tab = Qt.FocusPolicy.StrongFocus if some else Qt.FocusPolicy.NoFocus
        self.list.setFocusPolicy(tab)  # an empty list cannot show the focus
        self.nothing.setVisible(not conversations and bool(state.query))
        self.nothing.setText(tr("Nothing found for “{query}”", query=state.query[:60]))
        archived = any(conversation.archived for conversation in state.conversations)
        self.archive_button.setVisible(archived)
        self._show_current(held)
        self._open_if_found()

    @property
    def typing(self) -> bool:
        """Whether a typed search is still being debounced."""
        return self._search_debounce.isActive()

    @property
    def renaming(self) -> bool:
        """Whether a title is being edited in place."""
        return self.list.state() is QAbstractItemView.State.EditingState

    @property
    def has_typing_focus(self) -> bool:
        """Whether the user types here: a search or a title."""
        return self.renaming or self.search.hasFocus()

    def rename(self) -> None:
        """Edit the name of the current row if the list has the focus, or else of the shown chat."""
        chosen = self.list.currentIndex() if self.list.hasFocus() else QModelIndex()
        if not chosen.isValid():
            chosen = self.model.find(self._state.current)
        self._edit(chosen)

    def rename_folder(self, folder_id: int) -> None:
        """Show a folder, and edit its name."""
        self._reveal(folder_id)
        self._edit(self.model.find_folder(folder_id))

    def _edit(self, index: QModelIndex) -> None:
        if index.isValid():
            self.list.setCurrentIndex(index)
            self.list.edit(index)

    def request_new(self) -> None:
        """Request a new chat, in the selected folder if there is one."""
        folders = [] if self._state.query else self.list.selected_folders()
        self.new_requested.emit(folders[0] if len(folders) == 1 else None)

    def _request_folder(self) -> None:
        """Request a new folder, in the selected one if there is one."""
        if self._state.query:
            self.search.clear()  # results show no folders
            self._search_debounce.stop()
            self.searched.emit("")
        folders = self.list.selected_folders()
        self.folder_requested.emit(folders[0] if len(folders) == 1 else None, [])

    def set_closed(self, folder_ids: Collection[int]) -> None:
        """Set which folders are closed."""
        self._closed = set(folder_ids)
        self.refresh()

    def toggle_folder(self, folder_id: int) -> None:
        """Open a folder, or close it."""
        self._set_closed(self._closed ^ {folder_id})

    def _set_closed(self, closed: set[int]) -> None:
        known = {folder.id for folder in self._state.folders}
        self._closed = closed & known
        self.refresh()
        self.folder_toggled.emit(sorted(self._closed))

    def _reveal(self, folder_id: int | None) -> None:
        """Open the folders around one, and that itself."""
        around = {folder.id for folder in chain(self._state.folders, folder_id)}
        if around & self._closed:
            self._set_closed(self._closed - around)

    def start_search(self) -> None:
        """Focus the search field and select its text."""
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self.search.hasFocus() and event.key() == Qt.Key.Key_Escape and self.search.text():
            self.search.clear()
        elif self.search.hasFocus() and event.key() == Qt.Key.Key_Down:
            self.list.setFocus(Qt.FocusReason.TabFocusReason)
            self.list.setCurrentIndex(self.model.first())
        else:
            super().keyPressEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._follow_date()

    # --- steps ----------------------------------------------------------------------------------

    def _follow_date(self) -> None:
        """Group the conversations anew after midnight."""
        if date.fromtimestamp(time.time()) != self._day:
            self.refresh()

    def _on_shown(self) -> None:
        """Another conversation is shown; one that a search hides, such as a new one, ends it."""
        state, before = self._state, self._shown
        self._shown = state.current
        hidden = self.search.text() and not self.model.find(state.current).isValid()
        if hidden and state.current not in (None, before):
            self.search.clear()
            self._search_debounce.stop()
            self.searched.emit("")
        self._follow_date()
        if state.current != before and not state.query:
            self._reveal(None if state.current is None else state.folder_of(state.current))
        self._show_current()

    def _show_busy(self) -> None:
        state = self._state
        self.model.set_busy(state.busy_conversations, state.writing_conversations)

    def _select(self, indexes: Sequence[QModelIndex]) -> None:
        """Select rows, neighbours as one range: all of thousands may be selected."""
        selection = QItemSelection()
        first = last = QModelIndex()
        for index in sorted(filter(QModelIndex.isValid, indexes), key=QModelIndex.row):
            if first.isValid() and index.row() == last.row() + 1:
                last = index
                continue
            if first.isValid():
                selection.append(QItemSelectionRange(first, last))
            first = last = index
        if first.isValid():
            selection.append(QItemSelectionRange(first, last))
        self.list.selectionModel().select(selection, QItemSelectionModel.SelectionFlag.Select)

    def _show_current(self, held: int | None = None) -> None:
        """Select the row of the shown chat; `held` is a folder that stays the current row."""
        state = self._state
        self.painter.current = state.current
        index = self.model.find_folder(held)
        if not index.isValid():
            new = state.new_folder if state.current is None else None
            index = self.model.find(state.current) if new is None else self.model.find_folder(new)
        many = len(self.list.selectedIndexes()) > 1
        if not many and not self.renaming:
            self.list.setCurrentIndex(index)
            if not index.isValid():
                self.list.clearSelection()
        self.list.viewport().update()

    def _on_renamed(self) -> None:
        if self._outdated:
            self.refresh()

    def _on_search_typed(self) -> None:
        self._opens_first = False
        self._search_debounce.start()

    def _open_first(self) -> None:
        if self._search_debounce.isActive():
            self._search_debounce.stop()
            self.searched.emit(self.search.text())
        self._opens_first = True
        self._open_if_found()

    def _open_if_found(self) -> None:
        """Open the first result if Enter asked for it, once the list shows what was typed."""
        if not self._opens_first or self._state.query != self.search.text().strip():
            return
        self._opens_first = False
        conversation = self.model.conversation(self.model.first())
        if conversation is not None:
            self.list.setFocus()
            self._open(conversation.id)

    def _open(self, conversation_id: int) -> None:
        state = self._state
        if state.query:
            self.result_opened.emit(conversation_id, state.query)
        else:
            self.opened.emit(conversation_id)

    def _show_undo(self) -> None:
        state = self._state
        self.undo.show_words(_undo_words(state.deletions[-1]) if state.offered else "")

    def _show_trash(self) -> None:
        self.trash_button.setVisible(bool(self._state.trash or self._library.trash))

    def _delete_one(self, conversation_id: int) -> None:
        self.delete_requested.emit([conversation_id])
