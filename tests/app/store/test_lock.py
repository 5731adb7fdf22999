"""Store file: lock, errors on opening, migrations, salvage and repair."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.message import MessageState
from app.store import schema
from app.store.lock import set_aside
from app.store.schema import APPLICATION, CHECK_BYTES, MIGRATIONS, NewerStore
from app.store.store import DamagedStore, ReadOnlyStore, Store, StoreError
from app.store.unsent import unsent_of
from crash_store import rounds
from engine import Role
from store_contents import all_messages

ROOT = Path(__file__).parents[3]
NOBODY = 65534

# The first released schema, frozen: its stores must still open.
SCHEMA_1 = """
CREATE TABLE conversation (
    id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, folded TEXT NOT NULL,
    created REAL NOT NULL, updated REAL NOT NULL, deleted REAL,
    leaf INTEGER REFERENCES message(id) ON DELETE SET NULL, turn INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX conversation_leaf ON conversation(leaf);
CREATE TABLE message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversation(id) ON DELETE CASCADE,
    parent INTEGER, role TEXT NOT NULL, state TEXT NOT NULL, created REAL NOT NULL,
    model TEXT NOT NULL DEFAULT '', error TEXT NOT NULL DEFAULT '',
    prompt_tokens INTEGER NOT NULL DEFAULT 0, generated_tokens INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0, used INTEGER NOT NULL DEFAULT 0, text TEXT NOT NULL,
    UNIQUE (conversation, id),
    FOREIGN KEY (conversation, parent) REFERENCES message(conversation, id) ON DELETE CASCADE
);
CREATE INDEX message_parent ON message(conversation, parent);
CREATE INDEX message_streaming ON message(id) WHERE state = 'streaming';
CREATE TABLE chunk (
    message INTEGER NOT NULL REFERENCES message(id) ON DELETE CASCADE,
    seq INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (message, seq)
) WITHOUT ROWID;
INSERT INTO conversation VALUES (4, 'Crème', 'creme', 10.0, 20.0, NULL, NULL, 2);
INSERT INTO message(id, conversation, parent, role, state, created, used, text)
    VALUES (7, 4, NULL, 'user', 'complete', 11.0, 1, 'A frozen Ötzi');
INSERT INTO message(id, conversation, parent, role, state, created, used, text)
    VALUES (9, 4, 7, 'assistant', 'streaming', 12.0, 2, 'Thawed');
INSERT INTO chunk VALUES (9, 1, ' by'), (9, 2, ' spring');
UPDATE conversation SET leaf = 9;
PRAGMA application_id = 1416588143;
PRAGMA user_version = 1;
"""


def write(path, script):
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)


def fill(path, conversations=6, messages=8):
    """Create a store of branching conversations with short and long texts; returns them."""
    store = Store.open(path)
    for number in range(conversations):
        conversation = store.create_conversation(f"Conversation {number}").id
        parent = None
        for turn in range(messages):
            role = Role.ASSISTANT if turn % 2 else Role.USER
            text = f"Text {number}.{turn} été 日本 " * (1, 5, 40, 300)[(number + turn) % 4]
            added = store.add_message(conversation, parent, role, text)
            parent = added.id if turn != 3 else parent
    held = all_messages(store)
    store.close()
    return held


# --- errors on opening ---------------------------------------------------------------------------


def refused(path, match, kind=StoreError):
    """Expect a StoreError with a remedy on opening; returns it."""
    with pytest.raises(kind, match=match) as raised:
        Store.open(path)
    assert type(raised.value) is kind
    assert str(raised.value).endswith(".")
    assert raised.value.remedy.endswith(".")
    return raised.value


def test_second_app_is_locked_out_until_the_first_closes(path):
    first = Store.open(path)
    script = f"""
from pathlib import Path
from app.store.store import (Store, StoreError)
from app.store.unsent import unsent_of
try:
    Store.open(Path({str(path)!r}))
except StoreError as error:
    print(error, error.remedy)
