"""What the app is connected to: its server, engines elsewhere, and the offline switch, as one part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject

from app.chat.answering.served_answers import ServedAnswers
from app.chat.chat_list.deletions import Deletions
from app.chat.servers.connections import Connections, EngineDirectory
from app.chat.servers.serving import ServerStarter, Serving
from app.engines.remote.engines import RemoteEngines
from app.net.offline import gate
from app.settings.table import Settings
from app.state.states import States
from app.system import paths
from app.system.worker import BackgroundWorker


@dataclass(frozen=True, slots=True)
class Outside:
    """What there is beyond this window; None: the window does not offer it."""

    serve: ServerStarter | None = None  # starts the server for other programs
    directory: EngineDirectory | None = None  # has engines elsewhere
    remote: RemoteEngines | None = None  # answers with their models


class Network(QObject):
    """Has the controllers of the page of connections; they follow the settings."""

    def __init__(
        self,
        states: States,
        settings: Callable[[], Settings],
        change_settings: Callable[..., None],
        files: BackgroundWorker,
        outside: Outside,
        deletions: Deletions,
        parent: QObject | None = None,
    ) -> None:
        """`files` is the worker for the app's own files."""
        super().__init__(parent)
        self.connections = Connections(
            states.chat,
            states.connections,
            gate,
            settings,
            files,
            outside.directory,
            deletions.push,
            lambda: states.server.status.addresses,
            self,
        )
        deletions.restore_connection = self.connections.restore
        self.serving = Serving(states.server, settings, change_settings, outside.serve, self)
        self.served_answers = ServedAnswers(
            states.chat, self.serving.in_the_way, self.serving.end_answers, self
        )

    def start(self) -> None:
        """Read what earlier runs left, and start the server if it is on; after the first paint."""
        self.connections.start(paths.state() / "contacts.json")
        self.serving.apply()

    def apply(self) -> None:
        """Follow the settings."""
        self.connections.apply()
        self.serving.apply()

    def watch(self, watched: bool) -> None:
        """Keep the page up to date while it is shown."""
        self.connections.watch(watched)
        self.serving.watch(watched)

    def close(self) -> None:
        """Stop the server and write the contacts; may block briefly."""
        self.serving.close()
        self.connections.close()
