"""The SQLite file of the document index: its schema and version, and opening it."""

from __future__ import annotations

import os
import sqlite3
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.documents.beside import OfNewer
from app.documents.terms import TOKENIZER

APPLICATION = 0x546F6B64  # "Tokd" in the file's header
VERSION = 3  # of the schema, the cutting and the folding: another one is indexed anew

_SCHEMA = f"""
CREATE TABLE document (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT,  -- NULL: it is removed, and not erased yet
    digest BLOB NOT NULL,  -- of its text and pages
    version TEXT NOT NULL,  -- of what extracted them
    complete INTEGER NOT NULL DEFAULT 0,
    first INTEGER NOT NULL DEFAULT 0,  -- ids of its passages, which are without a gap
    last INTEGER NOT NULL DEFAULT -1
);
CREATE UNIQUE INDEX document_key ON document(key) WHERE key IS NOT NULL;
CREATE INDEX document_removed ON document(id) WHERE key IS NULL;
CREATE TABLE passage (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    document INTEGER NOT NULL,
    start INTEGER NOT NULL,
    end INTEGER NOT NULL,
    page_index INTEGER NOT NULL,
    page TEXT NOT NULL,
    headings TEXT NOT NULL,
    table_head TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE TABLE model (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE vector (
    model INTEGER NOT NULL,
    passage INTEGER NOT NULL,
    parts INTEGER,  -- how many vectors of parts follow its own; NULL: they are not made yet
    data BLOB NOT NULL,
    PRIMARY KEY (model, passage)
) WITHOUT ROWID;
CREATE INDEX vector_passage ON vector(passage);
CREATE INDEX vector_whole ON vector(model, passage) WHERE parts IS NULL;
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(above, body, content='', tokenize="{TOKENIZER}");
"""


class OtherVersion(Exception):
    """The file is of another version, or of another program."""


def open_index(path: Path | None) -> sqlite3.Connection:
    """Open or create the file, for this process only."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # for its owner only
    base = sqlite3.connect(
        path or ":memory:", timeout=0.2, isolation_level=None, check_same_thread=False
    )
    try:
        base.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        base.execute("PRAGMA secure_delete = ON").fetchall()
        base.execute("PRAGMA auto_vacuum = INCREMENTAL").fetchall()
        base.execute("PRAGMA journal_mode = WAL").fetchall()
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute("PRAGMA temp_store = MEMORY")
        base.execute("PRAGMA cache_size = -16000")
        with transaction(base):
            tables = base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            version = f"{VERSION} {unicodedata.unidata_version}"
            if not tables:
                for statement in _SCHEMA.split(";\n"):
                    base.execute(statement)
                set_state(base, "version", version)
                base.execute(f"PRAGMA application_id = {APPLICATION}")
            elif base.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                raise OtherVersion("it is of another program")
            row = base.execute("SELECT value FROM state WHERE name = 'version'").fetchone()
            if row and _order(row[0]) > _order(version):
                raise OfNewer(f"its version is {row[0]}, not {version}")
            if row != (version,):
                raise OtherVersion(f"its version is {row and row[0]}, not {version}")
        base.execute("CREATE TEMP TABLE wanted (first INTEGER PRIMARY KEY, last INTEGER)")
        base.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, words, row)")
    except BaseException:
        base.close()
        raise
    return base


def _order(version: str) -> list[int]:
    """The numbers of a version, to compare; empty for damage."""
    return [int(each) for each in version.replace(".", " ").split() if each.isdecimal()]


@contextmanager
def transaction(base: sqlite3.Connection) -> Generator[None]:
    base.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            base.execute("ROLLBACK")
        raise
    base.execute("COMMIT")


def set_state(base: sqlite3.Connection, name: str, value: str) -> None:
    base.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))
