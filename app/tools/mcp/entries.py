"""The stored servers of tools: one JSON file that only the user can read.

The file is read once and replaced after each change. Every method may be called from any thread;
those that write may block.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from app.system import json_file
from app.system.translation import tr
from app.tools.mcp import import_json
from app.tools.mcp.entry import EntryError, ServerEntry, checked, from_json, to_json

_VERSION = 1  # of the file; a new key needs no new version
_log = logging.getLogger(__name__)


class EntryStore:
    """Reads and changes the entries."""

    def __init__(
        self, file: Path, make_id: Callable[[], str] = lambda: secrets.token_hex(8)
    ) -> None:
        self._file, self._make_id = file, make_id
        self._guard = threading.RLock()
        self._entries: dict[str, ServerEntry] | None = None
        self._unread: list[object] = []  # rows that this version cannot read
        self.problems: tuple[str, ...] = ()  # why, one sentence each

    def all(self) -> tuple[ServerEntry, ...]:
        """The entries, in the order they were made."""
        return tuple(self._stored().values())

    def get(self, id: str) -> ServerEntry | None:
        """An entry; None if it was deleted."""
        return self._stored().get(id)

    def save(self, entry: ServerEntry) -> ServerEntry:
        """Store an entry, new if its id is ""; returns it as it is stored.

        Raises EntryError, also for a name that another server has, and `JsonFileError`.
        """
        with self._guard:
            made = checked(replace(entry, id=entry.id or self._make_id()))
            for each in self._stored().values():
                if each.id != made.id and each.name.casefold() == made.name.casefold():
                    raise EntryError(
                        tr("Another server is named “{name}”.", name=made.name),
                        tr("Enter another name."),
                    )
            self._write({**self._stored(), made.id: made})
        return made

    def delete(self, id: str) -> None:
        """Delete an entry; raises `JsonFileError`."""
        with self._guard:
            self._write({each.id: each for each in self.all() if each.id != id})

    def add(self, text: str) -> import_json.Imported:
        """Store the servers of another program's file, all of them off; raises `JsonFileError`."""
        found = import_json.read(text)
        with self._guard:
            stored = dict(self._stored())
            names = {each.name.casefold() for each in stored.values()}
            added: list[ServerEntry] = []
            for entry in found.entries:
                name, count = entry.name, 2
                while name.casefold() in names:
                    name, count = f"{entry.name[:56]} {count}", count + 1
                names.add(name.casefold())
                made = replace(entry, id=self._make_id(), name=name, enabled=False)
                stored[made.id] = made
                added.append(made)
            if added:
                self._write(stored)
        return import_json.Imported(tuple(added), found.problems)

    def _stored(self) -> dict[str, ServerEntry]:
        with self._guard:
            if self._entries is None:
                rows = json_file.read(self._file).get("servers")
                self._entries = {}
                problems: list[str] = []
                for row in cast("list[object]", rows) if isinstance(rows, list) else []:
                    try:
                        entry = from_json(row)
                    except EntryError as error:
                        problems.append(str(error))
                        self._unread.append(row)
                        continue
                    self._entries[entry.id or self._make_id()] = entry
                self.problems = tuple(problems)
                for each in problems:
                    _log.warning("a server of tools was skipped: %s", each)
            return self._entries

    def _write(self, entries: dict[str, ServerEntry]) -> None:
        rows: list[Any] = [to_json(each) for each in entries.values()]
        json_file.write(self._file, {"version": _VERSION, "servers": [*rows, *self._unread]})
        self._entries = entries
