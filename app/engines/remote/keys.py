"""Keys of connections: in the system's keyring, or in a file that only the user can read.

What was read once is kept in memory: an answer does not wait for the keyring again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from app.domain.connection import Connection
from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote.errors import RemoteError
from app.engines.remote.values import object_of, rows_of, text_of
from app.system.secret_store import Keyring, NoKeyring, SecretStore, system_keyring

# Words in names of headers whose values are secrets.
_SECRET = ("auth", "key", "token", "secret", "cookie", "password", "signature", "credential")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The secrets of a connection; their texts are in no `repr`."""

    key: str = field(default="", repr=False)  # sent as "Authorization: Bearer"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # that are secrets

    def __bool__(self) -> bool:
        return bool(self.key or self.headers)

    def hidden(self, text: str) -> str:
        """A text of a server without these secrets, which some servers repeat."""
        for secret in (self.key, *(value for _, value in self.headers)):
            if len(secret) >= 4:
                text = text.replace(secret, "…")
        return text


NO_CREDENTIALS = Credentials()


def is_secret(header: str) -> bool:
    """Whether a header's value is kept with the keys."""
    return any(word in header.lower() for word in _SECRET)


class KeyStore:
    """Reads, writes and deletes credentials; call it on one worker's thread at a time."""

    def __init__(
        self,
        file: Path,
        keyring: Callable[[], Keyring] = system_keyring,
        seconds: float = 30.0,
    ) -> None:
        """`file` has the keys that the keyring does not take."""
        self._secrets = SecretStore(file, keyring, seconds)
        self._read: dict[str, Credentials] = {}

    def load(self, connection: Connection) -> Credentials:
        """The credentials of a connection; raises RemoteError if the keyring does not give them."""
        if not connection.has_secrets:
            return NO_CREDENTIALS
        if connection.id not in self._read:
            try:
                text = self._secrets.load(connection.id)
            except NoKeyring as error:
                raise RemoteError(RemoteFaultKind.KEYRING, about=str(error)) from error
            self._read[connection.id] = _credentials(text)
        return self._read[connection.id]

    def save(self, id: str, credentials: Credentials) -> None:
        """Replace the credentials of a connection; raises `JsonFileError`."""
        if not credentials:
            self.delete(id)
            return
        self._secrets.save(id, json.dumps({"key": credentials.key, "headers": credentials.headers}))
        self._read[id] = credentials

    def delete(self, id: str) -> None:
        """Delete the credentials of a connection; raises `JsonFileError`."""
        self._read.pop(id, None)
        self._secrets.delete(id)


def _credentials(text: str | None) -> Credentials:
    """The credentials of an entry; none of a damaged one."""
    try:
        found = object_of(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return NO_CREDENTIALS
    headers: list[tuple[str, str]] = []
    for row in map(rows_of, rows_of(found.get("headers"))):
        match row:
            case [str(name), str(value)]:
                headers.append((name, value))
            case _:
                pass
    return Credentials(text_of(found.get("key")), tuple(headers))
