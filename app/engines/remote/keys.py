"""Keys of connections: in the system's keyring, or in a file that only the user can read.

The keyring may ask the user to unlock it, hang without a desktop, or be absent. Every call to it
therefore has a time limit; call these methods on a worker's thread. Where it does not take a key,
the file does. What was read once is kept in memory: an answer does not wait for the keyring again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar, cast

from app.domain.connection import Connection
from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote.errors import RemoteError
from app.engines.remote.values import object_of, rows_of, text_of
from app.system import json_file
from app.system.translation import tr

T = TypeVar("T")
_log = logging.getLogger(__name__)
_SERVICE = "Tokonoma"  # name of the entries in the keyring
_SECONDS = 30.0  # for the user to unlock it
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


class Keyring(Protocol):
    """Interface of the `keyring` package's backends."""

    def get_password(self, service: str, username: str, /) -> str | None:
        """The entry, None without one."""
        ...

    def set_password(self, service: str, username: str, password: str, /) -> None:
        """Make or replace an entry."""
        ...

    def delete_password(self, service: str, username: str, /) -> None:
        """Delete an entry; raises if there is none."""
        ...


class NoKeyring(Exception):
    """The keyring is absent, locked or does not answer: `str(error)` says which."""


def is_secret(header: str) -> bool:
    """Whether a header's value is kept with the keys."""
    return any(word in header.lower() for word in _SECRET)


def system_keyring() -> Keyring:
    """The keyring of this system; raises NoKeyring. Importing it may take seconds."""
    try:
        import keyring
        from keyring.backends import fail, null

        found = keyring.get_keyring()
    except Exception as error:
        raise NoKeyring(str(error) or type(error).__name__) from error
    if isinstance(found, fail.Keyring | null.Keyring):
        raise NoKeyring(tr("no keyring was found"))
    return cast("Keyring", found)


class KeyStore:
    """Reads, writes and deletes credentials; call it on one worker's thread at a time."""

    def __init__(
        self,
        file: Path,
        keyring: Callable[[], Keyring] = system_keyring,
        seconds: float = _SECONDS,
    ) -> None:
        """`file` has the keys that the keyring does not take."""
        self._file, self._keyring, self._seconds = file, keyring, seconds
        self._read: dict[str, Credentials] = {}
        self._hung = False  # a call did not end in time: it is not asked again in this run

    def load(self, connection: Connection) -> Credentials:
        """The credentials of a connection; raises RemoteError if the keyring does not give them."""
        if not connection.has_secrets:
            return NO_CREDENTIALS
        if connection.id not in self._read:
            text = self._filed().get(connection.id)
            if not isinstance(text, str):
                try:
                    text = self._ask(lambda ring: ring.get_password(_SERVICE, connection.id))
                except NoKeyring as error:
                    raise RemoteError(RemoteFaultKind.KEYRING, about=str(error)) from error
            self._read[connection.id] = _credentials(text)
        return self._read[connection.id]

    def save(self, id: str, credentials: Credentials) -> None:
        """Replace the credentials of a connection; raises `JsonFileError`."""
        if not credentials:
            self.delete(id)
            return
        text = json.dumps({"key": credentials.key, "headers": credentials.headers})
        try:
            self._ask(lambda ring: ring.set_password(_SERVICE, id, text))
        except NoKeyring as error:
            _log.info("a key is kept in a file: %s", error)
            self._write({**self._filed(), id: text})
        else:
            self._unfile(id)
        self._read[id] = credentials

    def delete(self, id: str) -> None:
        """Delete the credentials of a connection; raises `JsonFileError`."""
        self._read.pop(id, None)
        self._unfile(id)
        try:
            if self._ask(lambda ring: ring.get_password(_SERVICE, id)) is not None:
                self._ask(lambda ring: ring.delete_password(_SERVICE, id))
        except NoKeyring as error:
            _log.info("the keyring was not asked to delete a key: %s", error)

    def _ask(self, call: Callable[[Keyring], T]) -> T:
        """Call the keyring on a thread of its own; raises NoKeyring, also when it takes too long."""
        if self._hung:
            raise NoKeyring(tr("it does not answer"))
        results: list[T] = []
        errors: list[str] = []

        def work() -> None:
            try:
                results.append(call(self._keyring()))
            except Exception as error:  # noqa: BLE001  (backends raise errors of many libraries)
                errors.append(str(error) or type(error).__name__)

        thread = threading.Thread(target=work, name="keyring", daemon=True)
        thread.start()
        thread.join(self._seconds)
        if thread.is_alive():
            self._hung = True
            raise NoKeyring(tr("it does not answer"))
        if errors:
            raise NoKeyring(errors[0])
        return results[0]

    def _filed(self) -> dict[str, object]:
        """The entries of the file, which is made private if others could read it."""
        if os.name != "nt":
            with contextlib.suppress(OSError):
                if stat.S_IMODE(self._file.stat().st_mode) & 0o077:
                    self._file.chmod(0o600)
        return json_file.read(self._file)

    def _unfile(self, id: str) -> None:
        entries = self._filed()
        if entries.pop(id, None) is not None:
            self._write(entries)

    def _write(self, entries: dict[str, object]) -> None:
        """Replace the file; only the user can read it, also while it is written."""
        json_file.replace(self._file, dict(entries))


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
