"""About section: version, the servers the app may contact, and third-party licences."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QKeyEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QHBoxLayout,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QPlainTextEdit,
    QVBoxLayout,
    QWidget,
)

from app.settings.contacts import contacts
from app.settings.table import Settings
from app.state.connections import ConnectionsState
from app.state.updates import UpdateState
from app.system.translation import tr
from app.ui.settings.updates import UpdatesSection
from app.ui.theme.theme import BODY, HEADING, SMALL, code_font, font
from app.ui.widgets.controls import IconButton, TextButton, label

_INDEX_FILE = Path("index.txt")
_MAX_CHARACTERS = 400_000  # characters: longer licence texts are cut


@dataclass(frozen=True, slots=True)
class Licence:
    """The name of a component and the path of its licence text."""

    name: str
    path: Path


def licences(folder: Path) -> list[Licence]:
    """The licence texts below a folder, sorted by component; the index of a bundle comes first.

    A bundle has a subfolder per component; the licences of the fonts are files in the folder.
    """
    if not folder.is_dir():
        return []
    places = [
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    ]
    texts = Counter(place.parts[0] for place in places)
    found = [Licence(_name_of(place, texts[place.parts[0]]), folder / place) for place in places]
    index = folder / _INDEX_FILE
    return sorted(found, key=lambda each: (each.path != index, each.name.casefold()))


class AboutSection(QWidget):
    """Version, contacted servers, and a link to the licences."""

    licences_requested = Signal()
    performance_requested = Signal()

    def __init__(
        self, connections: ConnectionsState, updates: UpdateState, *, has_licences: bool
    ) -> None:
        """`has_licences` is whether licence texts are installed."""
        super().__init__()
        self._connections, self._updates, self._settings = connections, updates, Settings()
        self.updates = UpdatesSection(updates)
        self.promise = _wrapped("")
        self.contacts = _wrapped("")
        self.links = _wrapped(
            tr("Links in answers open in your browser, only when you click them.")
        )
        self.licences = TextButton(tr("Licences of all components"), "link")
        self.licences.setVisible(has_licences)
        self.licences.clicked.connect(self.licences_requested)
        self._line = row = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        row.setContentsMargins(0, 4, 0, 0)
        self.performance = TextButton(tr("Performance of the last answers"), "link")
        self.performance.clicked.connect(self.performance_requested)
        row.addWidget(self.performance)
        row.addWidget(self.licences)
        row.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 8)
        layout.setSpacing(4)
        for widget in (self.updates, self.promise, self.contacts, self.links):
            layout.addWidget(widget)
        layout.addLayout(row)
        connections.changed.connect(self._show_contacts)
        updates.changed.connect(self._show_contacts)
        self.set_narrow(False)

    def set_narrow(self, narrow: bool) -> None:
        """Place the links below one another (narrow window) or side by side."""
        direction = QBoxLayout.Direction
        self._line.setDirection(direction.TopToBottom if narrow else direction.LeftToRight)
        self._line.setSpacing(0 if narrow else 16)
        for link in (self.performance, self.licences):
            self._line.setAlignment(link, Qt.AlignmentFlag.AlignLeading)

    def show_settings(self, settings: Settings) -> None:
        """List the servers that the app contacts with these settings."""
        self._settings = settings
        self.updates.show_settings(settings)
        self._show_contacts()

    def _show_contacts(self) -> None:
        settings, engines = self._settings, self._connections.engines
        lines = [
            *contacts(settings),
            *((row.host, tr("in chats with its models")) for row in engines),
        ]
        if host := self._updates.status.host:
            weekly = tr("once a week, for the number of the newest version")
            asked = tr("when you look for a newer version")
            lines.append((host, weekly if settings.check_updates else asked))
        self.promise.setText(_promise(settings, elsewhere=bool(engines)))
        shown = (
            ""
            if settings.offline
            else "\n".join(
                "•  " + tr("{what}: {name}", what=host, name=when) for host, when in lines
            )
        )
        self.contacts.setText(shown)
        self.contacts.setVisible(bool(shown))


def _promise(settings: Settings, *, elsewhere: bool) -> str:
    """What leaves this computer; `elsewhere`: there are engines elsewhere."""
    if settings.offline:
        return tr("Tokonoma is offline: it connects to nothing.")
    if settings.search_provider != "off":
        return tr(
            "What you type goes to another computer only in chats whose model is there, and in what "
            "you allow tools to send. Tokonoma uses the network only for these, and for what you ask "
            "it to find or download:"
        )
    if elsewhere:
        return tr(
            "What you type goes to another computer only in chats whose model is there. Tokonoma "
            "uses the network only for these chats, and for what you ask it to find or download:"
        )
    return tr(
        "Nothing you type and nothing a model writes leaves this computer. Tokonoma uses the "
        "network only for what you ask it to find or download:"
    )


class LicenceView(QWidget):
    """Licence viewer: a list of components and the licence text of the selected one."""

    closed = Signal()

    def __init__(self, found: list[Licence]) -> None:
        super().__init__()
        self._found = found
        self.title = label(tr("Licences"), "", HEADING)
        self.title.setFont(font(HEADING, QFont.Weight.DemiBold))
        self.close_button = IconButton("close", tr("Back to settings"))
        self.close_button.clicked.connect(self.closed)
        self.names = QListWidget()
        self.names.setFont(font(SMALL))
        self.names.setAccessibleName(tr("Components"))
        for licence in found:
            item = QListWidgetItem(licence.name, self.names)
            item.setToolTip(licence.name)
        self.names.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.names.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.names.currentRowChanged.connect(self._show_text)
        self.text = QPlainTextEdit()
        self.text.setReadOnly(True)
        self.text.setTabChangesFocus(True)
        self.text.setFont(code_font(SMALL))
        self.text.setFrameShape(QFrame.Shape.NoFrame)
        self.text.setAccessibleName(tr("Licence text"))
        self._lay_out()

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.addWidget(self.title)
        top.addStretch(1)
        top.addWidget(self.close_button)
        self._parts = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._parts.setSpacing(16)
        self._parts.addWidget(self.names)
        self._parts.addWidget(self.text, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 16, 0, 16)
        layout.setSpacing(16)
        layout.addLayout(top)
        layout.addLayout(self._parts, 1)

    def open(self) -> None:
        """Select the first licence if none is selected, and focus the list."""
        if self.names.currentRow() < 0 and self._found:
            self.names.setCurrentRow(0)
        self.names.setFocus(Qt.FocusReason.OtherFocusReason)

    def set_narrow(self, narrow: bool) -> None:
        """Place the list above the text (narrow) or beside it."""
        direction = QBoxLayout.Direction
        self._parts.setDirection(direction.TopToBottom if narrow else direction.LeftToRight)
        self.names.setMaximumSize(*((16_777_215, 132) if narrow else (168, 16_777_215)))

    def _show_text(self, row: int) -> None:
        try:
            text = self._found[row].path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            text = tr("The licence text cannot be read: {reason}.", reason=error.strerror or error)
        self.text.setPlainText(text[:_MAX_CHARACTERS])

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        else:
            super().keyPressEvent(event)


def _name_of(place: Path, texts: int) -> str:
    """The component of a licence file, with the file's path if it has several `texts`."""
    if place == _INDEX_FILE:
        return tr("All components")
    if len(place.parts) == 1:
        return place.stem if place.suffix else place.name
    part, inner = place.parts[0], "/".join(place.parts[1:])
    return f"{part}: {inner}" if texts > 1 else part


def _wrapped(text: str) -> QLabel:
    return label(text, "secondary", BODY, wraps=True)
