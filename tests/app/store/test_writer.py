"""Store writer: order, retries, repair and closing."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.domain.chat_settings import ChatSettings, settings_text
from app.domain.ids import new_id
from app.domain.message import MessageState
from app.domain.snippet import Snippet
from app.store.lock import lock_store
from app.store.store import Store, StoreError
from app.store.writer import StoreQueue
from engine import FinishReason, Role
from fakes import MODEL
from stage import Stage, until
from store_contents import all_messages

ROOT = Path(__file__).parents[3]


def test_a_locked_store_is_reported_and_retried(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    other = Store.open(stage.store_queue.path)
    stage.start(MODEL)
    stage.engine.finish_load()
    stage.drain()
    until(lambda: "store" in stage.state.notices)
    assert "already open" in stage.state.notices["store"].sentence
    assert stage.controller.send("Is anyone there?")
    stage.drain()
    stage.engine.write("Yes, in memory.")
    stage.engine.finish()
    stage.drain()
    assert stage.state.messages[-1].text == "Yes, in memory."
    other.close()
    until(lambda: "store" not in stage.state.notices)
    stage.wait_until_idle()
    texts: list[list[str]] = []
    stage.store_queue.read(
        lambda store: [m.text for m in store.branch(store.conversations()[0].id)], texts.append
    )
    until(lambda: bool(texts))
    assert texts == [["Is anyone there?", "Yes, in memory."]]
    assert [c.title for c in stage.state.conversations] == ["Is anyone there?"]


def test_damaged_store_can_be_repaired_from_the_window(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.store_queue.path.write_bytes(b"This is no database at all." * 400)
    stage.start()
    until(lambda: "store" in stage.state.notices)
    assert stage.state.notices["store"].action == "Move it aside"
    stage.controller.act_on_notice("store")
    until(lambda: "repair" in stage.state.notices)
    until(lambda: "store" not in stage.state.notices)
    assert list(stage.folder.glob("conversations.damaged-*"))
    assert stage.controller.send("A new beginning")
    stage.wait_until_idle()
    titles: list[str] = []
    stage.store_queue.read(lambda store: store.conversations()[0].title, titles.append)
    until(lambda: bool(titles))
    assert titles == ["A new beginning"]


def test_changes_are_written_in_order(store_queue: StoreQueue, tmp_path: Path) -> None:
    made: list[int] = []
    for number in range(50):
        store_queue.write(lambda store, number=number: made.append(number))
    store_queue.close()
    assert made == list(range(50))


def test_rejected_change_does_not_block_the_next(
    store_queue: StoreQueue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store_queue.write(lambda store: store.rename(999, "Nothing there"))
    store_queue.write(lambda store: store.delete_message(new_id()))
    store_queue.write(lambda store: store.create_conversation("After it"))
    store_queue.close()
    with_store = Store.open(tmp_path / "a.sqlite")
    assert [c.title for c in with_store.conversations()] == ["After it"]
    with_store.close()


def test_closing_saves_changes_after_a_bug_and_releases_the_file(
    store_queue: StoreQueue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    store_queue.read(lambda store: gate.wait(), lambda _: None)
    for title in ("One", "Two"):
        store_queue.write(lambda store: store.rename(2**70, "Wrong"))
        store_queue.write(lambda store, title=title: store.create_conversation(title))
    gate.set()
    store_queue.close()
    store = Store.open(tmp_path / "a.sqlite")  # the lock is free
    assert {c.title for c in store.conversations()} == {"One", "Two"}
    store.close()


def test_queued_changes_are_written_on_closing(store_queue: StoreQueue, tmp_path: Path) -> None:
    store_queue.write(lambda store: store.create_conversation("Last words"))
    store_queue.close()
    store_queue.close()
    store = Store.open(tmp_path / "a.sqlite")
    assert [c.title for c in store.conversations()] == ["Last words"]
    store.close()


def test_unexpected_exception_is_raised_on_the_gui_thread(
    qtbot, store_queue: StoreQueue, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    with qtbot.captureExceptions() as caught:
        store_queue.read(lambda store: 1 // 0, lambda _: None)
        until(lambda: bool(caught))
    assert caught[0][0] is ZeroDivisionError
    store_queue.close()


def test_a_read_error_is_reported(
    store_queue: StoreQueue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faults: list[StoreError | None] = []
    store_queue.fault_changed.connect(faults.append)

    def fail(store: Store) -> None:
        raise StoreError("The disk is full.", "Free some space.")

    store_queue.read(fail, lambda _: None)
    until(lambda: bool(faults))
    assert str(faults[0]) == "The disk is full."
    store_queue.close()


KILLED = """
import os, sys, time
sys.path[:0] = [{root!r}, {tests!r}]
from pathlib import Path
from PySide6.QtWidgets import QApplication
application = QApplication([])
from fakes import MODEL
from stage import Stage, flush
stage = Stage(Path(sys.argv[1]))
stage.ready(MODEL)
stage.controller.send("Count")
stage.wait_until_idle()
number = 0
print("go", flush=True)
while True:
    number += 1
    stage.engine.write(f"{{number}} ")
    stage.drain()
    print(number, flush=True)
    time.sleep(0.005)
