"""Passages in the transcript: their list, references to them, striking out, keys and access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible
from pytestqt.qtbot import QtBot

from app.domain.documents import PageUnit, Passage, SearchFault
from app.domain.message import Message, MessageState
from app.domain.parts import ErrorPart, FilePart, PassagesPart, TextPart
from app.domain.passages import passages_part, toggled, with_passages
from app.ui.blocks.passage import PassageView
from app.ui.theme.palette import DARK, show_palette
from app.ui.transcript.message.sections import passages_words
from app.ui.transcript.view import Transcript, wrapped_tip
from transcript_driver import (
    click,
    clipboard,
    message,
    stream_text,
    streaming,
    wait_for_layout,
)

FIRST = Passage(
    1, "manual.pdf", "The warranty is two years.", "3", PageUnit.PAGE, "a", start=5, end=31,
    score=0.9,
)  # fmt: skip
SECOND = Passage(2, "notes.txt", "Clean the filter every week.", sha256="b", score=0.4)
STRUCK = Passage(3, "old.txt", "It was one year.", sha256="c", struck=True)
ANSWER = "Two years [1].\n\nClean it [2], not [3] or [9]."


def asked(number: int = 1, *passages: Passage, text: str = "How long?") -> Message:
    made = PassagesPart(passages or (FIRST, SECOND, STRUCK))
    parts = (FilePart("manual.pdf", "text"), made, TextPart(text))
    return replace(message(number, "", is_user=True), parts=parts)


def show(view: Transcript, qtbot: QtBot, messages: Sequence[Message] = ()) -> None:
    view.set_messages(messages or [asked(), message(2, ANSWER)])
    wait_for_layout(view, qtbot)


def unfold(view: Transcript, index: int = 0) -> None:
    rows = view.stack.views[index].rows
    at = next(n for n, row in enumerate(rows) if "passage" in row.words.lower())
    view.message_layout.toggle_row(index, at)


def links(view: Transcript, index: int) -> list[tuple[str, str]]:
    parts = view.stack.views[index].parts
    return [(link.text, link.address) for part in parts for link in part.view.links()]


def strike(view: Transcript, number: int) -> None:
    """Do what the app does when a passage of the first question is struck out."""
    question = view.stack.views[0].message
    part = passages_part(question.parts)
    assert part is not None
    parts = with_passages(question.parts, toggled(part, number))
    view.update_message(replace(question, parts=parts))


def center(view: Transcript, index: int, name: str) -> QPoint:
    """The middle of a control of a message, by its name."""
    found = next(each for each in view.access.controls.of(index) if each.name == name)
    layout = view.message_layout
    at = QPointF(layout.left_of(index), layout.message_top(index))
    return (found.area.center() + at).toPoint()


def tools(view: Transcript, index: int) -> list[str]:
    return [tool.name for tool in view.tools.all(index)[0]]


def test_numbers_of_passages_that_were_read_are_links(view: Transcript, qtbot: QtBot) -> None:
    show(view, qtbot)
    assert links(view, 1) == [("[1]", "passage:1"), ("[2]", "passage:2")]


def test_an_answer_refers_only_to_what_stands_before_it(view: Transcript, qtbot: QtBot) -> None:
    later = replace(SECOND, number=4)
    show(
        view,
        qtbot,
        [asked(1, FIRST), message(2, "[1] [4]"), asked(3, later), message(4, "[1] [4]")],
    )
    assert [text for text, _ in links(view, 1)] == ["[1]"]
    assert [text for text, _ in links(view, 3)] == ["[1]", "[4]"]


def test_references_are_links_while_they_arrive(view: Transcript, qtbot: QtBot) -> None:
    question = replace(message(1, "", is_user=True), parts=(TextPart("How long?"),))
    view.set_messages([question, streaming(2)])
    view.update_message(asked())  # its passages were found
    stream_text(view, qtbot, 2, "Two years [1] or")
    assert links(view, 1) == [("[1]", "passage:1")]
    view.update_message(message(2, "Two years [1] or [2]."))
    assert links(view, 1) == [("[1]", "passage:1"), ("[2]", "passage:2")]


def test_a_reference_says_where_it_leads_and_opens_it(view: Transcript, qtbot: QtBot) -> None:
    show(view, qtbot)
    point = center(view, 1, "[1]")
    assert view.pointer.tip(QPointF(point)) == "manual.pdf, page 3\nThe warranty is two years."
    with (
        qtbot.waitSignal(view.passage_opened) as opened,
        qtbot.assertNotEmitted(view.link_activated),
    ):
        click(qtbot, view, point)
    assert opened.args == [FIRST]


def test_the_keyboard_reaches_references_and_the_list(view: Transcript, qtbot: QtBot) -> None:
    show(view, qtbot)
    unfold(view)
    view.setFocus()
    view.keys.enter(backwards=False)  # the last message
    seen = [view.keys.control]
    with qtbot.waitSignal(view.passage_opened) as opened:
        qtbot.keyClick(view, Qt.Key.Key_Return)
    assert opened.args == [FIRST]
    while view.keys.step(forward=True):
        seen.append(view.keys.control)
    assert seen[:2] == ["link 0 0", "link 1 0"]
    assert seen[2].startswith("tool ")
    qtbot.keyClick(view, Qt.Key.Key_Up)
    seen = [view.keys.control]
    while view.keys.step(forward=True):
        seen.append(view.keys.control)
    assert [key for key in seen if key.startswith(("link", "button"))] == [
        "link 0 0", "button 0 pin", "button 0 strike",
        "link 1 0", "button 1 pin", "button 1 strike",
        "link 2 0", "button 2 strike",
    ]  # fmt: skip


def test_screen_readers_hear_passages_and_can_use_them(view: Transcript, qtbot: QtBot) -> None:
    show(view, qtbot)
    unfold(view)
    listed = QAccessible.queryAccessibleInterface(view)
    names = QAccessible.Text.Name
    question, answer = listed.child(0), listed.child(1)
    assert "2 passages from 2 documents\n\n[1] manual.pdf, page 3 · 90 %" in question.text(names)
    found = {
        child.text(names): child
        for each in (question, answer)
        for child in (each.child(n) for n in range(each.childCount()))
    }
    words = QAccessible.Text.Description
    assert found["[1]"].text(words) == "manual.pdf, page 3\nThe warranty is two years."
    assert found["[1] manual.pdf, page 3"].role() is QAccessible.Role.Link
    pin = found["Read this passage with the next questions too"]
    assert pin.state().checkable
    assert not pin.state().checked
    press = pin.actionInterface()
    with qtbot.waitSignal(view.pin_requested) as pinned:
        press.doAction(press.pressAction())
    assert pinned.args[1] is True
    assert found["Use this passage again"].state().checked


def test_struck_passages_are_crossed_and_sent_when_the_user_says_so(
    view: Transcript, qtbot: QtBot
) -> None:
    show(view, qtbot)
    assert "more_passages" not in tools(view, 0)
    unfold(view)
    assert "more_passages" in tools(view, 0)
    one = view.stack.views[0]
    view.strike_requested.connect(lambda _id, number: strike(view, number))
    click(qtbot, view, center(view, 0, "Strike this passage out"))
    entries = [part.view for part in one.parts if isinstance(part.view, PassageView)]
    assert [entry.passage.struck for entry in entries] == [True, False, True]
    assert one.rows[1].words == "1 passage from 1 document"
    assert "again_with" in tools(view, 0)
    assert links(view, 1)[0] == ("[1]", "passage:1")  # the answer was given with it

    show_palette(DARK)  # makes new views
    with qtbot.waitSignal(view.passages_changed) as sent:
        click(
            qtbot, view, center(view, 0, "Answer again with the passages that are not struck out")
        )
    struck = replace(FIRST, struck=True)
    assert sent.args == [1, PassagesPart((struck, SECOND, STRUCK))]

    click(qtbot, view, center(view, 0, "Use this passage again"))
    assert "more_passages" in tools(view, 0)
    view.set_busy(True)
    assert "more_passages" not in tools(view, 0)


def test_pinning_and_more_are_asked_for(view: Transcript, qtbot: QtBot) -> None:
    show(view, qtbot)
    unfold(view)
    with qtbot.waitSignal(view.pin_requested) as pinned:
        click(qtbot, view, center(view, 0, "Read this passage with the next questions too"))
    assert pinned.args == [1, True]
    view.update_message(asked(1, replace(FIRST, pinned=True), SECOND))
    with qtbot.waitSignal(view.pin_requested) as pinned:
        click(qtbot, view, center(view, 0, "Do not read this passage with the next questions"))
    assert pinned.args == [1, False]
    with qtbot.waitSignal(view.more_passages_requested) as more:
        click(qtbot, view, center(view, 0, "Look for more passages, and answer again"))
    assert more.args == [1]


def test_a_failed_search_can_be_tried_again_or_left_out(view: Transcript, qtbot: QtBot) -> None:
    failed = replace(message(2, "", state=MessageState.FAILED), parts=(ErrorPart(SearchFault()),))
    show(view, qtbot, [message(1, "How long?", is_user=True), failed])
    with qtbot.waitSignal(view.continue_requested) as again:
        click(qtbot, view, center(view, 1, "Look for passages again"))
    assert again.args == [2]
    with qtbot.waitSignal(view.no_passages_requested) as without:
        click(qtbot, view, center(view, 1, "Answer without passages"))
    assert without.args == [2]


def test_passages_that_are_no_longer_read_say_so(view: Transcript, qtbot: QtBot) -> None:
    show(view, qtbot)
    view.set_left_out(frozenset([1]))
    assert view.stack.views[0].rows[1].words == "2 passages from 2 documents · no longer read"
    view.set_left_out(frozenset())
    assert view.stack.views[0].rows[1].words == "2 passages from 2 documents"


def test_references_are_copied_as_they_were_written(view: Transcript, qtbot: QtBot) -> None:
    show(view, qtbot)
    view.select_all()
    view.copy()
    assert clipboard().endswith(ANSWER)
    view.finder.search("[2]")
    qtbot.waitUntil(lambda: not view.finder.searching)
    assert view.finder.total == 2  # in the list, and in the answer


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (PassagesPart(), "No passage fits: the model answers without them"),
        (PassagesPart(skipped=True), "Answered without passages"),
        (PassagesPart((FIRST,)), "1 passage from 1 document"),
        (PassagesPart((FIRST, SECOND), unread=3), "2 passages from 2 documents · 3 more found"),
        (
            PassagesPart((FIRST,), unread=1, missing=2),
            "1 passage from 1 document · 1 more found · 2 documents are not indexed yet",
        ),
        (
            PassagesPart(missing=1),
            "No passage fits: the model answers without them · 1 document is not indexed yet",
        ),
        (PassagesPart((STRUCK,)), "All passages are struck out: the model answers without them"),
    ],
)
def test_the_row_says_what_the_model_reads(part: PassagesPart, words: str) -> None:
    assert passages_words(part) == words


def test_an_arabic_passage_has_its_controls_at_the_left(view: Transcript, qtbot: QtBot) -> None:
    arabic = replace(FIRST, name="دليل.pdf", text="الضمان سنتان.", unit=PageUnit.NONE)
    show(view, qtbot, [asked(1, arabic), message(2, "[1]")])
    unfold(view)
    entry = next(p.view for p in view.stack.views[0].parts if isinstance(p.view, PassageView))
    assert entry.right_to_left
    assert entry.buttons()[0].area.left() < entry.links()[0].area.left()
    click_at = center(view, 0, f"[1] {arabic.name}")
    with qtbot.waitSignal(view.passage_opened) as opened:
        click(qtbot, view, click_at)
    assert opened.args == [arabic]


def test_a_long_tip_is_wrapped(view: Transcript, qtbot: QtBot) -> None:
    long = replace(FIRST, text="a < b & c, " * 40)
    show(view, qtbot, [asked(1, long), message(2, "[1]")])
    tip = wrapped_tip(view.pointer.tip(QPointF(center(view, 1, "[1]"))))
    assert tip.startswith("<p>manual.pdf, page 3<br>a &lt; b &amp; c, a")
    assert len(tip) < 500
    assert wrapped_tip("https://a.b/<c>") == "https://a.b/<c>"


def test_more_is_offered_where_a_document_is_not_indexed_yet(
    view: Transcript, qtbot: QtBot
) -> None:
    for missing, offered in ((0, False), (1, True)):
        parts = (PassagesPart(missing=missing), TextPart("How long?"))
        show(view, qtbot, [replace(message(1, "", is_user=True), parts=parts), message(2, "No.")])
        assert ("more_passages" in tools(view, 0)) is offered
