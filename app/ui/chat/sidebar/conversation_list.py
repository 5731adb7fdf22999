"""List view of the sidebar: opening, selecting several rows, their menu, and drag and drop.

A row is dropped on a folder, on a chat of that folder, or below all folders to take it out of them;
a folder also between two others. What a drag does is in the menu as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QModelIndex, QPoint, QRect, Qt, QTimer, Signal
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QAbstractItemView, QFrame, QListView, QMenu, QWidget

from app.domain.folders import inside, path_text
from app.state.chat import State
from app.system.translation import tr
from app.ui.chat.sidebar.row_menu import RowMenu
from app.ui.chat.sidebar.sidebar_access import AccessibleRows, AccessibleTree
from app.ui.chat.sidebar.sidebar_list import (
    FOLDER_ROLE,
    ID_ROLE,
    ConversationListModel,
    RowPainter,
    dragged_rows,
    icon_at,
)
from app.ui.theme.palette import shown_palette
from app.ui.widgets import accessibility
from app.ui.widgets.typing import types_text

_OPEN_MILLISECONDS = 700  # for which a drag stays on a closed folder until it opens
_KEYBOARD_REASONS = (
    Qt.FocusReason.TabFocusReason,
    Qt.FocusReason.BacktabFocusReason,
    Qt.FocusReason.ShortcutFocusReason,
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where dragged rows would go."""

    folder: int | None  # into this one; None: out of all folders
    mark: QRect  # in the viewport: a rectangle around the place, or a line between two rows
    before: int | None = None  # the folder that a dragged folder comes before


