"""Servers of tools for tests: the poisoned ones, started through the app's `McpServers`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.domain.tools import CallContext, ToolOutcome
from app.system.secret_store import NoKeyring, SecretStore
from app.tools.mcp.entries import EntryStore
from app.tools.mcp.entry import ServerEntry
from app.tools.mcp.hooks import Hooks, ServerStatus
from app.tools.mcp.servers import McpServers

POISONED = Path(__file__).with_name("poisoned_tools.py")


def no_keyring() -> Any:
    """The keyring of a system without one."""
    raise NoKeyring("no keyring was found")


def poisoned(behaviour: str, name: str = "Poison", **values: Any) -> ServerEntry:
    """The entry of a server with a behaviour."""
    return ServerEntry("", name, sys.executable, ("-I", "-S", str(POISONED), behaviour), **values)


class Trial:
    """Servers in a folder, and one of them at hand."""

    def __init__(self, folder: Path, hooks: Hooks | None = None, **values: Any) -> None:
        self.changes = 0
        self.secrets = SecretStore(folder / "keys.json", no_keyring)
        self.entries = EntryStore(folder / "servers.json")
        self.servers = McpServers(
            self.entries, self.secrets, hooks, changed=self._changed, **values
        )
        self.entry = ServerEntry("", "")
        self.outputs: list[str] = []

    def _changed(self) -> None:
        self.changes += 1

    async def start(self, entry: ServerEntry) -> ServerStatus:
        """Store an entry and start it."""
        self.entry = self.entries.save(entry)
        return await self.servers.start(self.entry.id)

    @property
    def status(self) -> ServerStatus:
        """Of the server at hand."""
        return self.servers.status(self.entry.id)

    @property
    def log(self) -> str:
        """Its log."""
        return "\n".join(self.servers.log(self.entry.id))

    async def call(self, tool: str = "echo", /, **arguments: Any) -> ToolOutcome:
        """Call one of its tools."""
        context = replace(CallContext(1), output=self.outputs.append)
        return await self.servers.call(f"{self.entry.id}/{tool}", arguments, context)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that comes from the server; raises TimeoutError."""
        async with asyncio.timeout(20):
            while not holds():  # noqa: ASYNC110  (there is no event for most of it)
                await asyncio.sleep(0.01)


@asynccontextmanager
async def trial(
    folder: Path, entry: ServerEntry, hooks: Hooks | None = None, **values: Any
) -> AsyncGenerator[Trial]:
    """A server that is started, and stopped at the end."""
    made = Trial(folder, hooks, **values)
    try:
        await made.start(entry)
        yield made
    finally:
        await made.servers.close()
