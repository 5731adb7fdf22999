"""Item model and delegate of the sidebar: pinned chats, folders, and chats under date headings.

All rows have one height, so that QListView (`uniformItemSizes`) does not measure each of thousands
of them. It has no levels: `sidebar_access` tells a screen reader how deep a row is.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractListModel,
    QDateTime,
    QEvent,
    QLocale,
    QMimeData,
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
    QPixmap,
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

from app.domain.chat import Conversation, Folder, Hit
from app.domain.folders import inside, path_text
from app.system.text_search import occurrences, query_terms
from app.system.translation import isolated, listed, number, tr, trn
from app.ui.chat.sidebar.sidebar_rows import FolderRow, Row, keys, rows_of
from app.ui.theme import icons
from app.ui.theme.palette import Palette, mix, shown_palette
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.direction import runs_right_to_left
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
FOLDER_ROLE = Qt.ItemDataRole.UserRole + 6  # id of a folder
DEPTH_ROLE = Qt.ItemDataRole.UserRole + 7  # how many folders a row is in
PLACE_ROLE = Qt.ItemDataRole.UserRole + 8  # of a search result: its folder, and the archive
ROWS_TYPE = "application/x-tokonoma-rows"  # rows that are dragged: JSON, ids of chats and folders
_INDENT = 16  # pixels for each folder around a row
_MOST_INDENTED = 4
_ICON = 16
_ALIKE = 24  # characters: titles that begin with the same ones look alike in the sidebar
_Index = QModelIndex | QPersistentModelIndex


class ConversationListModel(QAbstractListModel):
    """List model of conversations and folders, with a heading row before each group."""

    renamed = Signal(object, str)
    folder_renamed = Signal(object, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[Row] = []
        self._keys: list[object] = []  # of the rows
        self._places: dict[int, int] = {}  # row of each conversation
        self._folder_places: dict[int, int] = {}
        self._folders: Sequence[Folder] = ()
        self._listed: Sequence[Conversation] = ()  # also those in closed folders
        self._busy: frozenset[int] = frozenset()
        self._writing: frozenset[int] = frozenset()
        self._asking: frozenset[int] = frozenset()
        self._hits: Mapping[int, Hit] = {}
        self._results = False  # the rows are search results
        self._alike: frozenset[str] = frozenset()  # beginnings that several titles share
        self.loose = 0  # row of the first conversation or heading that is in no folder

    def set_conversations(
        self,
        conversations: Sequence[Conversation],
        folders: Sequence[Folder] = (),
        closed: Collection[int] = (),
        *,
        grouped: bool,
    ) -> bool:
        """Replace the rows; True if rows were added, removed or moved (the model was reset).

        `closed` are the ids of folders whose content is not listed.
        """
        if grouped:
            rows, self.loose = rows_of(conversations, folders, closed)
        else:
            rows, self.loose = list[Row](conversations), 0
        self._results, self._folders, self._listed = not grouped, folders, conversations
        begins = Counter(_begin(conversation.title) for conversation in conversations)
        self._alike = frozenset(begin for begin, count in begins.items() if count > 1)
        before, self._keys = self._keys, keys(rows)
        if before == self._keys:
            self._rows = rows
            if rows:
                self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
            return False
        self.beginResetModel()
        self._rows = rows
        self._places = {
            row.id: place for place, row in enumerate(rows) if isinstance(row, Conversation)
        }
        self._folder_places = {
            row.folder.id: place for place, row in enumerate(rows) if isinstance(row, FolderRow)
        }
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
            if self._folder_places:  # a closed one shows it for what is in it
                first, *_, last = sorted((0, *self._folder_places.values()))
                self.dataChanged.emit(self.index(first), self.index(last))

    def set_asking(self, asking: frozenset[int]) -> None:
        """Mark the conversations in which a tool waits for the user's consent."""
        changed, self._asking = asking ^ self._asking, asking
        for conversation_id in changed:
            index = self.find(conversation_id)
            self.dataChanged.emit(index, index)

    def find(self, conversation_id: int | None) -> QModelIndex:
        """The index of a conversation; invalid if it is not listed."""
        place = self._places.get(conversation_id, -1) if conversation_id is not None else -1
        return self.index(place) if place >= 0 else QModelIndex()

    def find_folder(self, folder_id: int | None) -> QModelIndex:
        """The index of a folder; invalid if it is not listed."""
        place = self._folder_places.get(folder_id, -1) if folder_id is not None else -1
        return self.index(place) if place >= 0 else QModelIndex()

    def first(self) -> QModelIndex:
        """The index of the first conversation; invalid if there is none."""
        place = next((i for i, row in enumerate(self._rows) if isinstance(row, Conversation)), -1)
        return self.index(place) if place >= 0 else QModelIndex()

    def conversation(self, index: _Index) -> Conversation | None:
        """The conversation at an index; None for other rows."""
        row = self._rows[index.row()] if index.isValid() else None
        return row if isinstance(row, Conversation) else None

    def folder_row(self, index: _Index) -> FolderRow | None:
        """The folder at an index; None for other rows."""
        row = self._rows[index.row()] if index.isValid() else None
        return row if isinstance(row, FolderRow) else None

    def listed_in(self, index: _Index) -> FolderRow | None:
        """The folder below which the conversation at an index is listed."""
        row = self.conversation(index)
        if row is None or row.pinned or self._results:
            return None
        return self.folder_row(self.find_folder(row.folder))

    def rowCount(self, parent: _Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self._rows)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self._rows[index.row()]
        if isinstance(row, FolderRow):
            return self._folder_data(row, role)
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
        if role == PLACE_ROLE:
            return self._place(row) if self._results else ""
        if role == DEPTH_ROLE:
            around = self.listed_in(index)
            return 0 if around is None else around.depth + 1
        if role == WHEN_ROLE and row.id in self._asking:
            return tr("waits for you")
        if role == WHEN_ROLE:
            alike = self._results or _begin(row.title) in self._alike
            return day_or_time(row.updated, time.time()) if alike else ""
        if role == Qt.ItemDataRole.AccessibleTextRole:
            more = (row.title, self._progress(row.id), index.data(WHEN_ROLE), self._place(row))
            return listed((*more, index.data(SNIPPET_ROLE)))
        if role == Qt.ItemDataRole.ToolTipRole:
            return "\n".join(filter(None, (row.title, self._place(row), moment(row.updated))))
        return None

    def _folder_data(self, row: FolderRow, role: int) -> Any:
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return row.folder.name
        if role == FOLDER_ROLE:
            return row.folder.id
        if role == DEPTH_ROLE:
            return row.depth
        if role == BUSY_ROLE:
            return not row.open and self._holds(row, self._busy)
        if role == WRITING_ROLE:
            return not row.open and self._holds(row, self._writing)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            state = tr("open folder") if row.open else tr("closed folder")
            chats = trn("{count} chat", "{count} chats", row.chats)
            busy = tr("an answer is in progress") if self._folder_data(row, BUSY_ROLE) else ""
            return listed((row.folder.name, state, chats, busy))
        if role == Qt.ItemDataRole.AccessibleDescriptionRole and row.depth:
            return tr("in {folder}", folder=path_text(self._folders, row.folder.parent))
        if role == Qt.ItemDataRole.ToolTipRole:
            return path_text(self._folders, row.folder.id)
        return None

    def _holds(self, row: FolderRow, conversation_ids: frozenset[int]) -> bool:
        """Whether one of these conversations is in a folder, or below it."""
        if not conversation_ids:
            return False
        held = inside(self._folders, [row.folder.id])
        return any(c.id in conversation_ids and c.folder in held for c in self._listed)

    def _place(self, row: Conversation) -> str:
        """Where a conversation is: its folder, the archive, or neither."""
        archive = tr("Archived") if row.archived else ""
        return " · ".join(filter(None, (archive, path_text(self._folders, row.folder))))

    def _progress(self, conversation_id: int) -> str:
        if conversation_id in self._asking:
            return ""  # `WHEN_ROLE` says so
        if conversation_id in self._writing:
            return tr("an answer is being written")
        return tr("an answer is waiting") if conversation_id in self._busy else ""

    def setData(self, index: _Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        row, folder = self.conversation(index), self.folder_row(index)
        if role != Qt.ItemDataRole.EditRole or (row is None and folder is None):
            return False
        text = str(value)
        if row is not None and text.strip() and text != row.title:
            self.renamed.emit(row.id, text)
        elif folder is not None and text.strip() and text != folder.folder.name:
            self.folder_renamed.emit(folder.folder.id, text)
        return True

    def flags(self, index: _Index) -> Qt.ItemFlag:
        flag = Qt.ItemFlag
        if not index.isValid() or isinstance(self._rows[index.row()], str):
            return flag.NoItemFlags
        usual = flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemIsEditable
        return usual if self._results else usual | flag.ItemIsDragEnabled

    def supportedDragActions(self) -> Qt.DropAction:
        return Qt.DropAction.MoveAction | Qt.DropAction.CopyAction

    def mimeTypes(self) -> list[str]:
        return [ROWS_TYPE]

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        data = QMimeData()
        ordered = sorted(indexes, key=QModelIndex.row)
        both = [[each.data(role) for each in ordered] for role in (ID_ROLE, FOLDER_ROLE)]
        ids = [[number for number in each if number is not None] for each in both]
        data.setData(ROWS_TYPE, json.dumps(ids).encode())
        return data


def dragged_rows(data: QMimeData) -> tuple[list[int], list[int]]:
    """The ids of the conversations and folders that are dragged; none for other data."""
    if not data.hasFormat(ROWS_TYPE):
        return [], []
    conversations, folders = json.loads(bytes(data.data(ROWS_TYPE).data()))
    return conversations, folders


class RowPainter(QStyledItemDelegate):
    """Item delegate: paints a row, handles its delete icon, and creates the rename editor."""

    delete_requested = Signal(object)  # the delete icon of the hovered row was clicked
    stop_requested = Signal(object)  # the stop icon of the hovered row was clicked
    new_requested = Signal(object)  # the plus icon of the hovered folder was clicked

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.query = ""  # of the search whose results are shown
        self.current: int | None = None  # id of the conversation on the chat page
        self.keyboard = False  # the focus ring shows only if the list was focused by keyboard

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return QSize(120, RESULT_HEIGHT if self.query else ROW_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect: QRect = option.rect  # type: ignore[attr-defined]
        if index.data(ID_ROLE) is None and index.data(FOLDER_ROLE) is None:
            self._paint_heading(painter, rect, str(index.data()), index.row() == 0)
        else:
            self._paint_row(painter, rect, option, index)
        painter.restore()

    def _paint_heading(self, painter: QPainter, rect: QRect, text: str, first: bool) -> None:
        painter.setFont(font(SMALL, QFont.Weight.Medium))
        painter.setPen(QColor(shown_palette().secondary))
        line = rect.adjusted(_SIDE + _PADDING, 0, -_SIDE, -6)
        align = Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignLeading
        painter.drawText(line, align, text)

    def _paint_row(
        self, painter: QPainter, rect: QRect, option: QStyleOptionViewItem, index: _Index
    ) -> None:
        palette, state = shown_palette(), option.state  # type: ignore[attr-defined]
        shown = index.data(ID_ROLE) == self.current and self.current is not None
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
        text = self._from_start(painter, text, _INDENT * min(_depth(index), _MOST_INDENTED))
        if index.data(FOLDER_ROLE) is not None:
            self._paint_folder(painter, rect, text, index, hovered=hovered)
            return
        busy = bool(index.data(BUSY_ROLE))
        if hovered:
            text = self._paint_icon(painter, "trash", bin_rect(rect), text)
            if busy:
                text = self._paint_icon(painter, "stop", stop_rect(rect), text)
        elif busy:
            text = self._paint_busy(painter, rect, text, index)
        if self.query:
            line = text.adjusted(0, text.height() // 2, 0, -6)
            if place := str(index.data(PLACE_ROLE)):
                line = self._paint_place(painter, line, place)
            self._paint_snippet(painter, line, str(index.data(SNIPPET_ROLE)))
            text = text.adjusted(0, 6, 0, 2 - text.height() // 2)
        elif hovered:
            self._paint_title(painter, text, str(index.data()), shown)
            return
        moment = str(index.data(WHEN_ROLE))
        if moment:
            text = self._paint_when(painter, text, moment)
        self._paint_title(painter, text, str(index.data()), shown)

    def _paint_folder(
        self, painter: QPainter, rect: QRect, text: QRect, index: _Index, *, hovered: bool
    ) -> None:
        """Paint the arrow, the icon, the name and the number of chats of a folder."""
        model = index.model()
        row = model.folder_row(index) if isinstance(model, ConversationListModel) else None
        if row is None:
            return
        arrow = "chevron_down" if row.open else "chevron_right"
        for name in (arrow, "folder"):
            picture = self._picture(painter, name)
            box = QStyle.alignedRect(
                painter.layoutDirection(),
                Qt.AlignmentFlag.AlignLeading | Qt.AlignmentFlag.AlignVCenter,
                QSize(_ICON, _ICON),
                text,
            )
            painter.drawPixmap(box, picture)
            text = self._from_start(painter, text, _ICON + (4 if name == arrow else 8))
        if hovered:
            text = self._paint_icon(painter, "plus", bin_rect(rect), text)
        elif index.data(BUSY_ROLE):
            text = self._paint_busy(painter, rect, text, index)
        elif row.chats and not row.open:
            text = self._paint_when(painter, text, number(row.chats))
        self._paint_title(painter, text, row.folder.name, shown=False)

    def _picture(self, painter: QPainter, name: str) -> QPixmap:
        ratio = painter.device().devicePixelRatio()
        return icons.pixmap(name, shown_palette().secondary, _ICON, ratio)

    def _from_start(self, painter: QPainter, rect: QRect, pixels: int) -> QRect:
        """A rectangle without its first pixels, in the direction of the window."""
        right = painter.layoutDirection() is Qt.LayoutDirection.RightToLeft
        return rect.adjusted(0, 0, -pixels, 0) if right else rect.adjusted(pixels, 0, 0, 0)

    def _paint_place(self, painter: QPainter, rect: QRect, place: str) -> QRect:
        """Paint where a search result is, before its words; returns the rectangle left for them."""
        face = font(SMALL, QFont.Weight.Medium)
        metrics = QFontMetrics(face)
        shown = metrics.elidedText(place, Qt.TextElideMode.ElideMiddle, rect.width() * 2 // 5)
        painter.setFont(face)
        painter.setPen(QColor(shown_palette().secondary))
        align = Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeading
        painter.drawText(rect, align | Qt.TextFlag.TextSingleLine, shown)
        return self._from_start(painter, rect, metrics.horizontalAdvance(shown) + 8)

    def _paint_when(self, painter: QPainter, rect: QRect, moment: str) -> QRect:
        """Paint the time at the end of a title; returns the rectangle left for the title."""
        face = font(SMALL)
        painter.setFont(face)
        painter.setPen(QColor(shown_palette().secondary))
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
        layout.setFormats(_emphasis(shown, self.query, shown_palette()))
        layout.beginLayout()
        line = layout.createLine()
        line.setLineWidth(1e6 if not runs_right_to_left(shown) else rect.width())
        layout.endLayout()
        painter.save()
        painter.setClipRect(rect, Qt.ClipOperation.IntersectClip)
        painter.setPen(QColor(shown_palette().secondary))
        layout.draw(painter, QPointF(rect.topLeft()))
        painter.restore()

    def _paint_title(self, painter: QPainter, rect: QRect, title: str, shown: bool) -> None:
        face = font(BODY, QFont.Weight.Medium if shown else QFont.Weight.Normal)
        title = QFontMetrics(face).elidedText(title, Qt.TextElideMode.ElideRight, rect.width())
        painter.setFont(face)
        painter.setPen(QColor(shown_palette().text))
        align = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading
        painter.drawText(rect, align | Qt.TextFlag.TextSingleLine, isolated(title))

    def _paint_busy(self, painter: QPainter, rect: QRect, text: QRect, index: _Index) -> QRect:
        """Paint that an answer is written or waits; returns the rectangle left for the text."""
        right = painter.layoutDirection() is Qt.LayoutDirection.RightToLeft
        x = text.left() + 4 if right else text.right() - 3
        place = QPointF(x, rect.center().y() + 0.5)
        self._paint_dot(painter, place, filled=bool(index.data(WRITING_ROLE)))
        return text.adjusted(16, 0, 0, 0) if right else text.adjusted(0, 0, -16, 0)

    def _paint_dot(self, painter: QPainter, place: QPointF, *, filled: bool) -> None:
        """Paint the dot of an answer that is written, or the ring of one that waits."""
        accent = QColor(shown_palette().accent)
        painter.setPen(Qt.PenStyle.NoPen if filled else QPen(accent, 1.5))
        painter.setBrush(accent if filled else QColor(Qt.GlobalColor.transparent))
        radius = 3.0 if filled else 2.5
        painter.drawEllipse(place, radius, radius)

    def _paint_icon(self, painter: QPainter, name: str, place: QRect, text: QRect) -> QRect:
        """Paint an icon of the hovered row; returns the rectangle left for the text."""
        picture = self._picture(painter, name)
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
        if pressed and isinstance(event, QMouseEvent):
            left = event.button() is Qt.MouseButton.LeftButton
            icon = icon_at(index, rect, event.position().toPoint()) if left else ""
            if icon:
                if event.type() is QEvent.Type.MouseButtonRelease:
                    clicked = {
                        "stop": self.stop_requested,
                        "trash": self.delete_requested,
                        "plus": self.new_requested,
                    }[icon]
                    folder = index.data(FOLDER_ROLE)
                    clicked.emit(int(index.data(ID_ROLE) if folder is None else folder))
                return True
        return super().editorEvent(event, model, option, index)

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: _Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setObjectName("rename")
        is_folder = index.data(FOLDER_ROLE) is not None
        editor.setAccessibleName(tr("Name of the folder") if is_folder else tr("Title of the chat"))
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
    """The icon of a hovered row at a place: "trash", "stop", "plus" of a folder, or none."""
    if bin_rect(row).contains(place) and index.isValid():
        if index.data(FOLDER_ROLE) is not None:
            return "plus"
        return "trash" if index.data(ID_ROLE) is not None else ""
    busy = index.isValid() and bool(index.data(BUSY_ROLE))
    return "stop" if busy and stop_rect(row).contains(place) else ""


def _depth(index: _Index) -> int:
    return int(index.data(DEPTH_ROLE) or 0)


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
