"""The stored connections: a file of records, and their secrets in the keyring.

The file is read once and replaced after each change. Every method may be called from any thread;
those that write, and `credentials`, may block.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

from app.domain.connection import Connection, RemoteModel, ServerKind
from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote.errors import RemoteError
from app.engines.remote.keys import Credentials, KeyStore, is_secret
from app.engines.remote.values import object_of, rows_of, text_of
from app.system import json_file

HIDDEN = "••••"  # stands for the value of a secret header, which is not shown
_VERSION = 1  # of the file; a new key needs no new version
_KNOWN = {each.name for each in fields(Connection)} - {"unknown"}
_KINDS = tuple(each.value for each in ServerKind)
_MODEL_TYPES = get_type_hints(RemoteModel)
_log = logging.getLogger(__name__)


class ConnectionStore:
    """Reads and changes the connections."""

    def __init__(self, file: Path, keys: KeyStore) -> None:
        self._file, self._keys = file, keys
        self._guard = threading.RLock()
        self._connections: dict[str, Connection] | None = None
        self._unread: list[object] = []  # rows of a form that only a newer version knows

    def all(self) -> tuple[Connection, ...]:
        """The connections, in the order they were made."""
        return tuple(each for each in self._stored().values() if not each.deleted)

    def get(self, id: str) -> Connection:
        """A connection; raises RemoteError if it was deleted."""
        found = self._stored().get(id)
        if found is None or found.deleted:
            raise RemoteError(RemoteFaultKind.NO_CONNECTION, about=id)
        return found

    def credentials(self, connection: Connection) -> Credentials:
        """Its secrets; raises RemoteError if the keyring does not give them."""
        return self._keys.load(connection)

    def save(
        self, connection: Connection, key: str | None, headers: Iterable[tuple[str, str]]
    ) -> Connection:
        """Store a connection, new if its id is ""; returns it as it is stored.

        `key` None leaves the key, "" removes it. Those of `headers` that are secrets go to the
        keyring; one whose value is `HIDDEN` stays. Raises RemoteError and `JsonFileError`.
        """
        before = self._stored().get(connection.id)
        known = self._known_secrets(before, key, headers)
        hidden = {name.lower(): value for name, value in known.headers}
        given = [(name.strip(), value.strip()) for name, value in headers if name.strip()]
        secret = tuple(
            (name, hidden.get(name.lower(), "") if value == HIDDEN else value)
            for name, value in given
            if is_secret(name)
        )
        fresh = Credentials(known.key if key is None else key.strip(), secret)
        made = replace(
            connection,
            id=connection.id or secrets.token_hex(8),
            headers=tuple(each for each in given if not is_secret(each[0])),
            has_key=bool(fresh.key),
            secret_headers=tuple(name for name, _ in secret),
            unknown=before.unknown if before else connection.unknown,
        )
        if fresh != known:
            self._keys.save(made.id, fresh)
        self._put(made)
        return made

    def update(self, id: str, **values: Any) -> Connection:
        """Change fields of a connection that are no secrets; raises `JsonFileError`."""
        made = replace(self.get(id), **values)
        if made != self.get(id):
            self._put(made)
        return made

    def delete(self, id: str) -> None:
        """Delete a connection: `restore` takes it back until `purge`. Raises `JsonFileError`."""
        self._set_deleted(id, deleted=True)

    def restore(self, id: str) -> None:
        """Take back a deleted connection, with its secrets; raises `JsonFileError`."""
        self._set_deleted(id, deleted=False)

    def purge(self) -> None:
        """Forget the deleted connections and their secrets; raises `JsonFileError`."""
        with self._guard:
            stored = self._stored()
            gone = [each for each in stored.values() if each.deleted]
        for each in gone:  # first: a secret must not stay without its connection
            if each.has_secrets:
                self._keys.delete(each.id)
        with self._guard:
            ids = {each.id for each in gone}
            kept = {each.id: each for each in self._stored().values() if each.id not in ids}
            if gone:
                self._write(kept)

    # --- steps ----------------------------------------------------------------------------------

    def _known_secrets(
        self, before: Connection | None, key: str | None, headers: Iterable[tuple[str, str]]
    ) -> Credentials:
        """The secrets that are kept, as far as the edit keeps any of them."""
        if before is None:
            return Credentials()
        keeps = key is None or any(value == HIDDEN for _, value in headers)
        try:
            return self._keys.load(before)
        except RemoteError:
            if keeps:
                raise
            return Credentials()  # all of them are replaced

    def _stored(self) -> dict[str, Connection]:
        with self._guard:
            if self._connections is None:
                rows = rows_of(json_file.read(self._file).get("connections"))
                found = [each for each in map(_connection, rows) if each is not None]
                self._unread = [row for row in rows if object_of(row) and _connection(row) is None]
                self._connections = {each.id: each for each in found}
            return self._connections

    def _set_deleted(self, id: str, *, deleted: bool) -> None:
        found = self._stored().get(id)
        if found is not None and found.deleted != deleted:
            self._put(replace(found, deleted=deleted))

    def _put(self, connection: Connection) -> None:
        with self._guard:
            self._write({**self._stored(), connection.id: connection})

    def _write(self, connections: dict[str, Connection]) -> None:
        rows = [_row(each) for each in connections.values()]
        json_file.write(self._file, {"version": _VERSION, "connections": [*rows, *self._unread]})
        self._connections = connections


def shown_headers(connection: Connection) -> tuple[tuple[str, str], ...]:
    """All its headers, with `HIDDEN` for the values of secrets."""
    return (*connection.headers, *((name, HIDDEN) for name in connection.secret_headers))


def _row(connection: Connection) -> dict[str, Any]:
    return {
        **connection.unknown,
        "id": connection.id,
        "name": connection.name,
        "address": connection.address,
        "headers": [list(each) for each in connection.headers],
        "kind": connection.unknown.get("kind", connection.kind.value),
        "has_key": connection.has_key,
        "secret_headers": list(connection.secret_headers),
        "models": [_model_row(each) for each in connection.models],
        "named": list(connection.named),
        "consent": connection.consent,
        **({"deleted": True} if connection.deleted else {}),
    }


def _connection(row: object) -> Connection | None:
    """One row of the file; None when it is damaged."""
    values = object_of(row)
    id, address = text_of(values.get("id")), text_of(values.get("address"))
    if not id or not address:
        _log.warning("a connection in the file has no id or no address, and was skipped")
        return None
    headers: list[tuple[str, str]] = []
    for each in map(rows_of, rows_of(values.get("headers"))):
        match each:
            case [str(name), str(value)] if not is_secret(name):
                headers.append((name, value))
            case _:
                pass
    kind = values.get("kind")
    return Connection(
        id,
        text_of(values.get("name")),
        address,
        tuple(headers),
        next((each for each in ServerKind if each.value == kind), ServerKind.OPENAI),
        values.get("has_key") is True,
        _texts(values.get("secret_headers")),
        tuple(model for row in rows_of(values.get("models")) if (model := _model(row))),
        _texts(values.get("named")),
        text_of(values.get("consent")),
        values.get("deleted") is True,
        MappingProxyType(
            {
                name: value
                for name, value in values.items()
                if name not in _KNOWN or (name == "kind" and text_of(kind) not in ("", *_KINDS))
            }
        ),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(filter(None, map(text_of, rows_of(value))))


def _model_row(model: RemoteModel) -> dict[str, Any]:
    """The fields of a model that are not as usual."""
    usual = asdict(RemoteModel(model.id)) | {"id": ""}
    return {name: value for name, value in asdict(model).items() if value != usual[name]}


def _model(row: object) -> RemoteModel | None:
    """One model of the file; a field of a wrong type is as usual."""
    values = object_of(row)
    fitting = {
        name: values[name]
        for name, kind in _MODEL_TYPES.items()
        if name in values and isinstance(values[name], kind)
    }
    return RemoteModel(**fitting) if fitting.get("id") else None
