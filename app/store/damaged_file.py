"""Reads the rows of a damaged SQLite file from its pages, without SQLite.

SQLite cannot read past a broken page; here a page is decoded without the pages above it.
File format: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TABLE_LEAF, _TABLE_INNER, _INDEX_LEAF, _INDEX_INNER = 0x0D, 0x05, 0x0A, 0x02
_WITH_ROWS = (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER)
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)  # by serial type
_MAGIC = b"SQLite format 3\0"

Value = int | float | str | bytes | None
Record = tuple[Value, ...]
Row = tuple[int | None, Record]  # row id (None in an index), and values


@dataclass(frozen=True, slots=True)
class RowPage:
    """The rows of one page; `tree` is the table or index that it belongs to, if that is known."""

    tree: str | None
    rows: list[Row]


def read_rows(pages: Pages) -> list[RowPage]:
    """The rows of all pages in use; those that a table or index reaches are first."""
    free = pages.free()
    found = {
        number: rows
        for number in range(1, pages.count + 1)
        if number not in free and (rows := list(_rows(pages, number)))
    }
    trees: dict[int, str] = {}
    for rows in found.values():
        for _, record in rows:
            match record:
                case ("table" | "index", str(name), str(), int(root), None | str()):
                    _walk(pages, root, name, trees)
                case _:
                    pass
    reached = sorted(found, key=lambda number: number not in trees)
    return [RowPage(trees.get(number), found[number]) for number in reached]


def _walk(pages: Pages, root: int, name: str, trees: dict[int, str]) -> None:
    """Add the pages below a root page of the schema table to `trees`, by page number."""
    todo = [root]
    while todo:
        number = todo.pop()
        if number not in trees and 0 < number <= pages.count:
            trees[number] = name
            todo += _children(pages.page(number))


def _children(page: bytes) -> Iterator[int]:
    """Numbers of the pages below a page; never page 1, which is below no other."""
    if len(page) >= 12 and page[0] in (_TABLE_INNER, _INDEX_INNER):
        yield int.from_bytes(page[8:12], "big")
        for offset in _cells(page, 0):
            yield int.from_bytes(page[offset : offset + 4], "big")


def _cells(page: bytes, head: int) -> Iterator[int]:
    """Offsets of the cells of a page whose header begins at `head`."""
    first = head + (12 if page[head] in (_TABLE_INNER, _INDEX_INNER) else 8)
    for cell in range(int.from_bytes(page[head + 3 : head + 5], "big")):
        yield int.from_bytes(page[first + 2 * cell : first + 2 * cell + 2], "big")


def _rows(pages: Pages, number: int) -> Iterator[Row]:
    page = pages.page(number)
    head = 100 if number == 1 else 0
    if len(page) < head + 8 or page[head] not in _WITH_ROWS:
        return
    for offset in _cells(page, head):
        try:
            yield _read_cell(pages, page, page[head], offset)
        except (IndexError, ValueError, struct.error, OverflowError):
            continue  # an invalid cell; the next one may be valid


class Pages:
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

    def version(self, application: int) -> int:
        """The schema version in the header; 0 if the header is lost or of another application."""
        page = self.page(1)
        known = page[:16] == _MAGIC and int.from_bytes(page[68:72], "big") == application
        return int.from_bytes(page[60:64], "big") if known else 0

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


def _read_cell(pages: Pages, page: bytes, kind: int, offset: int) -> Row:
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
