"""The window with a connection to a scripted server, whose model the shown chat uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytestqt.qtbot import QtBot

from app.chat.servers.engine_directory import RemoteDirectory
from app.chat.servers.network import Outside
from app.domain.message import Message
from app.domain.model_ref import Remote
from app.domain.tools import ToolSource
from app.engines.remote.connections import ConnectionStore
from app.engines.remote.engines import RemoteEngines
from app.engines.remote.keys import KeyStore
from app.net.offline import Gate
from app.settings.table import Settings
from app.state.connections import EngineEdit
from app.system.secret_store import NoKeyring
from hostile_server import Server
from stage import Stage

KEY = "sk-very-secret-0123456789"


def no_ring() -> Any:
    raise NoKeyring("no keyring was found")


class Elsewhere(Stage):
    """The window with one connection; a second one of a folder is the next run of the app."""

    def __init__(
        self,
        folder: Path,
        server: Server,
        qtbot: QtBot,
        settings: Settings | None = None,
        tool_source: Callable[[], ToolSource] | None = None,
    ) -> None:
        self.qtbot = qtbot
        store = ConnectionStore(
            folder / "connections.json", KeyStore(folder / "keys.json", no_ring)
        )
        gate = Gate()
        directory = RemoteDirectory(store, gate.allow, Settings)
        known = directory.rows()
        edit = EngineEdit("", "Office", server.address, key=KEY)
        self.connection = known[0].id if known else directory.save(edit)
        if not known:
            directory.models(self.connection)
        outside = Outside(None, directory, RemoteEngines(store, gate.allow))
        super().__init__(folder, settings=settings, outside=outside, tool_source=tool_source)
        self.ref = Remote(self.connection, "big")

    def use(self) -> None:
        """Choose the model in the picker, as the user does."""
        self.until(lambda: bool(self.state.served))
        self.window.open_picker()
        rows = self.window.picker.files
        names = [rows.index(row).data() for row in range(rows.rowCount())]
        self.window.picker.list.setCurrentIndex(rows.index(names.index("big")))
        self.window.picker.list.choose_first()

    def until(self, true: Callable[[], bool]) -> None:
        self.qtbot.waitUntil(lambda: true())

    def ask(self, text: str = "Why?") -> None:
        assert self.controller.send(text)

    def ended(self) -> Message:
        """The last answer, once it has ended."""
        self.until(lambda: bool(self.state.messages) and not self.state.generations)
        self.wait_until_idle()
        return self.state.messages[-1]