class ConversationList(QListView):
    """A click or Enter opens a chat, or opens and closes a folder; Delete deletes what is selected."""

    opened = Signal(object)
    toggled = Signal(object)  # id of a folder, to be opened or closed
    delete_requested = Signal(list)  # of ids
    folders_deleted = Signal(list, list)  # ids of chats, and of folders
    moved = Signal(list, object)  # ids of chats, and the folder; None: out of all folders
    folder_moved = Signal(object, object, object)  # id, the folder around, the folder after it

    def __init__(
        self,
        state: State,
        model: ConversationListModel,
        painter: RowPainter,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        accessibility.register(ConversationList, lambda view: AccessibleTree(view.accessible_rows))
        self._state, self._model, self._painter = state, model, painter
        self.accessible_rows = AccessibleRows(self, model, self._open, self._open_menu)
        self._pressed = Qt.ItemFlag.NoItemFlags  # of the row where the mouse was pressed last
        self._target: Target | None = None  # of the drag in progress
        self._hovered: int | None = None  # closed folder that the drag is on
        self._spring = QTimer(self, singleShot=True, interval=_OPEN_MILLISECONDS)
        self._spring.timeout.connect(lambda: self.toggled.emit(self._hovered))
        self.menu_signals = RowMenu(state, self)
        self.setModel(model)
        self.setItemDelegate(painter)
        self.setUniformItemSizes(True)
        self.setMouseTracking(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.DoubleClicked)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragDrop)
        self.setDefaultDropAction(Qt.DropAction.MoveAction)
        self.setDropIndicatorShown(False)  # painted here
        self.setAccessibleName(tr("Chats"))

    def selected(self) -> list[int]:
        """The ids of the selected conversations, from top to bottom."""
        return self._selected(ID_ROLE)

    def selected_folders(self) -> list[int]:
        """The ids of the selected folders, from top to bottom."""
        return self._selected(FOLDER_ROLE)

    def _selected(self, role: int) -> list[int]:
        rows = sorted(self.selectedIndexes(), key=QModelIndex.row)
        return [int(number) for index in rows if (number := index.data(role)) is not None]

    def delete_selected(self) -> None:
        """Request to delete the selected conversations and folders."""
        conversations, folders = self.selected(), self.selected_folders()
        if folders:
            self.folders_deleted.emit(conversations, folders)
        else:
            self.delete_requested.emit(conversations)

    # --- mouse and keys -------------------------------------------------------------------------

    def focusInEvent(self, event: QFocusEvent) -> None:
        self._painter.keyboard = event.reason() in _KEYBOARD_REASONS
        super().focusInEvent(event)
        QTimer.singleShot(0, self, self.accessible_rows.report_focus)  # after that of the list

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._painter.keyboard = False
        self._pressed = self.indexAt(event.position().toPoint()).flags()
        super().mousePressEvent(event)

    def startDrag(self, supportedActions: Qt.DropAction) -> None:  # noqa: N803
        if self._pressed & Qt.ItemFlag.ItemIsDragEnabled:  # else Qt drags the selected rows
            super().startDrag(supportedActions)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        self._painter.keyboard = True
        if event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.delete_selected()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._open(self.currentIndex())
        elif event.key() in (Qt.Key.Key_Left, Qt.Key.Key_Right) and not event.modifiers():
            self._step(outwards=(event.key() == Qt.Key.Key_Left) is not self.isRightToLeft())
        elif event.key() == Qt.Key.Key_Escape or types_text(event):
            event.ignore()  # handled by the window, which forwards typing to the composer
        else:
            super().keyPressEvent(event)

    def _step(self, *, outwards: bool) -> None:
        """Close or open the folder of the current row, or go to the folder around it."""
        index = self.currentIndex()
        row = self._model.folder_row(index)
        if row is not None and row.open is outwards:
            self.toggled.emit(row.folder.id)
        elif outwards:
            around = self._model.listed_in(index)
            parent = row.folder.parent if row else (around.folder.id if around else None)
            above = self._model.find_folder(parent)
            if above.isValid():
                self.setCurrentIndex(above)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        place = event.position().toPoint()
        index = self.indexAt(place)
        folder = index.data(FOLDER_ROLE) if index.isValid() else None
        if folder is None or icon_at(index, self.visualRect(index), place):
            super().mouseDoubleClickEvent(event)
        else:
            self.toggled.emit(
                int(folder)
            )  # as before the first click, after which the rows are new
            self.edit(self._model.find_folder(folder))

    def mouseReleaseEvent(self, e: QMouseEvent) -> None:
        super().mouseReleaseEvent(e)
        index = self.indexAt(e.position().toPoint())
        plain = e.button() is Qt.MouseButton.LeftButton and not e.modifiers()
        icon = icon_at(index, self.visualRect(index), e.position().toPoint())
        editing = self.state() is QAbstractItemView.State.EditingState
        is_folder = index.data(FOLDER_ROLE) is not None
        if plain and not icon and index.isValid() and not (editing and is_folder):
            self._open(index)

    def _open(self, index: QModelIndex) -> None:
        conversation_id = index.data(ID_ROLE) if index.isValid() else None
        if conversation_id is not None:
            self.opened.emit(int(conversation_id))
        elif index.isValid() and index.data(FOLDER_ROLE) is not None:
            self.toggled.emit(int(index.data(FOLDER_ROLE)))

    def isRightToLeft(self) -> bool:
        return self.layoutDirection() is Qt.LayoutDirection.RightToLeft

    # --- the menu -------------------------------------------------------------------------------

    def contextMenuEvent(self, arg__1: QContextMenuEvent) -> None:
        by_key = arg__1.reason() is QContextMenuEvent.Reason.Keyboard
        if by_key:
            self._open_menu(self.currentIndex())
        elif (index := self.indexAt(arg__1.pos())).isValid():
            self.row_menu(index).popup(self.viewport().mapToGlobal(arg__1.pos()))

    def _open_menu(self, index: QModelIndex) -> None:
        if index.isValid():
            place = self.visualRect(index).center()
            self.row_menu(index).popup(self.viewport().mapToGlobal(place))

    def row_menu(self, index: QModelIndex) -> QMenu:
        """The menu of a row, for all that are selected."""
        chats, folders = self.selected(), self.selected_folders()
        return self.menu_signals.make(index, chats, folders)

    # --- drag and drop --------------------------------------------------------------------------

    def target(self, place: QPoint, chats: Sequence[int], folders: Sequence[int]) -> Target | None:
        """Where these rows would go if they were dropped at a place; None: they stay."""
        index = self.indexAt(place)
        row = self._model.folder_row(index)
        found = None
        if row is not None:
            found = self._beside(index, place) if folders and not chats else None
            found = found or Target(row.folder.id, self.visualRect(index))
        elif (around := self._model.listed_in(index)) is not None:
            mark = self.visualRect(self._model.find_folder(around.folder.id))
            found = Target(around.folder.id, mark)
        elif not index.isValid() or index.row() >= self._model.loose:
            found = Target(None, self._loose_rect())
        return found if found is not None and self._changes(found, chats, folders) else None

    def _beside(self, index: QModelIndex, place: QPoint) -> Target | None:
        """The place before or after a folder, if the pointer is near its edge."""
        row, rect = self._model.folder_row(index), self.visualRect(index)
        assert row is not None
        edge = rect.height() // 4
        siblings = [f for f in self._state.folders if f.parent == row.folder.parent]
        if place.y() < rect.top() + edge:
            line = QRect(rect.left(), rect.top(), rect.width(), 0)
            return Target(row.folder.parent, line, row.folder.id)
        if place.y() > rect.bottom() - edge and not (row.open and row.chats):
            at = next(i for i, f in enumerate(siblings) if f.id == row.folder.id)
            after = siblings[at + 1].id if at + 1 < len(siblings) else None
            return Target(
                row.folder.parent, QRect(rect.left(), rect.bottom(), rect.width(), 0), after
            )
        return None

    def _loose_rect(self) -> QRect:
        """The part of the viewport below all folders."""
        view, count = self.viewport().rect(), self._model.rowCount()
        if self._model.loose < count:
            top = self.visualRect(self._model.index(self._model.loose)).top()
        else:
            top = self.visualRect(self._model.index(count - 1)).bottom() + 1 if count else 0
        return view.adjusted(0, max(top, 0), 0, 0)

    def _changes(self, target: Target, chats: Sequence[int], folders: Sequence[int]) -> bool:
        """Whether a drop would move something, and no folder into itself."""
        state = self._state
        if target.folder in inside(state.folders, folders) or target.before in folders:
            return False
        moving = any(state.folder_of(chat) != target.folder for chat in chats)
        nested = [state.folder(folder) for folder in folders]
        ordered = target.mark.height() == 0
        return moving or ordered or any(f is not None and f.parent != target.folder for f in nested)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.source() is self:
            event.acceptProposedAction()
        else:
            event.ignore()  # files go to the window

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        super().dragMoveEvent(event)  # scrolls near the edges
        place = event.position().toPoint()
        self._set_target(self.target(place, *dragged_rows(event.mimeData())))
        row = self._model.folder_row(self.indexAt(place))
        hovered = row.folder.id if row is not None and not row.open else None
        if hovered != self._hovered:
            self._hovered = hovered
            if hovered is None:
                self._spring.stop()
            else:
                self._spring.start()
        if self._target is None:
            event.ignore()
        else:
            event.setDropAction(Qt.DropAction.MoveAction)
            event.accept()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self._end_drag()
        super().dragLeaveEvent(event)

    def dropEvent(self, event: QDropEvent) -> None:
        chats, folders = dragged_rows(event.mimeData())
        target = self.target(event.position().toPoint(), chats, folders)
        self._end_drag()
        self.setState(QAbstractItemView.State.NoState)
        self.stopAutoScroll()
        # Not a move for Qt: it would remove the rows.
        event.setDropAction(Qt.DropAction.CopyAction)
        event.accept()
        if target is None:
            return
        if chats:
            self.moved.emit(chats, target.folder)
        for folder in folders:
            self.folder_moved.emit(folder, target.folder, target.before)
        where = path_text(self._state.folders, target.folder)
        accessibility.announce(self, tr("Moved to {folder}", folder=where or tr("no folder")))

    def _end_drag(self) -> None:
        self._spring.stop()
        self._hovered = None
        self._set_target(None)

    def _set_target(self, target: Target | None) -> None:
        if target != self._target:
            self._target = target
            self.viewport().update()

    def paintEvent(self, e: QPaintEvent) -> None:
        super().paintEvent(e)
        if self._target is None:
            return
        mark = self._target.mark
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(shown_palette().accent), 2))
        if mark.height() == 0:
            painter.drawLine(mark.left() + 12, mark.top(), mark.right() - 12, mark.top())
        else:
            painter.drawRoundedRect(mark.adjusted(13, 2, -13, -2), 6, 6)
        painter.end()
