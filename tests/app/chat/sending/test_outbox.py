"""Messages entered during an answer: they wait, are sent in turn, held, taken back, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.domain.generation_settings import GenerationSettings
from app.domain.message import MessageState
from app.domain.parts import FilePart, TextPart
from engine import Chat, FinishReason, Role
from fakes import MODEL
from stage import Stage


def send(stage: Stage, qtbot: QtBot, text: str) -> None:
    editor = stage.window.composer.editor
    editor.insert_text(text)
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    stage.drain()


def complete(stage: Stage, text: str = "Yes.") -> None:
    stage.engine.write(text)
    stage.engine.finish()
    stage.wait_until_idle()


def shown(stage: Stage) -> list[str]:
    """The rows above the composer."""
    return [
        "".join(part.text for part in row.message.parts) for row in stage.window.chat.waiting.rows
    ]


def questions(stage: Stage) -> list[str]:
    return [message.text for message in stage.state.messages if message.role is Role.USER]


def test_waiting_messages_are_sent_one_after_another(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    for text in ("one", "    two", "three"):
        send(stage, qtbot, text)
    assert (questions(stage), shown(stage)) == (["one"], ["    two", "three"])
    rows = stage.window.chat.waiting.rows
    assert [row.status.text() for row in rows] == ["Sent after this answer"] * 2
    assert all(row.send_button.isHidden() for row in rows)
    complete(stage)
    assert (questions(stage), shown(stage)) == (["one", "    two"], ["three"])
    assert stage.engine.last_generate.turns[-1].text == "    two"
    complete(stage)
    complete(stage)
    assert (questions(stage), shown(stage)) == (["one", "    two", "three"], [])
    assert not stage.state.busy
    assert stage.window.chat.waiting.isHidden()


def test_a_waiting_message_is_sent_in_its_own_chat(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    send(stage, qtbot, "one")
    send(stage, qtbot, "two")
    first = stage.state.current
    assert first is not None
    stage.controller.new_conversation()
    stage.wait_until_idle()
    assert shown(stage) == []
    complete(stage)
    assert stage.state.current is None
    assert [m.text for m in stage.state.branches[first] if m.role is Role.USER] == ["one", "two"]


@pytest.mark.parametrize(
    "reason", [FinishReason.CANCELLED, FinishReason.LENGTH, FinishReason.CONTEXT]
)
def test_nothing_is_sent_after_an_answer_that_is_not_complete(
    stage: Stage, qtbot: QtBot, reason: FinishReason
) -> None:
    stage.ready(MODEL)
    send(stage, qtbot, "one")
    send(stage, qtbot, "two")
    if reason is FinishReason.CANCELLED:
        stage.controller.stop()
    stage.engine.write("Half")
    stage.engine.finish(reason)
    stage.wait_until_idle()
    (row,) = stage.window.chat.waiting.rows
    assert row.status.text() == "Not sent yet"
    assert questions(stage) == ["one"]
    send(stage, qtbot, "other")  # goes before: what is held waits for the user
    complete(stage)
    assert (questions(stage), shown(stage)) == (["one", "other"], ["two"])
    stage.window.chat.waiting.rows[0].send_button.click()
    stage.drain()
    assert (questions(stage), shown(stage)) == (["one", "other", "two"], [])


def test_a_failed_answer_holds_what_waits(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    send(stage, qtbot, "one")
    send(stage, qtbot, "two")
    stage.engine.fail("It broke.", "")
    stage.wait_until_idle()
    assert stage.state.messages[-1].state is MessageState.FAILED
    assert (questions(stage), shown(stage)) == (["one"], ["two"])
    assert stage.engine.count(Chat) == 1


def test_a_held_message_is_sent_after_the_answer_in_progress(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    send(stage, qtbot, "one")
    send(stage, qtbot, "two")
    stage.engine.finish(FinishReason.LENGTH)
    stage.wait_until_idle()
    send(stage, qtbot, "other")
    stage.window.chat.waiting.rows[0].send_button.click()
    assert stage.window.chat.waiting.rows[0].status.text() == "Sent after this answer"
    complete(stage)
    assert questions(stage) == ["one", "other", "two"]


def test_a_waiting_message_is_taken_back_before_what_is_typed(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    send(stage, qtbot, "one")
    stage.window.composer.set_text((FilePart("", "pasted"), TextPart("  two")))
    qtbot.keyClick(stage.window.composer.editor, Qt.Key.Key_Return)
    qtbot.keyClicks(stage.window.composer.editor, "more")
    stage.window.chat.waiting.rows[0].edit_button.click()
    expected = (FilePart("", "pasted"), TextPart("  two\nmore"))
    assert (stage.window.composer.parts(), shown(stage)) == (expected, [])
    assert stage.state.drafts[stage.state.current] == expected
    complete(stage)
    assert questions(stage) == ["one"]


def test_up_in_an_empty_field_takes_the_last_waiting_message_back(
    stage: Stage, qtbot: QtBot
) -> None:
    stage.ready(MODEL)
    for text in ("one", "two", "three"):
        send(stage, qtbot, text)
    qtbot.keyClick(stage.window.composer.editor, Qt.Key.Key_Up)
    assert (stage.window.composer.text(), shown(stage)) == ("three", ["two"])


def test_a_waiting_message_can_be_removed(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    send(stage, qtbot, "one")
    send(stage, qtbot, "two")
    stage.window.chat.waiting.rows[0].remove_button.click()
    complete(stage)
    assert (questions(stage), shown(stage)) == (["one"], [])


def test_what_waits_is_kept_over_a_restart_as_it_is(tmp_path: Path, qtbot: QtBot) -> None:
    first = Stage(tmp_path)
    first.ready(MODEL)
    send(first, qtbot, "one")
    waiting = (FilePart("", "  a\n"), FilePart("notes.txt", "b"), TextPart("\u00a0two"))
    first.window.composer.set_text(waiting)
    qtbot.keyClick(first.window.composer.editor, Qt.Key.Key_Return)
    send(first, qtbot, "three")
    first.window.composer.set_text("not entered")
    first.window.close()  # the user closes the window
    first.engine.write("Half")
    first.engine.finish()  # completes while the app quits: nothing is sent then
    first.close()
    second = Stage(tmp_path)
    try:
        second.ready(MODEL)
        second.controller.open_conversation(second.state.conversations[0].id)
        second.wait_until_idle()
        assert questions(second) == ["one"]
        rows = second.window.chat.waiting.rows
        assert [row.message.parts for row in rows] == [waiting, (TextPart("three"),)]
        assert [row.status.text() for row in rows] == ["Not sent yet"] * 2
        assert second.window.composer.text() == "not entered"
        rows[0].send_button.click()
        second.drain()
        assert second.state.messages[-2].parts == waiting
        assert shown(second) == ["three"]
    finally:
        second.close()


def test_two_compared_answers_end_before_the_next_message_is_sent(
    stage: Stage, qtbot: QtBot
) -> None:
    stage.ready(MODEL)
    send(stage, qtbot, "one")
    complete(stage)
    side = GenerationSettings((), stage.states.chat_settings.shown.usual, None)
    stage.controller.compare(stage.state.messages[-1].id, side, side)
    stage.drain()
    send(stage, qtbot, "two")
    for command in stage.engine.unfinished:
        stage.engine.write("Yes.", request=command.request)
        stage.engine.finish(request=command.request)
        stage.wait_until_idle()
        assert (questions(stage), shown(stage)) == (["one"], ["two"])
    stage.controller.keep(stage.state.messages[-1].id)
    stage.wait_until_idle()
    assert (questions(stage), shown(stage)) == (["one", "two"], [])


def test_a_deleted_chat_keeps_what_waits(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    send(stage, qtbot, "one")
    send(stage, qtbot, "two")
    chat = stage.state.current
    assert chat is not None
    stage.controller.deletions.delete([chat])
    stage.engine.finish(FinishReason.CANCELLED)
    stage.wait_until_idle()
    stage.controller.deletions.undo()
    stage.wait_until_idle()
    assert (questions(stage), shown(stage)) == (["one"], ["two"])
