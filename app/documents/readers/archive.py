"""Archives: their text is the list of their files; nothing in them is unpacked."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Self

from app.documents.archives import rar, seven_zip
from app.documents.archives.entry import Entry, date_words
from app.documents.source import ExtractionError, ExtractionFault, Source
from app.documents.tables import markdown_table
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, Warned

MOST_FILES = 10_000  # that are listed
MOST_UNPACKED_BYTES = 1_000_000_000  # of a compressed tar, which has its list between its files
_LONGEST_NAME = 1_000  # characters
_MOST_DESCRIPTION_BYTES = 1 << 15  # of a file, before its header; reading it takes its square
_DESCRIBING = (b"L", b"K", b"x", b"g", b"X")
_COLUMNS = ("Name", "Bytes", "Modified")


class _Header(tarfile.TarInfo):
    """A header of a tar, of which those that describe the next one have a limit."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        made = super().frombuf(buf, encoding, errors)
        if made.type in _DESCRIBING and made.size > _MOST_DESCRIPTION_BYTES:
            raise tarfile.ReadError(f"a description of {made.size} bytes")
        return made


class _TooMuch(Exception):
    """Raised when a compressed archive unpacks to more than the limit."""


class _Limited(io.BufferedIOBase):
    """What a compressed file unpacks to, read once from the beginning, up to a limit."""

    def __init__(self, stream: _Unpacked) -> None:
        super().__init__()
        self._stream = stream
        self._left = MOST_UNPACKED_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        content = self._stream.read(-1 if size is None else size)
        self._left -= len(content)
        if self._left < 0:
            raise _TooMuch
        return content


def read(source: Source) -> Document:
    """The list of the files in an archive. Raises ExtractionError."""
    warnings: list[Warned] = []
    found: list[Entry] = []
    try:
        for entry in islice(_entries(source), MOST_FILES + 1):
            found.append(entry)
    except _TooMuch:
        warnings.append(Warned(DocumentWarning.CUT))
    except (
        *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, tarfile.TarError, EOFError),
        *(NotImplementedError, ValueError, OSError, IndexError, OverflowError),
    ) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the system; those of decompressors have no number
        if not found:
            raise ExtractionError(ExtractionFault.DAMAGED, str(error)) from None
        warnings.append(Warned(DocumentWarning.DAMAGED))
    if len(found) > MOST_FILES:
        del found[MOST_FILES:]
        warnings.append(Warned(DocumentWarning.CUT))
    if not found and not warnings:
        warnings.append(Warned(DocumentWarning.EMPTY))
    rows = [_COLUMNS] + [
        (entry.name[:_LONGEST_NAME], "" if entry.size is None else str(entry.size), entry.modified)
        for entry in found
    ]
    text = markdown_table(rows) if found else ""
    return Document(DocumentKind.ARCHIVE, (Page("", text),), warnings=tuple(warnings))


def _entries(source: Source) -> Iterator[Entry]:
    head = source.head
    if head.startswith(b"PK"):
        return _zip_entries(source)
    for magic, opened in _COMPRESSED:
        if head.startswith(magic):
            return _compressed_entries(source, opened)
    if head.startswith(b"7z"):
        return seven_zip.entries(source)
    if head.startswith(b"Rar!"):
        return rar.entries(source)
    return _tar_file_entries(source)


def _zip_entries(source: Source) -> Iterator[Entry]:
    with zipfile.ZipFile(source.path) as package:
        for info in package.infolist():
            if info.is_dir():
                continue
            year, month, day, hour, minute, _ = info.date_time
            date = f"{year}-{month:02}-{day:02} {hour:02}:{minute:02}"
            yield Entry(_zip_name(info), info.file_size, date if year > 1980 else "")


def _zip_name(info: zipfile.ZipInfo) -> str:
    """A name; one that is not marked as UTF-8 may be it all the same."""
    if not info.flag_bits & 0x800:
        with suppress(UnicodeError):
            return info.filename.encode("cp437").decode()
    return info.filename


def _tar_file_entries(source: Source) -> Iterator[Entry]:
    with tarfile.open(source.path, mode="r:", tarinfo=_Header) as archive:
        yield from _tar_entries(archive)
        end = archive.offset
    with source.open() as file:
        file.seek(end)
        if file.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError("a header is damaged")


def _tar_entries(archive: tarfile.TarFile) -> Iterator[Entry]:
    while (info := archive.next()) is not None:
        if info.isdir():
            continue
        yield Entry(info.name, info.size, date_words(info.mtime))


def _compressed_entries(source: Source, unpacked: Callable[[Path], _Unpacked]) -> Iterator[Entry]:
    """The files of a compressed tar; of anything else that is compressed, the one file in it."""
    with unpacked(source.path) as stream:
        try:
            start = stream.read(tarfile.BLOCKSIZE)
            tarfile.TarInfo.frombuf(start, tarfile.ENCODING, "replace")
        except tarfile.TarError:
            yield Entry(Path(source.name or source.path.name).stem)
            return
        stream.seek(0)
        with tarfile.open(fileobj=_Limited(stream), mode="r|", tarinfo=_Header) as archive:
            yield from _tar_entries(archive)


_Unpacked = gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile
_COMPRESSED: tuple[tuple[bytes, Callable[[Path], _Unpacked]], ...] = (
    (b"\x1f\x8b", gzip.GzipFile),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)
