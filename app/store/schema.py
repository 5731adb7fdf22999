"""Schema of the store: tables and migrations, error types, and opening the database.

Every sqlite3 error becomes a `StoreError` in `translate_errors`. A migration's number is its
position in `MIGRATIONS`; a released one is never edited, a change is a new entry.
"""

from __future__ import annotations

import errno
import functools
import glob
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path, PurePath
from urllib.parse import quote

from app.store.parts_migration import convert_messages
from app.store.settings_migration import convert_settings
from app.system.text_search import normalize
from app.system.translation import tr
from engine import disk_files

APPLICATION = 0x546F6B6F  # "Toko" in the file's header
BUSY_SECONDS = 2.0  # for locks of other tools; the lock file keeps a second app out
CHECK_BYTES = 128 << 20  # largest file checked on opening: at 1.3 ms a megabyte, 0.2 s

MIGRATIONS = (
    """
    CREATE TABLE conversation (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        title TEXT NOT NULL,
        folded TEXT NOT NULL,  -- the title as search sees it
        created REAL NOT NULL,  -- seconds since 1970, as every time here
        updated REAL NOT NULL,
        deleted REAL,
        leaf INTEGER REFERENCES message(id) ON DELETE SET NULL,
        turn INTEGER NOT NULL DEFAULT 0  -- counts each change of leaf
    );
    CREATE INDEX conversation_leaf ON conversation(leaf);
    CREATE TABLE message (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        conversation INTEGER NOT NULL REFERENCES conversation(id) ON DELETE CASCADE,
        parent INTEGER,
        role TEXT NOT NULL,
        state TEXT NOT NULL,
        created REAL NOT NULL,
        model TEXT NOT NULL DEFAULT '',
        error TEXT NOT NULL DEFAULT '',
        prompt_tokens INTEGER NOT NULL DEFAULT 0,
        generated_tokens INTEGER NOT NULL DEFAULT 0,
        seconds REAL NOT NULL DEFAULT 0,
        used INTEGER NOT NULL DEFAULT 0,  -- the conversation's turn when this was last its leaf
        text TEXT NOT NULL,  -- last: SQLite reaches what is behind a long text only through it
        UNIQUE (conversation, id),
        FOREIGN KEY (conversation, parent) REFERENCES message(conversation, id) ON DELETE CASCADE
    );
    CREATE INDEX message_parent ON message(conversation, parent);
    CREATE INDEX message_streaming ON message(id) WHERE state = 'streaming';
    CREATE TABLE chunk (
        message INTEGER NOT NULL REFERENCES message(id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (message, seq)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE draft (
        conversation INTEGER PRIMARY KEY,  -- 0: the conversation that is not begun yet
        saved REAL NOT NULL,
        text TEXT NOT NULL
    );
    CREATE TRIGGER conversation_draft AFTER DELETE ON conversation
        BEGIN DELETE FROM draft WHERE conversation = old.id; END;
    CREATE VIRTUAL TABLE search USING fts5(folded, tokenize = 'trigram', detail = 'none');
    CREATE TRIGGER message_search AFTER DELETE ON message
        BEGIN DELETE FROM search WHERE rowid = old.id; END;
    INSERT INTO search(rowid, folded)
        SELECT id, fold(text) FROM message WHERE text <> '' AND state <> 'streaming';
    """,
    """
    ALTER TABLE message ADD COLUMN adapters TEXT NOT NULL DEFAULT '';  -- JSON; read with the text
    CREATE TABLE adapter (
        path TEXT PRIMARY KEY,  -- of the file or folder
        name TEXT NOT NULL,
        added REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE adapter_use (
        conversation INTEGER NOT NULL,  -- 0: the conversation that is not begun yet
        position INTEGER NOT NULL,  -- from 0, the first is applied first
        path TEXT NOT NULL,
        enabled INTEGER NOT NULL,
        strength REAL NOT NULL,
        PRIMARY KEY (conversation, position)
    ) WITHOUT ROWID;
    CREATE TRIGGER conversation_adapters AFTER DELETE ON conversation
        BEGIN DELETE FROM adapter_use WHERE conversation = old.id; END;
    CREATE TABLE adapter_mix (
        name TEXT NOT NULL,
        position INTEGER NOT NULL,
        path TEXT NOT NULL,
        enabled INTEGER NOT NULL,
        strength REAL NOT NULL,
        PRIMARY KEY (name, position)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE deleted_message (
        id INTEGER PRIMARY KEY,  -- of the message
        deleted REAL NOT NULL,
        conversation INTEGER NOT NULL REFERENCES conversation(id) ON DELETE CASCADE,
        was_leaf INTEGER NOT NULL,
        content TEXT NOT NULL,  -- JSON: its columns by name
        children TEXT NOT NULL  -- JSON: ids of the messages that were below it
    );
    CREATE INDEX deleted_message_conversation ON deleted_message(conversation);
    """,
    """
    ALTER TABLE message ADD COLUMN details TEXT NOT NULL DEFAULT '';  -- JSON; how it was made
    """,
    """
    ALTER TABLE conversation ADD COLUMN policy TEXT NOT NULL DEFAULT '';  -- when it is full
    """,
    """
    CREATE TABLE part (
        id INTEGER PRIMARY KEY,  -- the parts of a message are in the order of their ids
        message INTEGER NOT NULL REFERENCES message(id) ON DELETE CASCADE,
        kind TEXT NOT NULL,
        data TEXT NOT NULL,  -- JSON: the fields of its kind; empty: the usual ones
        text TEXT NOT NULL
    );
    CREATE INDEX part_message ON part(message);
    ALTER TABLE message ADD COLUMN stop TEXT NOT NULL DEFAULT '';  -- why an answer was stopped
    """,
    """
    ALTER TABLE message ADD COLUMN compared INTEGER NOT NULL DEFAULT 0;  -- id of the other answer
    ALTER TABLE message ADD COLUMN undecided INTEGER NOT NULL DEFAULT 0;  -- neither is kept yet
    """,
    """
    CREATE TABLE answer_options (
        conversation INTEGER PRIMARY KEY,  -- 0: the conversation that is not begun yet
        saved REAL NOT NULL,
        version INTEGER NOT NULL,  -- of the data: 1
        data TEXT NOT NULL  -- JSON
    );
    CREATE TRIGGER conversation_options AFTER DELETE ON conversation
        BEGIN DELETE FROM answer_options WHERE conversation = old.id; END;
    """,
    """
    -- Search folds quotes and hyphens, and removes soft hyphens.
    UPDATE conversation SET folded = fold(folded) WHERE folded <> fold(folded);
    UPDATE search SET folded = fold(folded) WHERE folded <> fold(folded);
    """,
    """
    CREATE TABLE folder (
        id INTEGER PRIMARY KEY,
        parent INTEGER REFERENCES folder(id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        instructions TEXT,  -- NULL: as in its parent
        preset INTEGER,  -- that new chats in it begin with
        position REAL NOT NULL DEFAULT 0,  -- among its siblings
        created REAL NOT NULL,
        deleted REAL
    );
    CREATE INDEX folder_parent ON folder(parent);
    CREATE TABLE preset (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        data TEXT NOT NULL,  -- JSON: settings, parts, description, greeting
        created REAL NOT NULL
    );
    CREATE TABLE snippet (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        text TEXT NOT NULL,
        created REAL NOT NULL
    );
    CREATE TABLE record (
        name TEXT PRIMARY KEY,  -- 'new chat': the settings of the chat that is not begun yet
        data TEXT NOT NULL
    ) WITHOUT ROWID;
    ALTER TABLE conversation ADD COLUMN settings TEXT NOT NULL DEFAULT '';  -- JSON: one record
    ALTER TABLE conversation ADD COLUMN folder INTEGER REFERENCES folder(id) ON DELETE SET NULL;
    ALTER TABLE conversation ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE conversation ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE conversation ADD COLUMN origin TEXT NOT NULL DEFAULT '';  -- of an imported chat
    CREATE INDEX conversation_folder ON conversation(folder);
    CREATE INDEX conversation_origin ON conversation(origin) WHERE origin <> '';
    """,
    """
    CREATE TABLE collection (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        sources TEXT NOT NULL,  -- JSON: paths of folders and files
        created REAL NOT NULL
    );
    """,
    """
    CREATE TABLE tool_grant (  -- what the user allowed for later calls
        tool TEXT NOT NULL,
        digest TEXT NOT NULL,  -- of the tool as it was
        scope TEXT NOT NULL DEFAULT '',  -- such as the host of an address
        conversation INTEGER REFERENCES conversation(id) ON DELETE CASCADE,  -- NULL: all chats
        shown TEXT NOT NULL DEFAULT '',  -- the tool as it was
        created REAL NOT NULL
    );
    CREATE INDEX tool_grant_tool ON tool_grant(tool);
    CREATE TABLE tool_activity (  -- every call that was ever made
        id INTEGER PRIMARY KEY,
        conversation INTEGER NOT NULL,
        message INTEGER NOT NULL,
        call TEXT NOT NULL,
        tool TEXT NOT NULL,
        name TEXT NOT NULL,
        server TEXT NOT NULL,
        arguments TEXT NOT NULL,
        result TEXT NOT NULL DEFAULT '',
        state TEXT NOT NULL,
        allowed TEXT NOT NULL,
        began REAL NOT NULL,
        seconds REAL NOT NULL DEFAULT 0
    );
    CREATE INDEX tool_activity_message ON tool_activity(message);
    -- What was said in a chat goes with it; that tools were called stays.
    CREATE TRIGGER tool_activity_of_deleted AFTER DELETE ON conversation
        BEGIN UPDATE tool_activity SET arguments = '', result = '' WHERE conversation = old.id; END;
    """,
)
CONVERSIONS = {
    7: convert_messages,
    11: convert_settings,
}  # run after the script of their version, in its transaction


