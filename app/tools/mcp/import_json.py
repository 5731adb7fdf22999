"""Reads servers of tools from the files of other programs: `mcp.json` and its relatives.

Cursor, Claude Desktop and LM Studio write {"mcpServers": {NAME: {...}}}, VS Code {"servers": ...},
also inside {"mcp": ...}. Nothing that allows or starts anything is taken over: every entry is off,
and lists of tools that need no consent there are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from app.system.translation import sentences, tr
from app.tools.mcp.entry import (
    MOST_SECONDS,
    SECONDS,
    EntryError,
    ServerEntry,
    checked,
    pairs,
    texts,
)

_MOST_BYTES = 1_000_000
_MOST_SERVERS = 100
_MAPS = ("mcpServers", "servers")
_STDIO = frozenset(("", "stdio", "local"))
_HTTP = frozenset(
    ("", "http", "https", "streamable-http", "streamablehttp", "streamable_http", "remote")
)
_ADDRESSES = ("url", "serverUrl", "httpUrl")
_PLACEHOLDER = re.compile(r"\$\{[^}]*\}")
# A text in quotes, or a comment, or a comma before a closing bracket: only the first is kept.
_TOKENS = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/|,(?=\s*(?:[}\]]))', re.DOTALL)
_COMMENTS = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Imported:
    """The entries of a file, and one sentence for each thing that was not taken over."""

    entries: tuple[ServerEntry, ...]
    problems: tuple[str, ...]


def read(text: str) -> Imported:
    """The servers of a file; each is checked, off, and without an id."""
    servers = _servers(_parsed(text))
    if servers is None:
        return Imported((), (tr("This text contains no servers of tools."),))
    entries: list[ServerEntry] = []
    problems: list[str] = []
    for name, value in list(servers.items())[:_MOST_SERVERS]:
        try:
            entry = _entry(name, value)
        except EntryError as error:
            problems.append(sentences(str(error), error.remedy))
            continue
        entries.append(entry)
        texts_of = (*entry.arguments, entry.command, entry.folder, entry.address)
        values = (text for _, text in (*entry.environment, *entry.headers))
        if found := [one for each in (*texts_of, *values) for one in _PLACEHOLDER.findall(each)]:
            problems.append(
                tr(
                    "“{name}” contains {placeholder}, which only the other program fills in: "
                    "enter the value itself.",
                    name=entry.name,
                    placeholder=found[0],
                )
            )
    if len(servers) > _MOST_SERVERS:
        problems.append(tr("Only the first 100 servers were read."))
    return Imported(tuple(entries), tuple(problems))


def _parsed(text: str) -> object:
    """The value of a JSON text, which may have comments, and may be only a part of a file."""
    if len(text) > _MOST_BYTES:
        return None
    text = text.lstrip("\ufeff").strip()
    plain = _COMMENTS.sub(lambda found: found[1] or " ", text)
    plain = _TOKENS.sub(lambda found: found[1] or "", plain).strip()
    for attempt in (text, plain, f"{{{plain.removesuffix(',')}}}"):
        try:
            return json.loads(attempt)
        except (ValueError, RecursionError):
            continue
    return None


def _servers(value: object) -> Mapping[str, object] | None:
    """The map of servers in a value; None without one."""
    found = _object(value)
    if found is None:
        return None
    for key in _MAPS:
        if (servers := _object(found.get(key))) is not None:
            return servers
    inner = _object(found.get("mcp"))
    if inner is not None:
        return _servers(inner)
    is_map = bool(found) and all(_looks_like_one(each) for each in found.values())
    return found if is_map else None


def _looks_like_one(value: object) -> bool:
    found = _object(value)
    return found is not None and any(key in found for key in ("command", *_ADDRESSES))


def _entry(name: str, value: object) -> ServerEntry:
    """One server; raises EntryError."""
    name = " ".join("".join(each if each.isprintable() else " " for each in name).split())
    name = name[:64].strip() or "?"
    found = _object(value)
    if found is None:
        raise EntryError(
            tr(
                "The server “{name}” has a value under “{key}” that cannot be used.",
                name=name,
                key=name,
            ),
            tr("Correct it, or leave it out."),
        )
    address = next((text for key in _ADDRESSES if (text := found.get(key))), "")
    kind = str(found.get("type") or found.get("transport") or "").lower()
    if address and kind == "sse":
        raise EntryError(
            tr("“{name}” uses the transport SSE of 2024, which is not supported.", name=name),
            tr("Enter the server's address for streamable HTTP."),
        )
    if kind not in (_HTTP if address else _STDIO):
        raise EntryError(
            tr(
                "“{name}” uses the transport “{kind}”, which is not known.",
                name=name,
                kind=kind[:40],
            ),
            tr("Enter a command, or an address for streamable HTTP."),
        )
    command = found.get("command", "")
    folder = found.get("cwd") or ""
    if not all(isinstance(each, str) for each in (command, folder, address)):
        raise EntryError(
            tr(
                "The server “{name}” has a value under “{key}” that cannot be used.",
                name=name,
                key="command",
            ),
            tr("Correct it, or leave it out."),
        )
    return checked(
        ServerEntry(
            "",
            name,
            "" if address else str(command),
            texts(found.get("args") or [], name, "args"),
            str(folder),
            pairs(_filled(found.get("env")), name, "env"),
            str(address),
            pairs(_filled(found.get("headers")), name, "headers"),
            seconds=_seconds(found),
        )
    )


def _filled(value: object) -> object:
    """A map without its empty (null) values."""
    found = _object(value)
    if found is None:
        return {} if value is None else value
    return {key: each for key, each in found.items() if each is not None}


def _seconds(found: Mapping[str, Any]) -> float:
    """The time limit; programs write seconds or milliseconds under one name."""
    value = found.get("timeout_ms", found.get("timeout"))
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        return SECONDS
    is_milliseconds = "timeout_ms" in found or value > MOST_SECONDS
    return min(max(float(value) / (1000 if is_milliseconds else 1), 1.0), MOST_SECONDS)


def _object(value: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
