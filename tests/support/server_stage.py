"""A stage with servers of tools: real programs of the tests, and no keyring."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from app.chat.tools.servers import ToolServers
from app.domain.tool_servers import Question, ServerDraft, ServerPhase, ServerRow
from app.state.tool_servers import ToolServersState
from fakes import MODEL
from stage import Stage, until
from tool_servers import POISONED, no_keyring


class ServerStage(Stage):
    """A window over servers of tools."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.is_closed = False
        super().__init__(folder)
        self.servers.keyring = no_keyring

    def close(self) -> None:
        """End the app, once."""
        if not self.is_closed:
            self.is_closed = True
            super().close()

    @property
    def servers(self) -> ToolServers:
        return self.controller.tools.servers

    @property
    def shown(self) -> ToolServersState:
        return self.states.tool_servers

    def begin(self) -> None:
        """Start the app with a model that can call tools."""
        self.start(MODEL)
        self.engine.finish_load(can_call=True)
        self.wait_until_idle()

    def look(self) -> None:
        """Open the page's state."""
        self.servers.look()
        until(lambda: self.shown.is_read)

    def add(self, behaviour: str = "echo", name: str = "Echo") -> ServerRow:
        """Store a server of the tests; it does not start."""
        self.servers.save(poisoned_draft(behaviour, name))
        until(lambda: any(row.name == name for row in self.shown.rows))
        return self.row(name)

    def row(self, name: str = "Echo") -> ServerRow:
        """A server as it is shown."""
        return next(row for row in self.shown.rows if row.name == name)

    def allow(self, name: str = "Echo") -> None:
        """Switch a server on, and agree."""
        self.servers.switch(self.row(name).id, True)
        self.servers.answer(self.question().number, True)
        self.reaches(ServerPhase.READY, name)

    def question(self) -> Question:
        """The first question, once there is one."""
        until(lambda: bool(self.shown.questions))
        return self.shown.questions[0]

    def reaches(self, phase: ServerPhase, name: str = "Echo") -> ServerRow:
        """A server, once it is in a phase."""
        self.holds(lambda: self.row(name).phase is phase)
        return self.row(name)

    def holds(self, condition: Callable[[], bool]) -> None:
        until(condition)


def poisoned_draft(behaviour: str = "echo", name: str = "Echo") -> ServerDraft:
    """A server with a behaviour of `poisoned_tools.py`, as a user enters it."""
    arguments = ("-I", "-S", str(POISONED), behaviour)
    return ServerDraft("", name, sys.executable, arguments)


def stored(folder: Path) -> list[dict[str, object]]:
    """The rows of the file."""
    return json.loads((folder / "tool servers.json").read_text(encoding="utf-8"))["servers"]
