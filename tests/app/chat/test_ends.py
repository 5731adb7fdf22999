"""Ends of answers, requests and the app: what they are called, and where they belong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from app.chat.models.model_loader import expect_model, expected_model
from app.domain.message import MessageState, StopReason
from app.settings.table import Settings
from app.state.chat import ModelPhase
from app.state.performance import tokens_per_second
from app.store.store import DamagedStore, Store, StoreError
from engine import Failed, FindDevices, FinishReason, Load, starter_path
from fakes import MODEL, Cancel
from stage import Stage, flush, until

pytestmark = pytest.mark.usefixtures("caplog")  # failed requests are logged


def last_message(stage: Stage) -> tuple[str, MessageState, str]:
    """The last message of the newest conversation, read from the database file."""
    stage.drain()
    done: list[int] = []
    stage.store_queue.flush(done.append)
    until(lambda: bool(done))
    store = Store.open_copy(stage.store_queue.path)
    try:
        message = store.branch(store.conversations()[0].id)[-1]
        return message.text, message.state, message.stop
    finally:
        store.close()


# --- requests -----------------------------------------------------------------------------------


def test_a_failure_that_belongs_to_no_load_is_no_failed_load(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("One")
    devices = stage.engine.last(FindDevices)
    for request in (devices.request, 0, 999):
        stage.engine.deliver(Failed(request, "Something else.", "Do nothing."))
    stage.drain()
    assert "model" not in stage.state.notices
    assert stage.state.model.phase is ModelPhase.READY
    assert stage.state.busy, "the answer goes on"


def test_a_failed_older_load_leaves_the_newer_one_alone(stage: Stage) -> None:
    stage.start(MODEL)
    older = stage.engine.last(Load)
    stage.controller.load_model(Path("/models/other.gguf"))
    stage.controller.send("One")
    stage.engine.deliver(Failed(older.request, "It is damaged.", "Choose another."))
    stage.drain()
    assert stage.state.model.phase is ModelPhase.LOADING
    assert "model" not in stage.state.notices
    assert stage.state.busy, "the answer waits for the newer model"


# --- quitting -----------------------------------------------------------------------------------


def test_quitting_in_mid_answer_interrupts_it(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("One")
    stage.engine.write("Because")
    stage.drain()
    stage.controller.shut_down()
    assert stage.engine.count(Cancel) == 1
    stage.engine.finish(FinishReason.CANCELLED)
    assert last_message(stage) == ("Because", MessageState.INTERRUPTED, "")


def test_quitting_before_the_first_word_interrupts_the_answer(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("One")
    stage.controller.shut_down()
    assert last_message(stage) == ("", MessageState.INTERRUPTED, "")


def test_what_the_user_has_stopped_stays_stopped_when_the_app_quits(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("One")
    stage.engine.write("Because")
    stage.drain()
    stage.controller.stop()
    stage.controller.shut_down()
    stage.engine.finish(FinishReason.CANCELLED)
    assert last_message(stage) == ("Because", MessageState.STOPPED, StopReason.USER)


# --- the list -----------------------------------------------------------------------------------


def test_the_list_has_the_order_of_the_store_after_stop_and_continue(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)

    def order() -> list[str]:
        nonlocal now
        now += 10
        stage.wait_until_idle()
        found: list[list[str]] = []
        stage.store_queue.read(lambda store: [c.title for c in store.conversations()], found.append)
        until(lambda: bool(found))
        shown = [c.title for c in stage.state.conversations]
        assert shown == found[0], "as after a restart"
        now += 10
        return shown

    stage.ready(MODEL)
    for title in ("First", "Second"):
        stage.controller.new_conversation()
        stage.controller.send(title)
        stage.engine.write("Because")
        now += 10
        stage.wait_until_idle()
    assert order() == ["Second", "First"]
    first = stage.state.conversations[1].id
    stage.controller.stop_in(first)
    stage.engine.finish(FinishReason.CANCELLED, request=stage.engine.unfinished[0].request)
    assert order() == ["First", "Second"]
    stage.engine.finish()
    assert order() == ["Second", "First"]
    stage.controller.open_conversation(first)
    stage.wait_until_idle()
    stage.controller.continue_answer(stage.state.messages[-1].id)
    assert [c.title for c in stage.state.conversations] == ["First", "Second"]
    stage.engine.finish()
    assert order() == ["First", "Second"]


def test_the_messages_of_purged_conversations_are_forgotten(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("One")
    stage.engine.finish()
    stage.wait_until_idle()
    gone = stage.state.current
    assert gone in stage.state.branches
    stage.controller.deletions.delete([gone])
    assert gone in stage.state.branches, "it can be restored"
    stage.controller.deletions.remove([gone])
    stage.wait_until_idle()
    assert gone not in stage.state.branches
    assert not stage.state.compared


# --- faults of the store ------------------------------------------------------------------------


def test_a_closed_notice_of_a_damaged_store_does_not_return_with_the_next_write(
    stage: Stage,
) -> None:
    def damaged(store: Store) -> None:
        raise DamagedStore("The file of your chats is damaged.", "Move it aside.")

    def other(store: Store) -> None:
        raise StoreError("The disk is full.", "Free some space.", temporary=True)

    def write(operation: object) -> None:
        done: list[int] = []
        stage.store_queue.write(operation)
        stage.store_queue.flush(done.append)
        until(lambda: bool(done))
        flush()

    stage.ready(MODEL)
    write(damaged)
    assert "damaged" in stage.state.notices["store"].sentence
    stage.controller.close_notice("store")
    write(damaged)
    write(damaged)
    assert "store" not in stage.state.notices


# --- speed --------------------------------------------------------------------------------------


def test_a_short_answer_has_no_speed() -> None:
    assert tokens_per_second(5, 0.00034) == 0.0, "14,693 tokens/s would flatten the plot"
    assert tokens_per_second(1, 0.0) == 0.0
    assert tokens_per_second(1, 5.0) == 0.0
    assert tokens_per_second(21, 0.5) == 40.0  # the first one comes with the prompt


# --- start --------------------------------------------------------------------------------------


def test_the_model_is_named_before_the_engine_starts(stage: Stage, tmp_path: Path) -> None:
    stage.window.show()
    expect_model(stage.state, MODEL)
    assert stage.state.model.phase is ModelPhase.LOADING
    assert stage.window.chat.empty_view.name.text() == stage.state.model.name
    stage.start(MODEL)
    assert stage.state.model.phase is ModelPhase.LOADING


def test_without_any_model_the_first_page_says_so(stage: Stage, tmp_path: Path) -> None:
    stage.controller.settings = Settings(last_model=str(tmp_path / "gone.gguf"))
    expect_model(stage.state, expected_model(stage.controller.settings.last_model))
    assert stage.state.model.phase is ModelPhase.LOADING
    stage.start()
    assert stage.state.model.phase is ModelPhase.NONE
    assert stage.window.chat.empty_view.name.text() == "No model yet"


def test_the_expected_model_is_the_last_one_or_the_starter(tmp_path: Path) -> None:
    assert expected_model("/away/model.gguf") == Path("/away/model.gguf")
    assert expected_model("") is None
    starter_path().parent.mkdir(parents=True, exist_ok=True)
    starter_path().write_bytes(b"GGUF")
    assert expected_model("") == starter_path()
