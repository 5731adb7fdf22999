"""Storage section: disk space used by cached conversations, and the paths of all app data."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QMenu, QVBoxLayout, QWidget

from app.state.snapshots import SessionState
from app.system import paths
from app.system.byte_size import size
from app.system.translation import sentences, tr
from app.ui.theme.theme import BODY, SMALL, figures, font
from app.ui.transfer.menu import add_formats
from app.ui.widgets.controls import ElidedLabel, TextButton, icon_after_text, label
from app.ui.widgets.menus import popup_below
from engine import models_folder, snapshots_folder


class SnapshotSizeLine(QWidget):
    """Disk space used by session snapshots (cached conversations), and a button to delete them."""

    delete_requested = Signal()

    def __init__(self, session_state: SessionState) -> None:
        super().__init__()
        self._state = session_state
        self.words = label("", "secondary", SMALL, wraps=True)
        self.words.setFont(figures(SMALL))
        self.problem = label("", "danger", SMALL, wraps=True)
        self.button = TextButton(tr("Delete this data"), "outlined")
        self.button.setAccessibleName(tr("Delete the data for resuming chats"))
        self.button.clicked.connect(self.delete_requested)
        self._line = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._line.setSpacing(24)
        self._line.addWidget(self.words, 1)
        self._line.addWidget(self.button, 0, Qt.AlignmentFlag.AlignLeading)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 8)
        layout.setSpacing(4)
        layout.addLayout(self._line)
        layout.addWidget(self.problem)
        session_state.saved_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the size of the snapshots, the deletion in progress, or its error."""
        saved = self._state.saved
        if saved.deleting:
            words = tr("Deleting…")
        elif saved.size_bytes < 0:
            words = ""
        elif saved.size_bytes == 0:
            words = tr("Nothing is stored now.")
        else:
            words = tr(
                "Uses {size}. Deleting it keeps your chats; they only continue more slowly.",
                size=size(saved.size_bytes),
            )
        self.words.setText(words)
        self.button.setEnabled(saved.size_bytes > 0 and not saved.deleting)
        self.problem.setText(sentences(saved.error, saved.remedy))
        self.problem.setVisible(bool(saved.error))

    def set_narrow(self, narrow: bool) -> None:
        """Place the button below the text (narrow) or beside it."""
        direction = QBoxLayout.Direction
        self._line.setDirection(direction.TopToBottom if narrow else direction.LeftToRight)
        self._line.setSpacing(6 if narrow else 24)


class PlaceRow(QWidget):
    """A file or folder path with a button that shows it in the file manager."""

    folder_requested = Signal(Path)

    def __init__(self, name: str, path: Path) -> None:
        super().__init__()
        self.path = path
        self.title = label(name, "", BODY)
        self.title.setFont(font(BODY, QFont.Weight.Medium))
        self.place = ElidedLabel("secondary", font(SMALL), Qt.TextElideMode.ElideMiddle)
        self.place.setText(str(path))
        self.place.setToolTip(str(path))
        self.show_button = TextButton(tr("Show in folder"), "link")
        self.show_button.setAccessibleName(tr("Show {name} in folder", name=name))
        self.show_button.clicked.connect(lambda: self.folder_requested.emit(path))
        words = QVBoxLayout()
        words.setSpacing(0)
        words.addWidget(self.title)
        words.addWidget(self.place)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 6, 0, 6)
        layout.setSpacing(24)
        layout.addLayout(words, 1)
        layout.addWidget(self.show_button)


class TransferRow(QWidget):
    """Buttons that import chats and export all of them."""

    import_requested = Signal()
    import_folder_requested = Signal()
    export_requested = Signal(object)  # ExportFormat

    def __init__(self) -> None:
        super().__init__()
        self.words = label(
            tr(
                "Chats of ChatGPT, Claude, LM Studio, Jan, Open WebUI, SillyTavern, Ollama and"
                " Tokonoma can be imported."
            ),
            "secondary",
            SMALL,
        )
        self.words.setWordWrap(True)
        self.import_button = TextButton(tr("Import chats…"), "outlined")
        self.folder_button = TextButton(tr("Import a folder…"), "outlined")
        self.export_button = TextButton(tr("Export all chats"), "outlined", "chevron_down")
        icon_after_text(self.export_button)
        self.formats = QMenu(self)
        add_formats(self.formats, self.export_requested.emit)
        self.export_button.clicked.connect(lambda: popup_below(self.formats, self.export_button))
        self.import_button.clicked.connect(self.import_requested)
        self.folder_button.clicked.connect(self.import_folder_requested)
        self._buttons = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._buttons.setSpacing(8)
        for button in (self.import_button, self.folder_button, self.export_button):
            self._buttons.addWidget(button, 0, Qt.AlignmentFlag.AlignLeading)
        self._buttons.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 12)
        layout.setSpacing(8)
        layout.addWidget(self.words)
        layout.addLayout(self._buttons)

    def set_narrow(self, narrow: bool) -> None:
        """Place the buttons below each other (narrow) or in a row."""
        direction = QBoxLayout.Direction
        self._buttons.setDirection(direction.TopToBottom if narrow else direction.LeftToRight)


class StorageSection(QWidget):
    """The rows of the Storage group that are not settings."""

    import_requested = Signal()
    import_folder_requested = Signal()
    export_requested = Signal(object)  # ExportFormat

    delete_requested = Signal()
    folder_requested = Signal(Path)

    def __init__(self, session_state: SessionState) -> None:
        super().__init__()
        self.saved = SnapshotSizeLine(session_state)
        self.saved.delete_requested.connect(self.delete_requested)
        self.chats = TransferRow()
        self.chats.import_requested.connect(self.import_requested)
        self.chats.import_folder_requested.connect(self.import_folder_requested)
        self.chats.export_requested.connect(self.export_requested)
        self.places = [
            PlaceRow(tr("Chats"), paths.database()),
            PlaceRow(tr("Models"), models_folder()),
            PlaceRow(tr("Data to resume chats"), snapshots_folder()),
            PlaceRow(tr("Settings"), paths.settings_file()),
            PlaceRow(tr("Log"), paths.log_file()),
        ]
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.saved)
        layout.addWidget(self.chats)
        for place in self.places:
            place.folder_requested.connect(self.folder_requested)
            layout.addWidget(place)

    def set_narrow(self, narrow: bool) -> None:
        """Switch between the narrow and the wide layout."""
        self.chats.set_narrow(narrow)
        self.saved.set_narrow(narrow)
