"""Rows of the transcript for thoughts, tools, attachments: folding, find, keys, access, copies."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QPlainTextEdit
from pytestqt.qtbot import QtBot

from app.domain.answer_details import AnswerDetails
from app.domain.growing import append_text
from app.domain.message import Message, MessageState
from app.domain.parts import (
    FilePart,
    ImagePart,
    Part,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
)
from app.ui.blocks.code import CodeView
from app.ui.transcript.message.message_editor import MessageEditor
from app.ui.transcript.message.message_view import MessageView
from app.ui.transcript.message.placed_block import PlacedBlock as Shown
from app.ui.transcript.message.sections import Kind
from app.ui.transcript.view import Transcript
from stage import flush
from transcript_driver import (
    click,
    clipboard,
    message,
    stream_text,
    streaming,
    tool_point,
    wait_for_layout,
)

PASTED = "\n".join(f"line {number} of it" for number in range(45))
QUESTION: tuple[Part, ...] = (
    FilePart("", PASTED),
    FilePart("notes.txt", "a ```fence``` and a note"),
    ImagePart("tree.png", "0" * 64, "/tree.png", 640, 480, 1000),
    TextPart("What is it?"),
)
ANSWER: tuple[Part, ...] = (
    ThoughtPart("\nI should look at the *weather*.\n", "<think>"),
    TextPart("\n\nLet me look.\n\n"),
    ToolCallPart("weather", '{"city": "Kyoto"}', "1"),
    ToolCallPart("time", "{}", "2"),
    ToolResultPart("time", "noon", "2", failed=True),
    ToolResultPart("weather", "rain ```in``` Kyoto", "1"),
    ThoughtPart("So it rains."),
    TextPart("Take an **umbrella**."),
)


def asked() -> Message:
    return replace(message(1, "", is_user=True), parts=QUESTION)


def said(state: MessageState = MessageState.COMPLETE) -> Message:
    return replace(message(2, "", state=state), parts=ANSWER)


def shown(view: Transcript, qtbot: QtBot, *messages: Message) -> MessageView:
    """The view of the last message."""
    view.set_messages(messages or [asked(), said()])
    wait_for_layout(view, qtbot)
    return view.stack.views[-1]


def words(one: MessageView) -> list[str]:
    return [row.words for row in one.rows]


def texts(one: MessageView) -> list[str]:
    return [part.view.text(0, part.view.length) for part in one.parts]


def row_point(view: Transcript, index: int, row: int) -> QPoint:
    area = view.stack.views[index].rows[row].area
    left, top = view.message_layout.column_left(), view.message_layout.message_top(index)
    return QPoint(round(left + area.left() + 20), round(top + area.center().y()))


def in_order(one: MessageView) -> list[tuple[float, float]]:
    """Top and bottom of all rows and parts, sorted by section; fails where two overlap."""
    spans = [(row.section, row.area.top(), row.area.bottom()) for row in one.rows]
    spans += [(part.section, part.y, part.y + part.view.height) for part in one.parts]
    spans.sort(key=lambda each: (each[0], each[1]))
    places = [(top, bottom) for _, top, bottom in spans]
    assert all(one[1] <= two[0] + 0.01 for one, two in pairwise(places))
    return places


def test_an_answer_is_shown_in_the_order_of_its_parts(view: Transcript, qtbot: QtBot) -> None:
    one = shown(view, qtbot)
    assert words(one) == [
        "Thought for 1 s",
        "weather, Kyoto, done",
        "time, failed",
        "Thought",
    ]
    assert texts(one) == ["Let me look.", "Take an umbrella."]
    in_order(one)
    for row in range(4):
        click(qtbot, view, row_point(view, 1, row))
        flush()
        in_order(one)
    assert texts(one) == [
        "I should look at the weather.",
        "Let me look.",
        "city  Kyoto",
        "rain ```in``` Kyoto",
        "It was done.",
        "noon",
        "It failed.",
        "So it rains.",
        "Take an umbrella.",
    ]
    below = [True, False, True, True, True, True, True, True, False]
    assert [part.below_row for part in one.parts] == below
    click(qtbot, view, row_point(view, 1, 1))
    assert "city  Kyoto" not in texts(one)
    assert "noon" in texts(one)


def test_attachments_are_rows_in_the_card_of_the_message(view: Transcript, qtbot: QtBot) -> None:
    one = shown(view, qtbot, asked())
    assert words(one) == [
        "Pasted text, 45 lines: line 0 of it…",
        "notes.txt, 24 characters",
        "tree.png, 640 × 480",
    ]
    assert texts(one) == ["What is it?"]
    before = one.card.height()
    assert before < 340
    for row in one.rows[:2]:
        assert one.card.contains(row.area.adjusted(8, 0, -16, 0))
    click(qtbot, view, row_point(view, 0, 0))
    assert one.card.height() > before + 200
    assert texts(one)[0].startswith("line 0 of it\nline 1")
    assert one.card.contains(one.rows[2].area)
    assert one.rows[2].foldable is False
    in_order(one)


def test_streamed_text_grows_behind_the_result_of_a_tool(view: Transcript, qtbot: QtBot) -> None:
    begun = replace(streaming(2), parts=ANSWER[:6])
    one = shown(view, qtbot, asked(), begun)
    assert words(one)[-1] == "time, failed"
    assert one.bottom() > one.rows[-1].area.bottom()  # place for the dot
    stream_text(view, qtbot, 2, "<think>So it ra")
    assert words(one)[-1] == "Thinking…"
    assert texts(one) == ["Let me look."]
    view.message_layout.toggle_row(1, 3)
    stream_text(view, qtbot, 2, "ins.</think>Take an **umbrella**.\n\nAnd a hat.")
    assert texts(one) == ["Let me look.", "So it rains.", "Take an umbrella.", "And a hat."]
    in_order(one)
    done = replace(said(), parts=append_text(one.message.parts, ""))
    view.update_message(done)
    kept = texts(one)
    view.set_messages([asked(), replace(done, id=3)])
    wait_for_layout(view, qtbot)
    view.message_layout.toggle_row(1, 3)
    assert texts(view.stack.views[1]) == kept


def test_any_pieces_give_the_same_layout(view: Transcript, qtbot: QtBot) -> None:
    text = "\n<think>One.\n\nTwo.</think>\n\n# Head\n\n- a\n- b\n\n```py\nx\n```\n"
    begun = replace(streaming(2), parts=ANSWER[:6])
    one = shown(view, qtbot, asked(), begun)
    for letter in text:
        parts = append_text(one.message.parts, letter)
        one.append(replace(one.message, parts=parts), letter)
    view.update_message(replace(one.message, state=MessageState.COMPLETE))
    at_once = replace(message(3, ""), parts=(*ANSWER[:6], *append_text((), text)))
    other = shown(view, qtbot, asked(), one.message, at_once)
    assert texts(view.stack.views[1]) == texts(other)
    assert view.stack.views[1].height == other.height


def test_a_result_that_arrives_later_is_shown_in_the_row_of_its_call(
    view: Transcript, qtbot: QtBot
) -> None:
    one = shown(view, qtbot, asked(), replace(streaming(2), parts=ANSWER[:3]))
    assert words(one)[-1] == "weather, Kyoto, comes next"
    view.update_message(replace(streaming(2), parts=ANSWER[:6]))
    assert words(one)[-2:] == ["weather, Kyoto, done", "time, failed"]


def test_find_unfolds_the_row_with_the_match(view: Transcript, qtbot: QtBot) -> None:
    shown(view, qtbot)
    view.finder.search("rain")
    qtbot.waitUntil(lambda: not view.finder.searching)
    assert view.finder.total == 2  # of the result and of the second thought
    one = view.stack.views[1]
    assert [row.folded for row in one.rows] == [True, False, True, True]
    view.finder.step(forward=True)
    assert [row.folded for row in one.rows] == [True, False, True, False]
    assert (view.finder.place, view.finder.total) == (2, 2)
    view.finder.search("line 44")
    qtbot.waitUntil(lambda: not view.finder.searching)
    assert not view.stack.views[0].rows[0].folded


def test_keys_reach_every_row(view: Transcript, qtbot: QtBot) -> None:
    one = shown(view, qtbot)
    view.keys.enter(backwards=False)
    for number in range(4):
        assert view.keys.control == f"row-{number}"
        qtbot.keyClick(view, Qt.Key.Key_Return)
        assert not one.rows[number].folded
        qtbot.keyClick(view, Qt.Key.Key_Right)
        while view.keys.control.startswith("button "):  # copies the code that was unfolded
            qtbot.keyClick(view, Qt.Key.Key_Right)
    assert view.keys.control == "tool copy"


def test_screen_readers_hear_rows_and_can_unfold_them(view: Transcript, qtbot: QtBot) -> None:
    shown(view, qtbot)
    listed = QAccessible.queryAccessibleInterface(view)
    name = listed.child(0).text(QAccessible.Text.Name)
    assert name.startswith("You: Pasted text, 45 lines: line 0 of it…\n\nnotes.txt")
    assert "line 30" not in name
    answer = listed.child(1)
    said_name = answer.text(QAccessible.Text.Name)
    assert "think>" not in said_name
    assert said_name.endswith("Take an **umbrella**.")
    rows = [answer.child(n) for n in range(4)]
    assert [row.role() for row in rows] == [QAccessible.Role.Button] * 4
    rows[1].actionInterface().doAction("Press")
    flush()
    assert not view.stack.views[1].rows[1].folded
    assert "rain" in answer.text(QAccessible.Text.Name)
    image = listed.child(0).child(2)
    assert image.role() is QAccessible.Role.Button
    assert image.text(QAccessible.Text.Name) == "tree.png, 640 × 480"


def test_copies_leave_out_thoughts_and_a_selection_has_folded_calls(
    view: Transcript, qtbot: QtBot
) -> None:
    shown(view, qtbot)
    click(qtbot, view, tool_point(view, 1, "copy"))
    assert clipboard() == "Let me look.\n\nTake an **umbrella**."
    view.tools.use(0, view.tools.all(0)[0][0])
    assert clipboard() == f"{PASTED}\n\n[notes.txt]\n\nWhat is it?"
    view.select_all()
    view.copy()
    called = (
        '`weather`\n\n```json\n{\n  "city": "Kyoto"\n}\n```\n\n````\nrain ```in``` Kyoto\n````'
        "\n\n`time`\n\n```\nnoon\n```"
    )
    assert clipboard() == (f"What is it?\n\nLet me look.\n\n{called}\n\nTake an **umbrella**.")
    view.message_layout.toggle_row(1, 1)
    view.select_all()
    view.copy()
    assert "**city**  Kyoto\n\n````\nrain ```in``` Kyoto\n````\n\nIt was done." in clipboard()


def test_a_message_with_only_thoughts_can_be_copied(view: Transcript, qtbot: QtBot) -> None:
    shown(view, qtbot, message(2, "<think>\nOnly this", state=MessageState.STOPPED))
    click(qtbot, view, tool_point(view, 0, "copy"))
    assert clipboard() == "Only this"


def test_code_of_a_tool_is_copied_by_its_button(view: Transcript, qtbot: QtBot) -> None:
    one = shown(view, qtbot)
    view.message_layout.toggle_row(1, 1)
    codes = [part for part in one.parts if isinstance(part.view, CodeView)]
    assert [part.view.code for part in codes if isinstance(part.view, CodeView)] == [
        "rain ```in``` Kyoto",
    ]
    assert all(isinstance(part, Shown) and part.below_row for part in codes)
    assert one.sections[codes[0].section].kind is Kind.TOOL


def test_editing_keeps_the_attachments_that_are_not_removed(view: Transcript, qtbot: QtBot) -> None:
    view.resize(520, 600)  # the chips have two lines
    shown(view, qtbot)
    view.edit_message(1)
    editor = view.editing.editor
    assert isinstance(editor, MessageEditor)
    field = editor.findChild(QPlainTextEdit)
    assert isinstance(field, QPlainTextEdit)
    assert field.toPlainText() == "What is it?"
    assert len(editor.chips.chips) == 3
    height, before = editor.height(), editor.chips.items
    editor.chips.chips[1].remove_button.click()
    assert editor.height() < height
    qtbot.keyClick(field, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert [chip.item for chip in editor.chips.chips] == before
    editor.chips.chips[1].remove_button.click()
    field.setPlainText("And now?")
    with qtbot.waitSignal(view.edit_submitted) as submitted:
        qtbot.keyClick(field, Qt.Key.Key_Return)
    assert submitted.args == [1, (QUESTION[0], QUESTION[2], TextPart("And now?"))]


def test_zoom_keeps_what_is_unfolded(view: Transcript, qtbot: QtBot) -> None:
    shown(view, qtbot)
    view.message_layout.toggle_row(1, 1)
    view.set_zoom(1.5)
    wait_for_layout(view, qtbot)
    assert [row.folded for row in view.stack.views[1].rows] == [True, False, True, True]


JSON = '{ "first_name" : "Ada",\n"born": [1815] }'
AS_JSON = AnswerDetails(constraint="JSON schema")


@pytest.mark.parametrize("before", [(), (ThoughtPart("Let me think."),)])
def test_an_answer_that_had_to_be_json_is_code(
    view: Transcript, qtbot: QtBot, before: tuple[Part, ...]
) -> None:
    answer = replace(message(2, ""), parts=(*before, TextPart(JSON)), details=AS_JSON)
    one = shown(view, qtbot, asked(), answer)
    assert texts(one) == ['{\n  "first_name": "Ada",\n  "born": [\n    1815\n  ]\n}']
    assert isinstance(one.parts[-1].view, CodeView)
    assert len(one.rows) == len(before)


def test_a_cut_json_answer_is_code_as_it_is(view: Transcript, qtbot: QtBot) -> None:
    answer = replace(message(2, ""), parts=(TextPart('{"a":\n "b'),), details=AS_JSON)
    assert texts(shown(view, qtbot, asked(), answer)) == ['{"a":\n "b']


def test_a_streamed_json_answer_becomes_code_when_it_has_ended(
    view: Transcript, qtbot: QtBot
) -> None:
    one = shown(view, qtbot, asked(), streaming(2))
    stream_text(view, qtbot, 2, JSON)
    assert not isinstance(one.parts[-1].view, CodeView)
    ended = replace(message(2, ""), parts=(TextPart(JSON),), details=AS_JSON)
    view.update_message(ended)
    flush()
    assert isinstance(view.stack.views[-1].parts[-1].view, CodeView)
    assert view.stack.views[-1].message.text == JSON  # what is copied


# --- thoughts where they are not expected ---------------------------------------------------------


def rows_and_text(view: Transcript) -> tuple[list[tuple[str, bool]], list[str]]:
    """The rows and whether each is folded, and the texts of the shown blocks."""
    shown = view.stack.views[-1]
    rows = [(row.words.partition(" ")[0], row.folded) for row in shown.rows]
    return rows, [part.view.text(0, part.view.length) for part in shown.parts]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "rows", "said"),
    [
        ("<think>a</think>First.\n\n<think>b</think>\n\nSecond.", 2, ["First.", "Second."]),
        ("Let me add: 42.\n</think>\n\nIt is 42.", 1, ["It is 42."]),
        ("<think>a</think>b\n</think>\nc", 1, ["b", "c"]),
        ("<think>what `</think>` does</think>It ends.", 1, ["It ends."]),
        ("a\n\n```\n<think>x</think>\n```", 0, ["a", "<think>x</think>"]),
    ],
)
def test_thoughts_anywhere_in_an_answer_have_rows(
    view: Transcript, qtbot: QtBot, text: str, rows: int, said: list[str], size: int
) -> None:
    view.set_messages([message(1, "Q", is_user=True), streaming(2)])
    for at in range(0, len(text), size):
        stream_text(view, qtbot, 2, text[at : at + size])
    ended = replace(view.stack.views[-1].message, state=MessageState.COMPLETE)
    view.update_message(ended)
    assert rows_and_text(view) == ([("Thought", True)] * rows, said)
    view.set_messages([message(1, "Q", is_user=True), message(2, text)])
    wait_for_layout(view, qtbot)
    assert rows_and_text(view) == ([("Thought", True)] * rows, said)


def test_an_answer_that_ended_in_its_thoughts_shows_them_and_says_so(
    view: Transcript, qtbot: QtBot
) -> None:
    view.set_messages([message(1, "Q", is_user=True), streaming(2)])
    stream_text(view, qtbot, 2, "<think>17 and 25 is 42.")
    assert rows_and_text(view)[1] == []
    view.update_message(replace(view.stack.views[-1].message, state=MessageState.COMPLETE))
    (row,), said = rows_and_text(view)
    assert (row[1], said) == (False, ["17 and 25 is 42."])
    error = view.stack.views[-1].error
    assert error is not None
    assert error.text.startswith("The model ended while it was thinking")
