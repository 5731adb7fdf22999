"""Sidebar: New chat, the search field, the list of conversations, and Undo after deleting.

A row shows whether an answer of its conversation is written or waits, and offers to stop it.
"""

from __future__ import annotations

import time
from datetime import date

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QMouseEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QListView,
    QMenu,
    QVBoxLayout,
    QWidget,
)

from app.state.chat import Deletion, State
from app.state.library import LibraryState
from app.system.translation import tr, trn
from app.ui.chat.sidebar_list import BUSY_ROLE, ID_ROLE, ConversationListModel, RowPainter, icon_at
from app.ui.theme import icons
from app.ui.theme.palette import LIGHT, Palette
from app.ui.theme.theme import SIDEBAR_WIDTH, SMALL
from app.ui.transfer.menu import add_formats
from app.ui.widgets.controls import IconButton, TextButton, fade_in, label, set_margins
from app.ui.widgets.typing import types_text

_SEARCH_MILLISECONDS = 150
_CLOCK_MILLISECONDS = 30_000  # between two looks at the date
_KEYBOARD_REASONS = (
    Qt.FocusReason.TabFocusReason,
    Qt.FocusReason.BacktabFocusReason,
    Qt.FocusReason.ShortcutFocusReason,
)


class ConversationList(QListView):
    """List view: a click or Enter opens, Delete deletes the selected conversations."""

    opened = Signal(object)
    delete_requested = Signal(list)  # of ids
    export_requested = Signal(list, object)  # ids and ExportFormat
    copy_requested = Signal(list)  # of ids
    stop_requested = Signal(object)

    def __init__(
        self, model: ConversationListModel, painter: RowPainter, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._model, self._painter = model, painter
        self.setModel(model)
        self.setItemDelegate(painter)
        self.setUniformItemSizes(True)
        self.setMouseTracking(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.DoubleClicked)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._show_menu)
        self.setAccessibleName(tr("Chats"))

    def selected(self) -> list[int]:
        """The ids of the selected conversations, from top to bottom."""
        rows = sorted(self.selectedIndexes(), key=QModelIndex.row)
        return [int(index.data(ID_ROLE)) for index in rows]

    def focusInEvent(self, event: QFocusEvent) -> None:
        self._painter.keyboard = event.reason() in _KEYBOARD_REASONS
        super().focusInEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._painter.keyboard = False
        super().mousePressEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        self._painter.keyboard = True
        if event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.delete_requested.emit(self.selected())
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._open(self.currentIndex())
        elif event.key() == Qt.Key.Key_Escape or types_text(event):
            event.ignore()  # handled by the window, which forwards typing to the composer
        else:
            super().keyPressEvent(event)

    def mouseReleaseEvent(self, e: QMouseEvent) -> None:
        super().mouseReleaseEvent(e)
        index = self.indexAt(e.position().toPoint())
        plain = e.button() is Qt.MouseButton.LeftButton and not e.modifiers()
        icon = icon_at(index, self.visualRect(index), e.position().toPoint())
        if plain and not icon and index.isValid():
            self._open(index)

    def _open(self, index: QModelIndex) -> None:
        conversation_id = index.data(ID_ROLE) if index.isValid() else None
        if conversation_id is not None:
            self.opened.emit(int(conversation_id))

    def row_menu(self, index: QModelIndex) -> QMenu:
        """The menu of a conversation's row, for all that are selected."""
        chosen = self.selected()
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if busy := [each for each in chosen if self._model.find(each).data(BUSY_ROLE)]:
            several = trn("Stop {count} answer", "Stop {count} answers", len(busy))
            stop = menu.addAction(several if len(busy) > 1 else tr("Stop the answer"))
            stop.triggered.connect(lambda: [self.stop_requested.emit(each) for each in busy])
        rename = menu.addAction(tr("Rename"))
        rename.setEnabled(len(chosen) == 1)
        rename.triggered.connect(lambda: self.edit(index))
        export = menu.addMenu(trn("Export", "Export {count} chats", len(chosen)))
        add_formats(export, lambda format: self.export_requested.emit(chosen, format))
        copy = menu.addAction(trn("Copy whole chat", "Copy {count} whole chats", len(chosen)))
        copy.triggered.connect(lambda: self.copy_requested.emit(chosen))
        delete = menu.addAction(trn("Delete", "Delete {count} chats", len(chosen)))
        delete.triggered.connect(lambda: self.delete_requested.emit(chosen))
        return menu

    def _show_menu(self, place: QPoint) -> None:
        index = self.indexAt(place)
        if index.data(ID_ROLE) is not None:
            self.row_menu(index).popup(self.viewport().mapToGlobal(place))


