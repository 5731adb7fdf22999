"""Consent in the window: the sidebar, the shortcut, the task bar, a window from right to left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QRectF, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.domain.chat import Conversation
from app.domain.chat_tree import ChatTree, node
from app.domain.document import sections
from app.domain.message import MessageState
from app.domain.parts import CallEnd, Part, TextPart, ToolCallPart, ToolResultPart
from app.markdown.blocks import Code, Paragraph
from app.state.tools import Consent
from app.store.store import Store
from app.ui.chat.sidebar.sidebar_list import WHEN_ROLE
from app.ui.transcript.message import call_card
from engine import Role
from fakes import MODEL
from stage import Stage, flush
from tool_calls import call, live


def chat_with_call(stage: Stage, title: str) -> tuple[Conversation, int]:
    """A stored chat whose answer has a call without a result, and the id of that answer."""
    store = Store.open(stage.folder / "conversations.sqlite")
    chat = store.create_conversation(title)
    own = store.add_message(chat.id, None, Role.USER, "Q").id
    parts: tuple[Part, ...] = (TextPart("A sum.\n"), call(1))
    said = store.add_message(chat.id, own, Role.ASSISTANT, parts, MessageState.STREAMING).id
    store.finish(said, MessageState.STOPPED)
    store.close()
    return chat, said


def ask(stage: Stage, chat: Conversation, message: int) -> None:
    stage.states.tools.set_live(replace(live(1), conversation=chat.id, message=message))
    flush()


def test_another_chat_says_that_it_waits_and_the_shortcut_goes_there(
    qtbot: QtBot, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts: list[object] = []
    monkeypatch.setattr(QApplication, "alert", lambda widget: alerts.append(widget))
    one, first = chat_with_call(stage, "One")
    two, _ = chat_with_call(stage, "Two")
    stage.ready(MODEL)
    stage.controller.open_conversation(two.id)
    stage.wait_until_idle()
    composer, model = stage.window.composer, stage.window.sidebar.model
    stage.window.answer_consent()  # nothing is asked
    ask(stage, one, first)
    assert alerts == [stage.window]
    assert model.find(one.id).data(WHEN_ROLE) == "waits for you"
    assert model.find(one.id).data(Qt.ItemDataRole.AccessibleTextRole) == "One, waits for you"
    assert not stage.window.transcript.calls.consents
    qtbot.keyClicks(composer.editor, "Typing")
    stage.window.actions_by_id["consent"].trigger()
    stage.wait_until_idle()
    assert stage.state.current == one.id
    card = stage.window.transcript.calls.consents[first, "1"]
    assert card.buttons[Consent.ONCE].hasFocus()
    with qtbot.waitSignal(stage.window.transcript.decided) as decided:
        qtbot.keyClick(card.buttons[Consent.ONCE], Qt.Key.Key_Space)
    assert decided.args == [first, "1", Consent.ONCE, '{"n": 1}']
    stage.states.tools.end_live(first, "1")
    assert model.find(one.id).data(WHEN_ROLE) == ""
    assert not card.isVisible()


def test_consent_takes_no_focus_from_who_types(qtbot: QtBot, stage: Stage) -> None:
    chat, said = chat_with_call(stage, "One")
    stage.ready(MODEL)
    stage.controller.open_conversation(chat.id)
    stage.wait_until_idle()
    editor = stage.window.composer.editor
    editor.setFocus()
    qtbot.keyClicks(editor, "Wait")
    ask(stage, chat, said)
    card = stage.window.transcript.calls.consents[said, "1"]
    assert card.isVisible()
    assert editor.hasFocus()
    stage.window.transcript.calls.focus(stage.states.tools.asking[0])
    qtbot.keyClick(card.buttons[Consent.ONCE], Qt.Key.Key_Escape)
    assert editor.hasFocus()
    assert stage.window.composer.text() == "Wait"


def test_exports_say_what_was_called_and_what_came_of_it() -> None:
    results = (
        ToolCallPart("sum", "{}", "1"),
        call(2),
        ToolResultPart("sum", '{"a":1}', "2", seconds=1.5),
        ToolResultPart("sum", "", "1", end=CallEnd.DENIED),
    )
    said = node(1, None, Role.ASSISTANT, results)
    blocks = list(sections(ChatTree("t", 1.0, 2.0, (said,), 1)))[-1].blocks
    told = ["".join(r.text for r in b.runs) if isinstance(b, Paragraph) else b for b in blocks]
    assert [each.text if isinstance(each, Code) else each for each in told] == [
        "Tool call: sum",
        "Result of the tool: sum · denied",
        "Tool call: sum",
        '{\n  "n": 1\n}',
        "Result of the tool: sum · done · 1.5 s",
        '{\n  "a": 1\n}',
    ]


def test_the_button_that_stops_is_mirrored(qapp: QApplication) -> None:
    area = QRectF(0, 0, 400, 36)
    before = call_card.stop_area(area)
    qapp.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    try:
        after = call_card.stop_area(area)
    finally:
        qapp.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
    assert after.left() == area.right() - before.right()
