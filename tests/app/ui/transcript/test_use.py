"""Transcript interaction: selection, copying, tools, editing, keyboard and accessibility."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QColor, QGuiApplication, QInputMethodEvent
from PySide6.QtWidgets import QPlainTextEdit
from pytestqt.qtbot import QtBot

from app.domain.answer_details import AnswerDetails
from app.domain.message import AnswerAgain, Message, MessageState
from app.domain.parts import TextPart
from app.ui.blocks.code import CodeView
from app.ui.transcript.message.message_tools import tools_for
from app.ui.transcript.view import Transcript
from transcript_driver import (
    CODE,
    LONG,
    click,
    clipboard,
    drag,
    hover,
    message,
    part_point,
    stream_text,
    streaming,
    tool_point,
    wait_for_layout,
)

# --- selecting and copying ----------------------------------------------------------------------


def test_whole_blocks_are_copied_as_markdown_and_html(view: Transcript, qtbot: QtBot) -> None:
    source = "## Head\n\n- a **b**\n- c\n\n```py\nx\n```"
    view.set_messages([message(1, "Ask *this*", is_user=True), message(2, source)])
    qtbot.keyClick(view, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClick(view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert clipboard() == f"Ask *this*\n\n{source}"
    html = QGuiApplication.clipboard().mimeData().html()
    assert "<strong>b</strong>" in html
    assert "Ask *this*" in html


def test_a_part_of_a_block_is_copied_as_plain_text(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "Some **bold** words.")])
    qtbot.mouseDClick(
        view.viewport(), Qt.MouseButton.LeftButton, pos=part_point(view, 0, 0, 60, 10)
    )
    view.selection.set((0, 0, 2), (0, 0, 9))
    view.copy()
    assert clipboard() == "me bold"


def test_double_click_selects_a_word_and_triple_click_the_paragraph(
    view: Transcript, qtbot: QtBot
) -> None:
    view.set_messages([message(1, "First words here.\n\nSecond paragraph.")])
    point = part_point(view, 0, 0, 12, 10)
    port, left = view.viewport(), Qt.MouseButton.LeftButton
    qtbot.mouseClick(port, left, pos=point)
    qtbot.mouseDClick(port, left, pos=point)
    assert view.selection.span() == ((0, 0, 0), (0, 0, 5))
    qtbot.mousePress(port, left, pos=point)
    qtbot.mouseRelease(port, left, pos=point)
    assert view.selection.span() == ((0, 0, 0), (0, 0, len("First words here.")))


def test_dragging_selects_across_messages_and_shift_click_extends(
    view: Transcript, qtbot: QtBot
) -> None:
    view.set_messages([message(1, "Question", is_user=True), message(2, CODE), message(3, "Last")])
    drag(qtbot, view, part_point(view, 0, 0, 0, 10), part_point(view, 1, 0, 1000, 10))
    assert view.selection.text(view.stack.views) == "Question\n\nRun this:"
    qtbot.mouseClick(
        view.viewport(),
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.ShiftModifier,
        part_point(view, 2, 0, 1000, 10),
    )
    assert view.selection.text(view.stack.views) == f"Question\n\n{CODE}\n\nLast"


def test_selection_of_surrogate_pairs_copies_whole_characters(
    view: Transcript, qtbot: QtBot
) -> None:
    view.set_messages([message(1, "🌳🌳 tree")])
    view.selection.set((0, 0, 2), (0, 0, 7))
    view.copy()
    assert clipboard() == "🌳 tr"


def test_copy_of_a_code_block_leaves_out_the_fences(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, CODE)])
    code = view.stack.views[0].parts[1].view
    assert isinstance(code, CodeView)
    area = code.buttons()[0].area.center()
    click(qtbot, view, part_point(view, 0, 1, area.x(), area.y()))
    assert clipboard() == "def f(x):\n    return x + 1  # one more"
    assert code.copied
    qtbot.waitUntil(lambda: not code.copied, timeout=5000)


def test_selection_survives_text_streamed_below_it(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "Keep this"), streaming(2)])
    view.selection.set((0, 0, 0), (0, 0, 4))
    stream_text(view, qtbot, 2, CODE)
    assert view.selection.text(view.stack.views) == "Keep"


# --- tools --------------------------------------------------------------------------------------


def names(message_: Message, *, busy: bool = False) -> list[str]:
    return [tool.name for tool in tools_for(message_, busy=busy)]


def test_only_the_last_answer_can_be_continued(view: Transcript) -> None:
    stopped = message(1, "a", state=MessageState.STOPPED)
    view.set_messages([stopped, message(2, "b", is_user=True), replace(stopped, id=3)])
    shown = [[tool.name for tool in view.tools.all(index)[0]] for index in range(3)]
    assert "continue" not in shown[0]
    assert "word" in shown[0]
    assert "continue" in shown[2]


def test_each_state_offers_its_tools() -> None:
    stopped = message(1, "a", state=MessageState.STOPPED)
    assert names(stopped) == [
        *("word", "continue", "copy", "regenerate", "variants", "edit", "compare", "fork", "delete")
    ]
    assert names(stopped, busy=True) == ["word", "copy", "fork"]
    complete = message(1, "a")
    assert names(complete) == [
        "copy",
        "regenerate",
        "variants",
        "continue",
        "edit",
        "compare",
        "fork",
        "delete",
    ]
    edited = replace(complete, details=AnswerDetails(edited=True))
    assert [tool.text for tool in tools_for(edited, busy=False) if tool.lasting] == ["Edited"]
    assert names(message(1, "a", is_user=True)) == ["copy", "edit", "fork", "delete"]
    assert names(streaming(1)) == []
    failed = message(1, "", state=MessageState.FAILED, error="e")
    assert names(failed) == ["regenerate", "variants", "compare", "fork", "delete"]
    switch = tools_for(message(1, "a", sibling=1, siblings=3), busy=False)[-3:]
    assert [(tool.name, tool.text, tool.enabled) for tool in switch] == [
        ("previous", "Previous version", False),
        ("word", "1/3", True),
        ("next", "Next version", True),
    ]


def test_tools_emit_their_requests(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages(
        [
            message(1, "Ask", is_user=True, sibling=1, siblings=2),
            message(2, "Said", state=MessageState.STOPPED, sibling=2, siblings=3),
        ]
    )
    with qtbot.waitSignal(view.regenerate_requested) as request:
        click(qtbot, view, tool_point(view, 1, "regenerate"))
    assert request.args == [2, AnswerAgain.SAME]
    menu = view.variants_menu(2)
    for action, how in zip(menu.actions(), AnswerAgain, strict=True):
        with qtbot.waitSignal(view.regenerate_requested) as request:
            action.trigger()
        assert request.args == [2, how]
    with qtbot.waitSignal(view.continue_requested) as request:
        click(qtbot, view, tool_point(view, 1, "continue"))
    assert request.args == [2]
    with qtbot.waitSignal(view.sibling_requested) as request:
        click(qtbot, view, tool_point(view, 1, "previous"))
    assert request.args == [2, -1]
    click(qtbot, view, tool_point(view, 1, "copy"))
    assert clipboard() == "Said"


def test_hover_shows_tools_without_moving_anything(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "Ask", is_user=True), message(2, "Said")])
    assert view.tools.shown(0) == ([], [])
    heights = [shown.height for shown in view.stack.views]
    hover(qtbot, view, part_point(view, 0, 0, 5, 5))
    assert [tool.name for tool in view.tools.shown(0)[0]] == ["copy", "edit", "fork", "delete"]
    assert [shown.height for shown in view.stack.views] == heights


def test_arrows_between_versions_are_shown_without_hover(view: Transcript) -> None:
    answer = message(2, "Said", sibling=2, siblings=3)
    view.set_messages([message(1, "Ask", is_user=True), answer, message(3, "Ask on", is_user=True)])
    assert [tool.name for tool in view.tools.shown(1)[0]] == ["previous", "word", "next"]


def test_failed_answer_shows_its_error(view: Transcript, qtbot: QtBot) -> None:
    error = "The prompt is too long. Shorten it."
    view.set_messages([streaming(1)])
    view.update_message(message(1, "", state=MessageState.FAILED, error=error))
    shown = view.stack.views[0]
    assert shown.error is not None
    assert shown.error.text == error
    assert shown.tools_top > shown.error.height


def test_link_opens_on_click_but_not_after_a_drag(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "[a long enough link](https://a.b) end")])
    inside, end = part_point(view, 0, 0, 20, 10), part_point(view, 0, 0, 60, 10)
    with qtbot.assertNotEmitted(view.link_activated):
        drag(qtbot, view, inside, end)
    with qtbot.waitSignal(view.link_activated) as followed:
        click(qtbot, view, inside)
    assert followed.args == ["https://a.b"]
    assert view.viewport().cursor().shape() is Qt.CursorShape.PointingHandCursor
    assert view.pointer.tip(QPointF(inside)) == "https://a.b"
    qtbot.mouseMove(view.viewport(), part_point(view, 0, 0, 150, 10))
    assert view.viewport().cursor().shape() is Qt.CursorShape.IBeamCursor


def test_thoughts_are_folded_until_clicked(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages(
        [message(1, f"<think>{'Hm. ' * 25}</think>{'Yes. ' * 17}")]
    )  # half of the characters are thoughts
    shown = view.stack.views[0]
    assert [part.below_row for part in shown.parts] == [False]
    assert shown.rows[0].words == "Thought for 3 s"
    corner = QPoint(view.message_layout.column_left(), round(view.message_layout.message_top(0)))
    click(qtbot, view, corner + QPoint(30, 14))
    assert [part.below_row for part in shown.parts] == [True, False]
    click(qtbot, view, corner + QPoint(30, 14))
    assert [part.below_row for part in shown.parts] == [False]


def test_thinking_indicator_is_shown_while_thinking(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([streaming(1)])
    stream_text(view, qtbot, 1, "<think>\nLet me")
    assert view.stack.views[0].rows[0].words == "Thinking…"
    stream_text(view, qtbot, 1, " see.</think>\n\nYes.")
    assert view.stack.views[0].rows[0].words.startswith("Thought")
    assert len(view.stack.views[0].parts) == 1


def test_the_row_of_thoughts_names_what_the_engine_measured(view: Transcript) -> None:
    text = "<think>Hm.</think>Yes."
    made = AnswerDetails(thought_tokens=9, thought_seconds=12.3)
    ended = replace(message(1, text), details=made)
    reached = replace(message(2, text), details=replace(made, thought_budget=2000))
    view.set_messages([ended, reached])
    words = [shown.rows[0].words for shown in view.stack.views]
    assert words == [
        "Thought for 12 s",
        "Thought for 12 s (budget of 2,000 tokens reached)",
    ]
    assert view.stack.views[1].spoken == f"{words[1]}\n\nYes."


# --- editing ------------------------------------------------------------------------------------


def open_editor(view: Transcript, qtbot: QtBot) -> QPlainTextEdit:
    view.set_messages([message(1, "Ask", is_user=True), message(2, "Said")])
    hover(qtbot, view, part_point(view, 0, 0, 5, 5))
    click(qtbot, view, tool_point(view, 0, "edit"))
    field = view.findChild(QPlainTextEdit)
    assert isinstance(field, QPlainTextEdit)
    return field


def test_an_interrupted_edit_is_there_again(view: Transcript, qtbot: QtBot) -> None:
    shown = [message(1, "Ask", is_user=True), message(2, "Said")]
    field = open_editor(view, qtbot)
    qtbot.keyClicks(field, " more")
    for _ in range(2):  # another chat is shown, twice
        view.set_messages([message(3, "Other", is_user=True)])
        assert view.editing.editor is None
        view.set_messages(shown)
        view.edit_message(1)
        assert view.editing.editor is not None
        assert view.editing.editor.text() == "Ask more"
    view.set_busy(True)  # an answer of this chat begins
    view.set_busy(False)
    view.edit_message(1)
    assert view.editing.editor.text() == "Ask more"
    view.editing.editor.cancelled.emit()  # the user gives it up
    view.edit_message(1)
    assert view.editing.editor.text() == "Ask"


def test_enter_submits_an_edit_and_shift_enter_inserts_a_line_break(
    view: Transcript, qtbot: QtBot
) -> None:
    field = open_editor(view, qtbot)
    assert field.toPlainText() == "Ask"
    qtbot.keyClicks(field, " more")
    qtbot.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(field, "again")
    with qtbot.waitSignal(view.edit_submitted) as sent:
        qtbot.keyClick(field, Qt.Key.Key_Return)
    assert sent.args == [1, (TextPart("Ask more\nagain"),)]
    assert not view.stack.views[0].hidden_for_edit


def test_escape_cancels_an_edit(view: Transcript, qtbot: QtBot) -> None:
    field = open_editor(view, qtbot)
    before = view.stack.views[1].message.text
    with qtbot.assertNotEmitted(view.edit_submitted):
        qtbot.keyClicks(field, "!!")
        qtbot.keyClick(field, Qt.Key.Key_Escape)
    assert not view.stack.views[0].hidden_for_edit
    assert view.stack.views[1].message.text == before


def test_enter_while_an_input_method_composes_does_not_send(view: Transcript, qtbot: QtBot) -> None:
    field = open_editor(view, qtbot)
    QGuiApplication.sendEvent(field, QInputMethodEvent("にほ", []))
    with qtbot.assertNotEmitted(view.edit_submitted):
        qtbot.keyClick(field, Qt.Key.Key_Return)
    committed = QInputMethodEvent("", [])
    committed.setCommitString("日本")
    QGuiApplication.sendEvent(field, committed)
    field.setPlainText("日本")
    with qtbot.waitSignal(view.edit_submitted):
        qtbot.keyClick(field, Qt.Key.Key_Return)


def test_an_answer_is_edited_with_line_breaks_and_kept_with_ctrl_enter(
    view: Transcript, qtbot: QtBot
) -> None:
    view.set_messages([message(1, "Ask", is_user=True), message(2, "Said")])
    click(qtbot, view, tool_point(view, 1, "edit"))
    editor = view.editing.editor
    assert editor is not None
    assert editor.width() == round(view.stack.column)
    field = editor.findChild(QPlainTextEdit)
    assert field.accessibleName() == "Edit the answer (Ctrl+Enter keeps it)"
    qtbot.keyClick(field, Qt.Key.Key_Return)
    qtbot.keyClicks(field, "more")
    with qtbot.waitSignal(view.edit_submitted) as request:
        qtbot.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert request.args == [2, (TextPart("Said\nmore"),)]
    assert view.editing.editor is None


def test_message_height_follows_the_editor(view: Transcript, qtbot: QtBot) -> None:
    field = open_editor(view, qtbot)
    top = view.stack.top(1)
    field.setPlainText("line\n" * 6)
    assert view.stack.top(1) > top


def test_editing_is_disabled_during_an_answer(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "Ask", is_user=True)])
    view.set_busy(True)
    view.edit_message(1)
    assert view.findChild(QPlainTextEdit) is None


# --- keyboard and screen readers ----------------------------------------------------------------


def test_keys_move_between_messages_and_tools(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "Ask", is_user=True), message(2, "Said")])
    view.keys.enter(backwards=False)
    assert view.message_layout.focused == 1
    qtbot.keyClick(view, Qt.Key.Key_Right)
    with qtbot.waitSignal(view.regenerate_requested):
        qtbot.keyClick(view, Qt.Key.Key_Return)
    qtbot.keyClick(view, Qt.Key.Key_Up)
    assert view.message_layout.focused == 0
    assert [tool.name for tool in view.tools.shown(0)[0]] == ["copy", "edit", "fork", "delete"]
    qtbot.keyClick(view, Qt.Key.Key_Space)
    assert clipboard() == "Ask"
    assert view.keys.step(forward=True)
    assert view.keys.step(forward=True)
    with qtbot.waitSignal(view.delete_requested):
        assert view.keys.step(forward=True)
        qtbot.keyClick(view, Qt.Key.Key_Return)
    assert not view.keys.step(forward=True)


@pytest.mark.parametrize("key", [Qt.Key.Key_PageUp, Qt.Key.Key_Home, Qt.Key.Key_Up])
def test_scroll_keys_stop_following_the_end(view: Transcript, qtbot: QtBot, key: Qt.Key) -> None:
    view.set_messages([message(1, LONG + LONG)])
    qtbot.keyClick(view, key)
    assert view.message_layout.offset() < view.verticalScrollBar().maximum()
    qtbot.keyClick(view, Qt.Key.Key_End)
    assert view.message_layout.offset() == view.verticalScrollBar().maximum()


def test_each_message_has_an_accessible_interface(view: Transcript) -> None:
    view.set_messages(
        [message(1, "Ask", is_user=True), message(2, "Sa", state=MessageState.STOPPED)]
    )
    access = QAccessible.queryAccessibleInterface(view)
    assert access is not None
    assert access.role() is QAccessible.Role.List
    assert access.childCount() == 2
    texts = [access.child(n).text(QAccessible.Text.Name) for n in range(2)]
    assert texts == ["You: Ask", "Answer, stopped: Sa"]


def test_the_editor_shows_all_of_a_long_message(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "several words that need more than one line " * 8, is_user=True)])
    view.edit_message(1)
    field = view.findChild(QPlainTextEdit)
    assert isinstance(field, QPlainTextEdit)
    lines = field.document().size().height()
    assert lines > 4
    assert field.viewport().height() >= lines * field.fontMetrics().lineSpacing()
    assert field.horizontalScrollBar().maximum() == 0


def accent_columns(view: Transcript) -> list[int]:
    """The x coordinates of the pixels in the streaming dot's colour."""
    image = view.viewport().grab().toImage()

    def green(color: QColor) -> bool:
        return color.green() - color.red() > 30

    return [
        x
        for x in range(image.width())
        if any(green(image.pixelColor(x, y)) for y in range(image.height()))
    ]


def test_streaming_dot_follows_the_text_direction(view: Transcript, qtbot: QtBot) -> None:
    """In Arabic a line ends at its left; the dot was painted on the last letter."""
    for number, text in ((1, "The sky is blue"), (2, "السماء زرقاء")):
        view.set_messages([streaming(number)])
        stream_text(view, qtbot, number, text)
        wait_for_layout(view, qtbot)
        shown = view.stack.views[0]
        end = shown.end_point().x() + view.message_layout.column_left()
        dot = accent_columns(view)
        assert dot
        assert (min(dot) > end) if number == 1 else (max(dot) < end)
