"""Record of every address this app ever spoke to: host, port, purpose, counts, times, bytes.

It never holds a path, a query or a header, which could contain words of the user. The file is
written a moment after a change, on a thread of its own, and at the end by `close`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, cast

from app.system import json_file

_log = logging.getLogger(__name__)
_SAVE_SECONDS = 5.0  # after a change; many changes are written once
_MAX_CONTACTS = 500  # a direct link may name any host; those used least recently are dropped


class Purpose(Enum):
    """Why an address was spoken to."""

    SEARCH = "search"  # for models, on the model server
    DOWNLOAD = "download"  # of a model
    GPU_SUPPORT = "gpu support"  # download of its packages
    PROXY = "proxy"  # that passes connections on
    ANSWERS = "answers"  # by an engine elsewhere
    MODELS = "models"  # the list of an engine elsewhere, or a test of the connection
    DISCOVERY = "discovery"  # of engines on this machine
    TOOLS = "tools"  # a server of tools, its login, or a page or search that a model asked for
    UPDATE = "update"  # whether there is a newer version of the app, or its package


@dataclass(frozen=True, slots=True)
class Contact:
    """What was exchanged with one port of a host for one purpose; times are Unix seconds."""

    host: str
    port: int
    purpose: Purpose
    count: int = 0  # requests
    first: float = 0.0
    last: float = 0.0
    sent_bytes: int = 0  # of bodies, without headers
    received_bytes: int = 0
    refused: int = 0  # requests that the offline switch refused


Key = tuple[str, int, Purpose]
_FIELDS = frozenset(each.name for each in fields(Contact))


class Ledger:
    """The contacts; every method may be called from any thread, and none blocks on the disk."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._path: Path | None = None
        self._contacts: dict[Key, Contact] = {}
        self._others: list[object] = []  # rows with a purpose of a newer version
        self._guard = threading.Lock()
        self._writing = threading.Lock()
        self._timer: threading.Timer | None = None

    def open(self, path: Path) -> None:
        """Read the contacts of earlier runs, and write to this file from now on."""
        with self._guard:
            self._path = path
            stored: object = json_file.read(path).get("contacts")
            rows = cast("list[object]", stored) if isinstance(stored, list) else []
            for row in rows:
                if (contact := _contact(row)) is not None:
                    self._add(contact)
                elif _is_of_newer(row):
                    self._others.append(row)

    def all(self) -> tuple[Contact, ...]:
        """Every contact, the latest first."""
        with self._guard:
            return tuple(sorted(self._contacts.values(), key=lambda each: -each.last))

    def record(
        self, key: Key, *, count: int = 0, sent: int = 0, received: int = 0, refused: int = 0
    ) -> None:
        """Add to a contact: requests, bytes of bodies, refusals by the offline switch."""
        now = self._now()
        with self._guard:
            self._add(Contact(*key, count, now, now, sent, received, refused))
            self._schedule()

    def clear(self) -> None:
        """Forget all contacts."""
        with self._guard:
            self._contacts.clear()
            self._others.clear()
            self._schedule()

    def close(self) -> None:
        """Write what is not written yet; what comes later is kept in memory only."""
        with self._guard:
            timer = self._timer
        if timer is not None:
            timer.cancel()
            self._save()
        with self._guard:
            self._path = None

    def _add(self, more: Contact) -> None:
        key = (more.host, more.port, more.purpose)
        known = self._contacts.get(key)
        self._contacts[key] = more if known is None else _sum(known, more)
        if len(self._contacts) > _MAX_CONTACTS:
            oldest = min(self._contacts, key=lambda each: self._contacts[each].last)
            del self._contacts[oldest]

    def _schedule(self) -> None:
        if self._timer is None and self._path is not None:
            self._timer = threading.Timer(_SAVE_SECONDS, self._save)
            self._timer.daemon = True
            self._timer.start()

    def _save(self) -> None:
        with self._writing:
            with self._guard:
                self._timer, path = None, self._path
                rows = [
                    {**asdict(each), "purpose": each.purpose.value}
                    for each in self._contacts.values()
                ]
                rows = [*rows, *self._others]
            if path is None:
                return
            try:
                json_file.write(path, {"contacts": rows})
            except json_file.JsonFileError as error:
                _log.warning("the list of connections could not be saved: %s", error)


def _sum(known: Contact, more: Contact) -> Contact:
    return replace(
        known,
        count=known.count + more.count,
        first=min(known.first, more.first),
        last=max(known.last, more.last),
        sent_bytes=known.sent_bytes + more.sent_bytes,
        received_bytes=known.received_bytes + more.received_bytes,
        refused=known.refused + more.refused,
    )


def _is_of_newer(row: object) -> bool:
    """Whether a row has a purpose that only a newer version knows."""
    match row:
        case {"host": str(), "purpose": str(purpose)}:
            return purpose not in {each.value for each in Purpose}
        case _:
            return False


def _contact(row: object) -> Contact | None:
    """One row of the file; None when it is damaged."""
    stored = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    values = {name: value for name, value in stored.items() if name in _FIELDS}
    try:
        purpose = Purpose(values.pop("purpose", None))
        contact = Contact(purpose=purpose, **values)
    except (TypeError, ValueError):
        return None
    numbers = (
        contact.port, contact.count, contact.sent_bytes, contact.received_bytes, contact.refused,
        contact.first, contact.last,
    )  # fmt: skip
    fits = all(type(each) in (int, float) and 0 <= each < 1e18 for each in numbers)
    return contact if fits and type(contact.host) is str else None