"""


def test_kill_during_an_answer_loses_at_most_half_a_second(tmp_path: Path) -> None:
    script = KILLED.format(root=str(ROOT), tests=str(ROOT / "tests" / "support"))
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdout is not None
    shown = 0
    for line in child.stdout:
        shown = 0 if line == "go\n" else int(line)
        if shown == 250:
            child.kill()
    child.wait()
    child.stdout.close()
    store = Store.open(tmp_path / "conversations.sqlite")
    last = store.branch(store.conversations()[0].id)[-1]
    store.close()
    assert last.state is MessageState.INTERRUPTED
    words = last.text.split()
    assert words == [str(number) for number in range(1, len(words) + 1)], "a hole in the text"
    # Every number took at least 5 ms, so half a second is 100 of them at most.
    assert len(words) >= shown - 100


def test_interrupted_answer_can_be_continued_after_a_crash(stage: Stage) -> None:
    store = Store.open(stage.store_queue.path)
    made = store.create_conversation("Cut off")
    own = store.add_message(made.id, None, Role.USER, "Count")
    left = store.add_message(made.id, own.id, Role.ASSISTANT, "", MessageState.STREAMING)
    store.append_text(left.id, "1 2 3")
    store.close()
    stage.ready(MODEL)
    stage.controller.open_conversation(made.id)
    stage.wait_until_idle()
    assert stage.state.messages[-1].state is MessageState.INTERRUPTED
    stage.controller.continue_answer(left.id)
    stage.drain()
    assert stage.engine.last_generate.turns[-1].text == "1 2 3"
    stage.engine.write(" 4")
    stage.engine.finish(FinishReason.END)
    stage.wait_until_idle()
    assert stage.state.messages[-1].text == "1 2 3 4"


def test_last_text_is_saved_without_a_following_event(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Count")
    stage.engine.write("1 2 3")
    stage.drain()
    number = stage.state.messages[-1].id
    held: list[str] = []

    def saved() -> bool:
        stage.store_queue.read(lambda store: all_messages(store)[number].text, held.append)
        return "1 2 3" in held

    until(saved)


def test_text_delivered_while_the_engine_stops_is_saved(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Count")
    stage.engine.write("1 2 3")
    stage.controller.close()
    store = Store.open(stage.store_queue.path)
    last = store.branch(store.conversations()[0].id)[-1]
    store.close()
    assert last.text == "1 2 3"


def test_quitting_asks_when_changes_cannot_be_saved(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    quits: list[bool] = []
    stage.controller.may_quit.connect(lambda: quits.append(True))
    other = Store.open(stage.store_queue.path)
    stage.ready(MODEL)
    assert stage.controller.send("Is this kept?")
    stage.controller.ask_to_quit()
    until(lambda: "quit" in stage.state.notices)
    assert stage.state.notices["quit"].action == "Quit anyway"
    assert quits == []
    stage.controller.act_on_notice("quit")
    assert quits == [True]
    other.close()
    until(lambda: not stage.state.notices)
    stage.controller.ask_to_quit()
    until(lambda: len(quits) == 2)


def test_showing_a_sibling_during_an_answer_loses_no_text(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Count")
    stage.engine.write("one")
    stage.engine.finish()
    stage.drain()
    stage.controller.regenerate(stage.state.messages[-1].id)
    stage.engine.write("1 2 ")
    stage.drain()
    growing = stage.state.messages[-1].id
    stage.controller.navigation.show_sibling(growing, -1)
    stage.engine.write("3 ")
    stage.wait_until_idle()
    assert stage.state.messages[-1].text == "one"
    stage.engine.write("4 ")
    stage.drain()
    stage.controller.navigation.show_sibling(stage.state.messages[-1].id, 1)
    stage.engine.write("5 ")
    stage.drain()
    stage.engine.write("6")
    stage.wait_until_idle()
    assert stage.state.messages[-1].text == "1 2 3 4 5 6"
    stage.engine.finish()
    stage.wait_until_idle()
    assert stage.state.messages[-1].text == "1 2 3 4 5 6"


def test_a_sibling_is_not_shown_while_changes_cannot_be_saved(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.ready(MODEL)
    stage.controller.send("Count")
    stage.engine.write("one")
    stage.engine.finish()
    stage.drain()
    stage.controller.regenerate(stage.state.messages[-1].id)
    stage.wait_until_idle()
    full = [True]

    def fail(store: Store) -> None:
        if full[0]:
            raise StoreError("The disk is full.", "Free some space.", temporary=True)

    stage.store_queue.write(fail)
    stage.engine.write("two")
    stage.engine.finish()
    stage.wait_until_idle()
    shown = [m.text for m in stage.state.messages]
    stage.controller.navigation.show_sibling(stage.state.messages[-1].id, 0)
    stage.wait_until_idle()
    assert [m.text for m in stage.state.messages] == shown == ["Count", "two"]
    full[0] = False


def test_shown_branches_are_written_again_after_a_repair(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store.open(stage.store_queue.path)
    old = store.create_conversation("From last time")
    store.add_message(old.id, None, Role.USER, "Yesterday")
    store.close()
    stage.ready(MODEL)
    stage.controller.open_conversation(old.id)
    stage.wait_until_idle()
    stage.controller.send("Today")
    stage.engine.write("one ")
    stage.wait_until_idle()

    def damage(store: Store) -> None:
        store.close()
        stage.store_queue._store = None
        stage.store_queue.path.write_bytes(b"no database " * 4000)

    stage.store_queue.write(damage)
    stage.wait_until_idle()
    stage.controller.conversations.rename(old.id, "Renamed meanwhile")
    until(lambda: "store" in stage.state.notices)
    stage.engine.write("two ")
    stage.drain()
    stage.controller.act_on_notice("store")
    until(lambda: "repair" in stage.state.notices and "store" not in stage.state.notices)
    stage.engine.write("three")
    stage.engine.finish()
    stage.wait_until_idle()
    stage.controller.new_conversation()
    stage.controller.send("A new one")
    stage.engine.write("one")
    stage.engine.finish()
    stage.wait_until_idle()
    held: dict[str, list[str]] = {}

    def read(store: Store) -> None:
        held.update({c.title: [m.text for m in store.branch(c.id)] for c in store.conversations()})

    stage.store_queue.write(read)
    stage.wait_until_idle()
    assert held == {
        "Renamed meanwhile": ["Yesterday", "Today", "one two three"],
        "A new one": ["A new one", "one"],
    }


def test_what_is_known_of_chats_is_written_again_after_a_repair(stage: Stage) -> None:
    settings = ChatSettings(instructions="In French.")
    with closing(Store.open(stage.store_queue.path)) as store:
        chat = store.create_conversation("Not opened", settings_text(settings)).id
        store.add_message(chat, None, Role.USER, "Hello")
    stage.ready(MODEL)
    work = stage.controller.folders.create("Work", conversations=[chat])
    stage.controller.folders.pin([chat], True)

    def lose_row(store: Store) -> None:
        database = store._database
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("DELETE FROM conversation")
        database.execute("PRAGMA foreign_keys = ON")

    stage.store_queue.write(lose_row)
    stage.wait_until_idle()
    stage.controller.act_on_notice("store")
    until(lambda: "repair" in stage.state.notices)
    stage.wait_until_idle()
    [found] = stage.state.conversations
    assert (found.id, found.title, found.settings) == (chat, "Not opened", settings)
    assert (found.folder, found.pinned) == (work, True)


def test_saved_prompts_are_read_when_the_store_can_be_opened(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    path = stage.store_queue.path
    with closing(Store.open(path)) as store:
        store.write_snippet(Snippet(7, "Name", "Text", 1.0))
    lock = lock_store(path)
    stage.start()
    until(lambda: "store" in stage.state.notices)
    lock.release()
    stage.wait_until_idle()
    until(lambda: "store" not in stage.state.notices)
    stage.wait_until_idle()
    assert [each.name for each in stage.states.snippets.snippets] == ["Name"]
    caplog.clear()


def test_deleted_conversations_are_not_counted_as_recovered(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "old.sqlite")
    for title in ("Kept", "Deleted"):
        made = store.create_conversation(title)
        store.add_message(made.id, None, Role.USER, title)
    store.delete([made.id])
    store.close()
    counts = Store.salvage(tmp_path / "old.sqlite", tmp_path / "new.sqlite")
    assert (counts.conversations, counts.messages) == (1, 1)


def test_what_was_sent_is_saved_when_the_field_is_empty(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer

    def send(text: str) -> None:
        qtbot.keyClicks(composer.editor, text)
        returned = threading.Event()
        stage.store_queue.read(lambda _: returned.wait(0.2), lambda _: None)  # it has other work
        qtbot.keyClick(composer.editor, Qt.Key.Key_Return)
        assert composer.text() == ""

    def is_saved(text: str, table: str) -> bool:
        with closing(sqlite3.connect(stage.store_queue.path)) as database:
            return any(text in found for (found,) in database.execute(f"SELECT text FROM {table}"))

    send("the first one")
    assert is_saved("the first one", "part")
    stage.wait_until_idle()
    send("one that waits")
    assert is_saved("one that waits", "draft")
    for _ in range(2):
        stage.engine.write("Yes.")
        stage.engine.finish()
        stage.wait_until_idle()
    assert stage.controller.edit(stage.state.messages[0].id, "an edited one")
    assert is_saved("an edited one", "part")


def test_a_store_that_fails_is_not_waited_for(
    store_queue: StoreQueue, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Store.open(store_queue.path)):  # only one may use it
        store_queue.write(lambda store: store.create_conversation("later"))
        assert not store_queue.settle(20)
        began = time.perf_counter()
        assert not store_queue.settle(20)
        assert time.perf_counter() - began < 10
    until(lambda: store_queue.settle(20))
