"""Salvage: copies the readable rows of a damaged SQLite store into a new one.

SQLite cannot read past a broken page, so this parses the pages directly: a leaf page is decoded
without the pages above it. Tables are recognised by the types of a row's columns. A message whose
page is lost is rebuilt from the parent index and the search index.
Rows of messages and their parts are found separately: a message with a part on a lost page gets the
rest of its text from the search index.
File format: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from app.domain.message import MessageState
from app.domain.parts import Part, Parts, TextPart, append_text, search_text
from app.store.part_rows import Row, from_row
from app.store.parts_migration import old_parts
from app.store.queries import write_parts
from app.store.schema import connect
from app.store.search import index
from app.system.text_search import normalize
from app.system.translation import tr
from engine import Role

_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER = 0x0D, 0x0A, 0x02
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)  # by serial type
_ROLES = {role.value for role in Role}
_STATES = {state.value for state in MessageState}
# Columns of a row that any schema had; later ones were added behind them, and older rows lack them.
_CONVERSATION_COLUMNS, _MESSAGE_COLUMNS = 8, 14

Value = int | float | str | bytes | None
Record = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Salvaged:
    """Counts of salvaged rows, without deleted conversations."""

    conversations: int
    messages: int
    partly: int  # messages that lost a row: some of their text is folded for search, or missing


@dataclass(slots=True)
class _Found:
    """Salvaged rows by id, in stored form."""

    conversations: dict[int, Record] = field(default_factory=dict[int, Record])
    messages: dict[int, Record] = field(default_factory=dict[int, Record])
    parts: dict[int, tuple[int, Row]] = field(  # by id: the message, and the columns
        default_factory=dict[int, tuple[int, Row]]
    )
    added: dict[int, list[Part]] = field(  # by message, after those of `parts`
        default_factory=dict[int, list[Part]]
    )
    old: dict[int, Record] = field(default_factory=dict[int, Record])  # messages until schema 6
    pieces: dict[int, dict[int, str]] = field(default_factory=dict[int, dict[int, str]])
    drafts: dict[int, Record] = field(default_factory=dict[int, Record])
    options: dict[int, Record] = field(default_factory=dict[int, Record])  # of answers
    folded: dict[int, str] = field(default_factory=dict[int, str])  # message to folded text
    places: dict[int, tuple[int, int | None]] = field(  # message to its conversation and parent
        default_factory=dict[int, tuple[int, int | None]]
    )
    known: dict[str, Record] = field(default_factory=dict[str, Record])  # adapters, by path
    uses: dict[tuple[int, int], Record] = field(default_factory=dict[tuple[int, int], Record])
    mixes: dict[tuple[str, int], Record] = field(default_factory=dict[tuple[str, int], Record])


def salvage(source: Path, target: Path) -> Salvaged:
    """Copy the readable rows of `source` into a new store, renamed to `target` when complete."""
    found = _Found()
    for rowid, record in _records(_Pages(source)):
        _classify(found, rowid, record)
    for number, record in found.old.items():
        if number not in found.messages:  # else it is what a migration left in a free page
            _add_old(found, number, record)
    partly = _fill_gaps(found)
    unfinished = target.with_name(target.name + ".part")
    for end in ("", "-wal", "-shm"):  # of an interrupted salvage
        unfinished.with_name(unfinished.name + end).unlink(missing_ok=True)
    with closing(connect(unfinished)) as database:
        _write(database, found)
    os.replace(unfinished, target)
    listed = {number for number, record in found.conversations.items() if record[5] is None}
    messages = [record for record in found.messages.values() if record[1] in listed]
    return Salvaged(len(listed), len(messages), partly)


class _Pages:
    """Pages of a database file, with those of its write-ahead log applied."""

    def __init__(self, source: Path) -> None:
        self._content = source.read_bytes()
        stated = int.from_bytes(self._content[16:18], "big")
        self.size = stated if stated >= 512 and stated & (stated - 1) == 0 else 4096  # bytes
        self.usable = self.size  # this app's files have no reserved bytes at the end of a page
        self.count = -(-len(self._content) // self.size)
        self._newer: dict[int, bytes] = {}
        log = source.with_name(source.name + "-wal")
        if log.exists():
            self._apply(log.read_bytes())

    def page(self, number: int) -> bytes:
        """Page `number`, from 1; short or empty past the end of the file."""
        newer = self._newer.get(number)
        return newer or self._content[(number - 1) * self.size : number * self.size]

    def free(self) -> set[int]:
        """Page numbers of the freelist."""
        numbers: set[int] = set()
        trunk = int.from_bytes(self.page(1)[32:36], "big")
        while 0 < trunk <= self.count and trunk not in numbers:
            page = self.page(trunk)
            leaves = min(int.from_bytes(page[4:8], "big"), self.size // 4 - 2)
            numbers |= {trunk, *struct.unpack_from(f">{leaves}I", page.ljust(self.size, b"\0"), 8)}
            trunk = int.from_bytes(page[:4], "big")
        return numbers

    def _apply(self, log: bytes) -> None:
        """Apply the pages of every committed transaction of a write-ahead log."""
        salts, step = log[16:24], 24 + self.size
        pending: dict[int, bytes] = {}
        for start in range(32, len(log) - step + 1, step):
            number, committed = struct.unpack_from(">II", log, start)
            if log[start + 8 : start + 16] != salts:
                break  # frames from before the log was last reset
            pending[number] = log[start + 24 : start + step]
            if committed:
                self._newer |= pending
                self.count = max(self.count, committed)
                pending = {}


def _records(pages: _Pages) -> Iterator[tuple[int | None, Record]]:
    """All rows of all pages in use: row id (None in an index) and values."""
    free = pages.free()
    for number in range(1, pages.count + 1):
        if number in free:
            continue
        page = pages.page(number)
        head = 100 if number == 1 else 0
        if len(page) < head + 8 or page[head] not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER):
            continue
        cells = head + (12 if page[head] == _INDEX_INNER else 8)
        for cell in range(int.from_bytes(page[head + 3 : head + 5], "big")):
            offset = int.from_bytes(page[cells + 2 * cell : cells + 2 * cell + 2], "big")
            try:
                yield _read_cell(pages, page, page[head], offset)
            except (IndexError, ValueError, struct.error, OverflowError):
                continue  # an invalid cell; the next one may be valid


def _read_cell(pages: _Pages, page: bytes, kind: int, offset: int) -> tuple[int | None, Record]:
    """Decode one cell of a page, with its overflow pages."""
    rowid = None
    if kind == _INDEX_INNER:
        offset += 4  # number of the child page
    length, offset = _varint(page, offset)
    if kind == _TABLE_LEAF:
        rowid, offset = _varint(page, offset)
        most = pages.usable - 35
    else:
        most = (pages.usable - 12) * 64 // 255 - 23
    if length <= most:
        return rowid, _values(page[offset : offset + length])
    least = (pages.usable - 12) * 32 // 255 - 23
    local = least + (length - least) % (pages.usable - 4)
    local = local if local <= most else least
    parts, missing = [page[offset : offset + local]], length - local
    further = int.from_bytes(page[offset + local : offset + local + 4], "big")
    while missing > 0 and 0 < further <= pages.count and len(parts) <= pages.count:
        overflow = pages.page(further)
        parts.append(overflow[4 : 4 + min(missing, pages.usable - 4)])
        missing -= pages.usable - 4
        further = int.from_bytes(overflow[:4], "big")
    return rowid, _values(b"".join(parts))


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """Decode a varint of one to nine bytes; returns it and the offset after it."""
    value = 0
    for step in range(8):
        value = value << 7 | data[offset + step] & 0x7F
        if data[offset + step] < 0x80:
            return value, offset + step + 1
    return value << 8 | data[offset + 8], offset + 9


def _values(payload: bytes) -> Record:
    """Decode the values of a record; a truncated last text keeps its beginning."""
    end, offset = _varint(payload, 0)
    values: list[Value] = []
    start = end
    while offset < end:
        serial, offset = _varint(payload, offset)
        if serial <= 6:
            size = _INTEGER_BYTES[serial]
            value = int.from_bytes(payload[start : start + size], "big", signed=True)
            values.append(value if serial else None)
        elif serial == 7:
            size = 8
            values.append(struct.unpack_from(">d", payload, start)[0])
        elif serial in (8, 9):
            size = 0
            values.append(serial - 8)
        else:
            size = (serial - 12) // 2
            piece = payload[start : start + size]
            values.append(piece.decode("utf-8", "replace") if serial % 2 else piece)
        start += size
    return tuple(values)


def _classify(found: _Found, rowid: int | None, record: Record) -> None:
    """Recognise the table of a record by the types of its columns."""
    match record:
        case (None, int(), None | int(), str(role), str(state), _, str(), int(), *_) if (
            rowid and len(record) >= _MESSAGE_COLUMNS and role in _ROLES and state in _STATES
        ):
            found.messages[rowid] = record
        case (None, int(), None | int(), str(role), str(state), _, str(), str(), *_) if (
            rowid and 13 <= len(record) <= 15 and role in _ROLES and state in _STATES
        ):
            found.old[rowid] = record
        case (None, int(message), str(kind), str(data), str(text)) if rowid:
            found.parts[rowid] = message, (kind, data, text)
        case (None, str(), str(), int() | float(), int() | float(), _, _, int(), *_) if rowid:
            found.conversations[rowid] = record
        case (None, int() | float(), str()) if rowid is not None:
            found.drafts[rowid] = record
        case (None, int() | float(), int(), str()) if rowid is not None:
            found.options[rowid] = record
        case (None, str(text)) if rowid:
            found.folded[rowid] = text
        case (int(message), int(seq), str(text)) if rowid is None:
            found.pieces.setdefault(message, {})[seq] = text
        case (str(path), str(), int() | float()) if rowid is None and path:
            found.known[path] = record
        case (int(conversation), int(position), str(), int(), int() | float()) if rowid is None:
            found.uses[conversation, position] = record
        case (str(name), int(position), str(), int(), int() | float()) if rowid is None:
            found.mixes[name, position] = record
        case (int(conversation), None | int() as parent, int(message)) if (
            rowid is None and parent != message
        ):
            found.places[message] = (conversation, parent)
        case _:
            pass


def _add_old(found: _Found, number: int, record: Record) -> None:
    """Add a message of a store that was not migrated to parts, which has text and error columns."""
    _, conversation, parent, role, state, created, model, error, *counted, text = record[:13]
    adapters, details, *_ = (*record[13:], "", "")
    parts, stop = old_parts(str(role), str(state), str(text), str(error))
    found.messages[number] = (
        None, conversation, parent, role, state, created, model, *counted, adapters, details, stop,
    )  # fmt: skip
    found.added[number] = list(parts)


def _fill_gaps(found: _Found) -> int:
    """Add what others refer to; returns how many messages lacked their row or a part."""
    placeholders: set[int] = set()
    for message, (conversation, parent) in sorted(found.places.items()):
        if message not in found.messages:
            found.messages[message] = _placeholder(found, message, conversation, parent)
            placeholders.add(message)
    for message in sorted(found.messages, reverse=True):  # a parent is older than its children
        _, conversation, parent, *_ = found.messages[message]
        if (
            isinstance(conversation, int)
            and isinstance(parent, int)
            and parent not in found.messages
        ):
            older = [
                m for m, row in found.messages.items() if m < parent and row[1] == conversation
            ]
            found.messages[parent] = _placeholder(
                found, parent, conversation, max(older, default=None)
            )
            placeholders.add(parent)
    partly = placeholders | _fill_texts(found)
    for message in placeholders - _parts_by_message(found).keys() - found.pieces.keys():
        found.added[message] = [TextPart(tr("(This message could not be recovered.)"))]
    for message in sorted(found.messages):
        _, conversation, _, _, _, created, *_ = found.messages[message]
        if isinstance(conversation, int) and conversation not in found.conversations:
            title = tr("Recovered chat")
            found.conversations[conversation] = (
                None,
                title,
                normalize(title),
                created,
                created,
                None,
                None,
                0,
            )
    return len(partly)


def _placeholder(found: _Found, message: int, conversation: int, parent: int | None) -> Record:
    """A placeholder for the lost row of a message."""
    above = found.messages.get(parent or 0)
    role = Role.ASSISTANT if above and above[3] == Role.USER.value else Role.USER
    created = above[5] if above else 0.0
    state = MessageState.INTERRUPTED.value
    return (
        None, conversation, parent, role.value, state, created, "", 0, 0, 0.0, 0, "", "", "",
    )  # fmt: skip


def _fill_texts(found: _Found) -> set[int]:
    """Add the folded text of the search index to messages that lost a part; returns these."""
    filled: dict[int, list[Part]] = {}
    parts = _parts_by_message(found)
    for message, folded in found.folded.items():
        old = message in found.added  # its text was in its row
        if message not in found.messages or message in found.pieces or old:
            continue
        known = normalize(search_text(parts.get(message, ())))
        if len(folded) > len(known):
            rest = folded.removeprefix(known).lstrip("\n")
            filled[message] = [TextPart(rest)]
    found.added |= filled
    return set(filled)


def _parts_by_message(found: _Found) -> dict[int, Parts]:
    parts: dict[int, Parts] = {}
    for _, (message, row) in sorted(found.parts.items()):
        parts[message] = (*parts.get(message, ()), from_row(*row))
    for message, added in found.added.items():
        parts[message] = (*parts.get(message, ()), *added)
    return parts


def _write(database: sqlite3.Connection, found: _Found) -> None:
    """Write all rows into an empty store in one transaction; parents before children."""
    database.execute("BEGIN IMMEDIATE")
    for number, record in sorted(found.conversations.items()):
        _, title, _, created, updated, deleted, _, turn, *added = record
        deleted = None if deleted is None else _number(deleted)
        times = _number(created), _number(updated), deleted
        row = number, str(title), normalize(str(title)), *times, None, turn, *added
        _insert(database, "conversation", row)
    last: dict[Value, int] = {}
    parts = _parts_by_message(found)
    for number, record in sorted(found.messages.items()):
        _write_message(database, found, number, record, parts.get(number, ()))
        last[record[1]] = number
    for number, record in found.conversations.items():
        leaf = record[6]
        known = found.messages.get(leaf) if isinstance(leaf, int) else None
        leaf = leaf if known and known[1] == number else last.get(number)
        database.execute("UPDATE conversation SET leaf = ? WHERE id = ?", (leaf, number))
    database.executemany(
        "INSERT INTO draft(conversation, saved, text) VALUES (?, ?, ?)",
        [(number, _number(saved), text) for number, (_, saved, text) in found.drafts.items()],
    )
    database.executemany(
        "INSERT INTO answer_options VALUES (?, ?, ?, ?)",
        [
            (number, _number(saved), version, text)
            for number, (_, saved, version, text) in found.options.items()
            if not number or number in found.conversations
        ],
    )
    _write_adapters(database, found)
    database.execute("COMMIT")


def _write_adapters(database: sqlite3.Connection, found: _Found) -> None:
    """Write adapter files, the stacks of salvaged conversations, and mixes."""
    database.executemany("INSERT INTO adapter VALUES (?, ?, ?)", found.known.values())
    database.executemany(
        "INSERT INTO adapter_use VALUES (?, ?, ?, ?, ?)",
        [
            record
            for (conversation, _), record in found.uses.items()
            if not conversation or conversation in found.conversations
        ],
    )
    database.executemany("INSERT INTO adapter_mix VALUES (?, ?, ?, ?, ?)", found.mixes.values())


def _write_message(
    database: sqlite3.Connection, found: _Found, number: int, record: Record, parts: Parts
) -> None:
    """Write one message and its parts, with its streamed chunks."""
    _, conversation, parent, role, state, created, model, *rest = record
    prompt_tokens, generated_tokens, seconds, used, adapters, details, stop, *added = rest
    above = found.messages.get(parent) if isinstance(parent, int) and parent < number else None
    pieces = found.pieces.get(number, {})
    if pieces or state == MessageState.STREAMING.value:
        parts = append_text(parts, "".join(pieces[seq] for seq in sorted(pieces)))
    if state == MessageState.STREAMING.value:
        state = MessageState.INTERRUPTED.value
    _insert(
        database,
        "message",
        (
            number,
            conversation,
            parent if above and above[1] == conversation else None,
            role,
            state,
            _number(created),
            str(model),
            int(_number(prompt_tokens)),
            int(_number(generated_tokens)),
            _number(seconds),
            int(_number(used)),
            str(adapters),
            str(details),
            str(stop),
            *added,
        ),
    )
    write_parts(database, number, parts)
    index(database, number, search_text(parts))


def _insert(database: sqlite3.Connection, table: str, row: Record) -> None:
    """Insert a row with the columns that it has, as far as this schema has them too.

    A column that lacks a value gets its default, and a value of another type becomes one of the
    column's: damage may have changed it.
    """
    described = database.execute(f"PRAGMA table_info({table})").fetchall()
    values: dict[str, Value] = {}
    for (_, name, kind, required, *_), value in zip(described, row, strict=False):
        if value is None and required:
            continue
        if value is not None and kind != "TEXT":
            value = int(_number(value)) if kind == "INTEGER" else _number(value)
        values[name] = str(value) if kind == "TEXT" and value is not None else value
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    database.execute(f"INSERT INTO {table}({names}) VALUES ({marks})", [*values.values()])


def _number(value: Value) -> float:
    """A number from a column that may have any type after damage."""
    return float(value) if isinstance(value, int | float) else 0.0
