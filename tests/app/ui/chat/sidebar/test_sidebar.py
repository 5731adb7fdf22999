"""Sidebar: date headings, keys, renaming, deleting, searching, and painting thousands of rows."""

from __future__ import annotations

import threading
import time
from datetime import date, datetime

import pytest
from PySide6.QtCore import QDate, QItemSelectionModel, QLocale, Qt
from PySide6.QtWidgets import QLineEdit
from pytestqt.qtbot import QtBot

from app.domain.chat import Conversation
from app.store.store import Store
from app.ui.chat.sidebar.sidebar import Sidebar
from app.ui.chat.sidebar.sidebar_list import (
    BUSY_ROLE,
    ID_ROLE,
    SNIPPET_ROLE,
    WHEN_ROLE,
    WRITING_ROLE,
    RowPainter,
    bin_rect,
    day_or_time,
    stop_rect,
)
from app.ui.chat.sidebar.sidebar_rows import heading_for
from app.ui.widgets.units import day
from engine import FinishReason
from fakes import MODEL, Cancel
from stage import Stage, flush

DAY = 24 * 3600


def conversation(number: int, title: str, days_ago: float = 0) -> Conversation:
    when = time.time() - days_ago * DAY
    return Conversation(number, title, when, when, None)


@pytest.fixture
def sidebar(stage: Stage) -> Sidebar:
    stage.start()
    made = [conversation(1, "One"), conversation(2, "Two"), conversation(3, "Three", 40)]
    for each in made:
        stage.store_queue.write(lambda store, each=each: store.rewrite_conversation(each))
    stage.state.set_conversations(made)
    flush()
    return stage.window.sidebar


def rows(sidebar: Sidebar) -> list[str]:
    return [str(sidebar.model.index(row).data()) for row in range(sidebar.model.rowCount())]


def save_conversations(stage: Stage, *titles: str) -> None:
    """Start the app and save one conversation per title."""
    stage.start()
    for title in titles:
        stage.controller.new_conversation()
        stage.controller.send(title)
        stage.controller.stop()
    stage.wait_until_idle()


def select(sidebar: Sidebar, *numbers: int) -> None:
    for number in numbers:
        sidebar.list.selectionModel().select(
            sidebar.model.find(number), QItemSelectionModel.SelectionFlag.Select
        )


@pytest.mark.parametrize(
    ("day", "heading"),
    [
        (date(2026, 3, 10), "Today"),
        (date(2026, 3, 11), "Today"),  # in the future: the clock was set back
        (date(2026, 3, 9), "Yesterday"),
        (date(2026, 3, 8), "Previous 7 days"),
        (date(2026, 3, 3), "Previous 7 days"),
        (date(2026, 3, 2), "Older"),
    ],
)
def test_heading_for_each_day(day: date, heading: str) -> None:
    assert heading_for(day, date(2026, 3, 10)) == heading


def test_conversations_are_grouped_by_day(sidebar: Sidebar) -> None:
    assert rows(sidebar) == ["Today", "One", "Two", "Older", "Three"]


def test_headings_are_skipped_by_the_arrow_keys(qtbot: QtBot, sidebar: Sidebar) -> None:
    sidebar.list.setFocus()
    sidebar.list.setCurrentIndex(sidebar.model.find(2))
    qtbot.keyClick(sidebar.list, Qt.Key.Key_Down)
    assert sidebar.list.currentIndex().data(ID_ROLE) == 3
    qtbot.keyClick(sidebar.list, Qt.Key.Key_Up)
    assert sidebar.list.currentIndex().data(ID_ROLE) == 2


