"""The stored servers of tools: one JSON file that only the user can read, and its secrets.

Values of variables and headers are kept with the secrets, the file has only their names. The file
is read once and replaced after each change. Every method may be called from any thread; the first
one, and those that write, may block.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from app.system import json_file
from app.system.secret_store import NoKeyring, SecretStore
from app.system.translation import sentences, tr
from app.tools.mcp import import_json
from app.tools.mcp.entry import EntryError, ServerEntry, checked, from_json, to_json

_VERSION = 1  # of the file; a new key needs no new version
_SECRET = ("environment", "headers", "client_secret")  # keys of a row
_log = logging.getLogger(__name__)


class EntryStore:
    """Reads and changes the entries."""

    def __init__(
        self,
        file: Path,
        make_id: Callable[[], str] = lambda: secrets.token_hex(8),
        secret_store: SecretStore | None = None,
    ) -> None:
        """Without a `secret_store` the file has the secrets too."""
        self._file, self._make_id, self._secrets = file, make_id, secret_store
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
            if self._secrets is not None:
                self._secrets.delete(_secret_id(id))

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
        if (known := self._entries) is not None:  # a change may hold the lock for long
            return known
        with self._guard:
            if self._entries is None:
                rows = json_file.read(self._file).get("servers")
                entries: dict[str, ServerEntry] = {}
                problems: list[str] = []
                for row in cast("list[object]", rows) if isinstance(rows, list) else []:
                    try:
                        entry = from_json(self._filled(row))
                    except EntryError as error:
                        problems.append(str(error))
                        self._unread.append(row)
                        continue
                    entries[entry.id or self._make_id()] = entry
                self.problems = tuple(problems)
                self._entries = entries
                for each in problems:
                    _log.warning("a server of tools was skipped: %s", each)
            return self._entries

    def _filled(self, row: object) -> object:
        """A row of the file with its secrets; raises EntryError if the keyring does not give them."""
        if self._secrets is None or not isinstance(row, dict):
            return row
        values = cast("dict[str, Any]", row)
        if values.get("has_secrets") is not True:
            return values
        try:
            text = self._secrets.load(_secret_id(str(values.get("id"))))
            found: object = json.loads(text or "")
        except NoKeyring as error:
            words = tr(
                "The secrets of “{name}” are in the keyring, which cannot be read: {reason}.",
                name=values.get("name"),
                reason=error,
            )
            remedy = tr("Unlock the keyring, and start Tokonoma again.")
            raise EntryError(sentences(words, remedy), remedy) from error
        except ValueError:  # they were deleted there: the names stay, without values
            found = None
        return values | (cast("dict[str, Any]", found) if isinstance(found, dict) else {})

    def _write(self, entries: dict[str, ServerEntry]) -> None:
        rows: list[Any] = [self._row(each) for each in entries.values()]
        json_file.write(self._file, {"version": _VERSION, "servers": [*rows, *self._unread]})
        self._entries = entries

    def _row(self, entry: ServerEntry) -> dict[str, Any]:
        """An entry as the file has it; its secrets are kept with the others, if they changed."""
        row = to_json(entry)
        hidden = {key: row[key] for key in _SECRET if row.get(key)}
        if self._secrets is None:
            return row
        before = (self._entries or {}).get(entry.id)
        known = to_json(before) if before is not None else {}
        if hidden != {key: known[key] for key in _SECRET if known.get(key)}:
            if hidden:
                self._secrets.save(_secret_id(entry.id), json.dumps(hidden))
            else:
                self._secrets.delete(_secret_id(entry.id))
        for key, value in hidden.items():
            row[key] = "" if isinstance(value, str) else dict.fromkeys(value, "")
        return row | {"has_secrets": True} if hidden else row


def _secret_id(id: str) -> str:
    """Under which the secrets of an entry are kept."""
    return f"mcp values:{id}"
