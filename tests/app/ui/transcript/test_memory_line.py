"""The line where the model's memory begins, from the engine's count to the transcript."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPointF
from PySide6.QtGui import QAccessible
from pytestqt.qtbot import QtBot

from app.chat.requests.prompts import memory_start
from app.ui.transcript.memory_line import HEIGHT, tip
from app.ui.transcript.view import Transcript
from engine import ContextPolicy, FinishReason
from fakes import MODEL
from stage import Stage, flush
from transcript_driver import message, wait_for_layout

CHAT = [
    message(1, "One?", is_user=True),
    message(2, "One."),
    message(3, "", is_user=True),  # an empty message is in no turn
    message(4, "Two?", is_user=True),
    message(5, "and more?", is_user=True),  # the same turn
    message(6, "Two."),
    message(7, "Three?", is_user=True),
]


@pytest.mark.parametrize(("dropped", "first"), [(0, None), (2, 4), (4, 7), (99, None)])
def test_engine_counts_turns_the_window_messages(dropped: int, first: int | None) -> None:
    assert memory_start(CHAT, dropped) == first


def test_line_makes_room_above_its_message(qtbot: QtBot) -> None:
    view = Transcript()
    qtbot.addWidget(view)
    view.resize(700, 900)
    view.show()
    view.set_messages(CHAT)
    wait_for_layout(view, qtbot)
    tops = [view.stack.top(index) for index in range(len(CHAT))]
    view.set_memory_start(4)
    moved = [view.stack.top(index) - top for index, top in enumerate(tops)]
    assert moved == [0, 0, 0, HEIGHT, HEIGHT, HEIGHT, HEIGHT]
    line = view.message_layout.memory_line()
    assert line.bottom() == view.message_layout.message_top(3)
    assert view.pointer.tip(line.center()) == tip()
    assert view.pointer.tip(QPointF(2, 2)) == ""
    access = view.access.message(4)
    assert "memory begins" in access.text(QAccessible.Text.Description)
    grabbed = view.grab(line.toRect()).toImage()
    assert len({grabbed.pixel(x, y) for x in range(0, grabbed.width(), 3) for y in range(36)}) > 2
    view.set_memory_start(None)
    assert [view.stack.top(index) for index in range(len(CHAT))] == tops
    assert view.message_layout.memory_line().isEmpty()


def test_full_chat_shows_the_line_and_the_meter_warns(stage: Stage) -> None:
    stage.ready(MODEL)
    for text in ("One?", "Two?"):
        stage.controller.send(text)
        stage.engine.write("Yes.")
        stage.engine.finish()
        stage.drain()
    assert stage.engine.last_generate.policy is ContextPolicy.DROP_OLDEST
    line = stage.window.chat.status_line
    assert not line.meter.warning
    stage.controller.send("Three?")
    stage.engine.report_prompt_progress(10, 100, dropped=2)
    stage.drain()
    two = stage.state.messages[2]
    assert two.text == "Two?"
    assert stage.state.memory_start == two.id
    transcript = stage.window.transcript
    assert transcript.stack.memory_line == 2
    stage.engine.write("Yes.", tokens=7000)
    stage.drain()
    assert line.meter.warning
    assert "oldest messages" in line.meter.toolTip()
    stage.engine.finish(FinishReason.END)
    stage.drain()
    stage.controller.new_conversation()
    flush()
    assert transcript.stack.memory_line is None
    stage.controller.open_conversation(two.conversation)
    flush()
    assert transcript.stack.memory_line == 2