def test_a_click_opens(qtbot: QtBot, sidebar: Sidebar) -> None:
    place = sidebar.list.visualRect(sidebar.model.find(2)).center()
    with qtbot.waitSignal(sidebar.opened, timeout=1000) as opened:
        qtbot.mouseClick(sidebar.list.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert opened.args == [2]


def test_enter_opens(qtbot: QtBot, sidebar: Sidebar) -> None:
    sidebar.list.setFocus()
    sidebar.list.setCurrentIndex(sidebar.model.find(3))
    with qtbot.waitSignal(sidebar.opened, timeout=1000) as opened:
        qtbot.keyClick(sidebar.list, Qt.Key.Key_Return)
    assert opened.args == [3]


def test_click_on_the_delete_icon_deletes_without_opening(qtbot: QtBot, sidebar: Sidebar) -> None:
    place = bin_rect(sidebar.list.visualRect(sidebar.model.find(2))).center()
    with (
        qtbot.assertNotEmitted(sidebar.opened),
        qtbot.waitSignal(sidebar.delete_requested, timeout=1000) as deleted,
    ):
        qtbot.mouseClick(sidebar.list.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert deleted.args == [[2]]


def test_delete_key_deletes_all_selected(qtbot: QtBot, sidebar: Sidebar) -> None:
    sidebar.list.setFocus()
    select(sidebar, 1, 3)
    with qtbot.waitSignal(sidebar.delete_requested, timeout=1000) as deleted:
        qtbot.keyClick(sidebar.list, Qt.Key.Key_Delete)
    assert deleted.args == [[1, 3]]


def test_f2_renames_in_place(
    qtbot: QtBot, sidebar: Sidebar, caplog: pytest.LogCaptureFixture
) -> None:
    sidebar.list.setFocus()
    sidebar.list.setCurrentIndex(sidebar.model.find(2))
    qtbot.keyClick(sidebar.list, Qt.Key.Key_F2)
    editor = sidebar.list.viewport().findChild(QLineEdit)
    assert editor is not None
    assert editor.text() == "Two"
    editor.setText("A better name")
    with qtbot.waitSignal(sidebar.renamed, timeout=1000) as renamed:
        qtbot.keyClick(editor, Qt.Key.Key_Return)
    assert renamed.args == [2, "A better name"]


def test_a_double_click_renames_although_the_first_click_opens(qtbot: QtBot, stage: Stage) -> None:
    save_conversations(stage, "One", "Two")
    view = stage.window.sidebar.list
    first = stage.state.conversations[1]
    place = view.visualRect(stage.window.sidebar.model.find(first.id)).center()
    left = Qt.MouseButton.LeftButton
    qtbot.mouseClick(view.viewport(), left, pos=place)
    qtbot.mouseDClick(view.viewport(), left, pos=place)
    qtbot.mouseRelease(view.viewport(), left, pos=place)
    stage.wait_until_idle()
    assert stage.state.current == first.id
    assert stage.window.sidebar.renaming


def test_unchanged_title_emits_no_rename(sidebar: Sidebar, qtbot: QtBot) -> None:
    with qtbot.assertNotEmitted(sidebar.renamed):
        sidebar.model.setData(sidebar.model.find(2), "Two")
        sidebar.model.setData(sidebar.model.find(2), "   ")
        sidebar.model.setData(sidebar.model.index(0), "Tomorrow")


def test_list_refresh_keeps_the_selection(stage: Stage, sidebar: Sidebar) -> None:
    select(sidebar, 1, 3)
    stage.state.set_conversations([conversation(4, "New"), *(c for c in stage.state.conversations)])
    assert sidebar.list.selected() == [1, 3]


def test_the_shown_conversation_is_the_current_row(stage: Stage, sidebar: Sidebar) -> None:
    stage.state.show(3, ())
    assert sidebar.list.currentIndex().data(ID_ROLE) == 3
    stage.state.show(None)
    assert not sidebar.list.currentIndex().isValid()


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("a\x00b\x07c\n\td", "a b c d"),
        ("safe \u202etxt.exe\u202c", "safe txt.exe"),
        ("👩\u200d🚀 مرحبا 你好", "👩\u200d🚀 مرحبا 你好"),
    ],
)
def test_title_is_reduced_to_one_printable_line(stage: Stage, text: str, title: str) -> None:
    stage.ready(MODEL)
    stage.controller.send(text)
    stage.wait_until_idle()
    assert [c.title for c in stage.state.conversations] == [title]
    stage.controller.conversations.rename(stage.state.conversations[0].id, f"{text} again")
    assert [c.title for c in stage.state.conversations] == [f"{title} again"]


