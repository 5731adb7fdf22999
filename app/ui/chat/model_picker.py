"""Model picker: the button with the model's name, and the pop-up card that it opens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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
    QHBoxLayout,
    QListView,
    QSizePolicy,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app.state.chat import ModelFile, ModelPhase, ModelStatus, State
from app.system.byte_size import size
from app.ui.theme import icons
from app.ui.theme.palette import LIGHT, Palette
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.controls import Bar, TextButton, label

CARD_WIDTH = 360
_ROW_HEIGHT = 52
_MOST_ROWS = 6
_PATH_ROLE = Qt.ItemDataRole.UserRole + 1
_Index = QModelIndex | QPersistentModelIndex


class ModelButton(TextButton):
    """Button in the top bar that shows the model's name and opens the model picker."""

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        super().__init__("", "quiet", "chevron_down", parent)
        self._state = state
        self.setLayoutDirection(Qt.LayoutDirection.RightToLeft)  # the arrow comes after the name
        self.setFont(font(BODY, QFont.Weight.Medium))
        self.setIconSize(QSize(16, 16))
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.setToolTip("Choose a model (Ctrl+L)")
        state.model_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the name of the model of the state."""
        model = self._state.model
        known = model.phase in (ModelPhase.LOADING, ModelPhase.READY)
        name = model.name if known else "Choose a model"
        short = QFontMetrics(self.font()).elidedText(name, Qt.TextElideMode.ElideMiddle, 320)
        self.setText(short)
        self.setAccessibleName(f"Model: {name}")


class _FileModel(QAbstractListModel):
    """Item model of the installed models, each with a second line on layout and size."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._files: tuple[ModelFile, ...] = ()
        self._layouts: dict[Path, str] = {}
        self.chosen: Path | None = None

    def set_files(self, files: Sequence[ModelFile], layouts: dict[Path, str]) -> None:
        """Replace the listed files; `layouts` maps a path to its quantization layout."""
        self.beginResetModel()
        self._files, self._layouts = tuple(files), layouts
        self.endResetModel()

    def rowCount(self, parent: _Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self._files)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        file = self._files[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return file.name
        if role == Qt.ItemDataRole.StatusTipRole:
            parts = (self._layouts.get(file.path, ""), size(file.size_bytes))
            return " · ".join(part for part in parts if part)
        if role == Qt.ItemDataRole.CheckStateRole:
            return file.path == self.chosen
        if role == Qt.ItemDataRole.ToolTipRole:
            return str(file.path)
        return file.path if role == _PATH_ROLE else None


class _RowPainter(QStyledItemDelegate):
    """Item delegate: name, second line, and a check mark on the loaded model."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.palette = LIGHT
        self.keyboard = False  # the focus ring shows only after a key press

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return QSize(CARD_WIDTH - 16, _ROW_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        palette, rect = self.palette, QRect(option.rect)  # type: ignore[attr-defined]
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
            painter.drawPixmap(rect.right() - 30, rect.center().y() - 9, picture)
        text = rect.adjusted(12, 8, -40 if chosen else -12, -8)
        self._line(painter, text, index.data(), BODY, palette.text, chosen)
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
        painter.drawText(rect, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeading, short)


class _List(QListView):
    """List view in which Enter activates the current row."""

    def __init__(self, painter: _RowPainter, parent: QWidget) -> None:
        super().__init__(parent)
        self._painter = painter
        self.setItemDelegate(painter)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._painter.keyboard = False
        super().focusOutEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        self._painter.keyboard = True
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentIndex().isValid():
            self.clicked.emit(self.currentIndex())
        elif event.key() == Qt.Key.Key_Escape:
            event.ignore()
        else:
            super().keyPressEvent(event)


class ModelPicker(QWidget):
    """Content of the pop-up card: load progress or error, the models, and Open a file."""

    chosen = Signal(Path)
    open_requested = Signal()
    cancel_requested = Signal()
    resized = Signal()  # the size hint changed

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self.files = _FileModel(self)
        self._shown: tuple[tuple[ModelFile, ...], dict[Path, str]] = ((), {})
        self._painter = _RowPainter(self)
        self.list = _List(self._painter, self)
        self.list.setModel(self.files)
        self.list.setMouseTracking(True)
        self.list.setFrameShape(QFrame.Shape.NoFrame)
        self.list.setUniformItemSizes(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setAccessibleName("Models")
        self.list.clicked.connect(self._choose)
        self.nothing = label("No models are installed yet.", "secondary")
        self.progress = _Progress(self)
        self.progress.cancel.clicked.connect(self.cancel_requested)
        self.failure = label("", "danger", SMALL)
        self.failure.setWordWrap(True)
        self.open_button = TextButton("Open a file…", "quiet", "folder")
        self.open_button.setToolTip("Open a GGUF file (Ctrl+O)")
        self.open_button.setStyleSheet("text-align: left; padding: 5px 10px;")
        self.open_button.clicked.connect(self.open_requested)
        self.setFocusProxy(self.list)
        self._lay_out()
        state.model_changed.connect(self.refresh)
        self.refresh()

    def _lay_out(self) -> None:
        self._rule = QFrame()
        self._rule.setFixedHeight(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.setSpacing(4)
        layout.addWidget(self.progress)
        layout.addWidget(self.failure)
        layout.addWidget(self.list)
        layout.addWidget(self.nothing)
        layout.addWidget(self._rule)
        layout.addWidget(self.open_button)
        self.failure.setContentsMargins(12, 6, 12, 6)
        self.nothing.setContentsMargins(12, 8, 12, 8)

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self._painter.palette = palette
        self.progress.bar.apply_palette(palette)
        self.open_button.apply_palette(palette)
        self._rule.setStyleSheet(f"background: {palette.hairline};")
        self.list.viewport().update()

    def _choose(self, index: QModelIndex) -> None:
        self.chosen.emit(index.data(_PATH_ROLE))

    def refresh(self) -> None:
        """Show the installed models, and the one that is loaded or being loaded."""
        status = self._state.model
        listed = {file.path for file in self._state.installed}
        files = list(self._state.installed)
        if status.path is not None and status.path not in listed and status.loaded is not None:
            files.insert(0, ModelFile(status.path, status.name, status.loaded.file_bytes))
        shown = (tuple(files), dict(self._state.layouts))
        self.files.chosen = status.path if status.phase is ModelPhase.READY else None
        if shown != self._shown:
            self._shown = shown
            self.files.set_files(*shown)
        self.list.setFixedHeight(min(len(files), _MOST_ROWS) * _ROW_HEIGHT)
        self.list.setVisible(bool(files))
        self.list.viewport().update()
        self.nothing.setVisible(not files)
        self.progress.show_status(status)
        self.failure.setVisible(bool(status.error))
        self.failure.setText(f"{status.error} {status.remedy}".strip())
        self.resized.emit()


class _Progress(QWidget):
    """Load progress: the model's name, a Cancel button and a progress bar."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.words = label("", "", BODY)
        self.cancel = TextButton("Cancel", "link")
        self.bar = Bar()
        line = QHBoxLayout()
        line.addWidget(self.words, 1)
        line.addWidget(self.cancel)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 4, 8, 8)
        layout.setSpacing(4)
        layout.addLayout(line)
        layout.addWidget(self.bar)

    def show_status(self, status: ModelStatus) -> None:
        """Show the progress of a load; hidden when no model is being loaded."""
        self.setVisible(status.phase is ModelPhase.LOADING)
        share = status.done_bytes / status.total_bytes if status.total_bytes else 0.0
        name = QFontMetrics(self.words.font()).elidedText(
            f"Loading {status.name}", Qt.TextElideMode.ElideMiddle, CARD_WIDTH - 120
        )
        self.words.setText(name)
        self.bar.set_share(share)
