"""One server of tools as the user wrote it: a program to start, or an address."""

from __future__ import annotations

import hashlib
import json
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, cast

from app.net.http import WebError, check_address
from app.system.translation import number, tr

SECONDS = 60.0  # time limit of a call, unless the entry has one
MOST_SECONDS = 600.0  # also with progress
_MOST_NAME = 64  # letters
_MOST_TEXT = 65_536  # letters of a command with its arguments, or of a value
_MOST_ITEMS = 256  # arguments, variables or headers
_PLAIN = re.compile(r"[\w@%+=:,./~^-]+", re.ASCII)  # words that are shown without quotes
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
# Headers that the connection itself writes.
_OWN_HEADERS = frozenset(
    ("accept", "connection", "content-length", "content-type", "host", "mcp-protocol-version",
     "mcp-session-id", "te", "trailer", "transfer-encoding", "upgrade")
)  # fmt: skip

Pairs = tuple[tuple[str, str], ...]


class EntryError(Exception):
    """An entry that cannot be used: `str(error)` is what is wrong, `remedy` the advice."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server: a command (stdio), or an address (HTTP). Values of secrets are in no `repr`."""

    id: str  # made by the app, never changed; "": not stored yet
    name: str  # displayed, and before names of its tools where two servers have the same
    command: str = ""
    arguments: tuple[str, ...] = ()
    folder: str = ""  # that the command runs in; "": the home folder
    environment: Pairs = field(default=(), repr=False)  # variables that it gets
    address: str = ""
    headers: Pairs = field(default=(), repr=False)  # sent with every request
    client_id: str = ""  # of the app at the login, where the server does not give it one itself
    client_secret: str = field(default="", repr=False)
    enabled: bool = False  # the user wants it to run; it starts only by `McpServers.start`
    seconds: float = SECONDS  # time limit of a call without progress
    with_app: bool = False  # if `enabled`, it starts with the app
    allowed: str = field(default="", repr=False)  # the `origin` that the user allowed to start

    @property
    def may_start(self) -> bool:
        """Whether it is what the user allowed to start."""
        return self.allowed == self.origin

    @property
    def is_http(self) -> bool:
        """Whether it is reached by its address."""
        return bool(self.address)

    @property
    def login_id(self) -> str:
        """Under which the tokens of its login are kept."""
        return f"mcp:{self.id}"

    @property
    def where(self) -> str:
        """Its command without arguments, or its host, as sentences name it."""
        if self.is_http:
            return urllib.parse.urlsplit(self.address).netloc
        return self.command

    @property
    def command_line(self) -> str:
        """The whole command; two that differ are never shown alike."""
        return " ".join(map(exact, (self.command, *self.arguments)))

    @property
    def origin(self) -> str:
        """What the user allows: every word of the command, or the address, one thing a line.

        Values of variables and headers may be secrets: their hashes stand for them.
        """
        lines = [exact(self.address)] if self.is_http else [self.command_line]
        if self.folder:
            lines.append(f"folder: {exact(self.folder)}")
        login = (("client", self.client_id), ("secret", self.client_secret))
        kinds = (
            ("environment", self.environment),
            ("header", self.headers),
            ("login", tuple((name, value) for name, value in login if value)),
        )
        for kind, pairs in kinds:
            lines += [
                f"{kind}: {exact(name)} (value {_mark(name, value)})" for name, value in pairs
            ]
        return "\n".join(lines)


def exact(text: str) -> str:
    """A text that shows every letter: in quotes, with escapes for what a window does not show."""
    if _PLAIN.fullmatch(text):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else _escape(each) for each in quoted)


def checked(entry: ServerEntry) -> ServerEntry:
    """The entry without spaces around its texts; raises EntryError."""
    name = " ".join(entry.name.split())
    entry = replace(
        entry,
        name=name,
        command=entry.command.strip(),
        folder=entry.folder.strip(),
        address=entry.address.strip(),
    )
    if not name or len(name) > _MOST_NAME or not name.isprintable():
        raise EntryError(
            tr("The server has no name of 1 to {count} letters.", count=number(_MOST_NAME)),
            tr("Enter a short name."),
        )
    if bool(entry.command) == bool(entry.address):
        raise EntryError(
            tr("The server “{name}” needs a command or an address.", name=name),
            tr("Enter one of the two."),
        )
    if not 1 <= entry.seconds <= MOST_SECONDS:
        raise EntryError(
            tr("The time limit of “{name}” is not from 1 to 600 seconds.", name=name),
            tr("Enter another number."),
        )
    if entry.is_http:
        return _checked_address(replace(entry, arguments=(), folder="", environment=()))
    return _checked_command(replace(entry, headers=(), client_id="", client_secret=""))


