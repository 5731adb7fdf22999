"""Model picker: the button with the model's name, and the pop-up card that it opens."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal
from PySide6.QtGui import QFont, QHideEvent, QKeyEvent, QShowEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QSizePolicy,
    QStyleOptionButton,
    QVBoxLayout,
    QWidget,
)

from app.domain.model_ref import Remote
from app.state.chat import ModelFile, ModelPhase, ModelStatus, State
from app.state.faults import explain
from app.system.translation import tr
from app.ui.chat.models.model_list import ROW_HEIGHT, ModelList, ModelRow, row_of
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.controls import Bar, TextButton, icon_after_text, label, set_margins
from app.ui.widgets.typing import type_into

CARD_WIDTH = 360
_MOST_ROWS = 6

_MOST_WIDTH = 320  # pixels of the name in the top bar


class ModelButton(TextButton):
    """Button in the top bar that shows the model's name and opens the model picker."""

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        super().__init__("", "quiet", "chevron_down", parent)
        self._state = state
        self._whole_width = 0  # pixels that it needs, by the last `sizeHint`
        icon_after_text(self)
        self.setFont(font(BODY, QFont.Weight.Medium))
        self.setIconSize(QSize(16, 16))
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.setToolTip(tr("Choose a model (Ctrl+L)"))
        state.model_changed.connect(self.refresh)
        state.chat_model_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the name and the quantization of the shown chat's model."""
        model, chat = self._state.model, self._state.chat_model
        known = model.phase in (ModelPhase.LOADING, ModelPhase.READY)
        name = model.full_name if known else tr("Choose a model")
        if chat is not None:
            name = self._state.model_name(chat.model, whole=True)
        mode = Qt.TextElideMode.ElideMiddle
        self.setText(self.fontMetrics().elidedText(name, mode, _MOST_WIDTH))
        self.setAccessibleName(tr("Model: {name}", name=name))

    @property
    def shown(self) -> str:
        """The name, elided in its middle where the top bar has too little room for it."""
        missing = self._whole_width - self.width()
        if missing <= 0:
            return self.text()
        metrics, mode = self.fontMetrics(), Qt.TextElideMode.ElideMiddle
        width = metrics.horizontalAdvance(self.text()) - missing
        return metrics.elidedText(self.text(), mode, width)

    def sizeHint(self) -> QSize:
        whole = super().sizeHint()
        self._whole_width = whole.width()
        return whole

    def initStyleOption(self, option: QStyleOptionButton) -> None:
        super().initStyleOption(option)
        option.text = self.shown  # type: ignore[attr-defined]


