"""Changes to a conversation while a read of it is queued in the store."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.domain.message import Message, MessageState
from app.store.store import Store
from fakes import MODEL
from stage import Stage, until


def ask(stage: Stage, text: str = "Why is the sky blue?") -> None:
    assert stage.controller.send(text)
    stage.drain()


def answer(stage: Stage, text: str) -> Message:
    stage.engine.write(text)
    stage.engine.finish()
    stage.wait_until_idle()
    return stage.state.messages[-1]


def read_now(stage: Stage) -> None:
    """Wait until the store has run its queue, without processing window events."""
    done = threading.Event()
    stage.store_queue.read(lambda store: done.set(), lambda _: None)
    assert done.wait(10)


def test_answer_that_ends_during_a_branch_read_is_shown_as_ended(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    first = answer(stage, "One way.")
    stage.controller.regenerate(first.id)
    stage.drain()
    second = stage.state.messages[-1]
    stage.controller.navigation.show_sibling(second.id, -1)
    stage.wait_until_idle()
    stage.controller.navigation.show_sibling(first.id, 1)
    read_now(stage)
    stage.engine.write("Another way.")
    stage.engine.finish()
    stage.controller.drain()
    stage.wait_until_idle()
    stage.wait_until_idle()
    shown = stage.state.messages[-1]
    assert (shown.text, shown.state) == ("Another way.", MessageState.COMPLETE)


def test_message_sent_during_a_branch_read_is_kept(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    first = answer(stage, "One way.")
    stage.controller.regenerate(first.id)
    second = answer(stage, "Another way.")
    stage.controller.navigation.show_sibling(second.id, -1)
    read_now(stage)
    assert stage.controller.send("And then?")
    stage.wait_until_idle()
    stage.wait_until_idle()
    assert [m.text for m in stage.state.messages[1:3]] == ["Another way.", "And then?"]


def test_conversation_opened_twice_keeps_messages_sent_in_between(
    qtbot: QtBot, tmp_path: Path
) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    ask(stage)
    answer(stage, "One way.")
    stage.close()
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    (conversation,) = stage.state.conversations
    stage.controller.open_conversation(conversation.id)
    stage.controller.open_conversation(conversation.id)
    read_now(stage)
    stage.state.conversation_changed.connect(lambda: stage.controller.send("And then?"))
    stage.wait_until_idle()
    stage.wait_until_idle()
    texts = [message.text for message in stage.state.messages]
    stage.close()
    assert texts[1:3] == ["One way.", "And then?"]


def test_rewritten_branch_does_not_include_later_text(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.ready(MODEL)
    ask(stage)
    stage.engine.write("One ")
    stage.wait_until_idle()

    def damage(store: Store) -> None:
        store.close()
        stage.store_queue._store = None
        stage.store_queue.path.write_bytes(b"no database " * 4000)

    stage.store_queue.write(damage)
    stage.wait_until_idle()
    stage.controller.conversations.rename(stage.state.conversations[0].id, "Sky")
    until(lambda: "store" in stage.state.notices)
    stage.controller.act_on_notice("store")
    go = threading.Event()
    stage.store_queue.read(lambda store: go.wait(10), lambda _: None)
    until(lambda: "repair" in stage.state.notices)
    stage.engine.write("way.")
    stage.engine.finish()
    stage.controller.drain()
    go.set()
    stage.wait_until_idle()
    held: list[list[str]] = []
    stage.store_queue.read(
        lambda store: [m.text for m in store.branch(store.conversations()[0].id)], held.append
    )
    until(lambda: bool(held))
    assert held == [["Why is the sky blue?", "One way."]]