class UndoLine(QFrame):
    """What was deleted last, with an Undo button; visible for some seconds."""

    undone = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("undo")
        self.words = label("")
        self.button = TextButton(tr("Undo"), "link")
        self.button.clicked.connect(self.undone)
        layout = QHBoxLayout(self)
        set_margins(layout, 12, 6, 6, 6)
        layout.addWidget(self.words, 1)
        layout.addWidget(self.button)
        self.hide()

    def show_deletion(self, deletion: Deletion | None) -> None:
        """Show what was deleted; None hides the line."""
        if deletion is not None:
            count = len(deletion.conversations)
            many = trn("Chat deleted", "{count} chats deleted", count)
            self.words.setText(many if deletion.message is None else tr("Message deleted"))
        if (deletion is not None) == self.isHidden():
            self.setVisible(deletion is not None)
            if deletion is not None:
                fade_in(self)


class Sidebar(QWidget):
    """Shows the conversations of the state; emits the user's requests as signals."""

    new_requested = Signal()
    opened = Signal(object)
    result_opened = Signal(object, str)  # a search result: the conversation and the query
    renamed = Signal(object, str)
    delete_requested = Signal(list)
    export_requested = Signal(list, object)  # ids and ExportFormat
    copy_requested = Signal(list)  # of ids
    stop_requested = Signal(object)
    undo_requested = Signal()
    searched = Signal(str)

    def __init__(self, state: State, library: LibraryState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedWidth(SIDEBAR_WIDTH)
        self._state, self._library = state, library
        self._palette = LIGHT
        self._outdated = False  # the list was not refreshed while a title was edited
        self.new_button = TextButton(tr("New chat"), "outlined", "plus")
        self.preset_button = IconButton("chevron_down", tr("New chat with a preset"))
        self.hide_button = IconButton("sidebar", tr("Hide the sidebar (Ctrl+B)"))
        self.search = QLineEdit(placeholderText=tr("Search all chats"), clearButtonEnabled=False)
        self.search.setAccessibleName(tr("Search all chats"))
        self._search_action = self.search.addAction(
            icons.icon("search", LIGHT.secondary, 16), QLineEdit.ActionPosition.LeadingPosition
        )
        self._search_action.setText(tr("Search"))  # the accessible name of its button
        self.model = ConversationListModel(self)
        self.painter = RowPainter(self)
        # Created without a parent: the layout adds it in visual order, which sets the Tab order.
        self.list = ConversationList(self.model, self.painter)
        self.nothing = label("", "secondary", SMALL)
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.nothing.setWordWrap(True)
        self.undo = UndoLine()
        self.trash_button = TextButton(tr("Trash"), "quiet", "trash")
        self.trash_button.hide()
        self._search_debounce = QTimer(self, singleShot=True, interval=_SEARCH_MILLISECONDS)
        self._shown = state.current  # conversation that was shown last
        self._day = date.today()  # of the headings
        self._clock = QTimer(self, interval=_CLOCK_MILLISECONDS)  # a timer for midnight would sleep
        self._clock.start()
        self._lay_out()
        self._connect()

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.new_button, 1)
        top.addWidget(self.preset_button)
        top.addWidget(self.hide_button)
        head = QVBoxLayout()
        head.setContentsMargins(12, 12, 12, 8)
        head.setSpacing(8)
        head.addLayout(top)
        head.addWidget(self.search)
        foot = QVBoxLayout()
        foot.setContentsMargins(12, 0, 12, 12)
        foot.setSpacing(8)
        foot.addWidget(self.undo)
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
        self.new_button.clicked.connect(self.new_requested)
        self.list.opened.connect(self._open)
        self.list.delete_requested.connect(self.delete_requested)
        self.list.export_requested.connect(self.export_requested)
        self.list.copy_requested.connect(self.copy_requested)
        self.list.stop_requested.connect(self.stop_requested)
        self.painter.delete_requested.connect(self._delete_one)
        self.painter.stop_requested.connect(self.stop_requested)
        # After the list has left its editing state:
        self.painter.closeEditor.connect(self._on_renamed, Qt.ConnectionType.QueuedConnection)
        self.model.renamed.connect(self.renamed)
        self.undo.undone.connect(self.undo_requested)
        self.search.textChanged.connect(lambda: self._search_debounce.start())
        self.search.returnPressed.connect(self._open_first)
        self._search_debounce.timeout.connect(lambda: self.searched.emit(self.search.text()))
        self._clock.timeout.connect(self._follow_date)
        state.conversations_changed.connect(self.refresh)
        state.conversation_changed.connect(self._on_shown)
        state.generations_changed.connect(self._show_busy)
        state.deletions_changed.connect(self._show_undo)
        state.trash_changed.connect(self._show_trash)
        self._library.trash_changed.connect(self._show_trash)

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self._palette = palette
        self.painter.apply_palette(palette)
        self.new_button.apply_palette(palette)
        self.preset_button.apply_palette(palette)
        self.hide_button.apply_palette(palette)
        self.trash_button.apply_palette(palette)
        self._search_action.setIcon(icons.icon("search", palette.secondary, 16))
        self.list.viewport().update()

    def refresh(self) -> None:
        """Show the conversations of the state; keeps the selection and the scroll position."""
        if self.renaming:  # new rows would close the editor, and the typing go elsewhere
            self._outdated = True
            return
        self._outdated = False
        state, selected = self._state, self.list.selected()
        self._day = date.fromtimestamp(time.time())
        place = self.list.verticalScrollBar().value()
        conversations = state.shown_conversations
        moved = self.model.set_conversations(conversations, grouped=not state.query)
        self.model.set_hits(state.hits)
        if bool(self.painter.query) != bool(state.query):
            self.list.scheduleDelayedItemsLayout()  # the rows have another height
        self.painter.query = state.query
        self._show_busy()
        if moved:
            self._select(selected)
            self.list.verticalScrollBar().setValue(place)
        tab = Qt.FocusPolicy.StrongFocus if conversations else Qt.FocusPolicy.NoFocus
        self.list.setFocusPolicy(tab)  # an empty list cannot show the focus
        self.nothing.setVisible(not conversations and bool(state.query))
        self.nothing.setText(tr("Nothing found for “{query}”", query=state.query[:60]))
        self._show_current()

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
        """Edit the title of the current row if the list has the focus, or else of the shown chat."""
        chosen = self.list.currentIndex() if self.list.hasFocus() else QModelIndex()
        if chosen.data(ID_ROLE) is None:
            chosen = self.model.find(self._state.current)
        if chosen.isValid():
            self.list.setCurrentIndex(chosen)
            self.list.edit(chosen)

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
        self._show_current()

    def _show_busy(self) -> None:
        state = self._state
        self.model.set_busy(state.busy_conversations, state.writing_conversations)

    def _select(self, conversation_ids: list[int]) -> None:
        selection = self.list.selectionModel()
        for conversation_id in conversation_ids:
            index = self.model.find(conversation_id)
            if index.isValid():
                selection.select(index, QItemSelectionModel.SelectionFlag.Select)

    def _show_current(self) -> None:
        self.painter.current = self._state.current
        index = self.model.find(self._state.current)
        many = len(self.list.selected()) > 1
        if not many and not self.renaming:
            self.list.setCurrentIndex(index)
            if not index.isValid():
                self.list.clearSelection()
        self.list.viewport().update()

    def _on_renamed(self) -> None:
        if self._outdated:
            self.refresh()

    def _open_first(self) -> None:
        if self._search_debounce.isActive():
            self._search_debounce.stop()
            self.searched.emit(self.search.text())
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
        self.undo.show_deletion(state.deletions[-1] if state.offered else None)

    def _show_trash(self) -> None:
        self.trash_button.setVisible(bool(self._state.trash or self._library.trash))

    def _delete_one(self, conversation_id: int) -> None:
        self.delete_requested.emit([conversation_id])
