"""Failed writes: temporary errors are retried, others rejected and their text saved."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from app.store.schema import translate_errors
from app.store.store import Store, StoreError
from app.store.writer import RejectedChange, StoreQueue
from engine import Role
from fakes import MODEL
from stage import Stage, until


def too_long(store: Store) -> None:
    raise StoreError("This text is too long to save.", "Shorten it.")


def wrong_statement(store: Store) -> None:
    with translate_errors(Path("a.sqlite")):
        sqlite3.connect(":memory:").execute("INSERT INTO nowhere VALUES (1)")


def unknown_conversation(store: Store) -> None:
    store.add_message(999, None, Role.USER, "Below nothing")


def mistake(store: Store) -> None:
    store.rename(2**70, "A number no column holds")


@pytest.mark.parametrize("operation", [too_long, wrong_statement, unknown_conversation, mistake])
def test_a_write_that_can_never_succeed_is_dropped_and_reported(
    store_queue: StoreQueue,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    operation: Callable[[Store], None],
) -> None:
    rejected: list[RejectedChange] = []
    faults: list[StoreError | None] = []
    store_queue.change_rejected.connect(rejected.append)
    store_queue.fault_changed.connect(faults.append)
    store_queue.write(operation, text="What the user wrote: 漢字")
    store_queue.write(lambda store: store.create_conversation("After it"))
    titles: list[str] = []
    store_queue.read(lambda store: [c.title for c in store.conversations()], titles.extend)
    until(lambda: bool(titles))
    assert titles == ["After it"]
    assert [each.text for each in rejected] == ["What the user wrote: 漢字"]
    assert faults == []  # no retry
    kept = rejected[0].kept_in
    assert kept is not None
    assert "What the user wrote: 漢字" in kept.read_text(encoding="utf-8")
    assert "rejected" in caplog.text
    assert "What the user wrote" not in caplog.text


def test_text_of_a_change_rejected_while_closing_is_saved(
    store_queue: StoreQueue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store_queue.write(mistake, text="First")
    store_queue.write(too_long, text="Second")
    store_queue.write(lambda store: store.create_conversation("After them"))
    store_queue.close()
    store = Store.open(tmp_path / "a.sqlite")
    assert [c.title for c in store.conversations()] == ["After them"]
    store.close()
    (kept,) = tmp_path.glob("*unsaved*")
    assert kept.read_text(encoding="utf-8").index("First") < kept.read_text(encoding="utf-8").index(
        "Second"
    )


@pytest.mark.parametrize(
    "code",
    [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE,
     sqlite3.SQLITE_READONLY_DBMOVED],
)  # fmt: skip
def test_temporary_error_is_retried_until_it_succeeds(
    store_queue: StoreQueue, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    tried: list[int] = []
    rejected: list[RejectedChange] = []
    store_queue.change_rejected.connect(rejected.append)

    def full_at_first(store: Store) -> None:
        tried.append(code)
        if len(tried) < 2:
            error = sqlite3.OperationalError("not now")
            error.sqlite_errorcode = code
            with translate_errors(store_queue.path):
                raise error
        store.create_conversation("In the end")

    store_queue.write(full_at_first)
    titles: list[str] = []

    def look() -> bool:
        store_queue.read(
            lambda store: [c.title for c in store.conversations()],
            titles.extend,
            only_if_saved=True,
        )
        return bool(titles)

    until(look)
    assert titles[0] == "In the end"
    assert rejected == []


def test_window_shows_where_the_text_of_a_rejected_change_is(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.ready(MODEL)
    stage.store_queue.write(too_long, text="A very long poem")
    until(lambda: "unsaved" in stage.state.notices)
    notice = stage.state.notices["unsaved"]
    assert "This text is too long to save." in notice.sentence
    (kept,) = stage.folder.glob("*unsaved*")
    assert str(kept) in notice.remedy
    stage.controller.close_notice("unsaved")
    stage.store_queue.write(too_long, text="Another one")
    stage.wait_until_idle()
    assert "unsaved" not in stage.state.notices, "told once"
    assert "Another one" in kept.read_text(encoding="utf-8")


def test_text_of_a_message_that_cannot_be_saved_is_kept(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.ready(MODEL)
    assert stage.controller.send("Is this kept?")
    stage.wait_until_idle()
    shown = stage.state.current
    assert shown is not None
    stage.store_queue.write(lambda store: store.delete([shown]))
    stage.store_queue.write(lambda store: store.purge([shown]))  # as if it had never been stored
    stage.engine.write("Some words")
    stage.engine.finish()
    stage.wait_until_idle()
    assert stage.controller.send("And this?")
    stage.wait_until_idle()
    (kept,) = stage.folder.glob("*unsaved*")
    assert "And this?" in kept.read_text(encoding="utf-8")
    assert "unsaved" in stage.state.notices
