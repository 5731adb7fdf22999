"""What was made of the parts of a document, in the transcript: keys, screen reader, find, growth."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from pytestqt.qtbot import QtBot

from app.domain.message import Message, MessageState
from app.domain.parts import Part, SectionPart, TextPart
from app.ui.transcript.message.message_view import MessageView
from app.ui.transcript.view import Transcript
from stage import flush
from transcript_driver import clipboard, message, wait_for_layout


def part(number: int, text: str, *, cut: bool = False) -> SectionPart:
    return SectionPart(
        text, "report.pdf", "page", f"{number}", 1, number, 3, 0, 0, number, number + 1, cut=cut
    )


MADE: tuple[Part, ...] = (
    part(1, "- The *first* thing"),
    part(2, "A **table** of tides", cut=True),
    part(3, ""),
)


def said(*more: Part, state: MessageState = MessageState.COMPLETE) -> Message:
    return replace(message(2, "", state=state), parts=(*MADE, *more))


def shown(view: Transcript, qtbot: QtBot, answer: Message) -> MessageView:
    view.set_messages([message(1, "Summarise it.", is_user=True), answer])
    wait_for_layout(view, qtbot)
    return view.stack.views[-1]


def test_keys_unfold_each_part_and_save_them(view: Transcript, qtbot: QtBot) -> None:
    one = shown(view, qtbot, said())
    view.keys.enter(backwards=False)
    for number in range(2):
        assert view.keys.control == f"row-{number}"
        qtbot.keyClick(view, Qt.Key.Key_Return)
        assert not one.rows[number].folded
        qtbot.keyClick(view, Qt.Key.Key_Right)
    while view.keys.control != "tool save":
        before = view.keys.control
        qtbot.keyClick(view, Qt.Key.Key_Right)
        assert view.keys.control != before
    with qtbot.waitSignal(view.save_requested) as saved:
        qtbot.keyClick(view, Qt.Key.Key_Return)
    assert saved.args == [2]


def test_screen_readers_hear_what_each_part_is(view: Transcript, qtbot: QtBot) -> None:
    shown(view, qtbot, said(TextPart("All of it.")))
    answer = QAccessible.queryAccessibleInterface(view).child(1)
    name = answer.text(QAccessible.Text.Name)
    assert "report.pdf, part 1 of 3 · page 1" in name
    assert "report.pdf, part 2 of 3 · page 2 · not complete" in name
    assert "report.pdf, part 3 of 3 · page 3 · the model wrote nothing" in name
    assert name.endswith("All of it.")
    assert "first" not in name
    rows = [answer.child(n) for n in range(2)]
    assert [row.role() for row in rows] == [QAccessible.Role.Button] * 2
    rows[0].actionInterface().doAction("Press")
    flush()
    assert "first" in answer.text(QAccessible.Text.Name)
    every = [answer.child(n) for n in range(answer.childCount())]
    assert "Save as a file…" in [each.text(QAccessible.Text.Name) for each in every]


def test_what_is_read_stays_open_while_others_come(view: Transcript, qtbot: QtBot) -> None:
    running = replace(said(state=MessageState.STREAMING), parts=MADE[:1])
    one = shown(view, qtbot, running)
    view.message_layout.toggle_row(1, 0)
    assert not one.rows[0].folded
    view.update_message(replace(running, parts=MADE[:2]))
    flush()
    assert [row.folded for row in one.rows] == [False, True]
    view.update_message(said(TextPart("All.")))
    flush()
    assert [row.folded for row in one.rows] == [False, True, True]


def test_find_opens_the_part_that_has_the_words(view: Transcript, qtbot: QtBot) -> None:
    one = shown(view, qtbot, said(TextPart("Nothing here.")))
    view.finder.search("tides")
    qtbot.waitUntil(lambda: not view.finder.searching)
    assert view.finder.total == 1
    assert [row.folded for row in one.rows] == [True, False, True]


def test_the_copy_is_the_answer_without_its_parts(view: Transcript, qtbot: QtBot) -> None:
    shown(view, qtbot, said(TextPart("All of **it**.")))
    view.tools.use(1, next(each for each in view.tools.all(1)[0] if each.name == "copy"))
    assert clipboard() == "All of **it**."
    shown(view, qtbot, said())
    view.tools.use(1, next(each for each in view.tools.all(1)[0] if each.name == "copy"))
    assert clipboard() == "- The *first* thing\n\nA **table** of tides"
