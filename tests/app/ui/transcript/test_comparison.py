"""Two compared answers in the transcript: columns, scrolling, tools, keys, find, access."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QContextMenuEvent
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from app.domain.answer_details import AnswerDetails
from app.domain.generation_settings import GenerationSettings, UsedAdapter
from app.domain.message import AdapterMark, Message, MessageState
from app.domain.parts import ErrorPart
from app.ui.transcript import column_header
from app.ui.transcript.message.differences import differences
from app.ui.transcript.message.message_stack import COLUMN_GAP, NARROWEST, WIDEST
from app.ui.transcript.message.message_tools import column_tools, tools_for
from app.ui.transcript.view import MARGIN, Transcript
from engine import Sampling
from stage import flush
from transcript_driver import (
    LONG,
    click,
    drag,
    grow,
    message,
    open_transcript,
    part_point,
    tool_point,
    wait_for_layout,
)

MARKS = (AdapterMark("pirate-speech", 0.8, "5f3a"),)
QUESTION = message(1, "Why is the sky blue?", is_user=True)
FIRST = replace(message(2, "Arr, the heavens be blue."), adapters=MARKS)
SECOND = message(3, "Air scatters the short waves.\n\nSo the sky is blue.")


@pytest.fixture
def view(qtbot: QtBot) -> Iterator[Transcript]:
    with open_transcript(qtbot) as transcript:
        transcript.resize(900, 500)
        yield transcript


def show(view: Transcript, first: Message = FIRST, second: Message = SECOND) -> None:
    view.set_messages([QUESTION, first], {first.id: second})
    flush()


def names(view: Transcript, index: int) -> list[str]:
    return [tool.name for tool in view.tools.shown(index)[0]]


# --- columns --------------------------------------------------------------------------------------


def test_two_answers_are_side_by_side_and_end_where_the_longer_one_does(view: Transcript) -> None:
    show(view)
    stack = view.stack
    assert [shown.message.id for shown in stack.views] == [1, 2, 3]
    assert stack.top(1) == stack.top(2)
    assert stack.left(1) + stack.width(1) + COLUMN_GAP == stack.left(2)
    assert view.message_layout.left_of(1) >= MARGIN
    assert view.message_layout.left_of(2) + stack.width(2) <= view.width() - MARGIN
    assert stack.width(1) == stack.width(2) >= NARROWEST
    assert stack.views[2].natural_height > stack.views[1].natural_height
    assert stack.views[1].height == stack.views[2].height == stack.views[2].natural_height
    assert stack.height == pytest.approx(stack.top(2) + stack.views[2].height + 16)
    view.append_message(message(4, "Next", is_user=True))
    assert stack.top(3) == stack.top(2) + stack.views[2].height


def test_narrow_columns_are_one_below_the_other(view: Transcript) -> None:
    show(view)
    view.resize(int(2 * NARROWEST + COLUMN_GAP) + 2 * MARGIN - 1, 500)
    flush()
    stack = view.stack
    header = column_header.height(view.message_layout.style)
    assert stack.width(1) == stack.width(2) == stack.column
    assert stack.left(1) == stack.left(2) == 0
    assert stack.top(2) == stack.top(1) + stack.views[1].height + header
    view.resize(view.width() + 1, 500)
    flush()
    assert stack.top(1) == stack.top(2)
    assert stack.width(1) == NARROWEST


def test_wide_windows_give_both_more_room_around_the_middle(view: Transcript) -> None:
    show(view)
    view.resize(1600, 500)
    flush()
    stack, places = view.stack, view.message_layout
    assert stack.width(1) == WIDEST
    left, right = places.left_of(1), places.left_of(2) + stack.width(2)
    assert left == pytest.approx(view.width() - right, abs=2)
    assert places.left_of(0) == places.column_left()


def test_each_has_a_header_with_what_differs(view: Transcript) -> None:
    show(view)
    (one, words), (other, others) = view.message_layout.headers()
    assert (words, others) == ("pirate-speech at 0.80", "Without adapters")
    assert one.bottom() == view.message_layout.message_top(1)
    assert (other.left(), other.width()) == (view.message_layout.left_of(2), view.stack.width(2))
    view.update_message(replace(SECOND, adapters=(AdapterMark("formal", 1.0, ""),)))
    assert [text for _, text in view.message_layout.headers()] == [
        "pirate-speech at 0.80",
        "formal",
    ]


def test_long_words_of_a_header_are_cut_and_have_a_tip(view: Transcript) -> None:
    marks = tuple(AdapterMark(f"a rather long name {n}", 0.5, "") for n in range(4))
    show(view, replace(FIRST, adapters=marks))
    (area, words), (other, _) = view.message_layout.headers()
    assert view.pointer.tip(area.center()) == words
    assert words.count("+") == 3
    assert view.pointer.tip(other.center()) == ""


def test_opening_and_closing_keep_the_text_and_the_views(view: Transcript) -> None:
    view.set_messages([QUESTION, FIRST])
    before = view.stack.views[1]
    view.set_compared({2: SECOND})
    assert view.stack.views[1] is before
    assert len(view.stack) == 3
    view.set_compared({2: SECOND})
    view.set_compared({})
    assert view.stack.views == [view.stack.views[0], before]
    assert view.stack.width(1) == view.stack.column
    view.set_compared({99: SECOND})  # of another chat
    assert len(view.stack) == 2


def test_removing_the_first_removes_the_pair(view: Transcript) -> None:
    show(view)
    view.remove_message(2)
    assert [shown.message.id for shown in view.stack.views] == [1]
    assert not view.stack.compared


def test_zoom_and_theme_keep_both_columns(view: Transcript) -> None:
    show(view)
    view.set_zoom(2.0)
    flush()
    header = column_header.height(view.message_layout.style)
    assert header > 44
    assert view.stack.top(1) == view.stack.views[0].height + 24 + header
    assert view.stack.top(1) == view.stack.top(2)


# --- a short answer beside a long one -------------------------------------------------------------

SHORT, TALL = replace(FIRST, parts=message(2, "Arr.").parts), message(3, LONG * 3)


def keep_places(view: Transcript) -> list[float]:
    """The y coordinates of both Keep buttons in the viewport."""
    return [tool_point(view, index, "keep").y() for index in (1, 2)]


@pytest.mark.parametrize("short_first", [True, False])
def test_both_are_kept_where_the_pair_ends(
    view: Transcript, qtbot: QtBot, short_first: bool
) -> None:
    pair = (SHORT, TALL) if short_first else (replace(TALL, id=2), replace(SHORT, id=3))
    show(view, *pair)
    wait_for_layout(view, qtbot)
    view.jump_to_end()
    flush()
    first, second = keep_places(view)
    assert first == second
    assert 0 < first < view.viewport().height()
    for index, number in ((1, 2), (2, 3)):
        with qtbot.waitSignal(view.keep_requested) as asked:
            click(qtbot, view, tool_point(view, index, "keep"))
        assert asked.args == [number]
    view.setFocus()
    view.keys.enter(backwards=False)
    view.jump_to_end()
    flush()
    before = view.message_layout.offset(), view.message_layout.focused
    assert before[1] == 1
    for _ in range(5):  # past the tools of one, to those of the other in the same row
        qtbot.keyClick(view, Qt.Key.Key_Right)
    assert (view.message_layout.offset(), view.message_layout.focused) == (before[0], 2)
    qtbot.keyClick(view, Qt.Key.Key_Left)
    qtbot.keyClick(view, Qt.Key.Key_Left)
    qtbot.keyClick(view, Qt.Key.Key_Left)
    qtbot.keyClick(view, Qt.Key.Key_Down)
    assert (view.message_layout.offset(), view.message_layout.focused) == (before[0], 2)
    view.set_compared({})
    assert view.stack.views[1].height == view.stack.views[1].natural_height


def test_the_buttons_stay_at_the_end_while_the_longer_one_is_written(
    view: Transcript, qtbot: QtBot
) -> None:
    show(view, SHORT, replace(TALL, state=MessageState.STREAMING))
    wait_for_layout(view, qtbot)
    view.jump_to_end()
    before = tool_point(view, 1, "keep").y()
    for number in range(20):
        grow(view, 3, f"Line {number}.\n\n")
    qtbot.waitUntil(lambda: "Line 19" in view.stack.views[2].message.text, timeout=5000)
    assert tool_point(view, 1, "keep").y() == before
    assert tool_point(view, 2, "stop").y() == before
    grow(view, 2, "no")  # to the short one: nothing moves
    assert tool_point(view, 1, "keep").y() == before


def test_one_below_the_other_each_has_its_tools_below_its_text(
    view: Transcript, qtbot: QtBot
) -> None:
    show(view, SHORT, TALL)
    wait_for_layout(view, qtbot)
    assert view.stack.views[1].height > view.stack.views[1].natural_height
    view.resize(int(2 * NARROWEST + COLUMN_GAP) + 2 * MARGIN - 1, 500)
    wait_for_layout(view, qtbot)
    for shown in view.stack.views:
        assert shown.height == shown.natural_height
    view.resize(900, 500)
    wait_for_layout(view, qtbot)
    assert view.stack.views[1].height == view.stack.views[2].height


def test_the_error_of_a_short_answer_stays_below_its_text(view: Transcript, qtbot: QtBot) -> None:
    failed = replace(SHORT, state=MessageState.FAILED, parts=(ErrorPart(message="No memory."),))
    show(view, failed, TALL)
    wait_for_layout(view, qtbot)
    shown = view.stack.views[1]
    assert shown.error is not None
    assert shown.content_end == pytest.approx(shown.error.height)
    view.scroller.scroll_to(0)
    picture = view.grab().toImage()
    left, top = round(view.message_layout.left_of(1)), round(view.message_layout.message_top(1))
    paper = view.message_layout.style.paper
    line = range(top, round(top + shown.error.height))
    assert any(picture.pixelColor(x, y) != paper for x in range(left, left + 90) for y in line)


def test_what_is_read_beside_an_empty_column_stays_when_the_width_changes(
    view: Transcript, qtbot: QtBot
) -> None:
    show(view, SHORT, TALL)
    wait_for_layout(view, qtbot)
    view.scroller.scroll_to(view.stack.top(2) + 900)
    flush()
    anchor = view.scroller.anchor()
    assert anchor is not None
    index, part, y = anchor
    assert index == 2
    view.resize(1000, 500)
    wait_for_layout(view, qtbot)
    now = view.message_layout.message_top(2) + view.stack.views[2].parts[part].y
    assert now == pytest.approx(y, abs=1)


# --- streaming ------------------------------------------------------------------------------------


def test_both_grow_at_once_and_what_is_read_does_not_move(view: Transcript, qtbot: QtBot) -> None:
    both = [replace(each, state=MessageState.STREAMING) for each in (FIRST, SECOND)]
    show(view, *both)
    for number in range(40):
        grow(view, 2, f"Arr, line {number}.\n\n")
        grow(view, 3, f"Line {number}, which is the longer one of the two.\n\n")
    qtbot.waitUntil(lambda: view.stack.views[1].message.text.count("Arr, line") == 40)
    qtbot.waitUntil(lambda: view.stack.views[2].message.text.count("longer") == 40)
    assert view.at_end
    view.scroller.scroll_to(300)
    before = [view.message_layout.message_top(index) for index in (1, 2)]
    for number in range(20):
        grow(view, 2, f"More of it, {number}.\n\n")
        grow(view, 3, f"And here, {number}.\n\n")
    qtbot.waitUntil(lambda: "here, 19" in view.stack.views[2].message.text, timeout=5000)
    assert [view.message_layout.message_top(index) for index in (1, 2)] == before
    assert view.stack.height == view.stack.top(2) + max(v.height for v in view.stack.views[1:]) + 16


def test_one_that_is_written_is_stopped_alone(view: Transcript, qtbot: QtBot) -> None:
    show(view, replace(FIRST, state=MessageState.STREAMING), SECOND)
    view.set_busy(True)
    assert names(view, 1) == ["stop"]
    assert names(view, 2) == ["keep", "copy"]
    with qtbot.waitSignal(view.stop_requested) as asked:
        click(qtbot, view, tool_point(view, 1, "stop"))
    assert asked.args == [2]
    with qtbot.waitSignal(view.keep_requested) as asked:  # which stops the other
        click(qtbot, view, tool_point(view, 2, "keep"))
    assert asked.args == [3]


def test_only_an_answer_with_text_is_kept_while_the_other_is_written(
    view: Transcript, qtbot: QtBot
) -> None:
    failed = replace(SECOND, state=MessageState.FAILED, parts=(ErrorPart(message="No memory."),))
    show(view, replace(FIRST, state=MessageState.STREAMING), failed)
    view.set_busy(True)
    assert names(view, 2)[0] == "keep"
    with qtbot.assertNotEmitted(view.keep_requested):
        click(qtbot, view, tool_point(view, 2, "keep"))
    view.update_message(FIRST)
    view.set_busy(False)
    flush()
    with qtbot.waitSignal(view.keep_requested):  # else the chat could not go on
        click(qtbot, view, tool_point(view, 2, "keep"))


def test_a_note_is_cut_off_at_its_column(view: Transcript) -> None:
    waiting = [replace(each, state=MessageState.STREAMING, parts=()) for each in (FIRST, SECOND)]
    show(view, *waiting)
    empty = view.grab().toImage()
    view.set_waiting(2, "Queued: another answer is being written, " * 4)
    flush()
    noted = view.grab().toImage()
    left = round(view.message_layout.left_of(2))
    ratio = round(noted.devicePixelRatio())
    column = (left * ratio, 0, round(view.stack.width(2)) * ratio, noted.height())
    assert noted.copy(*column) == empty.copy(*column)
    assert noted != empty


# --- tools, mouse and keyboard --------------------------------------------------------------------


def test_either_one_is_kept_by_mouse_and_by_keyboard(view: Transcript, qtbot: QtBot) -> None:
    show(view)
    for index, number in ((1, 2), (2, 3)):
        with qtbot.waitSignal(view.keep_requested) as asked:
            click(qtbot, view, tool_point(view, index, "keep"))
        assert asked.args == [number]
    view.setFocus()
    view.keys.enter(backwards=False)
    assert view.message_layout.focused == 1
    keys = Qt.Key
    for _ in range(5):  # past the tools of the first, to those of the second
        qtbot.keyClick(view, keys.Key_Right)
    assert view.message_layout.focused == 2
    qtbot.keyClick(view, keys.Key_Left)
    qtbot.keyClick(view, keys.Key_Left)
    qtbot.keyClick(view, keys.Key_Left)
    assert view.message_layout.focused == 1
    qtbot.keyClick(view, keys.Key_Down)
    assert view.message_layout.focused == 2
    with qtbot.waitSignal(view.keep_requested) as asked:
        qtbot.keyClick(view, keys.Key_Return)
    assert asked.args == [3]
    qtbot.keyClick(view, keys.Key_Up)
    qtbot.keyClick(view, keys.Key_Up)
    assert view.message_layout.focused == 0


def test_text_is_selected_in_the_column_under_the_mouse(view: Transcript, qtbot: QtBot) -> None:
    show(view)
    drag(qtbot, view, part_point(view, 2, 0, 0, 10), part_point(view, 2, 1, 1000, 10))
    assert view.selected_text() == SECOND.text
    drag(qtbot, view, part_point(view, 1, 0, 0, 10), part_point(view, 1, 0, 300, 10))
    assert view.selected_text() == FIRST.text
    gap = part_point(view, 2, 0, -10, 10)
    assert view.message_layout.message_at(QPointF(gap)) == 2
    assert view.message_layout.message_at(QPointF(gap - QPoint(20, 0))) == 1


def test_the_tools_fit_into_the_narrowest_column(view: Transcript) -> None:
    stopped = replace(SECOND, state=MessageState.STOPPED, stop="user", generated_tokens=9)
    show(view, FIRST, stopped)
    view.resize(int(2 * NARROWEST + COLUMN_GAP) + 2 * MARGIN, 500)
    flush()
    tools, areas = view.tools.shown(2)
    assert [tool.name for tool in tools] == ["keep", "word", "copy", "info"]
    assert areas[-1].right() <= view.stack.width(2)


def test_find_counts_both_columns(view: Transcript, qtbot: QtBot) -> None:
    show(view)
    view.finder.search("blue")
    wait_for_layout(view, qtbot)
    qtbot.waitUntil(lambda: not view.finder.searching)
    assert view.finder.total == 3
    view.finder.step(forward=True)
    view.finder.step(forward=True)
    spots = view.finder.current_spots()
    assert spots is not None
    assert spots[0][0] == 2


def test_a_long_pair_is_painted_wherever_it_is_scrolled_to(view: Transcript, qtbot: QtBot) -> None:
    show(view, FIRST, replace(SECOND, parts=message(3, LONG * 3).parts))
    wait_for_layout(view, qtbot)
    view.scroller.scroll_to(view.stack.top(1) + view.stack.views[1].height + 600)
    assert view.stack.between(
        view.message_layout.offset(), view.message_layout.offset() + 10
    ) == range(1, 3)
    picture = view.grab().toImage()
    paper = view.message_layout.style.paper
    column = range(
        round(view.message_layout.left_of(2)), round(view.message_layout.left_of(2)) + 300
    )
    painted = [x for x in column for y in (50, 60, 70, 80) if picture.pixelColor(x, y) != paper]
    assert painted


# --- access ---------------------------------------------------------------------------------------


def test_a_reader_hears_what_each_was_written_with(view: Transcript) -> None:
    show(view)
    reader = QAccessible.queryAccessibleInterface(view)
    assert reader.childCount() == 3
    spoken = [reader.child(index).text(QAccessible.Text.Name) for index in (1, 2)]
    assert spoken[0] == f"Answer, pirate-speech at 0.80: {FIRST.text}"
    assert spoken[1] == f"Answer, Without adapters: {SECOND.text}"
    one, other = reader.child(1), reader.child(2)
    assert one.rect().right() < other.rect().left()
    keep = next(
        other.child(n)
        for n in range(other.childCount())
        if other.child(n).text(QAccessible.Text.Name).startswith("Keep this answer")
    )
    assert other.rect().intersects(keep.rect())
    assert not one.rect().intersects(keep.rect())


# --- words and tools ------------------------------------------------------------------------------

COOL, WARM = Sampling(temperature=0.2), Sampling(temperature=1.0)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (GenerationSettings(), GenerationSettings(), ("First answer", "Second answer")),
        (
            GenerationSettings((), COOL),
            GenerationSettings((), WARM),
            ("Temperature 0.2", "Temperature 1"),
        ),
        (
            GenerationSettings((UsedAdapter("a"),)),
            GenerationSettings(()),
            ("a", "Without adapters"),
        ),
        (
            GenerationSettings((UsedAdapter("a"), UsedAdapter("b", -0.5))),
            GenerationSettings((UsedAdapter("a", 0.8),)),
            ("a + b at -0.50", "a at 0.80"),
        ),
        (
            GenerationSettings(thinking=True),
            GenerationSettings(thinking=False),
            ("With thinking", "Without thinking"),
        ),
        (
            GenerationSettings(thinking=True),
            GenerationSettings(),
            ("With thinking", "Thinking as usual"),
        ),
        (
            GenerationSettings((UsedAdapter("a"),), COOL),
            GenerationSettings((), replace(WARM, top_k=0)),
            ("a · Temperature 0.2 · Top-k 40", "Without adapters · Temperature 1 · Top-k off"),
        ),
        (
            GenerationSettings((), COOL),
            GenerationSettings((), None),
            ("First answer", "Second answer"),
        ),
        (
            GenerationSettings((), COOL, model_name="Qwen3.5 4B"),
            GenerationSettings((), WARM, model_name="SmolLM2"),
            ("Qwen3.5 4B · Temperature 0.2", "SmolLM2 · Temperature 1"),
        ),
        (  # of an old answer it is not known
            GenerationSettings(model_name="Qwen3.5 4B"),
            GenerationSettings(),
            ("First answer", "Second answer"),
        ),
    ],
)
def test_differences_in_words(
    first: GenerationSettings, second: GenerationSettings, words: tuple[str, str]
) -> None:
    assert differences(first, second) == words


def test_a_kept_answer_offers_its_comparison_again(view: Transcript, qtbot: QtBot) -> None:
    kept = replace(FIRST, siblings=2, compared=3, details=AnswerDetails("Small"))
    view.set_messages([QUESTION, kept])
    flush()
    with qtbot.waitSignal(view.reopen_requested) as asked:
        click(qtbot, view, tool_point(view, 1, "compared"))
    assert asked.args == [2]
    assert "compared" not in [tool.name for tool in tools_for(kept, busy=True)]
    assert "compared" not in [tool.name for tool in tools_for(kept, busy=False, last=False)]
    shown = [tool.name for tool in column_tools(replace(kept, undecided=True), busy=False)]
    assert shown == ["keep", "copy", "info"]


@pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
def test_an_answer_is_compared_from_its_tools_and_from_its_menu(
    view: Transcript, qtbot: QtBot
) -> None:
    view.set_messages([QUESTION, FIRST])
    flush()
    with qtbot.waitSignal(view.compare_requested) as asked:
        click(qtbot, view, tool_point(view, 1, "compare"))
    assert asked.args == [2]
    assert "compare" not in [tool.name for tool in tools_for(FIRST, busy=True)]
    assert COMPARE not in [action.text() for action in open_menu(view, 0).actions()]
    menu = open_menu(view, 1)
    (action,) = [action for action in menu.actions() if action.text() == COMPARE]
    with qtbot.waitSignal(view.compare_requested) as asked:
        action.trigger()
    assert asked.args == [2]
    view.set_compared({2: SECOND})
    assert COMPARE not in [action.text() for action in open_menu(view, 2).actions()]


COMPARE = "Compare two answers…"


def open_menu(view: Transcript, index: int) -> QMenu:
    """The context menu over the first part of a message."""
    for menu in view.findChildren(QMenu):
        menu.close()
    flush()
    place = part_point(view, index, 0, 10, 10)
    event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, place, view.mapToGlobal(place))
    view.contextMenuEvent(event)
    (menu,) = view.findChildren(QMenu)
    return menu
