"""Secrets of the app: in the system's keyring, or in a file that only the user can read.

The keyring may ask the user to unlock it, hang without a desktop, or be absent. Every call to it
therefore has a time limit; call these methods on a worker's thread. Where it does not take a
secret, the file does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar, cast

from app.system import json_file
from app.system.translation import tr

T = TypeVar("T")
_log = logging.getLogger(__name__)
_SERVICE = "Tokonoma"  # name of the entries in the keyring
_SECONDS = 30.0  # for the user to unlock it


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


class SecretStore:
    """Reads, writes and deletes secret texts by id; any thread but that of the window may call."""

    def __init__(
        self,
        file: Path,
        keyring: Callable[[], Keyring] = system_keyring,
        seconds: float = _SECONDS,
    ) -> None:
        """`file` has the secrets that the keyring does not take."""
        self._file, self._keyring, self._seconds = file, keyring, seconds
        self._guard = threading.Lock()  # of the file, which is read, changed and replaced
        self._hung = False  # a call did not end in time: it is not asked again in this run

    def load(self, id: str) -> str | None:
        """A secret, None without one; raises NoKeyring if the keyring does not give it."""
        text = self._filed().get(id)
        if isinstance(text, str):
            return text
        return self._ask(lambda ring: ring.get_password(_SERVICE, id))

    def save(self, id: str, text: str) -> None:
        """Make or replace a secret; raises `JsonFileError`."""
        try:
            self._ask(lambda ring: ring.set_password(_SERVICE, id, text))
        except NoKeyring as error:
            _log.info("a key is kept in a file: %s", error)
            with self._guard:
                self._write({**self._filed(), id: text})
        else:
            self._unfile(id)

    def delete(self, id: str) -> None:
        """Delete a secret; raises `JsonFileError`."""
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
        with self._guard:
            entries = self._filed()
            if entries.pop(id, None) is not None:
                self._write(entries)

    def _write(self, entries: dict[str, object]) -> None:
        """Replace the file; only the user can read it, also while it is written."""
        json_file.replace(self._file, dict(entries))
