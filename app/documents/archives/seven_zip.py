"""The list of files in a 7z archive, from its header, which is most often compressed itself.

Format: https://www.7-zip.org/sdk.html (DOC/7zFormat.txt).
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from app.documents.archives.entry import Cursor, Entry, date_words
from app.documents.source import ExtractionError, ExtractionFault, Source

_START_BYTES = 32
_MOST_HEADER_BYTES = 100_000_000
_MOST_FILES = 1_000_000
_MOST_CODERS = 32
_MOST_ENCODED = 4  # headers within each other
_HEADER, _ARCHIVE_PROPERTIES, _OTHER_STREAMS, _MAIN_STREAMS, _FILES = 1, 2, 3, 4, 5
_PACKED, _FOLDERS, _PARTS, _SIZES, _DIGESTS = 6, 7, 8, 9, 10
_FOLDER, _UNPACKED_SIZES, _PARTS_OF_FOLDER = 11, 12, 13
_EMPTY, _EMPTY_FILE, _NAMES, _MODIFIED, _ENCODED_HEADER = 14, 15, 17, 20, 23
_LZMA, _LZMA2, _AES = b"\x03\x01\x01", b"\x21", b"\x06\xf1\x07\x01"
_FILETIME_SECONDS, _SECONDS_TO_1970 = 10_000_000, 11_644_473_600


@dataclass
class _Streams:
    """What the archive packs: where, and what it unpacks to."""

    at: int = 0
    packed: list[int] = field(default_factory=list[int])  # sizes
    coders: list[list[tuple[bytes, bytes]]] = field(default_factory=list[list[tuple[bytes, bytes]]])
    unpacked: list[int] = field(default_factory=list[int])  # size of each folder
    parts: list[int] = field(default_factory=list[int])  # sizes of the files in all folders


def entries(source: Source) -> Iterator[Entry]:
    """The files. Raises ExtractionError, EOFError, ValueError and lzma.LZMAError."""
    with source.open() as file:
        start = Cursor(file.read(_START_BYTES))
        start.take(8)
        checksum = start.number(4)
        if zlib.crc32(start.take(20)) != checksum:
            raise ValueError("its first header is damaged")
        start.at -= 20
        at, size, checksum = start.number(8), start.number(8), start.number(4)
        if not size:
            return
        header = _read(file, _START_BYTES + at, size)
        if zlib.crc32(header.take(size)) != checksum:
            raise ValueError("its header is damaged")
        header.at = 0
        for _ in range(_MOST_ENCODED):
            if header.byte() != _ENCODED_HEADER:
                break
            streams = _streams(header)
            header = Cursor(_unpacked(streams, _read(file, streams.at, streams.packed[0])))
        else:
            raise ValueError("a header in a header in a header")
    yield from _listed(header)


def _read(file: BinaryIO, at: int, size: int) -> Cursor:
    if size > _MOST_HEADER_BYTES:
        raise ExtractionError(ExtractionFault.TOO_LARGE, f"a header of {size} bytes")
    file.seek(at)
    return Cursor(file.read(size))


def _listed(header: Cursor) -> Iterator[Entry]:
    streams = _Streams()
    while kind := header.byte():
        if kind == _MAIN_STREAMS:
            streams = _streams(header)
        elif kind == _OTHER_STREAMS:
            _streams(header)
        elif kind == _FILES:
            yield from _files(header, streams)
            return
        elif kind == _ARCHIVE_PROPERTIES:
            while header.byte():
                header.take(_number(header))
        else:
            raise ValueError(f"an unknown part {kind} of the header")


def _files(header: Cursor, streams: _Streams) -> Iterator[Entry]:
    count = _count(header, _MOST_FILES)
    empty, empty_files = [False] * count, []
    names: list[str] = [""] * count
    times: list[int] = [0] * count
    while kind := header.byte():
        part = Cursor(header.take(_number(header)))
        if kind == _EMPTY:
            empty = _bits(part, count)
        elif kind == _EMPTY_FILE:
            empty_files = _bits(part, sum(empty))
        elif kind == _NAMES and not part.byte():
            names = part.take(part.left).decode("utf-16-le", "replace").split("\0")
        elif kind == _MODIFIED:
            known = [True] * count if part.byte() else _bits(part, count)
            if not part.byte():
                times = [part.number(8) if each else 0 for each in known]
    sizes, are_files = iter(streams.parts), iter(empty_files)
    for name, is_empty, time in zip(names, empty, times, strict=False):
        if is_empty and not next(are_files, False):
            continue  # a folder
        size = 0 if is_empty else next(sizes, None)
        modified = date_words(time / _FILETIME_SECONDS - _SECONDS_TO_1970) if time else ""
        yield Entry(name, size, modified)


def _streams(header: Cursor) -> _Streams:
    made = _Streams()
    while kind := header.byte():
        if kind == _PACKED:
            made.at = _START_BYTES + _number(header)
            count = _count(header, _MOST_FILES)
            while kind := header.byte():
                if kind == _SIZES:
                    made.packed = [_number(header) for _ in range(count)]
                elif kind == _DIGESTS:
                    _skip_digests(header, count)
        elif kind == _FOLDERS:
            _read_folders(header, made)
        elif kind == _PARTS:
            _read_parts(header, made)
        else:
            raise ValueError(f"an unknown part {kind} of the streams")
    if not made.parts:
        made.parts = made.unpacked
    return made


def _read_folders(header: Cursor, made: _Streams) -> None:
    if header.byte() != _FOLDER:
        raise ValueError("no folders")
    count = _count(header, _MOST_FILES)
    if header.byte():
        raise ValueError("folders elsewhere")
    mains: list[tuple[int, int]] = []  # how many streams each unpacks to, and which is the last one
    for _ in range(count):
        coders, outputs, bound = _folder(header)
        made.coders.append(coders)
        mains.append((outputs, next((each for each in range(outputs) if each not in bound), 0)))
    while kind := header.byte():
        if kind == _UNPACKED_SIZES:
            for outputs, main in mains:
                made.unpacked.append([_number(header) for _ in range(outputs)][main])
        elif kind == _DIGESTS:
            _skip_digests(header, count)


def _folder(header: Cursor) -> tuple[list[tuple[bytes, bytes]], int, set[int]]:
    """The coders with their properties, how many streams leave them, and which go on to another."""
    coders: list[tuple[bytes, bytes]] = []
    inputs = outputs = 0
    for _ in range(_count(header, _MOST_CODERS)):
        flags = header.byte()
        name = header.take(flags & 15)
        into, out = (
            (_count(header, _MOST_CODERS), _count(header, _MOST_CODERS)) if flags & 16 else (1, 1)
        )
        inputs, outputs = inputs + into, outputs + out
        coders.append((name, header.take(_number(header)) if flags & 32 else b""))
    bound = set[int]()
    for _ in range(outputs - 1):
        _number(header)
        bound.add(_number(header))
    if (packed := inputs - outputs + 1) > 1:
        for _ in range(packed):
            _number(header)
    return coders, outputs, bound


def _read_parts(header: Cursor, made: _Streams) -> None:
    counts = [1] * len(made.unpacked)
    kind = header.byte()
    if kind == _PARTS_OF_FOLDER:
        counts = [_count(header, _MOST_FILES) for _ in counts]
        kind = header.byte()
    for count, size in zip(counts, made.unpacked, strict=True):
        if not count:
            continue
        sizes = [_number(header) if kind == _SIZES else 0 for _ in range(count - 1)]
        made.parts += [*sizes, max(0, size - sum(sizes))]
    if kind == _SIZES:
        kind = header.byte()
    while kind:  # checksums: the list does not need them, and the files come after
        if kind == _DIGESTS:
            _skip_digests(header, sum(counts))
        kind = header.byte()


def _skip_digests(header: Cursor, count: int) -> None:
    known = count if header.byte() else sum(_bits(header, count))
    header.take(4 * known)


def _unpacked(streams: _Streams, packed: Cursor) -> bytes:
    """A header that is compressed. Raises ExtractionError if it is encrypted."""
    size = streams.unpacked[0]
    if size > _MOST_HEADER_BYTES:
        raise ExtractionError(ExtractionFault.TOO_LARGE, f"a header of {size} bytes")
    coders = streams.coders[0]
    if any(name == _AES for name, _ in coders):
        raise ExtractionError(ExtractionFault.PROTECTED, "its header is encrypted")
    name, properties = coders[0]
    if len(coders) != 1 or name not in (_LZMA, _LZMA2):
        raise ValueError("a header packed in another way")
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[_filter(name, properties)])
    return unpacker.decompress(packed.take(packed.left), size)


def _filter(name: bytes, properties: bytes) -> dict[str, int]:
    """The filters of a packed header, in the form that the module `lzma` takes."""
    facts = Cursor(properties)
    packing = facts.byte()
    if name == _LZMA2:
        size = min(1 << 32, (2 | packing & 1) << packing // 2 + 11) - 1
        return {"id": lzma.FILTER_LZMA2, "dict_size": min(size, _MOST_HEADER_BYTES)}
    size = max(4096, min(facts.number(4), _MOST_HEADER_BYTES))
    return {
        "id": lzma.FILTER_LZMA1,
        "dict_size": size,
        "lc": packing % 9,
        "lp": packing // 9 % 5,
        "pb": packing // 45,
    }


def _number(header: Cursor) -> int:
    """A number whose first byte says how many follow."""
    first, value, shift = header.byte(), 0, 0
    mask = 0x80
    while mask and first & mask:
        value |= header.byte() << shift
        shift += 8
        mask >>= 1
    return value | (first & (mask - 1 if mask else 0)) << shift


def _count(header: Cursor, most: int) -> int:
    value = _number(header)
    if value > most:
        raise ExtractionError(ExtractionFault.TOO_LARGE, f"{value} files in the archive")
    return value


def _bits(header: Cursor, count: int) -> list[bool]:
    content = header.take((count + 7) // 8)
    return [bool(content[each >> 3] & 0x80 >> (each & 7)) for each in range(count)]