class StoreError(Exception):
    """An error of the store for the user: `str(error)` is the reason, `remedy` the advice."""

    def __init__(self, what: str, remedy: str, *, temporary: bool = False) -> None:
        """`temporary`: the same call may succeed later."""
        super().__init__(what)
        self.remedy = remedy
        self.temporary = temporary


class DamagedStore(StoreError):
    """The database is damaged or not one of this app; `Store.repair` replaces it."""


class ReadOnlyStore(StoreError):
    """The file or its folder cannot be written; `Store.open_copy` may still read it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            tr("Nothing can be saved: {folder} cannot be written to.", folder=folder),
            tr("Allow writing to that folder. Until then, new messages are only in this window."),
            temporary=True,
        )


class NewerStore(ReadOnlyStore):
    """A newer version of the app saved the file; `Store.open_copy` reads what this one knows."""

    def __init__(self) -> None:
        StoreError.__init__(
            self,
            tr(
                "A newer version of Tokonoma saved your chats: here they can be read and exported, "
                "not changed."
            ),
            tr("Update Tokonoma to go on with them. New messages are only in this window."),
        )


class RowNotFound(StoreError):
    """The row to change does not exist; a retry cannot succeed."""

    def __init__(self) -> None:
        super().__init__(
            tr("That chat or message no longer exists."),
            tr("Open the chat again from the sidebar."),
        )


_TEMPORARY = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR))
_NO_PERMISSION = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))
_DISK_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_EQUIVALENT = {
    sqlite3.SQLITE_LOCKED: sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_PROTOCOL: sqlite3.SQLITE_BUSY,  # lock of the write-ahead log timed out
    sqlite3.SQLITE_CANTOPEN: sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM: sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_AUTH: sqlite3.SQLITE_READONLY,
}


@contextmanager
def translate_errors(path: Path) -> Generator[None]:
    """Convert errors of SQLite and the file system to `StoreError`, for the store at `path`."""
    try:
        yield
    except sqlite3.Error as error:
        raise _store_error(error, path) from error
    except OSError as error:
        if error.errno in _NO_PERMISSION:
            raise ReadOnlyStore(path.parent) from error
        if error.errno in _DISK_FULL:
            raise StoreError(*_sentences(sqlite3.SQLITE_FULL, error), temporary=True) from error
        reason = error.strerror or error
        raise StoreError(
            tr("Your chats at {path} cannot be opened: {reason}.", path=path, reason=reason),
            tr("Check that the folder exists and can be written to, then try again."),
            temporary=True,
        ) from error


def _store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """The `StoreError` for a SQLite error."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # primary result code
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(path)
    if code == sqlite3.SQLITE_CONSTRAINT:  # a foreign key refers to a missing row
        return RowNotFound()
    code = _EQUIVALENT.get(code, code)
    if code == sqlite3.SQLITE_READONLY:
        return ReadOnlyStore(path.parent)
    what, remedy = _sentences(code, error)
    return StoreError(what, remedy, temporary=code in _TEMPORARY)


