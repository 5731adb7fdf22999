"""Trash page: the deleted conversations, to be restored or removed for good."""

from __future__ import annotations

from PySide6.QtCore import QDateTime, QSize, Qt, Signal
from PySide6.QtGui import QAccessible, QFont, QKeyEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHBoxLayout,
    QListWidget,
    QListWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app.state.chat import State
from app.store.store import KEEP_DELETED_SECONDS, TrashedConversation
from app.system.translation import tr, trn
from app.ui.theme.palette import Palette
from app.ui.theme.theme import BODY, READING, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import Column, IconButton, TextButton, label
from app.ui.widgets.units import day

_ID_ROLE = Qt.ItemDataRole.UserRole + 1
_ROW_HEIGHT = 52
_DAY = 24 * 3600


class TrashList(QListWidget):
    """The deleted conversations; Enter restores the selected ones, Delete removes them."""

    restore_requested = Signal()
    remove_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName(tr("Deleted chats"))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(font(BODY))
        self.setUniformItemSizes(True)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTextElideMode(Qt.TextElideMode.ElideRight)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.restore_requested.emit()
        elif event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.remove_requested.emit()
        elif event.key() == Qt.Key.Key_Escape:
            event.ignore()  # closes the page
        else:
            super().keyPressEvent(event)


class ConfirmLine(QFrame):
    """The question before conversations are removed for good, with both answers as buttons."""

    confirmed = Signal(list)  # of ids
    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("undo")
        self._ids: list[int] = []
        self.words = label(tr("This cannot be undone."))
        self.keep_button = TextButton(tr("Keep"), "outlined")
        self.remove_button = TextButton("", "outlined")
        self.keep_button.clicked.connect(self._close)
        self.remove_button.clicked.connect(self._confirm)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(12, 6, 6, 6)
        layout.addWidget(self.words, 1)
        layout.addWidget(self.keep_button)
        layout.addWidget(self.remove_button)
        self.hide()

    def ask(self, ids: list[int]) -> None:
        """Show the question about these conversations; Keep has the focus."""
        self._ids = ids
        self.remove_button.setText(trn("Delete {count} chat", "Delete {count} chats", len(ids)))
        self.show()
        self.keep_button.setFocus(Qt.FocusReason.TabFocusReason)

    def _close(self) -> None:
        self.hide()
        self.closed.emit()

    def _confirm(self) -> None:
        self._close()
        self.confirmed.emit(self._ids)


class TrashPage(QWidget):
    """Shows the trash of the state; emits the user's requests as signals."""

    restore_requested = Signal(list)  # of ids
    remove_requested = Signal(list)  # of ids, confirmed
    closed = Signal()

    def __init__(self, state: State) -> None:
        super().__init__()
        self.setObjectName("page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        accessibility.register_role(TrashPage, QAccessible.Role.Pane)
        self.setAccessibleName(tr("Trash"))
        self._state = state
        self.close_button = IconButton("close", tr("Back to the chat"))
        self.restore_button = TextButton(tr("Restore"), "outlined")
        self.remove_button = TextButton(tr("Delete now"), "outlined")
        self.empty_button = TextButton(tr("Empty trash"), "outlined", "trash")
        self.confirm = ConfirmLine()
        self.list = TrashList()
        self.nothing = label(tr("The trash is empty."), "secondary")
        self.setFocusProxy(self.list)
        self._lay_out()
        self._connect()
        self.refresh()

    def _lay_out(self) -> None:
        title = label(tr("Trash"), "", READING)
        title.setFont(font(READING, QFont.Weight.Medium))
        days = KEEP_DELETED_SECONDS // _DAY
        words = label(tr("Deleted chats are kept for {days} days.", days=days), "secondary")
        words.setWordWrap(True)
        head = QHBoxLayout()
        head.addWidget(title, 1)
        head.addWidget(self.close_button)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self.restore_button)
        buttons.addWidget(self.remove_button)
        buttons.addStretch(1)
        buttons.addWidget(self.empty_button)
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 12, 0, 12)
        column.setSpacing(12)
        column.addLayout(head)
        column.addWidget(words)
        column.addLayout(buttons)
        column.addWidget(self.confirm)
        column.addWidget(self.nothing)
        column.addWidget(self.list, 1)
        page = QVBoxLayout(self)
        page.setContentsMargins(0, 0, 0, 0)
        page.addWidget(Column(content))

    def _connect(self) -> None:
        self.close_button.clicked.connect(self.closed)
        self.restore_button.clicked.connect(self._restore)
        self.remove_button.clicked.connect(self._ask_about_selected)
        self.empty_button.clicked.connect(self._ask_about_all)
        self.list.restore_requested.connect(self._restore)
        self.list.remove_requested.connect(self._ask_about_selected)
        self.list.itemSelectionChanged.connect(self._show_buttons)
        self.confirm.confirmed.connect(self.remove_requested)
        self.confirm.closed.connect(self.list.setFocus)
        self._state.trash_changed.connect(self.refresh)

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self.close_button.apply_palette(palette)
        self.empty_button.apply_palette(palette)
        ring = palette.accent if palette.accent_soft == palette.sunken else palette.accent_soft
        self.list.setStyleSheet(
            f"QListView::item {{ color: {palette.text}; padding: 0 10px; border-radius: 6px;"
            f" border: 2px solid transparent; }}"
            f"QListView::item:hover {{ background: {palette.sunken}; }}"
            f"QListView::item:selected {{ color: {palette.text};"
            f" background: {palette.accent_soft}; border-color: {ring}; }}"
            f"QListView::item:selected:active:focus {{ border-color: {palette.accent}; }}"
        )

    def refresh(self) -> None:
        """Show the trash; the selection is kept."""
        kept = set(self._selected())
        self.confirm.hide()
        self.list.clear()
        for conversation in self._state.trash:
            item = QListWidgetItem(f"{conversation.title}\n{_removal(conversation)}")
            item.setData(_ID_ROLE, conversation.id)
            item.setSizeHint(QSize(120, _ROW_HEIGHT))
            self.list.addItem(item)
            item.setSelected(conversation.id in kept)
        some = bool(self._state.trash)
        if some and not self._selected():
            self.list.setCurrentRow(0)
        if not some and self.list.hasFocus():
            self.close_button.setFocus()  # a hidden list would pass the focus out of the page
        self.list.setVisible(some)
        self.nothing.setVisible(not some)
        self.empty_button.setEnabled(some)
        self._show_buttons()

    def _selected(self) -> list[int]:
        return [int(item.data(_ID_ROLE)) for item in self.list.selectedItems()]

    def _show_buttons(self) -> None:
        some = bool(self._selected())
        self.restore_button.setEnabled(some)
        self.remove_button.setEnabled(some)

    def _restore(self) -> None:
        if ids := self._selected():
            self.restore_requested.emit(ids)

    def _ask_about_selected(self) -> None:
        if ids := self._selected():
            self.confirm.ask(ids)

    def _ask_about_all(self) -> None:
        self.confirm.ask([conversation.id for conversation in self._state.trash])


def _removal(conversation: TrashedConversation) -> str:
    """When a deleted conversation is removed for good."""
    moment = QDateTime.fromSecsSinceEpoch(int(conversation.deleted + KEEP_DELETED_SECONDS))
    return tr("Will be removed on {day}", day=day(moment.date()))
