"""Item model and delegate of the sidebar: conversations grouped under date headings.

Headings and conversations have one row height, so that QListView (`uniformItemSizes`) does not
measure each of thousands of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import Any

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractListModel,
    QDateTime,
    QEvent,
    QLocale,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QPointF,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QFont, QFontMetrics, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import (
    QLineEdit,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.store.store import Conversation
from app.ui.theme import icons
from app.ui.theme.palette import LIGHT, Palette, mix
from app.ui.theme.theme import BODY, SMALL, font

ROW_HEIGHT = 34
_SIDE = 12  # pixels between a row's fill and the sidebar's edge
_PADDING = 12  # pixels between the fill's edge and the title
ID_ROLE = Qt.ItemDataRole.UserRole + 1
BUSY_ROLE = Qt.ItemDataRole.UserRole + 2
_Index = QModelIndex | QPersistentModelIndex


class Conversations(QAbstractListModel):
    """List model of conversations, with a heading row before each group of days."""

    renamed = Signal(int, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[Conversation | str] = []
        self._busy: frozenset[int] = frozenset()

    def set_conversations(self, conversations: Sequence[Conversation], *, grouped: bool) -> bool:
        """Replace the rows; True if rows were added, removed or moved (the model was reset)."""
        rows = list(_grouped(conversations)) if grouped else list(conversations)
        if _keys(rows) == _keys(self._rows):
            self._rows = list(rows)
            if rows:
                self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
            return False
        self.beginResetModel()
        self._rows = list(rows)
        self.endResetModel()
        return True

    def set_busy(self, busy: frozenset[int]) -> None:
        """Mark the conversations for which an answer is being generated."""
        if busy != self._busy:
            changed = busy ^ self._busy
            self._busy = busy
            for conversation_id in changed:
                index = self.find(conversation_id)
                self.dataChanged.emit(index, index)

    def find(self, conversation_id: int | None) -> QModelIndex:
        """The index of a conversation; invalid if it is not listed."""
        for place, row in enumerate(self._rows):
            if isinstance(row, Conversation) and row.id == conversation_id:
                return self.index(place)
        return QModelIndex()

    def first(self) -> QModelIndex:
        """The index of the first conversation; invalid if there is none."""
        place = next((i for i, row in enumerate(self._rows) if isinstance(row, Conversation)), -1)
        return self.index(place) if place >= 0 else QModelIndex()

    def conversation(self, index: _Index) -> Conversation | None:
        """The conversation at an index; None for a heading."""
        row = self._rows[index.row()] if index.isValid() else None
        return row if isinstance(row, Conversation) else None

    def rowCount(self, parent: _Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self._rows)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self._rows[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return row if isinstance(row, str) else row.title
        if isinstance(row, str):
            return None
        if role == ID_ROLE:
            return row.id
        if role == BUSY_ROLE:
            return row.id in self._busy
        if role == Qt.ItemDataRole.ToolTipRole:
            moment = QDateTime.fromSecsSinceEpoch(int(row.updated))
            when = QLocale().toString(moment, QLocale.FormatType.ShortFormat)
            return f"{row.title}\n{when}"
        return None

    def setData(self, index: _Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        row = self.conversation(index)
        if row is None or role != Qt.ItemDataRole.EditRole:
            return False
        if str(value).strip() and str(value) != row.title:
            self.renamed.emit(row.id, str(value))
        return True

    def flags(self, index: _Index) -> Qt.ItemFlag:
        if self.conversation(index) is None:
            return Qt.ItemFlag.NoItemFlags
        flag = Qt.ItemFlag
        return flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemIsEditable


class RowPainter(QStyledItemDelegate):
    """Item delegate: paints a row, handles its delete icon, and creates the rename editor."""

    delete_requested = Signal(int)  # the delete icon of the hovered row was clicked

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._palette = LIGHT
        self.current: int | None = None  # id of the conversation on the chat page
        self.keyboard = False  # the focus ring shows only if the list was focused by keyboard

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self._palette = palette

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return QSize(120, ROW_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect: QRect = option.rect  # type: ignore[attr-defined]
        if index.data(ID_ROLE) is None:
            self._paint_heading(painter, rect, str(index.data()), index.row() == 0)
        else:
            self._paint_row(painter, rect, option, index)
        painter.restore()

    def _paint_heading(self, painter: QPainter, rect: QRect, text: str, first: bool) -> None:
        painter.setFont(font(SMALL, QFont.Weight.Medium))
        painter.setPen(QColor(self._palette.secondary))
        line = rect.adjusted(_SIDE + _PADDING, 0, -_SIDE, -6)
        align = Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignLeading
        painter.drawText(line, align, text)

    def _paint_row(
        self, painter: QPainter, rect: QRect, option: QStyleOptionViewItem, index: _Index
    ) -> None:
        palette, state = self._palette, option.state  # type: ignore[attr-defined]
        shown = index.data(ID_ROLE) == self.current
        selected = bool(state & QStyle.StateFlag.State_Selected)
        hovered = bool(state & QStyle.StateFlag.State_MouseOver)
        fill = QRectF(rect.adjusted(_SIDE, 1, -_SIDE, -1))
        painter.setPen(Qt.PenStyle.NoPen)
        if shown or selected:
            painter.setBrush(QColor(palette.accent_soft))
            painter.drawRoundedRect(fill, 6, 6)
        elif hovered:
            painter.setBrush(QColor(mix(palette.sunken, palette.accent_soft, 0.5)))
            painter.drawRoundedRect(fill, 6, 6)
        focused = bool(state & QStyle.StateFlag.State_HasFocus) and self.keyboard
        outlined = palette.accent_soft == palette.sunken and (shown or selected)  # high contrast
        if focused or outlined:
            painter.setPen(QPen(QColor(palette.accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(fill.adjusted(1, 1, -1, -1), 5, 5)
        text = rect.adjusted(_SIDE + _PADDING, 0, -_SIDE - _PADDING, 0)
        if hovered:
            text = self._paint_bin(painter, rect, text)
        elif index.data(BUSY_ROLE):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(palette.accent))
            right = option.direction is Qt.LayoutDirection.RightToLeft  # type: ignore[attr-defined]
            x = text.left() + 4 if right else text.right() - 3
            painter.drawEllipse(QPointF(x, rect.center().y() + 0.5), 3, 3)
            text = text.adjusted(16, 0, 0, 0) if right else text.adjusted(0, 0, -16, 0)
        self._paint_title(painter, text, str(index.data()), shown)

    def _paint_title(self, painter: QPainter, rect: QRect, title: str, shown: bool) -> None:
        face = font(BODY, QFont.Weight.Medium if shown else QFont.Weight.Normal)
        title = QFontMetrics(face).elidedText(title, Qt.TextElideMode.ElideRight, rect.width())
        painter.setFont(face)
        painter.setPen(QColor(self._palette.text))
        align = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading
        painter.drawText(rect, align | Qt.TextFlag.TextSingleLine, title)

    def _paint_bin(self, painter: QPainter, rect: QRect, text: QRect) -> QRect:
        place = bin_rect(rect)
        ratio = painter.device().devicePixelRatio()
        picture = icons.pixmap("trash", self._palette.secondary, 16, ratio)
        painter.drawPixmap(place.center().x() - 7, place.center().y() - 7, picture)
        return text.adjusted(0, 0, -22, 0)

    def editorEvent(
        self,
        event: QEvent,
        model: QAbstractItemModel,
        option: QStyleOptionViewItem,
        index: _Index,
    ) -> bool:
        rect: QRect = option.rect  # type: ignore[attr-defined]
        pressed = event.type() in (QEvent.Type.MouseButtonPress, QEvent.Type.MouseButtonRelease)
        if pressed and isinstance(event, QMouseEvent) and index.data(ID_ROLE) is not None:
            left = event.button() is Qt.MouseButton.LeftButton
            if left and bin_rect(rect).contains(event.position().toPoint()):
                if event.type() is QEvent.Type.MouseButtonRelease:
                    self.delete_requested.emit(int(index.data(ID_ROLE)))
                return True
        return super().editorEvent(event, model, option, index)

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: _Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setObjectName("rename")
        editor.setFont(font(BODY))
        return editor

    def updateEditorGeometry(
        self, editor: QWidget, option: QStyleOptionViewItem, index: _Index
    ) -> None:
        rect: QRect = option.rect  # type: ignore[attr-defined]
        editor.setGeometry(rect.adjusted(_SIDE + 2, 2, -_SIDE - 2, -2))


def bin_rect(row: QRect) -> QRect:
    """The rectangle of a row's delete icon: 28 pixels wide, at the row's end."""
    return QRect(row.right() - _SIDE - 29, row.top() + 3, 28, row.height() - 6)


def _keys(rows: Sequence[Conversation | str]) -> list[int | str]:
    return [row if isinstance(row, str) else row.id for row in rows]


def _grouped(conversations: Sequence[Conversation]) -> Iterator[Conversation | str]:
    """Yield the conversations with a heading before each group of days."""
    today = date.fromtimestamp(time.time())
    heading = ""
    for conversation in conversations:
        day = date.fromtimestamp(conversation.updated)
        if (group := heading_for(day, today)) != heading:
            heading = group
            yield heading
        yield conversation


def heading_for(day: date, today: date) -> str:
    """The heading of the group that a day belongs to."""
    if day >= today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    return "Previous 7 days" if day >= today - timedelta(days=7) else "Older"