def test_tab_skips_an_empty_list(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    assert not stage.window.sidebar.list.focusPolicy() & Qt.FocusPolicy.TabFocus
    stage.controller.send("A first message")
    stage.wait_until_idle()
    policy = stage.window.sidebar.list.focusPolicy()
    assert policy & Qt.FocusPolicy.TabFocus == Qt.FocusPolicy.TabFocus


def test_undo_restores_deleted_conversations(qtbot: QtBot, stage: Stage) -> None:
    save_conversations(stage, "One", "Two")
    sidebar = stage.window.sidebar
    assert sidebar.undo.isHidden()
    sidebar.delete_requested.emit([c.id for c in stage.state.conversations])
    assert not sidebar.undo.isHidden()
    assert sidebar.undo.words.text() == "2 chats deleted"
    qtbot.mouseClick(sidebar.undo.button, Qt.MouseButton.LeftButton)
    stage.wait_until_idle()
    assert sidebar.undo.isHidden()
    assert {c.title for c in stage.state.conversations} == {"One", "Two"}
    stage.wait_for_animations()


def test_undo_is_offered_for_some_seconds_and_its_key_works_later(
    qtbot: QtBot, stage: Stage
) -> None:
    save_conversations(stage, "One", "Two")
    sidebar, window = stage.window.sidebar, stage.window
    window.activateWindow()
    for conversation in stage.state.conversations:
        sidebar.delete_requested.emit([conversation.id])
    assert sidebar.undo.words.text() == "Chat deleted"
    stage.controller.deletions._offer.timeout.emit()
    assert sidebar.undo.isHidden()
    window.composer.setFocus()
    for titles in (["One"], ["Two", "One"]):
        qtbot.keyClick(window.composer.editor, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
        stage.wait_until_idle()
        assert [c.title for c in stage.state.conversations] == titles
        assert sidebar.undo.isHidden()
    stage.wait_for_animations()


def test_a_text_field_with_edits_keeps_the_undo_key(qtbot: QtBot, stage: Stage) -> None:
    save_conversations(stage, "One")
    window, control = stage.window, Qt.KeyboardModifier.ControlModifier
    window.activateWindow()
    window.sidebar.delete_requested.emit([stage.state.conversations[0].id])
    for field in (window.composer.editor, window.sidebar.search):
        field.setFocus()
        flush()
        qtbot.keyClicks(field, "typed")
        qtbot.keyClick(field, Qt.Key.Key_Z, control)
        stage.wait_until_idle()
        assert stage.state.conversations == ()
    assert window.composer.text() == window.sidebar.search.text() == ""
    qtbot.keyClick(window.sidebar.search, Qt.Key.Key_Z, control)
    stage.wait_until_idle()
    assert [c.title for c in stage.state.conversations] == ["One"]
    stage.wait_for_animations()


def test_store_runs_only_the_newest_of_queued_searches(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_conversations(stage, "Green tea", "Black tea", "Coffee")
    queries: list[str] = []
    real = Store.conversations

    def counted(store: Store, query: str = "") -> list[Conversation]:
        queries.append(query)
        return real(store, query)

    monkeypatch.setattr(Store, "conversations", counted)
    entered, opened = threading.Event(), threading.Event()

    def slow(store: Store) -> None:
        entered.set()
        assert opened.wait(10)

    stage.store_queue.write(slow)
    assert entered.wait(10)
    for length in range(1, 10):
        stage.controller.conversations.search("green tea"[:length])
    opened.set()
    stage.wait_until_idle()
    assert queries == ["green tea"]
    assert [c.title for c in stage.state.found] == ["Green tea"]


def test_fast_typing_runs_one_search(qtbot: QtBot, stage: Stage) -> None:
    save_conversations(stage, "Green tea")
    queries: list[str] = []
    stage.window.sidebar.searched.connect(queries.append)
    stage.window.sidebar.start_search()
    qtbot.keyClicks(stage.window.sidebar.search, "green tea", delay=5)
    assert queries == []
    stage.wait_until_idle()
    assert queries == ["green tea"]


def test_typing_a_search_filters_and_enter_opens_the_first(qtbot: QtBot, stage: Stage) -> None:
    save_conversations(stage, "About tea", "About rice")
    sidebar = stage.window.sidebar
    sidebar.start_search()
    qtbot.keyClicks(sidebar.search, "tea")
    stage.wait_until_idle()
    assert rows(sidebar) == ["About tea"]
    qtbot.keyClick(sidebar.search, Qt.Key.Key_Return)
    stage.wait_until_idle()
    assert stage.state.title(stage.state.current) == "About tea"
    sidebar.search.setText("zebra")
    stage.wait_until_idle()
    assert not sidebar.nothing.isHidden()
    assert "zebra" in sidebar.nothing.text()
    sidebar.start_search()
    qtbot.keyClick(sidebar.search, Qt.Key.Key_Escape)
    stage.wait_until_idle()
    assert sidebar.search.text() == ""
    assert len(stage.state.shown_conversations) == 2


def test_a_conversation_being_answered_has_a_dot(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Hello")
    stage.drain()
    model = stage.window.sidebar.model
    assert model.find(stage.state.current).data(BUSY_ROLE) is True
    stage.engine.finish()
    stage.wait_until_idle()
    assert model.find(stage.state.current).data(BUSY_ROLE) is False


def test_only_visible_rows_of_thousands_are_painted(stage: Stage) -> None:
    stage.start()
    sidebar = stage.window.sidebar
    stage.state.set_conversations([conversation(n, f"Number {n}", n / 50) for n in range(1, 5001)])
    painted: list[int] = []

    class Counting(RowPainter):
        def paint(self, *arguments: object) -> None:
            painted.append(1)
            super().paint(*arguments)  # type: ignore[arg-type]

    sidebar.list.setItemDelegate(Counting(sidebar))
    sidebar.list.viewport().grab()
    assert sidebar.model.rowCount() > 5000
    assert 0 < len(painted) < 60


def test_tab_order_is_the_visual_order(stage: Stage, sidebar: Sidebar) -> None:
    order = [sidebar.new_button, sidebar.hide_button, sidebar.search, sidebar.list]
    found, widget = [], sidebar.nextInFocusChain()
    while len(found) < len(order):
        if widget in order:
            found.append(widget)
        widget = widget.nextInFocusChain()
    assert found == order


def test_results_show_the_words_found_and_their_day(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("What is tea?")
    stage.engine.write("A drink of **leaves**.")
    stage.engine.finish()
    stage.wait_until_idle()
    sidebar = stage.window.sidebar
    low = sidebar.list.visualRect(sidebar.model.first()).height()
    sidebar.search.setText("leaves")
    stage.wait_until_idle()
    index = sidebar.model.first()
    assert index.data(SNIPPET_ROLE) == "A drink of leaves."
    assert index.data(WHEN_ROLE)
    assert sidebar.list.visualRect(index).height() > low
    spoken = index.data(Qt.ItemDataRole.AccessibleTextRole)
    assert spoken.startswith("What is tea?, ")
    assert spoken.endswith("A drink of leaves.")
    sidebar.search.clear()
    stage.wait_until_idle()
    assert sidebar.list.visualRect(sidebar.model.first()).height() == low


def test_chats_with_the_same_first_words_show_their_time(stage: Stage) -> None:
    stage.ready(MODEL)
    for title in ("Why is the sky blue at noon, and red in the evening?", "Other"):
        stage.controller.new_conversation()
        stage.controller.send(title)
        stage.engine.finish()
        stage.wait_until_idle()
    sidebar = stage.window.sidebar

    def times() -> list[bool]:
        listed = [sidebar.model.find(each.id) for each in stage.state.conversations]
        return [bool(index.data(WHEN_ROLE)) for index in listed]

    assert times() == [False, False]
    stage.controller.new_conversation()
    stage.controller.send("Why is the sky blue at noon, but not on the moon?")
    stage.engine.finish()
    stage.wait_until_idle()
    assert times() == [True, False, True]


def test_day_or_time_of_a_chat() -> None:
    now = datetime(2026, 11, 3, 15, 30).timestamp()
    hour, day = 3600, 86400
    before = QLocale()
    QLocale.setDefault(QLocale("en_GB"))
    try:
        assert day_or_time(now - hour, now) == "14:30"
        assert day_or_time(now - day, now) == "2 Nov"
        assert day_or_time(now - 366 * day, now) == "2 Nov 2025"
    finally:
        QLocale.setDefault(before)


def test_headings_follow_the_date_while_the_window_is_open(
    sidebar: Sidebar, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rows(sidebar)[0] == "Today"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + DAY)
    sidebar._clock.timeout.emit()
    assert rows(sidebar)[0] == "Yesterday"
    monkeypatch.setattr(time, "time", lambda: now + 3 * DAY)  # the computer slept
    sidebar.hide()
    sidebar.show()
    assert rows(sidebar)[0] == "Previous 7 days"


def test_a_new_chat_ends_a_search_that_would_hide_it(stage: Stage) -> None:
    stage.ready(MODEL)
    for text in ("green tea", "black tea"):
        stage.controller.new_conversation()
        stage.controller.send(text)
        stage.engine.finish()
        stage.wait_until_idle()
    sidebar = stage.window.sidebar
    sidebar.search.setText("green")
    stage.wait_until_idle()
    assert rows(sidebar) == ["green tea"]
    stage.controller.new_conversation()
    stage.wait_until_idle()
    assert sidebar.search.text() == "green", "it hides nothing yet"
    stage.controller.send("a question about birds")
    stage.wait_until_idle()
    assert sidebar.search.text() == stage.state.query == ""
    assert rows(sidebar) == ["Today", "a question about birds", "black tea", "green tea"]


@pytest.mark.parametrize(
    ("locale", "whole", "short"),
    [
        ("C", "6 Nov 2026", "6 Nov"),
        ("en_US", "Nov 6, 2026", "Nov 6"),
        ("de_DE", "6. Nov. 2026", "6. Nov."),
        ("ja_JP", "2026年11月6日", "11月6日"),
        ("es_ES", "6 de nov de 2026", "6 de nov"),
        ("ru_RU", "6 нояб. 2026\u202fг.", "6 нояб."),
    ],
)
def test_a_day_has_its_month_in_letters_and_the_order_of_the_locale(
    locale: str, whole: str, short: str
) -> None:
    before = QLocale()
    QLocale.setDefault(QLocale(locale))
    try:
        assert day(QDate(2026, 11, 6)) == whole
        assert day(QDate(2026, 11, 6), with_year=False) == short
    finally:
        QLocale.setDefault(before)


# --- conversations that are answered --------------------------------------------------------------


@pytest.fixture
def answering(stage: Stage) -> tuple[Stage, int, int]:
    """One conversation is being answered, and another, which is shown, waits for its answer."""
    stage.ready(MODEL)
    numbers: list[int] = []
    for text in ("First", "Second"):
        stage.controller.new_conversation()
        stage.controller.send(text)
        assert stage.state.current is not None
        numbers.append(stage.state.current)
    stage.engine.write("Because", request=stage.engine.unfinished[0].request)
    stage.wait_until_idle()
    return stage, numbers[0], numbers[1]


def test_rows_show_which_answers_are_written_and_which_wait(
    answering: tuple[Stage, int, int],
) -> None:
    stage, first, second = answering
    model = stage.window.sidebar.model
    shown = {
        number: (model.find(number).data(BUSY_ROLE), model.find(number).data(WRITING_ROLE))
        for number in (first, second)
    }
    assert shown == {first: (True, True), second: (True, False)}
    spoken = Qt.ItemDataRole.AccessibleTextRole
    assert "an answer is being written" in model.find(first).data(spoken)
    assert "an answer is waiting" in model.find(second).data(spoken)


def test_dot_is_filled_while_writing_and_a_ring_while_waiting(
    answering: tuple[Stage, int, int],
) -> None:
    stage, first, second = answering
    view = stage.window.sidebar.list
    picture = view.viewport().grab().toImage()
    accent = stage.theme.palette.accent.lower()

    def middle(number: int) -> str:
        row = view.visualRect(stage.window.sidebar.model.find(number))
        return picture.pixelColor(row.right() - 24 - 3, row.center().y()).name()

    assert middle(first) == accent
    assert middle(second) != accent


def test_stop_icon_stops_its_row_without_opening_it(
    qtbot: QtBot, answering: tuple[Stage, int, int]
) -> None:
    stage, first, second = answering
    view = stage.window.sidebar.list
    requests = [each.request for each in stage.engine.unfinished]
    place = stop_rect(view.visualRect(stage.window.sidebar.model.find(first))).center()
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert stage.engine.last(Cancel) == Cancel(requests[0])
    assert stage.state.current == second
    stage.engine.finish(FinishReason.CANCELLED, request=requests[0])
    stage.drain()
    assert stage.state.busy_conversations == {second}
    with qtbot.waitSignal(stage.window.sidebar.opened, timeout=1000):  # no icon there any more
        qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)


def test_menu_of_selected_rows_stops_their_answers(answering: tuple[Stage, int, int]) -> None:
    stage, first, second = answering
    view, model = stage.window.sidebar.list, stage.window.sidebar.model
    for number in (first, second):
        select = QItemSelectionModel.SelectionFlag.Select
        view.selectionModel().select(model.find(number), select)
    menu = view.row_menu(model.find(first))
    texts = [each.text() for each in menu.actions()]
    assert (texts[0], texts[-1]) == ("Stop 2 answers", "Delete 2 chats")
    menu.actions()[0].trigger()
    assert stage.engine.count(Cancel) == 2
    assert stage.state.busy_conversations == {first}, "the waiting one has ended at once"


def test_menu_of_a_quiet_row_has_no_stop(answering: tuple[Stage, int, int]) -> None:
    stage, _, second = answering
    stage.controller.stop()
    view, model = stage.window.sidebar.list, stage.window.sidebar.model
    menu = view.row_menu(model.find(second))
    texts = [each.text() for each in menu.actions() if not each.isSeparator()]
    assert texts == [
        *("Rename", "Pin", "Move to", "Archive", "Duplicate"),
        *("Export", "Copy whole chat", "Delete"),
    ]