def _sentences(code: int, error: Exception) -> tuple[str, str]:
    """Reason and advice for a primary result code of SQLite."""
    match code:
        case sqlite3.SQLITE_BUSY:
            return (
                tr("Your chats are in use by another program."),
                tr("Close it, then try again."),
            )
        case sqlite3.SQLITE_FULL:
            return (
                tr("The disk is full, so this could not be saved."),
                tr("Free some space, then try again. What was saved before is safe."),
            )
        case sqlite3.SQLITE_IOERR:
            return (
                tr("The disk reported an error while saving or reading your chats."),
                tr("Check the disk and its free space, then open Tokonoma again."),
            )
        case sqlite3.SQLITE_TOOBIG:
            return (
                tr("This text is too long to save."),
                tr("Shorten it, or split it into several messages."),
            )
        case _:
            return (
                tr("Your chats could not be read or saved: {reason}.", reason=error),
                tr("Close Tokonoma and open it again."),
            )


def _damaged(path: Path) -> DamagedStore:
    return DamagedStore(tr("The file of your chats is damaged: {path}.", path=path), _advice())


def _advice() -> str:
    return tr("Move it aside: what can still be read is copied into a new file.")


def connect(path: Path, last: int | None = None) -> sqlite3.Connection:
    """Open the database, check it for damage, and migrate it up to version `last`, or the newest."""
    if not path.exists():
        _create(path)
    database = sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
    try:
        _check(database, path)
        prepare(database)
        version = _pragma(database, "user_version")
        if 0 < version < len(MIGRATIONS):
            _back_up(database, path.with_name(f"{path.name}.schema-{version}.backup"))
        if last is None:
            migrate(database)
        else:
            migrate(database, last)
    except BaseException:
        database.close()
        raise
    return database


