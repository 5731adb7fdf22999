"""Adapters in the store: stacks, mixes and marks, also of old and damaged files."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.chat_settings import AdapterChoice, ChatSettings, settings_of, settings_text
from app.domain.message import AdapterMark, MessageState
from app.store.adapters import marks_of, marks_text
from app.store.schema import MIGRATIONS
from app.store.store import Store, StoreError
from engine import Role
from store_contents import all_messages

MARKS = (AdapterMark("pirate-speech", 0.8, "5f3a5f3a5f3a"), AdapterMark("猫の言葉", -1.5, ""))
STACK = (
    AdapterChoice(Path("/a/pirate speech.gguf"), True, 1.0),
    AdapterChoice(Path("/a/محاكاة"), False, -0.25),
)


def set_stack(store: Store, conversation: int | None, stack: tuple[AdapterChoice, ...]) -> None:
    store.set_settings(conversation, settings_text(ChatSettings(adapters=stack)))


def stacks(store: Store) -> dict[int, tuple[AdapterChoice, ...]]:
    """The stacks of all chats that have one; 0: of the new chat."""
    found = {row.id: row.settings.adapters for row in store.conversations()}
    found[0] = settings_of(store.new_chat_settings()).adapters
    return {number: stack for number, stack in found.items() if stack}


def fill(path: Path) -> tuple[int, int]:
    """A conversation with one marked answer, a stack, a mix and a known file."""
    store = Store.open(path)
    conversation = store.create_conversation("Sky").id
    own = store.add_message(conversation, None, Role.USER, "Why?").id
    answer = store.add_message(conversation, own, Role.ASSISTANT, "", MessageState.STREAMING).id
    store.mark_message(answer, MARKS)
    store.append_text(answer, "Because. " * 2000)
    store.finish(answer, MessageState.COMPLETE)
    set_stack(store, conversation, STACK)
    set_stack(store, None, STACK[1:])
    store.set_adapter_mix("Calm", STACK)
    store.set_adapter_mix("静", STACK[:1])
    store.set_known_adapter(STACK[0].path, "pirate speech")
    store.close()
    return conversation, answer


def check(path: Path, conversation: int, answer: int) -> None:
    store = Store.open(path)
    kept = store.adapters()
    assert stacks(store) == {0: STACK[1:], conversation: STACK}
    assert kept.mixes == {"Calm": STACK, "静": STACK[:1]}
    assert kept.known == ((STACK[0].path, "pirate speech"),)
    question, message = store.branch(conversation)
    assert (question.adapters, message.adapters) == ((), MARKS)
    store.close()


def test_adapters_are_read_as_stored(path: Path) -> None:
    check(path, *fill(path))


def test_stacks_and_mixes_are_replaced_and_can_be_emptied(path: Path) -> None:
    conversation, _ = fill(path)
    store = Store.open(path)
    set_stack(store, conversation, STACK[1:])
    store.set_adapter_mix("Calm", ())
    set_stack(store, None, ())
    kept = store.adapters()
    assert stacks(store) == {conversation: STACK[1:]}
    assert list(kept.mixes) == ["静"]
    store.close()


def test_renamed_known_file_keeps_its_position(path: Path) -> None:
    store = Store.open(path)
    for name in ("b", "a", "c"):
        store.set_known_adapter(Path(f"/{name}"), name)
    store.set_known_adapter(Path("/b"), "better")
    assert [name for _, name in store.adapters().known] == ["better", "a", "c"]
    store.close()


def test_stack_is_deleted_with_its_conversation(path: Path) -> None:
    conversation, _ = fill(path)
    store = Store.open(path)
    store.delete([conversation])
    store.restore([conversation])
    assert stacks(store)[conversation] == STACK
    store.delete([conversation])
    store.purge_deleted(-1)
    assert stacks(store) == {0: STACK[1:]}
    with pytest.raises(StoreError, match="no longer exists"):
        set_stack(store, conversation, STACK)
    with pytest.raises(StoreError, match="no longer exists"):
        store.mark_message(99, MARKS)
    store.close()


def test_rewritten_answer_keeps_its_marks(path: Path) -> None:
    conversation, answer = fill(path)
    store = Store.open(path)
    held = store.conversations()[0], store.branch(conversation)
    store.delete([conversation])
    store.purge_deleted(-1)
    store.rewrite_conversation(held[0])
    for message in held[1]:
        store.rewrite_message(message)
    assert all_messages(store)[answer].adapters == MARKS
    store.close()


# --- old and damaged stores -----------------------------------------------------------------------


def oldest(path: Path, version: int) -> None:
    """A store of an earlier version, with one question and one answer."""
    with closing(sqlite3.connect(path)) as database:
        database.create_function("fold", 1, str.lower)
        for script in MIGRATIONS[:version]:
            database.executescript(script)
        database.executescript(f"""
            INSERT INTO conversation(id, title, folded, created, updated) VALUES
                (4, 'Old', 'old', 1.0, 2.0);
            INSERT INTO message(id, conversation, parent, role, state, created, text) VALUES
                (7, 4, NULL, 'user', 'complete', 1.0, 'Asked'),
                (9, 4, 7, 'assistant', 'complete', 1.5, 'Said');
            UPDATE conversation SET leaf = 9;
            PRAGMA application_id = 1416588143;
            PRAGMA user_version = {version};
        """)


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_answers_of_an_old_store_can_get_marks(path: Path, version: int) -> None:
    oldest(path, version)
    store = Store.open(path)
    assert [m.adapters for m in store.branch(4)] == [(), ()]
    assert stacks(store) == {}
    store.mark_message(9, MARKS)
    set_stack(store, 4, STACK)
    assert [m.adapters for m in store.branch(4)] == [(), MARKS]
    store.close()
    backup = path.with_name(f"conversations.sqlite.schema-{version}.backup")
    with closing(sqlite3.connect(backup)) as database:
        assert database.execute("SELECT count(*) FROM message").fetchone() == (2,)


def test_undamaged_store_is_salvaged_with_its_adapters(path: Path, tmp_path: Path) -> None:
    numbers = fill(path)
    Store.salvage(path, tmp_path / "new.sqlite")
    check(tmp_path / "new.sqlite", *numbers)


def test_rows_with_and_without_the_marks_column_are_salvaged(path: Path, tmp_path: Path) -> None:
    oldest(path, 2)
    store = Store.open(path)
    store.mark_message(9, MARKS)  # the question is unchanged
    store.close()
    Store.salvage(path, tmp_path / "new.sqlite")
    store = Store.open(tmp_path / "new.sqlite")
    assert [(m.text, m.adapters) for m in store.branch(4)] == [("Asked", ()), ("Said", MARKS)]
    store.close()


@pytest.mark.parametrize(
    ("column", "marks"),
    [
        ("", ()),
        ("[", ()),
        ("{}", ()),
        ("null", ()),
        ('["a", 1, null, {}]', ()),
        ('[{"name": 3, "strength": 1, "sha256": ""}]', ()),
        ('[{"name": "a", "strength": 1, "sha256": "x", "more": 1}]', (AdapterMark("a", 1.0, "x"),)),
        ("[" * 100_000, ()),
    ],
)
def test_damaged_mark_does_not_lose_its_message(
    path: Path, column: str, marks: tuple[AdapterMark, ...]
) -> None:
    assert marks_of(column) == marks
    conversation, answer = fill(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE message SET adapters = ? WHERE id = ?", (column, answer))
        database.commit()
    store = Store.open(path)
    assert store.branch(conversation)[1].adapters == marks
    store.close()


def test_marks_are_read_as_stored() -> None:
    assert marks_of(marks_text(MARKS)) == MARKS
    assert marks_text(()) == ""


def test_name_not_encodable_as_utf8_is_replaced(path: Path) -> None:
    store = Store.open(path)
    odd = Path("/a/\udcff.gguf")
    store.set_known_adapter(odd, "\udcff")
    set_stack(store, None, (AdapterChoice(odd, True, 1.0),))
    store.set_adapter_mix("\udcff", [AdapterChoice(odd, True, 1.0)])
    assert stacks(store)[0][0].path == Path("/a/\ufffd.gguf")
    assert list(store.adapters().mixes) == ["\ufffd"]
    store.close()
