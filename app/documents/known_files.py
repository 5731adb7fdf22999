"""Files of collections that were read: their hashes, and the versions of their texts, in SQLite.

All in it can be had from the files again: a damaged file, or one of another version, is made anew,
and where none can be written it is in memory.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from app.documents.beside import OfNewer, beside, remove_beside
from app.documents.index_file import transaction
from app.domain.collection import CollectionFile, FileState
from app.domain.documents import PageUnit
from engine import disk_files

_log = logging.getLogger(__name__)
_VERSION = 1  # of the schema
_FOLDERS = "CREATE TABLE IF NOT EXISTS folder (path BLOB PRIMARY KEY, device TEXT NOT NULL)"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS file (
    path BLOB PRIMARY KEY,  -- as the system has it
    size INTEGER NOT NULL,
    modified INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    state TEXT NOT NULL,
    version TEXT NOT NULL,
    unit TEXT NOT NULL,
    fault TEXT NOT NULL,
    detail TEXT NOT NULL
) WITHOUT ROWID
"""


class KnownFiles:
    """The files at `path`; used by one thread at a time, and raises no `sqlite3.Error`.

    `reader` is the version of the readers: what another one has read is not known.
    """

    def __init__(self, path: Path, reader: int) -> None:
        self._path = path
        self._version = _VERSION * 1_000_000 + reader
        self._database: sqlite3.Connection | None = None

    def read(self) -> dict[str, CollectionFile]:
        """All files, by path."""
        try:
            return self._read(self._open())
        except sqlite3.Error as error:
            _log.warning("the files of collections are read again: %s", error)
            self._remove()
        return {}

    def write(self, files: Iterable[CollectionFile], gone: Iterable[str] = ()) -> None:
        """Add files, or change those with their paths; forget others."""
        try:
            base = self._open()
            with transaction(base):
                base.executemany(
                    "INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    map(_row, files),
                )
                base.executemany(
                    "DELETE FROM file WHERE path = ?", [(os.fsencode(each),) for each in gone]
                )
        except sqlite3.Error as error:  # they are read again at the next start
            _log.warning("files of collections could not be kept: %s", error)

    def devices(self) -> dict[str, int]:
        """The devices that folders were on, by their paths."""
        try:
            rows = self._open().execute("SELECT path, device FROM folder").fetchall()
            return {os.fsdecode(path): int(device) for path, device in rows}
        except (sqlite3.Error, ValueError) as error:
            _log.warning("the devices of folders are not known: %s", error)
        return {}

    def write_devices(self, devices: Mapping[str, int]) -> None:
        """Keep the devices of folders, in place of all that were kept."""
        rows = [(os.fsencode(path), str(device)) for path, device in devices.items()]
        try:
            base = self._open()
            with transaction(base):
                base.execute("DELETE FROM folder")
                base.executemany("INSERT INTO folder VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            _log.warning("the devices of folders could not be kept: %s", error)

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            with suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    # --- steps ----------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            try:
                self._database = self._opened_here()
            except (sqlite3.Error, OSError) as error:
                _log.warning("the files of collections are not kept: %s", error)
                self._remove()
                try:
                    self._database = self._opened(self._path)
                except (sqlite3.Error, OSError):
                    self._database = self._opened(None)
        return self._database

    def _opened_here(self) -> sqlite3.Connection:
        """The file; one of a newer version stays, and this version has its own beside it."""
        try:
            opened = self._opened(self._path)
        except OfNewer:
            self._path = beside(self._path, self._version)
            return self._opened(self._path)
        remove_beside(self._path)
        return opened

    def _opened(self, path: Path | None) -> sqlite3.Connection:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # for its owner only
        base = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
        try:
            base.execute("PRAGMA journal_mode = WAL").fetchall()
            base.execute("PRAGMA synchronous = NORMAL")
            base.execute("PRAGMA secure_delete = ON").fetchall()
            version = base.execute("PRAGMA user_version").fetchone()[0]
            if version > self._version:
                raise OfNewer
            if version != self._version:
                with transaction(base):
                    base.execute("DROP TABLE IF EXISTS file")
                    base.execute(_SCHEMA)
                    base.execute(f"PRAGMA user_version = {self._version}")
            base.execute(_FOLDERS)
        except BaseException:
            base.close()
            raise
        return base

    def _read(self, base: sqlite3.Connection) -> dict[str, CollectionFile]:
        found: dict[str, CollectionFile] = {}
        for path, size, modified, sha256, state, version, unit, fault, detail in base.execute(
            "SELECT * FROM file"
        ):
            name = os.fsdecode(path)
            with suppress(ValueError):  # else it is read again
                found[name] = CollectionFile(
                    name, size, modified, sha256, FileState(state), version, PageUnit(unit),
                    fault, detail,
                )  # fmt: skip
        return found

    def _remove(self) -> None:
        self.close()
        for ending in ("", "-wal", "-shm"):
            with suppress(OSError):
                disk_files.delete(self._path.with_name(self._path.name + ending))


def _row(file: CollectionFile) -> tuple[object, ...]:
    return (
        os.fsencode(file.path), file.size, file.modified, file.sha256, file.state.value,
        file.version, file.unit.value, file.fault, file.detail.encode("utf-8", "replace").decode(),
    )  # fmt: skip
