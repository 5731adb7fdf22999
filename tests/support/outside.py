"""What is beyond the window in tests: a server that only records, and engines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.chat.servers.connections import EngineFault
from app.chat.servers.serving import ServerUse
from app.state.connections import EngineEdit, EngineRow, FoundRow
from engine import LocalServerOptions


class RecordedServer:
    """A server that keeps what it was told, and shows the use that a test sets."""

    def __init__(self, options: LocalServerOptions) -> None:
        self.options = options
        self.stopped = False
        self.shown = ServerUse()

    def stop(self) -> None:
        self.stopped = True

    def change(self, options: LocalServerOptions) -> None:
        self.options = options

    def use(self) -> ServerUse:
        return self.shown

    def in_the_way(self) -> int:
        return self.shown.running

    def end_answers(self) -> None:
        self.shown = replace(self.shown, running=0)


class Servers:
    """Starts recorded servers, or fails as a test wants."""

    def __init__(self) -> None:
        self.made: list[RecordedServer] = []
        self.error: Exception | None = None

    def __call__(self, options: LocalServerOptions) -> RecordedServer:
        if self.error is not None:
            raise self.error
        self.made.append(RecordedServer(options))
        return self.made[-1]

    @property
    def running(self) -> list[LocalServerOptions]:
        """The options of those that run."""
        return [each.options for each in self.made if not each.stopped]


class Directory:
    """Engines elsewhere in memory."""

    def __init__(self) -> None:
        self.engines: dict[str, EngineRow] = {}
        self.keys: dict[str, str] = {}
        self.deleted: dict[str, EngineRow] = {}
        self.lists: dict[str, Sequence[str] | EngineFault] = {}  # models by address
        self.running: tuple[FoundRow, ...] = ()
        self.searches = 0

    def rows(self) -> Sequence[EngineRow]:
        return list(self.engines.values())

    def check(self, edit: EngineEdit) -> EngineEdit:
        if "://" not in edit.address:
            raise EngineFault("This is not the address of a server.", "Write it as http://host.")
        return replace(edit, address=edit.address.rstrip("/"))

    def needs_consent(self, address: str) -> bool:
        return address.startswith("http://") and "public" in address

    def save(self, edit: EngineEdit) -> str:
        id = edit.id or f"engine{len(self.engines) + 1}"
        if edit.key is not None:
            self.keys[id] = edit.key
        host = edit.address.split("/")[2].partition(":")[0]
        name = edit.name or host
        has_key = bool(self.keys.get(id))
        self.engines[id] = EngineRow(
            id, name, edit.address, host, edit.headers, has_key, named=edit.named
        )
        return id

    def delete(self, id: str) -> None:
        self.deleted[id] = self.engines.pop(id)

    def restore(self, id: str) -> None:
        self.engines[id] = self.deleted.pop(id)

    def purge(self) -> None:
        for id in self.deleted:
            self.keys.pop(id, None)
        self.deleted.clear()

    def models(self, id: str) -> Sequence[str]:
        found = self.lists.get(self.engines[id].address, ())
        if isinstance(found, EngineFault):
            raise found
        return found

    def find(self) -> Sequence[FoundRow]:
        self.searches += 1
        return self.running
