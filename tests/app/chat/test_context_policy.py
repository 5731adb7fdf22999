"""What happens when a chat is full: chosen per conversation, stored, and changed by one click."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.chat.answering.answers import FULL_NOTICE
from app.domain.chat_settings import ChatSettings, settings_text
from app.domain.message import MessageState
from app.store.store import Store
from engine import ContextPolicy, Restore
from fakes import MODEL
from stage import Stage, flush

DROP, STOP = ContextPolicy.DROP_OLDEST, ContextPolicy.STOP


def ask(stage: Stage, text: str) -> None:
    stage.controller.send(text)
    stage.engine.write("Yes.")
    stage.engine.finish()
    stage.wait_until_idle()


def set_policy(stage: Stage, policy: ContextPolicy) -> None:
    """Choose in the panel, which the context meter opens, what happens when the chat is full."""
    stage.window.chat.status_line.context.click()
    flush()
    stage.window.panel.content.policy.choice.buttons[policy.value].click()


def test_the_meter_opens_the_policy_of_the_shown_chat(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "One?")
    assert stage.engine.last_generate.policy is DROP
    buttons = stage.window.panel.content.policy.choice.buttons
    assert buttons[DROP.value].isChecked()
    set_policy(stage, STOP)
    assert stage.window.panel.is_open
    assert stage.window.panel.content.policy.hasFocus()
    ask(stage, "Two?")
    assert stage.engine.last_generate.policy is STOP
    stage.controller.new_conversation()
    assert buttons[DROP.value].isChecked()
    set_policy(stage, STOP)  # also before the chat begins
    ask(stage, "Elsewhere?")
    assert stage.engine.last_generate.policy is STOP
    stage.controller.new_conversation()
    ask(stage, "And here?")
    assert stage.engine.last_generate.policy is DROP


def test_policy_survives_a_restart(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "One?")
    set_policy(stage, STOP)
    stage.wait_until_idle()
    found: list[ContextPolicy] = []
    stage.store_queue.read(lambda store: store.conversations()[0].settings.policy, found.append)
    stage.wait_until_idle()
    assert found == [STOP]


def test_policy_survives_a_repair(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    with closing(Store.open(path)) as store:
        kept = store.create_conversation("Stops")
        store.set_settings(kept.id, settings_text(ChatSettings(policy=STOP)))
        store.create_conversation("Goes on")
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    Store.repair(path)
    with closing(Store.open(path)) as store:
        policies = {row.title: row.settings.policy for row in store.conversations()}
    assert policies == {"Stops": STOP, "Goes on": DROP}


def test_full_chat_that_stops_can_forget_its_oldest_messages(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "One?")
    set_policy(stage, STOP)
    stage.controller.send("Two?")
    stage.engine.fail("This chat is full.", "Start a new chat.", full=True)
    stage.wait_until_idle()
    assert stage.state.messages[-1].state is MessageState.FAILED
    banner = stage.window.banners.shown[FULL_NOTICE]
    assert banner.words.text().startswith("This chat is full (8,192 tokens).")
    qtbot.mouseClick(banner.action, Qt.MouseButton.LeftButton)
    stage.drain()
    assert stage.engine.last_generate.policy is DROP
    assert FULL_NOTICE not in stage.state.notices
    stage.engine.write("Yes.")
    stage.engine.finish()
    stage.drain()
    assert stage.state.messages[-1].text == "Yes."


@pytest.mark.parametrize("policy", [DROP, STOP])
def test_snapshot_is_loaded_with_the_policy_of_its_chat(
    stage: Stage, policy: ContextPolicy
) -> None:
    stage.ready(MODEL)
    ask(stage, "One?")
    set_policy(stage, policy)
    first = stage.state.current
    assert first is not None
    stage.controller.new_conversation()
    ask(stage, "Elsewhere?")
    stage.controller.open_conversation(first)
    stage.wait_until_idle()
    stage.controller.sessions.restore()
    assert stage.engine.last(Restore).policy is policy
