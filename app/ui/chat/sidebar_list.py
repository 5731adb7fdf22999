"""Item model and delegate of the sidebar: conversations grouped under date headings.

Headings and conversations have one row height, so that QListView (`uniformItemSizes`) does not
measure each of thousands of rows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
    QPoint,
    QPointF,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetrics,
    QMouseEvent,
    QPainter,
    QPen,
    QTextCharFormat,
    QTextLayout,
)
from PySide6.QtWidgets import (
    QApplication,
    QLineEdit,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.domain.chat import Conversation, Hit
from app.system.text_search import occurrences, query_terms
from app.system.translation import isolated, listed, tr
from app.ui.blocks.text import runs_right_to_left
from app.ui.theme import icons
from app.ui.theme.palette import LIGHT, Palette, mix
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.units import day, moment

ROW_HEIGHT = 34
RESULT_HEIGHT = 54  # of a search result: the title and the words found
_SIDE = 12  # pixels between a row's fill and the sidebar's edge
_PADDING = 12  # pixels between the fill's edge and the title
ID_ROLE = Qt.ItemDataRole.UserRole + 1
BUSY_ROLE = Qt.ItemDataRole.UserRole + 2  # it has an answer that can be stopped
WRITING_ROLE = Qt.ItemDataRole.UserRole + 5  # the engine works on that answer
SNIPPET_ROLE = Qt.ItemDataRole.UserRole + 3  # the words found
WHEN_ROLE = Qt.ItemDataRole.UserRole + 4  # time or day, where the title does not tell it apart
_ALIKE = 24  # characters: titles that begin with the same ones look alike in the sidebar
_Index = QModelIndex | QPersistentModelIndex


class ConversationListModel(QAbstractListModel):
    """List model of conversations, with a heading row before each group of days."""

    renamed = Signal(object, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[Conversation | str] = []
        self._busy: frozenset[int] = frozenset()
        self._writing: frozenset[int] = frozenset()
        self._hits: Mapping[int, Hit] = {}
        self._results = False  # the rows are search results
        self._alike: frozenset[str] = frozenset()  # beginnings that several titles share

    def set_conversations(self, conversations: Sequence[Conversation], *, grouped: bool) -> bool:
        """Replace the rows; True if rows were added, removed or moved (the model was reset)."""
        rows = list(_grouped(conversations)) if grouped else list(conversations)
        self._results = not grouped
        begins = Counter(_begin(conversation.title) for conversation in conversations)
        self._alike = frozenset(begin for begin, count in begins.items() if count > 1)
        if _keys(rows) == _keys(self._rows):
            self._rows = list(rows)
            if rows:
                self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
            return False
        self.beginResetModel()
        self._rows = list(rows)
        self.endResetModel()
        return True

    def set_hits(self, hits: Mapping[int, Hit]) -> None:
        """Set what was found in each conversation."""
        if hits != self._hits:
            self._hits = hits
            if self._rows:
                self.dataChanged.emit(self.index(0), self.index(len(self._rows) - 1))

    def set_busy(self, busy: frozenset[int], writing: frozenset[int]) -> None:
        """Mark the conversations with an answer in progress, and those of them being written."""
        if changed := (busy ^ self._busy) | (writing ^ self._writing):
            self._busy, self._writing = busy, writing
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
        if role == WRITING_ROLE:
            return row.id in self._writing
        if role == SNIPPET_ROLE:
            hit = self._hits.get(row.id) if self._results else None
            return hit.snippet if hit else ""
        if role == WHEN_ROLE:
            alike = self._results or _begin(row.title) in self._alike
            return day_or_time(row.updated, time.time()) if alike else ""
        if role == Qt.ItemDataRole.AccessibleTextRole:
            more = (row.title, self._progress(row.id), index.data(WHEN_ROLE))
            return listed((*more, index.data(SNIPPET_ROLE)))
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"{row.title}\n{moment(row.updated)}"
        return None

    def _progress(self, conversation_id: int) -> str:
        if conversation_id in self._writing:
            return tr("an answer is being written")
        return tr("an answer is waiting") if conversation_id in self._busy else ""

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

    delete_requested = Signal(object)  # the delete icon of the hovered row was clicked
    stop_requested = Signal(object)  # the stop icon of the hovered row was clicked

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._palette = LIGHT
        self.query = ""  # of the search whose results are shown
        self.current: int | None = None  # id of the conversation on the chat page
        self.keyboard = False  # the focus ring shows only if the list was focused by keyboard

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self._palette = palette

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return QSize(120, RESULT_HEIGHT if self.query else ROW_HEIGHT)

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
        busy = bool(index.data(BUSY_ROLE))
        if hovered:
            text = self._paint_icon(painter, "trash", bin_rect(rect), text)
            if busy:
                text = self._paint_icon(painter, "stop", stop_rect(rect), text)
        elif busy:
            right = option.direction is Qt.LayoutDirection.RightToLeft  # type: ignore[attr-defined]
            x = text.left() + 4 if right else text.right() - 3
            place = QPointF(x, rect.center().y() + 0.5)
            self._paint_dot(painter, place, filled=bool(index.data(WRITING_ROLE)))
            text = text.adjusted(16, 0, 0, 0) if right else text.adjusted(0, 0, -16, 0)
        if self.query:
            line = text.adjusted(0, text.height() // 2, 0, -6)
            self._paint_snippet(painter, line, str(index.data(SNIPPET_ROLE)))
            text = text.adjusted(0, 6, 0, 2 - text.height() // 2)
        elif hovered:
            self._paint_title(painter, text, str(index.data()), shown)
            return
        moment = str(index.data(WHEN_ROLE))
        if moment:
            text = self._paint_when(painter, text, moment)
        self._paint_title(painter, text, str(index.data()), shown)

    def _paint_when(self, painter: QPainter, rect: QRect, moment: str) -> QRect:
        """Paint the time at the end of a title; returns the rectangle left for the title."""
        face = font(SMALL)
        painter.setFont(face)
        painter.setPen(QColor(self._palette.secondary))
        align = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignTrailing
        painter.drawText(rect, align | Qt.TextFlag.TextSingleLine, moment)
        width = QFontMetrics(face).horizontalAdvance(moment) + 8
        right = painter.layoutDirection() is Qt.LayoutDirection.RightToLeft
        return rect.adjusted(width, 0, 0, 0) if right else rect.adjusted(0, 0, -width, 0)

    def _paint_snippet(self, painter: QPainter, rect: QRect, snippet: str) -> None:
        """Paint what was found on one line, with the words of the query emphasised."""
        face = font(SMALL)
        mode = Qt.TextElideMode.ElideRight
        shown = QFontMetrics(face).elidedText(snippet, mode, rect.width() - 4)
        layout = QTextLayout(shown, face)
        layout.setFormats(_emphasis(shown, self.query, self._palette))
        layout.beginLayout()
        line = layout.createLine()
        line.setLineWidth(1e6 if not runs_right_to_left(shown) else rect.width())
        layout.endLayout()
        painter.save()
        painter.setClipRect(rect, Qt.ClipOperation.IntersectClip)
        painter.setPen(QColor(self._palette.secondary))
        layout.draw(painter, QPointF(rect.topLeft()))
        painter.restore()

    def _paint_title(self, painter: QPainter, rect: QRect, title: str, shown: bool) -> None:
        face = font(BODY, QFont.Weight.Medium if shown else QFont.Weight.Normal)
        title = QFontMetrics(face).elidedText(title, Qt.TextElideMode.ElideRight, rect.width())
        painter.setFont(face)
        painter.setPen(QColor(self._palette.text))
        align = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading
        painter.drawText(rect, align | Qt.TextFlag.TextSingleLine, isolated(title))

    def _paint_dot(self, painter: QPainter, place: QPointF, *, filled: bool) -> None:
        """Paint the dot of an answer that is written, or the ring of one that waits."""
        accent = QColor(self._palette.accent)
        painter.setPen(Qt.PenStyle.NoPen if filled else QPen(accent, 1.5))
        painter.setBrush(accent if filled else QColor(Qt.GlobalColor.transparent))
        radius = 3.0 if filled else 2.5
        painter.drawEllipse(place, radius, radius)

    def _paint_icon(self, painter: QPainter, name: str, place: QRect, text: QRect) -> QRect:
        """Paint an icon of the hovered row; returns the rectangle left for the text."""
        ratio = painter.device().devicePixelRatio()
        picture = icons.pixmap(name, self._palette.secondary, 16, ratio)
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
            icon = icon_at(index, rect, event.position().toPoint()) if left else ""
            if icon:
                if event.type() is QEvent.Type.MouseButtonRelease:
                    clicked = self.stop_requested if icon == "stop" else self.delete_requested
                    clicked.emit(int(index.data(ID_ROLE)))
                return True
        return super().editorEvent(event, model, option, index)

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: _Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setObjectName("rename")
        editor.setFont(font(BODY))
        return editor

    def setEditorData(self, editor: QWidget, index: _Index) -> None:
        if not (isinstance(editor, QLineEdit) and editor.isModified()):  # keep what was typed
            super().setEditorData(editor, index)

    def updateEditorGeometry(
        self, editor: QWidget, option: QStyleOptionViewItem, index: _Index
    ) -> None:
        rect: QRect = option.rect  # type: ignore[attr-defined]
        editor.setGeometry(rect.adjusted(_SIDE + 2, 2, -_SIDE - 2, -2))


def bin_rect(row: QRect) -> QRect:
    """The rectangle of a row's delete icon: 28 pixels wide, at the row's end."""
    place = QRect(row.right() - _SIDE - 29, row.top() + 3, 28, row.height() - 6)
    return QStyle.visualRect(QApplication.layoutDirection(), row, place)


def stop_rect(row: QRect) -> QRect:
    """The rectangle of a row's stop icon: as large as the delete icon, and before it."""
    return bin_rect(row).translated(28 if QApplication.isRightToLeft() else -28, 0)