"""
    second = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "already open" in second.stdout
    refused(path, "already open")
    with pytest.raises(StoreError, match="already open"):
        set_aside(path)
    first.create_conversation("still works")
    first.close()
    first.close()
    Store.open(path).close()


def test_failed_open_releases_the_lock(path):
    path.write_bytes(b"not a database" * 1000)
    refused(path, "damaged", DamagedStore)
    refused(path, "damaged", DamagedStore)


def test_lock_of_another_program_is_reported(path):
    fill(path, 1, 1)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        refused(path, "in use by another program")


def test_text_file_counts_as_damaged(path):
    path.write_bytes(b"hello\n" * 2000)
    refused(path, "damaged", DamagedStore)


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    Store.open(path).close()


def test_database_of_another_program_is_refused_unchanged(path):
    write(path, "CREATE TABLE notes(text); INSERT INTO notes VALUES ('mine');")
    before = path.read_bytes()
    refused(path, "is not a file of", DamagedStore)
    assert path.read_bytes() == before


def test_store_of_a_newer_version_is_refused_unchanged(path):
    fill(path, 1, 1)
    write(path, f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    before = path.read_bytes()
    error = refused(path, "newer version of Tokonoma", NewerStore)
    assert "Update" in error.remedy
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["middle", "truncated"])
def test_malformed_page_is_detected_on_opening(path, damage):
    fill(path)
    content = path.read_bytes()
    middle = len(content) // 2 // 4096 * 4096
    if damage == "middle":
        content = content[:middle] + b"\xaa" * 4096 + content[middle + 4096 :]
    path.write_bytes(content[:middle] if damage == "truncated" else content)
    refused(path, "damaged", DamagedStore)


def test_folder_that_is_a_file_raises_store_error(tmp_path):
    (tmp_path / "file").touch()
    refused(tmp_path / "file" / "conversations.sqlite", "cannot be opened")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no file modes")
def test_unwritable_folder_raises_store_error():
    with tempfile.TemporaryDirectory() as name:  # not tmp_path: another user must reach it
        folder = Path(name)
        folder.chmod(0o555)
        root = hasattr(os, "geteuid") and os.geteuid() == 0  # may write anywhere
        try:
            if root:
                os.seteuid(NOBODY)
            refused(folder / "conversations.sqlite", "cannot be written", ReadOnlyStore)
            refused(folder / "new" / "conversations.sqlite", "cannot be written", ReadOnlyStore)
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)


@pytest.mark.skipif(os.name != "posix", reason="other systems keep rights with the folder")
def test_only_the_owner_can_read_the_files(path):
    fill(path, 1, 1)
    aside = set_aside(path)
    Store.salvage(aside, path)
    old = path.with_name("old.sqlite")
    write(old, SCHEMA_1)
    old.chmod(0o600)
    Store.open(old).close()
    files = [file for file in path.parent.iterdir() if file.is_file()]
    assert len(files) == 6
    assert [file.name for file in files if file.stat().st_mode & 0o077] == []


def test_a_file_too_large_to_check_quickly_is_opened_unchecked(path):
    fill(path)
    content = path.read_bytes()
    last = content[:-4096] + b"\xaa" * 4096
    path.write_bytes(last)
    refused(path, "damaged", DamagedStore)
    os.truncate(path, CHECK_BYTES + 4096)  # sparse: pages beyond what the header counts
    Store.open(path).close()


# --- errors while open ---------------------------------------------------------------------------


def test_full_disk_is_reported_and_keeps_saved_rows(path):
    store = Store.open(path)
    conversation = store.create_conversation("A title").id
    question = store.add_message(conversation, None, Role.USER, "A question").id
    answer = store.add_message(conversation, question, Role.ASSISTANT, "", MessageState.STREAMING)
    limit = store._database.execute("PRAGMA page_count").fetchone()[0] + 4
    store._database.execute(f"PRAGMA max_page_count = {limit}")
    saved = []

    def stream_on():
        while True:
            store.append_text(answer.id, "piece " * 50)
            saved.append("piece " * 50)

    with pytest.raises(StoreError, match="disk is full") as raised:
        stream_on()
    assert "Free some space" in raised.value.remedy
    assert saved
    with pytest.raises(StoreError, match="disk is full"):
        store.add_message(conversation, question, Role.ASSISTANT, "long " * 10_000)
    assert all_messages(store)[answer.id].text == "".join(saved)
    assert [m.id for m in store.branch(conversation)] == [question, answer.id]
    store._database.execute("PRAGMA max_page_count = 1000000")
    store.append_text(answer.id, "the end")
    assert store.finish(answer.id, MessageState.COMPLETE).text == "".join(saved) + "the end"
    store.close()


def test_file_made_read_only_raises_store_error(path):
    store = Store.open(path)
    store._database.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match="cannot be written to"):
        store.create_conversation("x")
    assert store.conversations() == []
    store.close()


def test_damage_found_while_reading_raises_damaged_store(path):
    fill(path)
    store = Store.open(path)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xaa" * (len(content) - 4096)
    path.write_bytes(content)
    store._database.execute("PRAGMA shrink_memory")
    with pytest.raises(DamagedStore):
        store.conversations("a word that is nowhere")
    store.close()


def test_closed_store_and_wrong_thread_raise_store_error(path):
    store = Store.open(path)
    seen = []

    def read_elsewhere():
        try:
            store.conversations()
        except StoreError as error:
            seen.append(error)

    thread = threading.Thread(target=read_elsewhere)
    thread.start()
    thread.join()
    store.close()
    with pytest.raises(StoreError):
        store.conversations()
    with pytest.raises(StoreError):
        store.create_conversation("x")
    assert len(seen) == 1


# --- migrations ----------------------------------------------------------------------------------


def test_a_store_of_schema_1_is_migrated_with_everything_in_it(path):
    write(path, SCHEMA_1)
    store = Store.open(path)
    (conversation,) = store.conversations()
    assert (conversation.title, conversation.created) == ("Crème", 10.0)
    question, answer = store.branch(4)
    assert (question.text, question.state) == ("A frozen Ötzi", MessageState.COMPLETE)
    assert (answer.text, answer.state) == ("Thawed by spring", MessageState.INTERRUPTED)
    for query in ("otzi", "spring", "creme"):
        assert [c.id for c in store.conversations(query)] == [4]
    store.set_draft(4, unsent_of("draft"))
    store.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert database.execute("PRAGMA application_id").fetchone() == (APPLICATION,)


def test_a_migrated_store_has_the_schema_of_a_new_one(tmp_path):
    write(tmp_path / "old", SCHEMA_1)
    shapes = []
    for name in ("old", "new"):
        Store.open(tmp_path / name).close()
        with closing(sqlite3.connect(tmp_path / name)) as database:
            tables = [row[0] for row in database.execute("SELECT name FROM sqlite_schema")]
            shapes.append(
                {t: database.execute(f"PRAGMA table_xinfo('{t}')").fetchall() for t in tables}
            )
    assert shapes[0] == shapes[1]


def test_a_copy_is_made_before_migrating(path):
    write(path, SCHEMA_1)
    Store.open(path).close()
    copy = path.with_name("conversations.sqlite.schema-1.backup")
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
        assert database.execute("SELECT count(*) FROM chunk").fetchone() == (2,)
    leftovers = [p.name for p in path.parent.iterdir() if p.name.endswith(".part")]
    assert leftovers == []


def test_a_migration_that_fails_changes_nothing(path):
    write(path, SCHEMA_1 + "CREATE TABLE draft(in_the_way);")
    with pytest.raises(StoreError):
        Store.open(path)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_schema")]
        assert "search" not in names
        assert database.execute("SELECT count(*) FROM message").fetchone() == (2,)


def test_opening_a_new_store_makes_no_copy(path):
    Store.open(path).close()
    Store.open(path).close()
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, path.name + ".lock"]


# --- damage --------------------------------------------------------------------------------------


def test_set_aside_moves_the_log_and_allows_a_new_store(path):
    store = Store.open(path)
    conversation = store.create_conversation("only in the log").id
    store.add_message(conversation, None, Role.USER, "said")
    log = path.with_name(path.name + "-wal").read_bytes()
    content = path.read_bytes()
    store.close()
    path.write_bytes(content)
    path.with_name(path.name + "-wal").write_bytes(log)
    aside = set_aside(path)
    assert aside.name.startswith("conversations.damaged-")
    assert aside.read_bytes() == content
    assert aside.with_name(aside.name + "-wal").read_bytes() == log
    fresh = Store.open(path)
    assert fresh.conversations() == []
    fresh.close()
    again = set_aside(path)
    assert again != aside
    Store.salvage(aside, path)
    restored = Store.open(path)
    assert [m.text for m in restored.branch(conversation)] == ["said"]
    restored.close()


def test_undamaged_store_is_salvaged_completely(path, tmp_path):
    held = fill(path)
    counts = Store.salvage(path, tmp_path / "new.sqlite")
    assert (counts.conversations, counts.messages, counts.partly) == (6, len(held), 0)
    store = Store.open(tmp_path / "new.sqlite")
    assert all_messages(store) == held
    assert [c.title for c in store.conversations("ETE 3.2")] == ["Conversation 3"]
    store.close()


def test_salvage_keeps_pieces_drafts_and_deleted_conversations(path, tmp_path):
    store = Store.open(path)
    deleted, kept = (store.create_conversation(name).id for name in ("deleted", "kept"))
    store.delete([deleted])
    answer = store.add_message(kept, None, Role.ASSISTANT, "", MessageState.STREAMING).id
    pieces = [f"piece {number} " for number in range(400)]
    for piece in pieces:
        store.append_text(answer, piece)
    store.set_draft(None, unsent_of("unsent"))
    store.set_draft(kept, unsent_of("unsent here"))
    Store.salvage(path, tmp_path / "new.sqlite")  # as after a crash: most rows are in the log
    store.close()
    store = Store.open(tmp_path / "new.sqlite")
    left = all_messages(store)[answer]
    assert (left.text, left.state) == ("".join(pieces), MessageState.INTERRUPTED)
    assert (store.draft(None).text, store.draft(kept).text) == ("unsent", "unsent here")
    assert [c.id for c in store.conversations()] == [kept]
    store.restore([deleted])
    assert len(store.conversations()) == 2
    store.close()


@pytest.mark.sweep
@pytest.mark.parametrize("fill_byte", [b"\x00", b"\xa5"])
def test_salvage_survives_the_loss_of_any_page(path, tmp_path, fill_byte):
    held = fill(path, conversations=4, messages=6)
    content = path.read_bytes()
    damaged, saved = tmp_path / "damaged.sqlite", tmp_path / "saved.sqlite"
    touched = []
    for start in range(0, len(content), 4096):
        damaged.write_bytes(content[:start] + fill_byte * 4096 + content[start + 4096 :])
        saved.unlink(missing_ok=True)
        Store.salvage(damaged, saved)
        store = Store.open(saved)
        now = all_messages(store)
        store.close()
        assert now.keys() == held.keys()
        assert all(now[m].parent == held[m].parent for m in held)
        assert all(now[m].conversation == held[m].conversation for m in held)
        changed = [m for m in held if now[m].text != held[m].text]
        assert all("could not be recovered" not in now[m].text for m in changed)
        touched.append(len(changed))
    # Only rows of the page itself may differ: a few short texts, or a part of a long one.
    assert max(touched) < len(held) / 2
    assert touched.count(0) > len(touched) / 3


def test_half_a_file_gives_its_readable_rows(path, tmp_path):
    held = fill(path, conversations=12)  # much more than the tables themselves
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    counts = Store.salvage(path, tmp_path / "saved.sqlite")
    store = Store.open(tmp_path / "saved.sqlite")
    same = [m for m, message in all_messages(store).items() if held[m].text == message.text]
    store.close()
    assert len(same) > len(held) / 4
    assert counts.messages >= len(same)


@pytest.mark.parametrize("content", [b"", b"x", b"\xff" * 10_000, b"\x0d" * 8192, b"\x0a" * 9000])
def test_salvaging_random_bytes_gives_an_empty_store(path, tmp_path, content):
    path.write_bytes(content)
    counts = Store.salvage(path, tmp_path / "saved.sqlite")
    assert (counts.conversations, counts.messages) == (0, 0)
    Store.open(tmp_path / "saved.sqlite").close()


def test_of_pages_that_are_there_twice_the_ones_in_use_are_salvaged(path, tmp_path):
    held = fill(path)
    content = path.read_bytes()
    path.write_bytes(content + content[4096:].replace(b"Text", b"Told"))
    assert Store.salvage(path, tmp_path / "new.sqlite").partly == 0
    with closing(Store.open(tmp_path / "new.sqlite")) as store:
        assert all_messages(store) == held


def test_interrupted_salvage_can_be_repeated(path, tmp_path):
    held = fill(path)
    for end in (".part", ".part-wal", ".part-shm"):
        (tmp_path / f"new.sqlite{end}").write_bytes(b"half" * 5000)
    Store.salvage(path, tmp_path / "new.sqlite")
    store = Store.open(tmp_path / "new.sqlite")
    assert all_messages(store) == held
    store.close()


def test_salvage_never_overwrites(path, tmp_path):
    fill(path, 1, 1)
    with pytest.raises(StoreError, match="already a file"):
        Store.salvage(path, path)
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.salvage(tmp_path / "nowhere", tmp_path / "new.sqlite")


# --- kills ---------------------------------------------------------------------------------------


@pytest.mark.sweep
def test_killed_app_keeps_saved_rows(tmp_path):
    kills = rounds(tmp_path, kills=3, seed=5)
    assert [kill for kill in kills if not kill.kept] == []


def test_interrupted_repair_is_completed_on_opening(path):
    held = fill(path)
    Store.salvage(path, path.with_name(path.name + ".salvaged"))
    set_aside(path)
    store = Store.open(path)
    assert all_messages(store) == held
    store.close()


def test_salvage_knows_rows_of_a_schema_with_further_columns(path, tmp_path, monkeypatch):
    """Also where only some rows were written since: SQLite stores no column that a row lacks."""
    store = Store.open(path)
    old = store.create_conversation("Before").id
    store.add_message(old, None, Role.USER, "written before")
    store.close()
    further = """
        ALTER TABLE conversation ADD COLUMN shelf INTEGER NOT NULL DEFAULT 7;
        ALTER TABLE conversation ADD COLUMN notes TEXT NOT NULL DEFAULT '{}';
        ALTER TABLE message ADD COLUMN starred INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE message ADD COLUMN colour TEXT NOT NULL DEFAULT 'green';
    """
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, further))
    monkeypatch.setattr(schema.migrate, "__defaults__", (len(MIGRATIONS) + 1,))
    store = Store.open(path)
    new = store.create_conversation("Since").id
    store.add_message(new, None, Role.USER, "written since")
    database = store._database
    database.execute("UPDATE conversation SET notes = '{\"a\":1}' WHERE id = ?", (new,))
    store.close()
    assert Store.salvage(path, tmp_path / "new.sqlite").partly == 0
    with closing(Store.open(tmp_path / "new.sqlite")) as found:
        assert [c.title for c in found.conversations()] == ["Since", "Before"]
        assert [m.text for c in (old, new) for m in found.branch(c)] == [
            "written before",
            "written since",
        ]
        rows = found._database.execute("SELECT shelf, notes FROM conversation ORDER BY id")
        assert rows.fetchall() == [(7, "{}"), (7, '{"a":1}')]


def test_copies_of_a_migration_are_removed_with_what_is_purged(path):
    write(path, SCHEMA_1)
    copy = path.with_name("conversations.sqlite.schema-1.backup")
    with closing(Store.open(path)) as store:
        store.purge_deleted(3600)
        assert copy.exists(), "nothing was purged, and it is new"
        store.delete([4])
        store.purge([4])
        assert not copy.exists(), "it contains the conversation that is gone"


def test_copies_of_a_migration_are_kept_as_long_as_the_trash(path):
    write(path, SCHEMA_1)
    copy = path.with_name("conversations.sqlite.schema-1.backup")
    with closing(Store.open(path)) as store:
        os.utime(copy, (1_000, 1_000))
        store.purge_deleted(3600)
    assert not copy.exists()


def test_salvage_follows_migrations_that_drop_a_column_and_a_table(path, tmp_path, monkeypatch):
    """Also with rows of every older schema: they are salvaged as they are, and then migrated."""
    store = Store.open(path)
    old = store.create_conversation("Before").id
    asked = store.add_message(old, None, Role.USER, "written before").id
    store.set_known_adapter(Path("/a/pirate.gguf"), "Pirate")
    store.close()
    before = tmp_path / "before.sqlite"
    before.write_bytes(path.read_bytes())
    further = """
        CREATE TABLE shelf (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES shelf(id),
            name TEXT NOT NULL);
        ALTER TABLE message ADD COLUMN colour TEXT NOT NULL DEFAULT 'green';
        ALTER TABLE message DROP COLUMN seconds;
        ALTER TABLE message ADD COLUMN seconds REAL NOT NULL DEFAULT 2.5;
        ALTER TABLE message ADD COLUMN shelf INTEGER REFERENCES shelf(id);
        DROP TABLE adapter;
        CREATE TABLE adapter (place TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
    """
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, further))
    monkeypatch.setattr(schema.migrate, "__defaults__", (len(MIGRATIONS) + 1,))
    with closing(Store.open(path)) as store:
        answer = store.add_message(old, asked, Role.ASSISTANT, "written since").id
        store._database.executescript(
            "INSERT INTO shelf VALUES (1, NULL, 'Kept'), (2, 1, 'Below');"
            "INSERT INTO adapter VALUES ('/b', 'Poet');"
            f"UPDATE message SET colour = 'red', shelf = 2, seconds = 4.0 WHERE id = {answer};"
        )
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO shelf VALUES (3, 77, 'Of a lost one')")
        database.execute("UPDATE message SET shelf = 78 WHERE id = ?", (asked,))
    counts = Store.salvage(path, tmp_path / "new.sqlite"), Store.salvage(before, tmp_path / "old")
    assert [count.messages for count in counts] == [2, 1]
    with closing(Store.open(tmp_path / "new.sqlite")) as found:
        assert [m.text for m in found.branch(old)] == ["written before", "written since"]
        read = found._database.execute
        assert read("SELECT colour, seconds, shelf FROM message").fetchall() == [
            ("green", 2.5, None),
            ("red", 4.0, 2),
        ]
        assert read("SELECT * FROM shelf").fetchall() == [
            (1, None, "Kept"),
            (2, 1, "Below"),
            (3, None, "Of a lost one"),
        ]
        assert read("SELECT * FROM adapter").fetchall() == [("/b", "Poet")]
        assert read("PRAGMA foreign_key_check").fetchall() == []
    with closing(Store.open(tmp_path / "old")) as found:
        assert [m.text for m in found.branch(old)] == ["written before"]


def test_salvage_keeps_deleted_messages_and_drafts_of_lost_chats(path, tmp_path):
    with closing(Store.open(path)) as store:
        chat = store.create_conversation("A chat").id
        asked = store.add_message(chat, None, Role.USER, "Asked").id
        answer = store.add_message(chat, asked, Role.ASSISTANT, "Said").id
        store.delete_message(asked)
        lost = store.create_conversation("Lost").id
        store.set_draft(lost, unsent_of("Not sent yet"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TRIGGER conversation_draft")
        database.execute("DELETE FROM conversation WHERE id = ?", (lost,))
    Store.salvage(path, tmp_path / "new.sqlite")
    with closing(Store.open(tmp_path / "new.sqlite")) as found:
        found.restore_message(asked)
        assert [m.id for m in found.branch(chat)] == [asked, answer]
        assert {c.title: found.draft(c.id).text for c in found.conversations()} == {
            "A chat": "",
            "Recovered chat": "Not sent yet",
        }


def test_salvage_breaks_cycles_of_messages_and_folders(path, tmp_path):
    with closing(Store.open(path)) as store:
        chat = store.create_conversation("A chat").id
        first = store.add_message(chat, None, Role.USER, "First").id
        second = store.add_message(chat, first, Role.ASSISTANT, "Second").id
        third = store.add_message(chat, second, Role.USER, "Third").id
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE message SET parent = ? WHERE id = ?", (second, first))
        rows = [(5, 6, "a"), (6, 5, "b"), (7, 6, "c"), (8, None, "d"), (9, 8, "e"), (10, 10, "f")]
        database.executemany(
            "INSERT INTO folder(id, parent, name, created) VALUES (?, ?, ?, 1.0)", rows
        )
        database.execute("UPDATE conversation SET folder = 77")
    Store.salvage(path, tmp_path / "new.sqlite")
    with closing(Store.open(tmp_path / "new.sqlite")) as found:
        assert [m.id for m in found.branch(chat)] == [first, second, third]
        folders = dict(found._database.execute("SELECT id, parent FROM folder"))
        assert folders == {5: None, 6: 5, 7: 6, 8: None, 9: 8, 10: None}
        assert found.conversations()[0].folder is None
