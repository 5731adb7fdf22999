"""Instructions of a chat as the folded first line of its transcript."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from pytestqt.qtbot import QtBot

from app.domain.chat import Folder
from app.domain.chat_settings import ChatSettings
from app.settings.table import Settings
from app.ui.transcript.message.instructions import instructions_message
from app.ui.transcript.view import Transcript
from engine import CountTokens
from fakes import MODEL
from stage import Stage, flush
from transcript_driver import (
    LONG,
    click,
    clipboard,
    message,
    tool_point,
    wait_for_layout,
)

TEXT = "You are a *pirate*.\n\nAnswer in one sentence."


def show(view: Transcript, text: str = TEXT, tokens: int = 12) -> None:
    first = instructions_message(text, tokens)
    view.set_messages([message(1, "Hello", is_user=True), message(2, "Arr!")], None, first)


def words(view: Transcript) -> list[str]:
    return [row.words for row in view.stack.views[0].rows]


def test_the_line_is_folded_and_unfolds_to_the_text(view: Transcript, qtbot: QtBot) -> None:
    show(view)
    first = view.stack.views[0]
    assert words(view) == ["Instructions · 12 tokens · You are a *pirate*. Answer in one sentence."]
    assert first.parts == []
    view.message_layout.toggle_row(0, 0)
    assert "\n\n".join(first.source(part) for part in range(len(first.parts))) == TEXT
    view.message_layout.toggle_row(0, 0)
    assert first.parts == []


def test_no_instructions_no_line(view: Transcript) -> None:
    assert instructions_message(" \n", 0) is None
    show(view, "")
    assert [each.message.id for each in view.stack.views] == [1, 2]
    view.set_messages([], None, instructions_message(TEXT, 1))
    assert len(view.stack) == 0
    view.append_message(message(1, "Hello", is_user=True))
    assert [each.message.id for each in view.stack.views] == [0, 1]


def test_edit_asks_for_the_settings_of_the_chat(view: Transcript, qtbot: QtBot) -> None:
    show(view)
    view.message_layout.hovered = 0
    with qtbot.waitSignal(view.instructions_requested, timeout=1000):
        click(qtbot, view, tool_point(view, 0, "edit"))
    view.keys.enter(backwards=False)
    for _ in range(2):
        qtbot.keyClick(view, Qt.Key.Key_Up)
    assert view.message_layout.focused == 0
    qtbot.keyClick(view, Qt.Key.Key_Return)
    assert view.stack.views[0].parts  # unfolded by the keyboard
    qtbot.keyClick(view, Qt.Key.Key_Tab)
    with qtbot.waitSignal(view.instructions_requested, timeout=1000):
        qtbot.keyClick(view, Qt.Key.Key_Return)


def test_the_folded_line_is_not_copied_with_the_chat(view: Transcript, qtbot: QtBot) -> None:
    show(view)
    view.select_all()
    view.copy()
    assert clipboard() == "Hello\n\nArr!"
    view.message_layout.toggle_row(0, 0)
    view.select_all()
    view.copy()
    assert clipboard() == f"{TEXT}\n\nHello\n\nArr!"


def test_a_screen_reader_reads_the_line_and_presses_its_buttons(view: Transcript) -> None:
    show(view)
    item = QAccessible.queryAccessibleInterface(view).child(0)
    assert item is not None
    assert item.text(QAccessible.Text.Name).startswith("Instructions · 12 tokens")
    names = [item.child(n).text(QAccessible.Text.Name) for n in range(item.childCount())]
    assert names[0].startswith("Instructions · 12 tokens")
    assert names[1:] == ["Edit the instructions of this chat", "Copy as Markdown"]


def test_other_instructions_move_nothing(view: Transcript, qtbot: QtBot) -> None:
    many = [message(number, LONG, is_user=number % 2 == 1) for number in range(1, 7)]
    view.set_messages(many)
    wait_for_layout(view, qtbot)
    view.message_layout.scroll_to(view.stack.top(3) + 40)
    for text in (TEXT, f"{TEXT} Never swear.", ""):
        index = view.stack.index_of(4)
        assert index is not None
        before = view.message_layout.message_top(index)
        view.set_instructions(instructions_message(text, 3))
        index = view.stack.index_of(4)
        assert index is not None
        assert abs(view.message_layout.message_top(index) - before) <= 1
        assert len(view.stack) == len(many) + bool(text)


def test_the_line_shows_what_the_model_reads(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path, settings=Settings(system_prompt="Usual. {{language}}"))
    try:
        stage.ready(MODEL)
        stage.controller.send("one")
        stage.engine.finish()
        stage.wait_until_idle()
        view = stage.window.transcript
        assert stage.engine.last(CountTokens).text == "Usual. English"
        assert words(view) == ["Instructions · 2 tokens · Usual. English"]
        first = stage.state.current
        stage.controller.chat_settings.change_shown(ChatSettings(instructions=""))
        stage.drain()
        assert [each.message.role.value for each in view.stack.views] == ["user", "assistant"]
        stage.controller.new_conversation()
        stage.controller.send("two")
        stage.drain()
        assert words(view) == ["Instructions · 2 tokens · Usual. English"]
        assert first is not None
        stage.controller.open_conversation(first)
        stage.wait_until_idle()
        assert [each.message.role.value for each in view.stack.views] == ["user", "assistant"]
        view.instructions_requested.emit()
        flush()
        assert stage.window.panel.is_open
        assert stage.window.focusWidget() is stage.window.panel.content.instructions
    finally:
        stage.close()


def test_a_chat_moved_to_a_folder_shows_the_instructions_there(
    qtbot: QtBot, tmp_path: Path
) -> None:
    stage = Stage(tmp_path)
    try:
        stage.ready(MODEL)
        stage.controller.send("one")
        stage.engine.finish()
        stage.wait_until_idle()
        view, shown = stage.window.transcript, stage.state.current
        assert shown is not None
        assert len(view.stack) == 2
        stage.state.set_folders([Folder(7, "A", instructions="Of the folder.")])
        stage.state.change_conversation(shown, folder=7)
        stage.drain()
        assert words(view) == ["Instructions · 3 tokens · Of the folder."]
        stage.state.set_folders([Folder(7, "A", instructions="Other.")])
        stage.drain()
        assert words(view) == ["Instructions · 1 token · Other."]
    finally:
        stage.close()
