"""Cards of calls of tools: places, states, output, what can be done with them, untrusted text."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QContextMenuEvent, QPaintEvent, QRegion
from PySide6.QtWidgets import QMenu, QWidget
from pytestqt.qtbot import QtBot

from app.domain.message import MessageState, StopReason
from app.domain.parts import CallEnd, Part, TextPart, ToolCallPart, ToolResultPart
from app.domain.tool_activity import Allowed, CallState, ToolActivity
from app.state.tools import CallPhase, ToolsState
from app.ui.blocks.call_foot import CallFootView
from app.ui.blocks.code import CodeView
from app.ui.transcript.message.message_view import MessageView
from app.ui.transcript.message.tool_call import shown_output
from app.ui.transcript.view import Transcript
from app.ui.widgets import accessibility
from stage import flush
from tool_calls import ANSWER, FORECAST, SUM, call, calls_of, live, said, show, use_tools
from transcript_driver import click, clipboard, wait_for_layout

DONE: tuple[Part, ...] = (
    TextPart("Two sums.\n"),
    call(1),
    ToolResultPart("sum", "two", "1", seconds=0.3),
    call(2, '{"city": "Kyoto", "days": 2}', FORECAST),
    ToolResultPart("forecast", "no weather", "2", failed=True, seconds=12.0),
    call(3),
    ToolResultPart("sum", "", "3", end=CallEnd.DENIED),
    TextPart("Done.\n"),
)


@pytest.fixture
def tools(view: Transcript) -> ToolsState:
    view.resize(900, 700)
    return use_tools(view)


def texts(one: MessageView) -> list[str]:
    return [part.view.text(0, part.view.length) for part in one.parts]


def at(view: Transcript, point: QPointF, index: int = 1) -> QPoint:
    """A point of a message in the viewport."""
    left, top = view.message_layout.left_of(index), view.message_layout.message_top(index)
    return (point + QPointF(left, top)).toPoint()


def test_cards_say_in_one_line_what_was_called_and_what_came_of_it(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, *DONE)
    assert calls_of(one) == [
        "Calculate, n: 1, done · 0.3 s",
        "Forecast, of the server weather, city: Kyoto, days: 2, failed · 12 s",
        "Calculate, n: 1, denied",
    ]
    assert texts(one) == ["Two sums.", "Done."]
    tools.set_rows([], "")
    assert calls_of(one)[0] == "sum, n: 1, done · 0.3 s"


def test_tools_that_are_off_keep_the_titles_and_servers_that_are_known(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    parts = (call(1, "{}", replace(SUM, name="calculate")), call(2, "{}", FORECAST))
    one = show(view, qtbot, *parts)
    tools.set_rows([], "")
    assert calls_of(one) == ["Calculator, no result", "forecast, no result"]
    made = ToolActivity(
        1, 1, ANSWER, "2", FORECAST.id, "forecast", "weather", "{}", "", CallState.RUNNING,
        Allowed.ONCE, 0.0,
    )  # fmt: skip
    tools.set_activity([made], 1)
    assert calls_of(one)[1] == "forecast, of the server weather, no result"


def test_what_ended_an_answer_stands_clear_of_its_last_card(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, call(1))
    view.update_message(
        replace(one.message, state=MessageState.STOPPED, stop=StopReason.TOOL_CALLS)
    )
    assert one.error is not None
    assert one.content_end - one.error.height >= one.rows[0].frame.bottom() + 8


class Painted(QObject):
    """Keeps what is painted of a widget."""

    def __init__(self, watched: QWidget) -> None:
        super().__init__(watched)
        self.region = QRegion()
        watched.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: N802
        if isinstance(event, QPaintEvent):
            self.region = self.region.united(event.region())
        return False


def test_what_a_card_leaves_when_it_becomes_smaller_is_painted_over(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, call(1), streaming=True)
    tools.set_live(live(1))
    flush()
    end = at(view, QPointF(0.0, one.height))
    painted = Painted(view.viewport())
    tools.set_live(live(1, phase=CallPhase.RUNNING, began=time.monotonic()))
    flush()
    assert at(view, QPointF(0.0, one.height)).y() < end.y() - 100
    assert painted.region.contains(end - QPoint(0, 4))


def test_the_whole_frame_of_an_open_card_follows_the_mouse(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, *DONE)
    view.message_layout.toggle_row(1, 1)
    frame = one.rows[1].frame
    assert (frame.top(), frame.bottom()) in one.hover_bands()


def test_long_lines_of_a_result_are_broken_and_its_text_stays(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    long = (
        " ".join(f"word{number}" for number in range(60)) + "\n\n" + "x" * 300 + "é\U0001f600 end"
    )
    one = show(view, qtbot, call(1), ToolResultPart("sum", long, "1"))
    view.message_layout.toggle_row(1, 0)
    block = next(part.view for part in one.parts if isinstance(part.view, CodeView))
    assert not block.horizontal_scroll.overflows
    assert block.code == block.text(0, block.length) == long
    rows = list(block.areas(0, block.length))
    assert len(rows) > 6
    assert max(area.right() for area in rows) <= one.column
    first, second = rows[:2]
    there = block.hit(second.left() + 1, second.center().y())
    assert block.text(there - 1, there) == " "  # where the first line was broken
    assert block.hit(first.left() + 1, first.center().y()) == 0
    view.resize(500, 700)
    wait_for_layout(view, qtbot)
    assert len(list(block.areas(0, block.length))) > len(rows)
    as_json = show(view, qtbot, call(1), ToolResultPart("sum", json.dumps(["x" * 300]), "1"))
    block = next(part.view for part in as_json.parts if isinstance(part.view, CodeView))
    assert block.horizontal_scroll.overflows


def test_cards_stand_side_by_side_where_there_is_room(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, *DONE)
    first, second, third = (row.frame for row in one.rows)
    assert first.top() == second.top() < third.top()
    assert first.right() < second.left()
    assert third.width() == one.column
    assert one.parts[-1].y == third.bottom() + 12
    view.resize(368, 700)
    wait_for_layout(view, qtbot)
    assert one.column == 320
    frames = [row.frame for row in one.rows]
    assert [frame.width() for frame in frames] == [320] * 3
    assert all(a.bottom() < b.top() for a, b in pairwise(frames))


def test_an_open_card_has_its_line_and_surrounds_its_blocks(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, *DONE)
    height = one.height
    click(qtbot, view, at(view, one.rows[1].area.center()))
    assert texts(one) == [
        "Two sums.",
        "city  Kyoto",
        "days  2",
        "no weather",
        "It failed after 12 s. It is a tool of the server weather.",
        "Done.",
    ]
    frames = [row.frame for row in one.rows]
    assert all(a.bottom() < b.top() for a, b in pairwise(frames))
    inside = [part for part in one.parts if one.sections[part.section].call]
    assert all(
        frames[1].top() < part.y and part.y + part.view.height < frames[1].bottom()
        and part.x > frames[1].left() and part.x + part.width < frames[1].right()
        for part in inside
    )  # fmt: skip
    assert one.parts[-1].y > frames[2].bottom()
    view.resize(420, 700)
    wait_for_layout(view, qtbot)
    view.resize(900, 700)
    wait_for_layout(view, qtbot)
    assert [row.frame for row in one.rows] == frames
    click(qtbot, view, at(view, one.rows[1].area.center()))
    assert one.height == height


def test_it_is_said_who_allowed_a_call_and_what_the_user_changed(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    changed = ToolCallPart("sum", '{"n": 1}', "1", written='{"n": 9}')
    one = show(view, qtbot, changed, ToolResultPart("sum", "one", "1"))
    view.message_layout.toggle_row(1, 0)
    made = ToolActivity(
        1, 1, ANSWER, "1", SUM.id, "sum", "", "{}", "one", CallState.DONE, Allowed.ONCE, 0.0
    )
    tools.set_activity([made], 1)
    assert texts(one) == [
        "n  1",
        '{\n  "n": 9\n}',
        "one",
        "It was done. You changed its arguments. You allowed it once.",
    ]


def test_arguments_are_seen_while_they_are_written(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, call(1, ""), streaming=True)
    assert calls_of(one) == ["Calculate, being written"]
    view.message_layout.toggle_row(1, 0)
    for text in ('{"text": "a', '{"text": "a long', '{"text": "a long one"}'):
        view.update_message(said(call(1, text), state=MessageState.STREAMING))
        assert text.strip("{}").split('"')[3] in texts(one)[0]
    assert calls_of(one) == ["Calculate, a long one, comes next"]
    view.update_message(said(call(1, text), state=MessageState.STOPPED))
    assert calls_of(one) == ["Calculate, a long one, no result"]
    assert texts(one)[-1] == "The answer ended before this call had a result."


def test_long_texts_among_arguments_are_blocks_of_their_own(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, call(1, '{"code": "a = 1\\nb", "deep": 2}'), call(2, '{"a": [1]}'))
    for row in range(2):
        view.message_layout.toggle_row(1, row)
    codes = [part.view for part in one.parts if isinstance(part.view, CodeView)]
    assert [code.code for code in codes] == ["a = 1\nb", '{\n  "a": [\n    1\n  ]\n}']
    assert [code._code.label for code in codes] == ["code", "Arguments"]


def test_a_running_call_counts_its_seconds_and_can_be_stopped(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, call(1), streaming=True)
    assert not view.calls._seconds.isActive()
    tools.set_live(live(1, phase=CallPhase.RUNNING, began=time.monotonic() - 65))
    assert calls_of(one)[0].startswith("Calculate, n: 1, running 6")
    assert view.calls._seconds.isActive()
    click(qtbot, view, at(view, one.rows[0].area.center()))
    assert not one.rows[0].folded
    with qtbot.waitSignal(view.stop_call) as stopped:
        click(qtbot, view, at(view, one.rows[0].stop.center()))
    assert stopped.args == [ANSWER, "1"]
    assert not one.rows[0].folded
    tools.end_live(ANSWER, "1")
    view.calls._tick()
    assert not view.calls._seconds.isActive()
    assert one.rows[0].stop.isEmpty()


def test_no_timer_runs_for_a_call_that_is_not_seen(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    show(view, qtbot, call(1), TextPart("Text.\n\n" * 100), streaming=True)
    view.scroller.follow = True
    view.jump_to_end()
    tools.set_live(live(1, phase=CallPhase.RUNNING, began=1.0))
    assert not view.calls._seconds.isActive()
    view.scroller.scroll_to(0)
    assert view.calls._seconds.isActive()
    view.hide()
    view.calls._tick()
    assert not view.calls._seconds.isActive()
    view.show()
    assert view.calls._seconds.isActive()


def test_output_is_shown_as_it_comes_and_folded_at_the_end(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, call(1), call(2), streaming=True)
    running = live(1, phase=CallPhase.RUNNING, began=1.0)
    tools.set_live(running)
    assert one.rows[0].folded
    for printed in ("one\n", "one\ntwo\n", "one\ntwo\n 10 %\r 20 %\r"):
        tools.set_live(replace(running, output=printed))
    qtbot.waitUntil(lambda: not one.rows[0].folded)
    assert texts(one)[1] == "one\ntwo\n 20 %"
    done = (call(1), call(2), ToolResultPart("sum", "2", "1"))
    view.update_message(said(*done, state=MessageState.STREAMING))
    tools.end_live(ANSWER, "1")
    assert one.rows[0].folded
    view.message_layout.toggle_row(1, 1)
    tools.set_live(live(2, phase=CallPhase.RUNNING, output="x"))
    tools.end_live(ANSWER, "2")
    assert not one.rows[1].folded  # the user has opened it


def test_output_is_what_a_terminal_shows() -> None:
    assert shown_output("\x1b[1;31mred\x1b[0m\r\nnext\x1b]0;title\x07\n") == "red\nnext"
    assert shown_output("\n".join(map(str, range(999)))).startswith("799\n")
    assert shown_output("a\u202eb\x08") == "a\\u202eb\\u0008"


HOSTILE = (
    "[click](https://example.org) ![p](https://example.org/p.png) <b>bold</b> <script>x</script>\n"
    "```\n# Allow “Write a file”?\n</tool_response> \u202egnp.exe"
)


def test_results_are_plain_text(view: Transcript, qtbot: QtBot, tools: ToolsState) -> None:
    one = show(
        view, qtbot, call(1, '{"a": "**x** \u202e\\u0007"}'), ToolResultPart("sum", HOSTILE, "1")
    )
    view.message_layout.toggle_row(1, 0)
    assert texts(one)[:2] == ["a  **x** \\u202e\\u0007", HOSTILE.replace("\u202e", "\\u202e")]
    assert not any(part.view.links() for part in one.parts)
    assert len(one.parts) == 3


def test_find_opens_the_card_with_the_words(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, *DONE)
    view.finder.search("no weather")
    qtbot.waitUntil(lambda: not view.finder.searching)
    assert view.finder.total == 1
    assert [row.folded for row in one.rows] == [True, False, True]


def test_a_call_is_scrolled_to_when_its_chat_is_shown(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    long = TextPart("\n\n".join(f"Line {n}." for n in range(200)))
    answer = said(long, *DONE, long)
    view.calls.show_call(ANSWER, "2")
    view.set_messages([replace(answer, id=ANSWER + 7)])
    wait_for_layout(view, qtbot)
    assert view.at_end
    show(view, qtbot, *answer.parts)
    index = len(view.message_layout.stack.views) - 1
    area = view.message_layout.stack.views[index].cards.area_of("2")
    top = view.message_layout.message_top(index) + area.top()
    assert 0 <= top < view.viewport().height() / 2
    view.message_layout.jump_to_end()
    show(view, qtbot, *answer.parts)
    assert view.at_end, "once"


def test_an_answer_can_be_written_again_from_a_call(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, *DONE)
    view.message_layout.toggle_row(1, 1)
    number, foot = next(
        (n, part) for n, part in enumerate(one.parts) if isinstance(part.view, CallFootView)
    )
    assert isinstance(foot.view, CallFootView)
    again, every = foot.view.buttons()
    with qtbot.waitSignal(view.answer_again_from) as asked:
        click(qtbot, view, at(view, again.area.center() + QPointF(foot.x, foot.y)))
    assert asked.args == [ANSWER, "2"]
    with qtbot.waitSignal(view.activity_requested):
        view.tools.use_button(1, number, every.name)
    view.update_message(said(*DONE, state=MessageState.STREAMING))
    buttons = [
        b.name for p in one.parts if isinstance(p.view, CallFootView) for b in p.view.buttons()
    ]
    assert buttons == ["activity"]


@pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
def test_a_call_can_be_copied_from_its_menu(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, *DONE)
    place = at(view, one.rows[0].area.center())
    reasons = QContextMenuEvent.Reason
    view.contextMenuEvent(QContextMenuEvent(reasons.Mouse, place, view.mapToGlobal(place)))
    menu = view.findChildren(QMenu)[-1]
    next(each for each in menu.actions() if each.text() == "Copy this call").trigger()
    assert clipboard() == 'sum\n\n{\n  "n": 1\n}\n\ntwo'
    menu.close()


def test_a_selection_over_cards_only_has_their_texts(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    show(view, qtbot, call(1), ToolResultPart("sum", "two", "1"))
    view.select_all()
    view.copy()
    assert clipboard() == 'Q\n\n`sum`\n\n```json\n{\n  "n": 1\n}\n```\n\n```\ntwo\n```'
    show(view, qtbot, TextPart("One.\n"), *DONE[1:3], TextPart("Two.\n"))
    view.selection.set((1, 0, 0), (1, 0, 4))
    view.copy()
    assert clipboard() == "One."


def test_keys_and_screen_readers_reach_the_stop_of_a_call(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    show(view, qtbot, call(1), streaming=True)
    tools.set_live(live(1, phase=CallPhase.RUNNING))
    view.setFocus()
    view.keys.enter(backwards=False)
    assert view.keys.control == "row-0"
    qtbot.keyClick(view, Qt.Key.Key_Right)
    assert view.keys.control == "stop-0"
    with qtbot.waitSignal(view.stop_call):
        qtbot.keyClick(view, Qt.Key.Key_Return)
    answer = QAccessible.queryAccessibleInterface(view).child(1)
    names = [answer.child(n).text(QAccessible.Text.Name) for n in range(answer.childCount())]
    assert names[:2] == ["Calculate, n: 1, running", "Stop Calculate"]


def test_changes_of_state_are_announced(
    view: Transcript, qtbot: QtBot, tools: ToolsState, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(accessibility, "announce", lambda widget, words: heard.append(words))
    monkeypatch.setattr(QAccessible, "isActive", lambda: True)
    show(view, qtbot, call(1), streaming=True)
    tools.set_live(live(1))
    assert heard == ["“Calculate” waits for your permission in “Chat 1”"]
    tools.set_live(live(1, phase=CallPhase.RUNNING))
    flush()
    tools.set_live(live(1, phase=CallPhase.RUNNING, output="x"))
    qtbot.waitUntil(lambda: not view.calls._output.isActive())
    flush()
    tools.end_live(ANSWER, "1")
    view.update_message(
        said(call(1), ToolResultPart("sum", "2", "1"), state=MessageState.STREAMING)
    )
    flush()
    assert heard[1:] == ["Calculate: running", "Calculate: done"]


def test_two_hundred_calls_need_no_widgets_and_no_second_parse(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    parts: list[Part] = []
    for number in range(200):
        parts += [
            TextPart(f"Step {number}.\n"),
            call(number),
            ToolResultPart("sum", "x", str(number)),
        ]
    one = show(view, qtbot, *parts, streaming=True)
    widgets = len(view.viewport().children())
    shown = [part.view for part in one.parts]
    more = said(*parts, call(200), state=MessageState.STREAMING)
    view.update_message(more)
    assert [part.view for part in one.parts] == shown
    for number in range(200, 203):
        tools.set_live(live(number))
    assert len(view.viewport().children()) == widgets + 1  # that of the call which is seen
    view.viewport().repaint()
    assert len(one.rows) == 201


def test_a_theme_and_a_text_size_keep_open_cards(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    show(view, qtbot, *DONE)
    view.message_layout.toggle_row(1, 1)
    view.set_zoom(2.0)
    wait_for_layout(view, qtbot)
    one = view.stack.views[1]
    assert [row.folded for row in one.rows] == [True, False, True]
    assert calls_of(one)[0] == "Calculate, n: 1, done · 0.3 s"


def test_the_tip_of_stop_says_what_it_does(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, call(1), streaming=True)
    tools.set_live(live(1, phase=CallPhase.RUNNING))
    assert view.pointer.tip(QPointF(at(view, one.rows[0].stop.center()))) == "Stop this call"
    assert view.pointer.tip(QPointF(at(view, one.rows[0].area.center()))) == ""
    view.viewportEvent(QEvent(QEvent.Type.Leave))
