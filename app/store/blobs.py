"""Blobs: the bytes of attached files and images, as files named by their SHA-256 (hexadecimal).

They are in a folder beside the database, `<database>.blobs/ab/abcdef…`, readable by their owner
only. A blob is there once, however many messages name it, and is checked when it is read. One that
no row of the store names is removed, but not before it is an hour old: its message may not be
written yet. A crash leaves at most a file that a later start removes. What was extracted from a blob
may be kept beside it, and goes with it.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from app.store.schema import ReadOnlyStore, StoreError, translate_errors
from app.system.translation import tr
from engine import disk_files

KEEP_SECONDS = 3600.0
_CHUNK = 1 << 20  # bytes
_NAME = re.compile(r"[0-9a-f]{64}")
_UNFINISHED = ".part"
_EXTRACTED = ".extracted"  # ending of what was made of a blob, which can be made again
# Columns with what was written, in which a name is only text.
_TEXTS = {
    ("part", "text"), ("chunk", "text"), ("conversation", "folded"), ("search", "folded"),
    ("tool_activity", "arguments"), ("tool_activity", "result"),
    ("tool_grant", "digest"), ("tool_grant", "shown"),
}  # fmt: skip


class Blobs:
    """The blobs of one store; methods raise only `StoreError`, except `ValueError` for no name."""

    def __init__(self, database: Path, *, writable: bool = True) -> None:
        self.folder = database.with_name(database.name + ".blobs")
        self._database = database
        self._writable = writable

    def add(self, content: bytes | Path | Iterable[bytes]) -> str:
        """Keep bytes, also in pieces, or the content of a file; returns their SHA-256."""
        if not self._writable:
            raise ReadOnlyStore(self._database.parent)
        if isinstance(content, bytes):
            content = (content,)
        pieces = _pieces(content) if isinstance(content, Path) else iter(content)
        first = next(pieces, b"")  # a file that cannot be read changes nothing
        with translate_errors(self._database):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            number, name = tempfile.mkstemp(_UNFINISHED, dir=self.folder)  # for its owner only
            unfinished, found = Path(name), hashlib.sha256()
            try:
                with os.fdopen(number, "wb") as target:
                    for chunk in chain((first,), pieces):
                        found.update(chunk)
                        target.write(chunk)
                    target.flush()
                    os.fsync(target.fileno())
                path = self._path(found.hexdigest())
                path.parent.mkdir(mode=0o700, exist_ok=True)
                disk_files.replace(
                    unfinished, path
                )  # also of a known one: it may be damaged, and is new
                disk_files.sync_folder(path.parent)
            except BaseException:
                disk_files.delete(unfinished)
                raise
        return found.hexdigest()

    def read(self, sha256: str) -> bytes:
        """The bytes of a blob."""
        return b"".join(self.pieces(sha256))

    def find(self, sha256: str) -> Path | None:
        """The file of a blob, which must not be changed; None: it is not there."""
        path = self._path(sha256)
        return path if path.is_file() else None

    def extracted(self, sha256: str) -> bytes:
        """What `keep_extracted` kept of a blob; b"" if there is nothing that can be read."""
        try:
            return self._path(sha256).with_suffix(_EXTRACTED).read_bytes()
        except OSError:
            return b""

    def keep_extracted(self, sha256: str, content: bytes) -> None:
        """Keep what was made of a blob, until the blob is removed."""
        path = self._path(sha256)
        with translate_errors(self._database):
            number, name = tempfile.mkstemp(_UNFINISHED, dir=self.folder)
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(content)
                disk_files.replace(Path(name), path.with_suffix(_EXTRACTED))
            except BaseException:
                disk_files.delete(Path(name))
                raise

    def pieces(self, sha256: str, count: int = _CHUNK) -> Iterator[bytes]:
        """A blob in pieces of `count` bytes; raises after the last one if it is damaged."""
        path, found = self._path(sha256), hashlib.sha256()
        try:
            with path.open("rb") as file:
                while chunk := file.read(count):
                    found.update(chunk)
                    yield chunk
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(
                tr("An attached file cannot be read: {reason} ({path}).", reason=reason, path=path),
                tr("Attach the file again."),
            ) from error
        if found.hexdigest() != sha256:
            raise StoreError(
                tr("An attached file is damaged on the disk: {path}.", path=path),
                tr("Attach the file again."),
            )

    def __bool__(self) -> bool:
        """Whether there are files."""
        return next(self._files(), None) is not None

    def remove(self, names: Iterable[str]) -> None:
        """Remove blobs, whatever their age; those that are not there are ignored."""
        with translate_errors(self._database):
            for name in names if self._writable else ():
                _remove(self._path(name))

    def remove_unnamed(self, named: set[str]) -> None:
        """Remove what is named nowhere and old enough."""
        before = time.time() - KEEP_SECONDS
        with translate_errors(self._database):
            for path in self._files() if self._writable else ():
                # An unfinished blob may get its name, or go, between the listing and this.
                with suppress(FileNotFoundError):
                    if path.name not in named and path.stat().st_mtime < before:
                        _remove(path)

    def _files(self) -> Iterator[Path]:
        """All blobs, and what a crash left of unfinished ones; no file of another kind."""
        yield from self.folder.glob(f"*{_UNFINISHED}")
        yield from (p for p in self.folder.glob("[0-9a-f][0-9a-f]/*") if _NAME.fullmatch(p.name))

    def _path(self, sha256: str) -> Path:
        if not _NAME.fullmatch(sha256):
            raise ValueError(sha256)
        return self.folder / sha256[:2] / sha256


def _remove(blob: Path) -> None:
    """Remove a blob and what was made of it, which a crash in between does not leave alone."""
    disk_files.delete(blob.with_suffix(_EXTRACTED))
    disk_files.delete(blob)


def names_in(database: sqlite3.Connection) -> set[str]:
    """All that a column of the store names, except the columns with what was written.

    Any text of 64 hexadecimal digits counts, so that a later table or column is included.
    """
    found: set[str] = set()
    tables = database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table'"
        " AND name NOT LIKE 'search%' AND name NOT LIKE 'sqlite%'"
    ).fetchall()
    for (table,) in tables:
        for _, column, kind, *_ in database.execute(f"PRAGMA table_info({table})").fetchall():
            if kind == "TEXT" and (table, column) not in _TEXTS:
                rows = database.execute(
                    f"SELECT {column} FROM {table} WHERE length({column}) >= 64"
                )
                for (text,) in rows:
                    found.update(_NAME.findall(text))
    return found


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            tr("{path} cannot be read: {reason}.", path=path, reason=reason),
            tr("Check that the file exists and can be read, then try again."),
        ) from error