def to_json(entry: ServerEntry) -> dict[str, Any]:
    """The entry as an object of the file."""
    made: dict[str, Any] = {"id": entry.id, "name": entry.name, "enabled": entry.enabled}
    if entry.is_http:
        made |= {
            "address": entry.address,
            "headers": dict(entry.headers),
            "client_id": entry.client_id,
            "client_secret": entry.client_secret,
        }
    else:
        made |= {
            "command": entry.command,
            "arguments": list(entry.arguments),
            "folder": entry.folder,
            "environment": dict(entry.environment),
        }
    return made | {
        "seconds": entry.seconds, "with_app": entry.with_app, "allowed": entry.allowed
    }  # fmt: skip


def from_json(row: object) -> ServerEntry:
    """The entry of an object of the file; raises EntryError."""
    values = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    name = _text(values, "name", "?")
    seconds = values.get("seconds", SECONDS)
    return checked(
        ServerEntry(
            _text(values, "id", name),
            name,
            _text(values, "command", name),
            texts(values.get("arguments", []), name, "arguments"),
            _text(values, "folder", name),
            pairs(values.get("environment", {}), name, "environment"),
            _text(values, "address", name),
            pairs(values.get("headers", {}), name, "headers"),
            _text(values, "client_id", name),
            _text(values, "client_secret", name),
            values.get("enabled") is True,
            float(seconds) if _is_number(seconds) else 0.0,
            values.get("with_app") is True,
            _text(values, "allowed", name),
        )
    )


def texts(value: object, name: str, key: str) -> tuple[str, ...]:
    """A list of texts; numbers are taken as texts. Raises EntryError."""
    rows = cast("list[object]", value) if isinstance(value, list) else None
    if rows is None or not all(isinstance(each, str) or _is_number(each) for each in rows):
        raise _wrong(name, key)
    return tuple(map(str, rows))


def pairs(value: object, name: str, key: str) -> Pairs:
    """Names with texts; numbers and truth values are taken as texts. Raises EntryError."""
    found = cast("Mapping[object, object]", value) if isinstance(value, dict) else None
    if found is None:
        raise _wrong(name, key)
    made: list[tuple[str, str]] = []
    for each, text in found.items():
        if isinstance(text, bool):
            text = "true" if text else "false"
        if not isinstance(text, str) and not _is_number(text):
            raise _wrong(name, key)
        made.append((str(each), str(text)))
    return tuple(made)


def _checked_command(entry: ServerEntry) -> ServerEntry:
    words: Sequence[str] = (entry.command, *entry.arguments, entry.folder)
    if any("\0" in each for each in words) or sum(map(len, words)) > _MOST_TEXT:
        raise _wrong(entry.name, "command")
    if len(entry.arguments) > _MOST_ITEMS:
        raise _wrong(entry.name, "arguments")
    if entry.folder and not PurePath(entry.folder).is_absolute():
        raise EntryError(
            tr("The folder of “{name}” is not a full path.", name=entry.name),
            tr("Enter the path from the root of the drive."),
        )
    for each, value in entry.environment:
        if not each or "=" in each or "\0" in each + value or len(value) > _MOST_TEXT:
            raise _wrong(entry.name, "environment")
    if len(entry.environment) > _MOST_ITEMS:
        raise _wrong(entry.name, "environment")
    return entry


def _checked_address(entry: ServerEntry) -> ServerEntry:
    try:
        parts = check_address(entry.address)
    except WebError as error:
        raise EntryError(
            tr("The address of “{name}” cannot be used: {reason}", name=entry.name, reason=error),
            error.remedy,
        ) from error
    if parts.fragment or len(entry.address) > _MOST_TEXT or not entry.address.isprintable():
        raise _wrong(entry.name, "address")
    for each, value in entry.headers:
        if (
            not _HEADER.fullmatch(each)
            or each.lower() in _OWN_HEADERS
            or not value.isascii()
            or any(ord(letter) < 32 or ord(letter) == 127 for letter in value)
            or len(value) > _MOST_TEXT
        ):
            raise _wrong(entry.name, "headers")
    if len(entry.headers) > _MOST_ITEMS:
        raise _wrong(entry.name, "headers")
    login = entry.client_id + entry.client_secret
    if not login.isascii() or not login.isprintable() or len(login) > _MOST_TEXT:
        raise _wrong(entry.name, "client_id")
    return entry


def _wrong(name: str, key: str) -> EntryError:
    return EntryError(
        tr(
            "The server “{name}” has a value under “{key}” that cannot be used.", name=name, key=key
        ),
        tr("Correct it, or leave it out."),
    )


def _text(values: Mapping[str, Any], key: str, name: str) -> str:
    value = values.get(key, "")
    if not isinstance(value, str):
        raise _wrong(name, key)
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mark(name: str, value: str) -> str:
    """A short hash of a value, which changes with it and does not tell it."""
    return hashlib.sha256(f"{name}\0{value}".encode("utf-8", "replace")).hexdigest()[:16]


def _escape(letter: str) -> str:
    if ord(letter) > 0xFFFF:
        return f"\\U{ord(letter):08x}"
    return f"\\u{ord(letter):04x}"