def connect_copy(
    path: Path, copy_newer: Callable[[sqlite3.Connection, sqlite3.Connection], None]
) -> sqlite3.Connection:
    """Open a temporary copy of a read-only database, checked and migrated as by `connect`.

    `copy_newer` fills the copy with the rows of one that a newer version saved. SQLite deletes the
    copy when the connection is closed.
    """
    database = sqlite3.connect("", isolation_level=None)
    try:
        with ExitStack() as stack:
            source = stack.enter_context(closing(_open_unwritable(path, stack)))
            try:
                _check(source, path)
            except NewerStore:
                if _is_damaged(source, path):
                    raise _damaged(path) from None
                prepare(database)
                copy_newer(source, database)
                return database
            source.backup(database)
        prepare(database)
        migrate(database)
    except BaseException:
        database.close()
        raise
    return database


def _open_unwritable(path: Path, stack: ExitStack) -> sqlite3.Connection:
    """Open a database in a folder that cannot be written to."""
    address = database_address(path.absolute())
    # With a write-ahead log, SQLite needs its index file (-shm), which cannot be created here.
    database = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=BUSY_SECONDS)
    try:
        database.execute("SELECT count(*) FROM sqlite_master")
        return database
    except sqlite3.OperationalError:
        database.close()
    log = path.with_name(path.name + "-wal")
    if not log.exists() or not log.stat().st_size:
        return sqlite3.connect(f"{address}?immutable=1", uri=True)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokonoma-")))
    for part in (path, log):
        shutil.copyfile(part, folder / part.name)
    return sqlite3.connect(folder / path.name)


