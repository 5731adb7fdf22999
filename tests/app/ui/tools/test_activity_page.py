"""Page of tools: every call, its filters and pages, a call in full, and what was allowed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog
from pytestqt.qtbot import QtBot

from app.domain.tool_activity import Allowed, CallState, ToolActivity
from app.domain.tools import Effect
from app.state.chat import State
from app.state.tools import CallPhase, LiveCall, ToolsState
from app.ui.theme.theme import Theme
from app.ui.tools.page import ActivityPage
from app.ui.tools.words import short_arguments
from fakes import MODEL
from stage import Stage, flush, until
from tool_rows import BUILT_IN, CALCULATE, ISSUES, READ, ROWS, WRITE, call, grant

CALLS = (
    call(4, WRITE, CallState.DENIED, Allowed.NOBODY, '{"path": "a.txt"}', "The user denied it."),
    call(3, ISSUES, CallState.FAILED, Allowed.CHAT, '{"project": 7}', "Not found"),
    call(2, READ, CallState.DONE, Allowed.ONCE, '{"path": "notes.txt"}', "milk", title=""),
    call(1),
)


def shown(page: ActivityPage) -> list[str]:
    """The first lines of the rows."""
    rows = page.calls.list
    return [rows.item(n).text().split("\n")[0] for n in range(rows.count())]


@dataclass
class Window:
    """The page without a window around it, and the states that it shows."""

    chat: State
    tools: ToolsState
    page: ActivityPage


@pytest.fixture
def window(qtbot: QtBot, qapp: QApplication) -> Iterator[Window]:
    theme, chat, tools = Theme(qapp, "light"), State(), ToolsState()
    tools.set_rows(ROWS, "")
    page = ActivityPage(chat, tools)
    qtbot.addWidget(page)
    page.resize(816, 712)
    yield Window(chat, tools, page)
    page.close()
    for each in (theme, chat, tools):
        each.deleteLater()
    flush()


def opened(window: Window, calls: tuple[ToolActivity, ...] = CALLS, count: int = 0) -> ActivityPage:
    window.tools.set_activity(calls, max(count, len(calls)))
    window.page.show()
    window.page.activateWindow()
    window.page.first.setFocus()
    flush()
    return window.page


def filtered(page: ActivityPage, text: str, state: str = "all") -> list[str]:
    page.calls.search.setText(text)
    page.calls.state_choice.picked.emit(state)  # filters at once
    return shown(page)


def test_every_call_says_what_was_called_when_where_and_who_allowed_it(window: Window) -> None:
    page = opened(window)
    rows = page.calls.list
    assert shown(page) == [
        "Write a file: path: a.txt",
        "List issues · tracker: project: 7",
        "Read a file: path: notes.txt",
        "Calculator: expression: 2384 * 0.175",
    ]
    facts = [rows.item(n).text().split("\n")[1].split(" · ") for n in range(4)]
    assert [[each[0], *each[2:]] for each in facts] == [
        ["denied by you", "Money", "0.4 s"],
        ["failed", "Money", "allowed by you, in this chat", "0.4 s"],
        ["done", "deleted chat", "allowed by you, once", "0.4 s"],
        ["done", "Money", "no consent needed", "0.4 s"],
    ]
    assert all("2026" in each[1] for each in facts)
    assert page.calls.words.text().startswith("4 calls so far.")


def test_a_click_opens_a_call_in_full_and_its_chat(window: Window) -> None:
    page = opened(window)
    details, chats = page.calls.details, list[tuple[object, ...]]()
    page.calls.chat_requested.connect(lambda *ids: chats.append(ids))
    assert details.isHidden()
    rows = page.calls.list
    place = rows.visualItemRect(rows.item(1)).center()
    QTest.mouseClick(rows.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert details.isVisible()
    assert details.title.text() == "List issues · tracker"
    assert details.arguments.text() == '{\n  "project": 7\n}'
    assert details.result.text() == "Not found"
    assert details.chat_button.text() == "Open the chat “Money”"
    details.chat_button.click()
    assert chats == [(1 << 40, 7, "call_3")]
    QTest.keyClick(rows, Qt.Key.Key_Down)  # the next one, which is of a deleted chat
    assert details.result.text() == "milk"
    assert (details.chat_button.text(), details.chat_button.isEnabled()) == ("deleted chat", False)
    details.close_button.click()
    assert details.isHidden()
    QTest.keyClick(rows, Qt.Key.Key_Return)
    assert details.isVisible()
    QTest.keyClick(rows, Qt.Key.Key_Escape)  # the page stays
    assert details.isHidden()
    assert rows.isVisible()


def test_texts_of_tools_are_plain_and_hide_nothing(window: Window) -> None:
    evil = call(
        5, ISSUES, arguments='{"q": "<b>\\u202egnp.exe\\u0007"}', result="<img src=x>\x1b[31m\u2066",
        title="a\u202eb & c",
    )  # fmt: skip
    page = opened(window, (replace(evil, tool="", name="do_\u200bit", server="<i>\n"),))
    item = page.calls.list.item(0)
    assert item.text().startswith("do_\\u200bit · <i>: q: <b>\\u202egnp.exe\\u0007\n")
    assert "a\\u202eb & c" in item.text()
    assert "<b>" not in item.toolTip()
    page.calls.list.setCurrentRow(0)
    page.calls.open_call()
    details = page.calls.details
    assert details.arguments.text() == '{\n  "q": "<b>\\u202egnp.exe\\u0007"\n}'
    assert details.result.text() == "<img src=x>\\u001b[31m\\u2066"
    assert details.chat_button.text() == "Open the chat “a\\u202eb && c”"
    assert details.arguments.isReadOnly()
    assert details.result.isReadOnly()


def test_texts_from_right_to_left_reorder_nothing_around_them(window: Window) -> None:
    page = opened(window, (call(1, arguments='{"q": "שלום"}', title="مرحبا"),))
    name, about = page.calls.list.item(0).text().split("\n")
    assert name == "Calculator: \u2068q: שלום\u2069"
    assert "\u2068مرحبا\u2069 · no consent" in about


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ('{"a": "x\\ny", "b": [1, 2], "c": null}', "a: x y, b: [1, 2], c: null"),
        ("{}", ""),
        ("[1]", "[1]"),
        ('{"a": ', '{"a":'),
        ("[" * 100_000, "[" * 160 + "…"),
        ('{"a": "' + "b" * 10_000 + '"}', "a: " + "b" * 157 + "…"),
        ("", ""),
    ],
)
def test_any_arguments_have_a_short_form(text: str, short: str) -> None:
    assert short_arguments(text) == short


def test_calls_are_found_by_their_texts_and_states(window: Window) -> None:
    page = opened(window)
    assert filtered(page, "MILK read") == ["Read a file: path: notes.txt"]
    assert filtered(page, "tracker") == ["List issues · tracker: project: 7"]
    assert filtered(page, "money calc") == ["Calculator: expression: 2384 * 0.175"]
    assert filtered(page, "", "denied") == ["Write a file: path: a.txt"]
    assert filtered(page, "milk", "denied") == []
    assert page.calls.nothing.isVisible()
    assert page.calls.nothing.text() == "No call is like this."
    assert page.calls.list.isHidden()
    assert len(filtered(page, "")) == 4
    page.calls.search.setText("milk")
    until(lambda: len(shown(page)) == 1)  # after a pause in typing


def test_without_a_call_the_page_says_so(window: Window) -> None:
    page = opened(window, ())
    assert page.calls.nothing.text() == "No tool was called yet."
    assert page.calls.nothing.isVisible()
    assert not page.calls.search.isVisible()
    assert not page.export_button.isEnabled()
    window.tools.set_activity(CALLS, 4)
    flush()
    assert page.calls.list.isVisible()
    assert not page.calls.nothing.isVisible()
    assert page.export_button.isEnabled()


def test_more_calls_are_asked_for_when_the_end_is_near(window: Window) -> None:
    asked: list[int] = []
    everything = tuple(call(n) for n in range(1000, 0, -1))
    window.page.calls.more_requested.connect(asked.append)
    page = opened(window, everything[:200], 1000)
    rows = page.calls.list
    assert asked == [200]  # as it was shown
    rows.verticalScrollBar().setValue(rows.verticalScrollBar().maximum())
    assert asked == [200, 400]
    rows.verticalScrollBar().setValue(rows.verticalScrollBar().maximum() - 1)
    assert asked == [200, 400]  # once
    place = rows.verticalScrollBar().value()
    window.tools.set_activity(everything[:400], 1000)
    flush()
    assert rows.count() == 400
    assert rows.verticalScrollBar().value() == place
    assert asked == [200, 400]
    filtered(page, "no such call")  # is perhaps among the older ones
    flush()
    assert asked == [200, 400, 600]
    window.tools.set_activity(everything, 1000)
    flush()
    assert asked == [200, 400, 600]


def test_a_new_call_moves_neither_what_is_chosen_nor_what_is_seen(window: Window) -> None:
    page = opened(window, tuple(call(n) for n in range(100, 0, -1)))
    rows, bar = page.calls.list, page.calls.list.verticalScrollBar()
    rows.setCurrentRow(40)
    page.calls.open_call()
    flush()
    top = rows.itemAt(5, 5).text()
    window.tools.set_activity(tuple(call(n) for n in range(102, 0, -1)), 102)
    flush()
    assert rows.currentRow() == 42
    assert rows.itemAt(5, 5).text() == top
    bar.setValue(0)
    window.tools.set_activity(tuple(call(n) for n in range(103, 0, -1)), 103)
    flush()
    assert bar.value() == 0
    assert page.calls.details.isVisible()


def test_a_call_without_a_result_runs_or_was_cut_off(window: Window) -> None:
    running = call(9, WRITE, CallState.RUNNING, Allowed.ONCE, result="")
    page = opened(window, (running,))
    assert "cut off: it may have been carried out" in page.calls.list.item(0).text()
    page.calls.list.setCurrentRow(0)
    page.calls.open_call()
    assert not page.calls.details.result.isVisible()
    live = LiveCall(running.conversation, 7, "call_9", WRITE, "{}", CallPhase.RUNNING)
    window.tools.set_live(live)
    flush()
    assert "running · " in page.calls.list.item(0).text()
    assert page.calls.details.facts.text().startswith("running · ")
    window.tools.end_live(7, "call_9")
    flush()
    assert "cut off" in page.calls.list.item(0).text()


def test_all_calls_are_exported_to_a_chosen_file(window: Window, tmp_path: Path) -> None:
    page = opened(window)
    paths: list[Path] = []
    page.export_requested.connect(paths.append)
    page.export_button.click()
    (dialog,) = page.findChildren(QFileDialog)
    assert dialog.defaultSuffix() == "json"
    dialog.filesSelected.emit([str(tmp_path / "calls.json")])
    assert paths == [tmp_path / "calls.json"]
    dialog.close()


def test_the_panel_opens_the_page(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.window.open_panel("tools")
    stage.window.panel.content.tools.activity_button.click()
    assert stage.window.shown_page is stage.window.activity.page


def test_in_a_low_window_an_open_call_takes_the_place_of_the_list(window: Window) -> None:
    page = opened(window)
    page.resize(420, 312)
    page.calls.list.setCurrentRow(0)
    page.calls.open_call()
    flush()
    assert page.calls.list.isHidden()
    assert page.calls.details.result.isVisible()
    page.calls.details.close_button.click()
    assert page.calls.list.isVisible()
    assert page.calls.list.hasFocus()


# --- what was allowed -----------------------------------------------------------------------------


def test_what_was_allowed_is_listed_and_revoked(window: Window) -> None:
    page = opened(window)
    grants = (grant(ISSUES, scope="example.org"), grant(READ, conversation=5), grant(WRITE))
    changed = replace(grants[2], digest="of another description")
    window.tools.set_grants((*grants[:2], changed), frozenset())
    page.show_allowed()
    flush()
    rows = page.allowed.list
    lines = [rows.item(n).text().split("\n") for n in range(rows.count())]
    assert [first for first, _ in lines] == ["List issues · tracker", "Read a file", "Write a file"]
    assert lines[0][1].startswith("in all chats · only example.org · since ")
    assert lines[1][1].startswith("in one chat · since ")
    assert lines[2][1].startswith("changed since: it asks again · in all chats")
    revoked, all_of_them = list[object](), list[bool]()
    page.allowed.revoked.connect(revoked.append)
    page.allowed.all_revoked.connect(lambda: all_of_them.append(True))
    rows.clearSelection()
    assert not page.allowed.revoke_button.isEnabled()
    rows.item(0).setSelected(True)
    rows.item(1).setSelected(True)
    page.allowed.revoke_button.click()
    assert revoked == list(grants[:2])
    page.allowed.revoke_all_button.click()
    assert all_of_them == [True]
    window.tools.set_grants((), frozenset())
    assert rows.isHidden()
    assert page.allowed.words.text().startswith("Nothing: you are asked about every call")


def test_only_tools_that_write_can_be_set_to_be_allowed_always(window: Window) -> None:
    page = opened(window)
    page.show_allowed()
    writing = [each.id for each in (*BUILT_IN, ISSUES) if Effect.WRITES in each.effects]
    switches = page.allowed.switches
    assert list(switches.rows) == writing == [WRITE.id]
    row = switches.rows[WRITE.id]
    assert not row.switch.isChecked()
    wanted: list[tuple[str, bool]] = []
    page.allowed.may_always_changed.connect(lambda *values: wanted.append(values))
    row.switch.click()
    assert wanted == [(WRITE.id, True)]
    window.tools.set_grants((), frozenset({WRITE.id}))
    assert row.switch.isChecked()
    window.tools.set_rows(ROWS[:1], "")
    assert not switches.rows
    assert page.allowed.writing_words.text() == "There is no tool that writes."


def test_the_first_to_have_the_focus_is_what_can_be_used(window: Window) -> None:
    page = opened(window)
    assert page.calls.list.hasFocus()
    page.show_allowed()
    assert page.first is page.allowed.switches.rows[WRITE.id].switch
    window.tools.set_grants((grant(CALCULATE),), frozenset())
    assert page.first is page.allowed.list
