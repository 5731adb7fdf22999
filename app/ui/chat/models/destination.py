"""Line that says where the words of the shown chat go, while its model is elsewhere."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.state.connections import ConnectionsState
from app.system.translation import isolated, tr
from app.ui.theme.theme import SMALL
from app.ui.widgets import accessibility
from app.ui.widgets.controls import label


class DestinationLine(QWidget):
    """Names the host; hidden while nothing leaves this computer."""

    def __init__(self, connections: ConnectionsState) -> None:
        super().__init__()
        self._connections = connections
        self.words = label("", "", SMALL, wraps=True)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 4, 16, 0)
        layout.addWidget(self.words)
        connections.destination_changed.connect(self.refresh)
        connections.offline_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the host of the state."""
        words = destination_words(self._connections)
        if words and words != self.words.text():
            accessibility.announce(self, words)
        self.words.setText(words)
        self.setVisible(bool(words))


def destination_words(connections: ConnectionsState) -> str:
    """Where the words of the shown chat go; "": its model is on this computer."""
    host = isolated(connections.destination)
    if not connections.destination:
        return ""
    if connections.offline:
        return tr("Offline: nothing goes to {host}.", host=host)
    return tr("What you write goes to {host}.", host=host)