def database_address(path: PurePath) -> str:
    """The address of a file for SQLite, which knows none on a server: its name is in the path."""
    text = quote(os.fsencode(path.as_posix()), safe="/:")
    return f"file://{text}" if text.startswith("/") else f"file:///{text}"


def _create(path: Path) -> None:
    """Create an empty file only its owner can read; SQLite would make it readable by all."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def prepare(database: sqlite3.Connection) -> None:
    """Set options that SQLite does not store in the file."""
    # Invalid UTF-8 can only come from damage: decode the rest.
    database.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
    database.create_function("fold", 1, normalize, deterministic=True)
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("PRAGMA secure_delete = ON")  # overwrites deleted rows
    database.execute("PRAGMA fullfsync = ON")  # macOS: flush the drive's cache too
    database.execute("PRAGMA journal_size_limit = 16777216")  # bytes


def _pragma(database: sqlite3.Connection, name: str) -> int:
    """The integer value of a pragma."""
    return int(database.execute(f"PRAGMA {name}").fetchone()[0])


def _check(database: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError for files of other programs, of newer versions, and damaged ones."""
    application, version = _pragma(database, "application_id"), _pragma(database, "user_version")
    if application != APPLICATION and _pragma(database, "schema_version"):
        raise DamagedStore(tr("{path} is not a file of Tokonoma's chats.", path=path), _advice())
    if version > len(MIGRATIONS):
        raise NewerStore
    if _is_damaged(database, path):
        raise _damaged(path)


def _is_damaged(database: sqlite3.Connection, path: Path) -> bool:
    """Whether `quick_check` finds damage; files above `CHECK_BYTES` are not checked."""
    # Before SQLite 3.42 a check cannot be interrupted, so its time is limited by file size.
    if path.stat().st_size > CHECK_BYTES:
        return False
    return database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok"


def migrate(database: sqlite3.Connection, last: int = len(MIGRATIONS)) -> None:
    """Apply the missing migrations up to version `last`, one transaction each."""
    version = _pragma(database, "user_version")
    for number, script in enumerate(MIGRATIONS[version:last], version + 1):
        convert = CONVERSIONS.get(number)
        try:
            database.executescript(f"BEGIN IMMEDIATE; {script}")
            if convert is not None:
                convert(database)
            database.execute(f"PRAGMA user_version = {number}")
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute("COMMIT")
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")


def remove_backups(path: Path, before: float) -> None:
    """Remove the copies of the database that migrations made before a time in seconds."""
    for copy in path.parent.glob(f"{glob.escape(path.name)}.schema-*.backup"):
        with suppress(FileNotFoundError):  # another start of the app removes them too
            if copy.stat().st_mtime < before:
                disk_files.delete(copy)


def _back_up(database: sqlite3.Connection, copy: Path) -> None:
    """Copy the whole database; the copy is renamed to `copy` when complete."""
    unfinished = copy.with_name(copy.name + ".part")
    disk_files.delete(unfinished)
    _create(unfinished)
    with closing(sqlite3.connect(unfinished)) as target:
        database.backup(target)
    disk_files.replace(unfinished, copy)