class ModelPicker(QWidget):
    """Content of the pop-up card: load progress or error, search, the models, and actions."""

    chosen = Signal(object)  # ModelRef
    open_requested = Signal()
    browse_requested = Signal()
    elsewhere_requested = Signal()  # the connections
    unload_requested = Signal()
    cancel_requested = Signal()
    opened = Signal()  # the card is shown: models may have been copied in meanwhile
    resized = Signal()  # the size hint changed

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self.search = QLineEdit(self)
        self.search.setPlaceholderText(tr("Search your models"))
        self.search.setAccessibleName(tr("Search your models"))
        self.search.installEventFilter(self)
        self.list = ModelList(CARD_WIDTH - 16, self)
        self.files = self.list.files
        self.nothing = label("", "secondary")
        self.progress = _Progress(self)
        self.failure = label("", "danger", SMALL, wraps=True)
        self.browse_button = _action(tr("Browse models…"), "library", tr("Get models (Ctrl+M)"))
        self.open_button = _action(tr("Open a file…"), "folder", tr("Open a GGUF file (Ctrl+O)"))
        self.elsewhere_button = _action(
            tr("Use a model that runs elsewhere…"), "server", tr("Connections (Ctrl+Shift+N)")
        )
        self.unload_button = _action(tr("Unload"), "close", tr("Free the memory the model uses"))
        self.setFocusProxy(self.search)
        self._lay_out()
        self._connect()
        self.refresh()
        follow_palette(self._recolor)

    def _lay_out(self) -> None:
        self._rule = QFrame()
        self._rule.setFixedHeight(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.setSpacing(4)
        for part in (
            self.progress,
            self.failure,
            self.search,
            self.list,
            self.nothing,
            self._rule,
            self.browse_button,
            self.open_button,
            self.unload_button,
            self.elsewhere_button,
        ):
            layout.addWidget(part)
        self.failure.setContentsMargins(12, 6, 12, 6)
        self.nothing.setContentsMargins(12, 8, 12, 8)

    def _connect(self) -> None:
        self.search.textChanged.connect(self.refresh)
        self.search.returnPressed.connect(self.list.choose_first)
        self.list.chosen.connect(self.chosen)
        self.list.typed.connect(self._type)
        self.progress.cancel.clicked.connect(self.cancel_requested)
        self.browse_button.clicked.connect(self.browse_requested)
        self.open_button.clicked.connect(self.open_requested)
        self.elsewhere_button.clicked.connect(self.elsewhere_requested)
        self.unload_button.clicked.connect(self.unload_requested)
        self._state.model_changed.connect(self.refresh)
        self._state.chat_model_changed.connect(self.refresh)

    def _recolor(self, palette: Palette) -> None:
        self._rule.setStyleSheet(f"background: {palette.hairline};")

    def refresh(self) -> None:
        """Show the models that match the search, and the one loaded or being loaded."""
        status = self._state.model
        files = [row_of(each) for each in (*self._files(), *self._state.served)]
        files += self._gone()
        words = self.search.text().casefold().split()
        found = [
            row
            for row in files
            if all(
                word in f"{row.name} {row.model.file_name} {row.facts}".casefold() for word in words
            )
        ]
        chat = self._state.chat_model
        in_use = status.model if status.phase is ModelPhase.READY else None
        self.files.chosen = in_use if chat is None else chat.model
        self.files.set_rows(found)
        self.list.setFixedHeight(min(len(found), _MOST_ROWS) * ROW_HEIGHT)
        self.list.setVisible(bool(found))
        self.list.viewport().update()
        self.search.setVisible(bool(files))
        self.nothing.setVisible(not found)
        self.nothing.setText(tr("No model found.") if files else tr("You have no models yet."))
        self.unload_button.setVisible(status.loaded is not None)
        self.progress.show_status(status)
        self.failure.setVisible(bool(status.error))
        name = status.failed.file_name if status.failed else ""
        shown = explain(status.fault, name, status.error, status.remedy)
        self.failure.setText(shown.text)
        self.failure.setToolTip(shown.detail)
        self.resized.emit()

    def _files(self) -> list[ModelFile]:
        """The installed models, and the loaded one if it is in no folder."""
        status, files = self._state.model, list(self._state.installed)
        loaded = status.loaded
        if status.path and loaded and all(file.path != status.path for file in files):
            files.insert(0, ModelFile(status.path, status.name, loaded.file_bytes, loaded.format))
        return files

    def _gone(self) -> list[ModelRow]:
        """The model of the shown chat, if it is elsewhere and is not offered any more."""
        chat = self._state.chat_model
        known = [each.model for each in self._state.served]
        if chat is None or not isinstance(chat.model, Remote) or chat.model in known:
            return []
        return [ModelRow(chat.model, chat.name, tr("cannot be used"), chat.missing, bad=True)]

    def _type(self, event: QKeyEvent) -> None:
        type_into(self.search, event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.opened.emit()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.search.clear()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if event.key() == Qt.Key.Key_Down and self.list.isVisible():
                self.list.enter()
                return True
            if event.key() == Qt.Key.Key_Escape and self.search.text():
                self.search.clear()
                return True
        return super().eventFilter(watched, event)


class _Progress(QWidget):
    """Load progress: the model's name, a Cancel button and a progress bar."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.words = label("", "", BODY)
        self.cancel = TextButton(tr("Cancel"), "link")
        self.bar = Bar()
        line = QHBoxLayout()
        line.addWidget(self.words, 1)
        line.addWidget(self.cancel)
        layout = QVBoxLayout(self)
        set_margins(layout, 12, 4, 8, 8)
        layout.setSpacing(4)
        layout.addLayout(line)
        layout.addWidget(self.bar)

    def show_status(self, status: ModelStatus) -> None:
        """Show the progress of a load; hidden when no model is being loaded."""
        self.setVisible(status.phase is ModelPhase.LOADING)
        share = status.done_bytes / status.total_bytes if status.total_bytes else 0.0
        name = self.words.fontMetrics().elidedText(
            tr("Loading {name}", name=status.name),
            Qt.TextElideMode.ElideMiddle,
            CARD_WIDTH - 120,
        )
        self.words.setText(name)
        self.bar.set_share(share)


def _action(text: str, icon: str, tip: str) -> TextButton:
    button = TextButton(text, "quiet", icon)
    button.setToolTip(tip)
    button.setStyleSheet("text-align: left; padding: 5px 10px;")
    return button
