"""The list of files in a RAR archive of version 4 or 5, from the headers before each file.

Format of version 5: https://www.rarlab.com/technote.htm
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

from app.documents.archives.entry import Cursor, Entry, date_words, dos_date_words
from app.documents.source import ExtractionError, ExtractionFault, Source

_SIGNATURE_5 = b"Rar!\x1a\x07\x01\x00"
_SIGNATURE_4_BYTES = 7
_MOST_HEADER_BYTES = 1 << 21
_MOST_BLOCKS = 1_000_000
_MAIN_4, _FILE_4, _END_4 = 0x73, 0x74, 0x7B
_FILE_5, _ENCRYPTION_5, _END_5 = 2, 4, 5


def entries(source: Source) -> Iterator[Entry]:
    """The files. Raises ExtractionError, EOFError and ValueError."""
    with source.open() as file:
        is_5 = source.head.startswith(_SIGNATURE_5)
        at = len(_SIGNATURE_5) if is_5 else _SIGNATURE_4_BYTES
        block = _block_5 if is_5 else _block_4
        for _ in range(_MOST_BLOCKS):
            if at >= source.size:
                return  # without its last block
            file.seek(at)
            size, entry, is_last = block(file)
            if entry is not None:
                yield entry
            if is_last:
                return
            at += size


def _protected() -> ExtractionError:
    return ExtractionError(ExtractionFault.PROTECTED, "its headers are encrypted")


def _block_5(file: BinaryIO) -> tuple[int, Entry | None, bool]:
    """Size of a block with its data, the file it is the header of, and whether it is the last."""
    place = file.tell()
    start = Cursor(file.read(14))
    checksum, length = start.number(4), _number(start)
    if length > _MOST_HEADER_BYTES:
        raise ValueError("a header that is too long")
    file.seek(place + 4)
    content = file.read(start.at - 4 + length)
    if zlib.crc32(content) != checksum:
        raise ValueError("a header is damaged")
    header = Cursor(content[-length:])
    kind, flags = _number(header), _number(header)
    if kind == _ENCRYPTION_5:
        raise _protected()
    if flags & 1:
        _number(header)  # bytes of its extra area, which is at its end
    data = _number(header) if flags & 2 else 0
    size = start.at + length + data
    if kind != _FILE_5:
        return size, None, kind == _END_5
    about = _number(header)
    unpacked: int | None = _number(header)
    _number(header)  # attributes
    modified = date_words(header.number(4)) if about & 2 else ""
    if about & 4:
        header.take(4)  # a checksum
    _number(header)  # how it is packed
    _number(header)  # system
    name = header.take(_number(header)).decode("utf-8", "replace")
    entry = Entry(name, None if about & 8 else unpacked, modified)
    return size, None if about & 1 else entry, False


def _block_4(file: BinaryIO) -> tuple[int, Entry | None, bool]:
    """The same of version 4."""
    first = file.read(7)
    start = Cursor(first)
    checksum, kind, flags, length = (start.number(each) for each in (2, 1, 2, 2))
    content = file.read(max(0, length - 7))
    if zlib.crc32(first[2:] + content) & 0xFFFF != checksum:
        raise ValueError("a header is damaged")
    header = Cursor(content)
    data = header.number(4) if flags & 0x8000 else 0
    if kind == _MAIN_4 and flags & 0x80:
        raise _protected()
    if kind != _FILE_4:
        return length + data, None, kind == _END_4
    unpacked = header.number(4)
    header.take(5)  # system and checksum
    modified = dos_date_words(header.number(4))
    header.take(2)  # version and method
    characters = header.number(2)
    header.take(4)  # attributes
    if flags & 0x100:
        data += header.number(4) << 32
        unpacked += header.number(4) << 32
    name = _name_4(header.take(characters), has_unicode=bool(flags & 0x200))
    is_folder = flags & 0xE0 == 0xE0
    return length + data, None if is_folder else Entry(name, unpacked, modified), False


def _name_4(stored: bytes, *, has_unicode: bool) -> str:
    """A name; with Unicode, the one in an old encoding is followed by how it differs from that."""
    plain, _, code = stored.partition(b"\0")
    if not has_unicode or not code:
        return plain.decode("utf-8" if has_unicode else "cp437", "replace").replace("\\", "/")
    units, parts = bytearray(), Cursor(code)
    high, flags, bits = parts.byte(), 0, 0
    while parts.left:
        if not bits:
            flags, bits = parts.byte(), 8
            if not parts.left:
                break
        bits -= 2
        match flags >> bits & 3:
            case 0:
                units += bytes((parts.byte(), 0))
            case 1:
                units += bytes((parts.byte(), high))
            case 2:
                units += parts.take(2)
            case _:
                _repeat(parts, plain, high, units)
    return units.decode("utf-16-le", "replace").replace("\\", "/")


def _repeat(parts: Cursor, plain: bytes, high: int, units: bytearray) -> None:
    """A run of characters of the plain name, perhaps moved and with another upper byte."""
    length = parts.byte()
    moved, upper = 0, 0
    if length & 0x80:
        moved, upper = parts.byte(), high
    at = len(units) // 2
    for character in plain[at : at + (length & 0x7F) + 2]:
        units += bytes(((character + moved) & 0xFF, upper))


def _number(header: Cursor) -> int:
    """A number of seven bits a byte, the lowest first; the last byte is below 128."""
    value = 0
    for shift in range(0, 70, 7):
        byte = header.byte()
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ValueError("a number that is too long")
