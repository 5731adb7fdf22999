"""List of models in the model picker: item model, delegate and view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import (
    QAbstractListModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QFocusEvent, QFont, QFontMetrics, QKeyEvent, QPainter, QPen
from PySide6.QtWidgets import (
    QFrame,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.domain.model_ref import Local, ModelRef
from app.state.chat import ModelFile, ServedModel
from app.system.byte_size import size
from app.system.translation import isolated, tr, trn
from app.ui.theme import icons
from app.ui.theme.palette import shown_palette
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.typing import types_text

ROW_HEIGHT = 52
_MODEL_ROLE = Qt.ItemDataRole.UserRole + 1
_BAD_ROLE = Qt.ItemDataRole.UserRole + 2
_Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model of the list."""

    model: ModelRef
    name: str
    facts: str  # the second line
    tip: str = ""
    bad: bool = False  # cannot be used


def row_of(model: ModelFile | ServedModel) -> ModelRow:
    """The row of an installed model, or of one that runs elsewhere."""
    if isinstance(model, ModelFile):
        slow = tr("runs from the disk, slowly") if model.from_disk else ""
        state = tr("cannot be used") if model.bad else slow
        sees = tr("sees pictures") if model.sees else ""
        facts = (model.format, size(model.size_bytes), sees, state)
        named = Local(model.path)
        return ModelRow(named, model.name, _joined(facts), str(model.path), model.bad)
    context = trn("{count} token", "{count} tokens", model.context) if model.context else ""
    facts = _joined((model.server, tr("cannot be used") if model.problem else context))
    tip = "\n".join(filter(None, (tr("On {host}", host=model.host), model.problem)))
    return ModelRow(model.model, model.name, facts, tip, bad=bool(model.problem))


def _joined(facts: Sequence[str]) -> str:
    return " · ".join(fact for fact in facts if fact)


class ModelRows(QAbstractListModel):
    """Item model of the models, each with a second line on where and what it is."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: tuple[ModelRow, ...] = ()
        self.chosen: ModelRef | None = None

    def set_rows(self, rows: Sequence[ModelRow]) -> None:
        """Replace the listed models."""
        if self._rows != tuple(rows):
            self.beginResetModel()
            self._rows = tuple(rows)
            self.endResetModel()

    def rowCount(self, parent: _Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self._rows)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self._rows[index.row()]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return row.name
            case Qt.ItemDataRole.StatusTipRole | Qt.ItemDataRole.AccessibleDescriptionRole:
                return row.facts
            case Qt.ItemDataRole.CheckStateRole:
                return row.model == self.chosen
            case Qt.ItemDataRole.ToolTipRole:
                return row.tip
            case _ if role == _BAD_ROLE:
                return row.bad
            case _:
                return row.model if role == _MODEL_ROLE else None


class RowPainter(QStyledItemDelegate):
    """Item delegate: name, second line, and a check mark on the loaded model."""

    def __init__(self, width: int, parent: QObject | None = None) -> None:
        """`width` is that of a row, in pixels."""
        super().__init__(parent)
        self._width = width
        self.keyboard = False  # the focus ring shows only after a key press

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return QSize(self._width, ROW_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        palette, rect = shown_palette(), QRect(option.rect)  # type: ignore[attr-defined]
        state = option.state  # type: ignore[attr-defined]
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        fill = QRectF(rect.adjusted(0, 1, 0, -1))
        hovered = bool(state & QStyle.StateFlag.State_MouseOver)
        focused = bool(state & QStyle.StateFlag.State_HasFocus) and self.keyboard
        if hovered or focused:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(palette.accent_soft))
            painter.drawRoundedRect(fill, 6, 6)
        if focused or (hovered and palette.accent_soft == palette.surface):
            painter.setPen(QPen(QColor(palette.accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(fill.adjusted(1, 1, -1, -1), 5, 5)
        chosen = bool(index.data(Qt.ItemDataRole.CheckStateRole))
        if chosen:
            ratio = painter.device().devicePixelRatio()
            picture = icons.pixmap("check", palette.accent, 18, ratio)
            place = QRect(rect.right() - 30, rect.center().y() - 9, 18, 18)
            painter.drawPixmap(QStyle.visualRect(painter.layoutDirection(), rect, place), picture)
        text = rect.adjusted(12, 8, -40 if chosen else -12, -8)
        text = QStyle.visualRect(painter.layoutDirection(), rect, text)
        color = palette.secondary if index.data(_BAD_ROLE) else palette.text
        self._line(painter, text, index.data(), BODY, color, chosen)
        text.setTop(rect.top() + 28)
        second = index.data(Qt.ItemDataRole.StatusTipRole)
        self._line(painter, text, second, SMALL, palette.secondary, False)
        painter.restore()

    def _line(
        self, painter: QPainter, rect: QRect, text: str, pixels: int, color: str, strong: bool
    ) -> None:
        face = font(pixels, QFont.Weight.Medium if strong else QFont.Weight.Normal)
        painter.setFont(face)
        painter.setPen(QColor(color))
        short = QFontMetrics(face).elidedText(text, Qt.TextElideMode.ElideMiddle, rect.width())
        painter.drawText(
            rect, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeading, isolated(short)
        )


class ModelList(QListView):
    """List view in which a click or Enter chooses a model."""

    chosen = Signal(object)  # ModelRef
    typed = Signal(object)  # QKeyEvent that types a character, for the search field

    def __init__(self, width: int, parent: QWidget) -> None:
        """`width` is that of a row, in pixels."""
        super().__init__(parent)
        self.files = ModelRows(self)
        self._painter = RowPainter(width, self)
        self.setItemDelegate(self._painter)
        self.setModel(self.files)
        self.setMouseTracking(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setUniformItemSizes(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(tr("Models"))
        self.clicked.connect(self._choose)

    def enter(self) -> None:
        """Take the keyboard focus, on the first row if none is current."""
        self._painter.keyboard = True
        if not self.currentIndex().isValid():
            self.setCurrentIndex(self.files.index(0))
        self.setFocus(Qt.FocusReason.TabFocusReason)

    def choose_first(self) -> None:
        """Choose the current row, else the first one."""
        current = self.currentIndex()
        row = current if current.isValid() else self.files.index(0)
        if row.isValid():
            self._choose(row)

    def _choose(self, index: QModelIndex) -> None:
        self.chosen.emit(index.data(_MODEL_ROLE))

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._painter.keyboard = False
        super().focusOutEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        self._painter.keyboard = True
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentIndex().isValid():
            self._choose(self.currentIndex())
        elif event.key() == Qt.Key.Key_Escape:
            event.ignore()
        elif types_text(event) and event.key() != Qt.Key.Key_Space:
            self.typed.emit(event)
        else:
            super().keyPressEvent(event)