def icon_at(index: _Index, row: QRect, place: QPoint) -> str:
    """The icon of a conversation's row at a place: "trash", "stop" or none."""
    if bin_rect(row).contains(place):
        return "trash"
    busy = index.isValid() and bool(index.data(BUSY_ROLE))
    return "stop" if busy and stop_rect(row).contains(place) else ""


def _emphasis(shown: str, query: str, palette: Palette) -> list[QTextLayout.FormatRange]:
    """Formats for the words of a query in a text."""
    look = QTextCharFormat()
    look.setForeground(QColor(palette.text))
    look.setFontWeight(QFont.Weight.DemiBold)
    ranges: list[QTextLayout.FormatRange] = []
    for word in set(query_terms(query)):
        for start, end in occurrences(shown, word):
            part = QTextLayout.FormatRange()
            part.start, part.length, part.format = start, end - start, look
            ranges.append(part)
    return ranges


def _begin(title: str) -> str:
    """The beginning of a title that is visible in the sidebar, for comparison."""
    return title[:_ALIKE].casefold()


def day_or_time(seconds: float, now: float) -> str:
    """A time of today, or a day of another: "14:05", "3 Nov", "3 Nov 2025"."""
    then = QDateTime.fromSecsSinceEpoch(int(seconds))
    today = QDateTime.fromSecsSinceEpoch(int(now)).date()
    if then.date() == today:
        return QLocale().toString(then.time(), QLocale.FormatType.ShortFormat)
    return day(then.date(), with_year=then.date().year() != today.year())


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
        return tr("Today")
    if day == today - timedelta(days=1):
        return tr("Yesterday")
    return tr("Previous 7 days") if day >= today - timedelta(days=7) else tr("Older")
