"""Performance page: filled by answers, selected by pointer and keys, copied, and never in the way."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.domain.answer_details import AnswerDetails
from app.domain.message import MessageState
from app.engines.client import Capabilities
from app.state.performance import MOST_ANSWERS, AnswerFigures
from app.store.store import Store
from app.ui.performance.page import PerformancePage, answer_words
from app.ui.performance.plot import nice_above
from app.ui.transcript.message.answer_card import answer_rows, exact_rows
from app.ui.widgets import accessibility
from engine import Failed, Finished, FinishReason, Histogram, Metrics, MetricsRead, Role
from fakes import MODEL
from stage import Stage, flush


def figures(at: int) -> AnswerFigures:
    return AnswerFigures("Model", 10 + at, 20.0 + at, 0.5, 0.05, 0.1, 100, 40, 1.0)


def open_page(stage: Stage, answers: int) -> PerformancePage:
    stage.ready(MODEL)
    for at in range(answers):
        stage.states.performance.add(figures(at))
    stage.window.performance.toggle()
    flush()
    page = stage.window.performance.page
    assert page is not None
    assert page.isVisible()
    return page


def read(stage: Stage) -> MetricsRead:
    """Answer the request for metrics."""
    request = stage.engine.last(Metrics).request
    found = MetricsRead(
        request,
        model="M",
        first_token_seconds=Histogram((1.0,), (3, 1), 2.0, 0.25, 1.5),
        token_seconds=Histogram((1.0,), (30, 0), 0.7, 0.02, 0.045),
        prompt_tokens=200,
        reused_tokens=50,
        drafted_tokens=9,
        active_page_bytes=2_000_000,
        cached_page_bytes=3_000_000,
        saved_page_bytes=7_000_000,
    )
    stage.engine.deliver(found)
    stage.drain()
    return found


def test_an_answer_fills_the_page(stage: Stage) -> None:
    page = open_page(stage, 0)
    assert page.nothing.isVisible()
    assert not page.plot.isVisible()
    stage.window.close_page()
    stage.controller.send("hello")
    stage.wait_until_idle()
    stage.engine.write("some words")
    stage.engine.finish()
    stage.wait_until_idle()
    stage.window.performance.toggle()
    flush()
    assert len(stage.states.performance.answers) == 1
    assert page.plot.isVisible()
    assert not page.nothing.isVisible()
    assert page.selected.text().startswith("The last answer: ")


def test_metrics_are_read_once_at_a_time_and_shown(stage: Stage) -> None:
    page = open_page(stage, 2)
    assert stage.engine.count(Metrics) == 1
    stage.states.performance.add(figures(3))
    assert stage.engine.count(Metrics) == 1  # the first is not answered yet
    read(stage)
    rows = dict(page.rows)
    assert rows["Answers"] == "3"
    assert rows["Typical speed"] == "21.0 tokens/s"
    assert rows["Typical wait"] == "first word after 0.50 s"
    assert rows["Since M was loaded"] == ""
    assert rows["Wait for the first word"] == "typically 0.25 s, rarely more than 1.50 s"
    assert rows["Time per token"] == "typically 20.0 ms, rarely more than 45.0 ms"
    assert rows["Already in memory"] == "25 % of 200 tokens were still in memory"
    assert rows["Guessing ahead"] == "0 of 9 guessed tokens were right"
    assert rows["Chats kept ready"] == "5 MB in memory, 2 MB of it in use, 7 MB on disk"
    shown = {label.text() for label in page.findChildren(QLabel) if label.isVisible()}
    assert {name for name, _ in page.rows} < shown
    assert {value for _, value in page.rows if value} < shown
    stage.states.performance.add(figures(4))
    assert stage.engine.count(Metrics) == 2
    stage.engine.deliver(Failed(stage.engine.last(Metrics).request, "planted", ""))
    stage.drain()
    stage.states.performance.add(figures(5))
    assert stage.engine.count(Metrics) == 3
    assert stage.state.notices == {}


def test_values_change_in_place(stage: Stage) -> None:
    page = open_page(stage, 2)
    read(stage)
    before = page.findChildren(QLabel)
    stage.states.performance.add(figures(3))
    read(stage)
    assert page.findChildren(QLabel) == before
    assert dict(page.rows)["Answers"] == "3"


def test_an_engine_without_metrics_is_not_asked(tmp_path: Path, qtbot: QtBot) -> None:
    with closing(Stage(tmp_path, capabilities=Capabilities())) as plain:
        page = open_page(plain, 2)
        assert plain.engine.count(Metrics) == 0
        assert [name for name, _ in page.rows] == ["Answers", "Typical speed", "Typical wait"]
        assert not page.copy_button.isVisible()


def test_answers_of_earlier_runs_come_first(stage: Stage) -> None:
    """From the store, without those of this run, which it has too."""

    def write(store: Store) -> None:
        conversation = store.create_conversation("Before")
        parent = store.add_message(conversation.id, None, Role.USER, "?").id
        for at in range(3):
            details = AnswerDetails(
                "Older", ended=1000.0 + at, first_token_seconds=0.25, decode_seconds=2.0
            )
            made = store.add_message(
                conversation.id, parent, Role.ASSISTANT, "", MessageState.STREAMING
            )
            store.finish(made.id, MessageState.COMPLETE, generated_tokens=10 + at, details=details)

    stage.store_queue.write(write)
    stage.ready(MODEL)
    stage.controller.send("hello")
    stage.wait_until_idle()
    stage.engine.write("some words")
    stage.engine.finish()
    stage.wait_until_idle()
    stage.window.performance.toggle()
    stage.wait_until_idle()
    found = stage.states.performance.answers
    assert [one.model for one in found] == ["Older"] * 3 + ["Small Model 135M"]
    assert [one.generated_tokens for one in found] == [10, 11, 12, 24]
    assert (found[0].tokens_per_second, found[0].first_token_seconds) == (4.5, 0.25)
    page = stage.window.performance.page
    assert page is not None
    assert page.plot._runs() == [range(3), range(3, 4)]
    assert page.selected.text().startswith("The last answer: Small Model 135M, ")
    stage.window.close_page()
    stage.window.performance.toggle()
    stage.wait_until_idle()
    assert stage.states.performance.answers == found  # they are read once


def test_the_card_and_the_page_show_the_same_wait(stage: Stage) -> None:
    """As the engine has measured it: its queue included, and not that of the window."""
    stage.ready(MODEL)
    stage.controller.send("hello")
    stage.wait_until_idle()
    stage.engine.write("some words")
    request = stage.engine.last_generate.request
    stage.engine.deliver(
        Finished(request, FinishReason.END, 9, 4, 5, 0.1, 0.2, 14, first_token_seconds=3.25,
        token_seconds_p50=0.04, token_seconds_p95=0.07, drafted_tokens=6, accepted_tokens=2)
    )  # fmt: skip
    stage.wait_until_idle()
    details = stage.state.messages[-1].details
    assert details is not None
    (found,) = stage.states.performance.answers
    assert found.first_token_seconds == details.first_token_seconds == 3.25
    answer = stage.state.messages[-1]
    rows = dict([*answer_rows(answer), *exact_rows(answer)])
    assert rows["Read"] == "9 tokens; 4 of them were still in memory"
    assert rows["Speed"].endswith("first word after 3.25 s")
    assert rows["Time per token"] == "typically 40.0 ms, rarely more than 70.0 ms"
    assert rows["Guessing ahead"] == "2 of 6 guessed tokens were right"


def test_nothing_jumps_while_the_pointer_moves(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, 0)
    short = AnswerFigures("M", 1, 0.0, 0.0, 0.0, 0.0, 10, 0)
    for one in (short, replace(figures(3), model="A model with a very long name " * 4), short):
        stage.states.performance.add(one)
    read(stage)
    flush()
    qtbot.keyClick(page.plot, Qt.Key.Key_Left)
    flush()
    place = page.copy_button.mapTo(page, QPoint())
    for key in (Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_End):
        qtbot.keyClick(page.plot, key)
        flush()
        assert page.copy_button.mapTo(page, QPoint()) == place


def test_a_small_window_scrolls(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, 5)
    read(stage)
    flush()
    assert page.view.verticalScrollBar().maximum() == 0  # it fits in a window of the usual size
    stage.window.resize(420, 360)
    flush()
    assert stage.window.height() == 360
    bar = page.view.verticalScrollBar()
    assert bar.maximum() > 0
    edges = [one.mapTo(page, QPoint()).x() for one in (page.plot, page.title)]
    assert edges[0] == edges[1]
    qtbot.keyClick(page.plot, Qt.Key.Key_PageDown)
    assert bar.value() > 0
    page.copy_button.setFocus(Qt.FocusReason.TabFocusReason)
    page.view.ensureWidgetVisible(page.copy_button)
    flush()
    corner = page.copy_button.mapTo(page.view.viewport(), page.copy_button.rect().bottomRight())
    assert page.view.viewport().rect().contains(corner)


def test_metrics_are_copied_as_prometheus_text(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, 1)
    assert not page.copy_button.isVisible()
    read(stage)
    qtbot.mouseClick(page.copy_button, Qt.MouseButton.LeftButton)
    text = QGuiApplication.clipboard().text()
    assert "tokonoma_prompt_tokens_total 200\n" in text


def test_keys_and_pointer_select_an_answer(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, 5)
    assert page.plot.index == 4
    for key, index in (
        (Qt.Key.Key_Left, 3),
        (Qt.Key.Key_Home, 0),
        (Qt.Key.Key_Left, 0),
        (Qt.Key.Key_Right, 1),
        (Qt.Key.Key_End, 4),
        (Qt.Key.Key_Right, 4),
    ):
        qtbot.keyClick(page.plot, key)
        assert page.plot.index == index
    qtbot.mouseMove(page.plot, QPoint(0, 20))
    flush()
    assert page.plot.index == 0
    assert page.selected.text() == answer_words(figures(0), 5)
    assert page.plot.accessibleDescription() == page.selected.text()
    qtbot.keyClick(page.plot, Qt.Key.Key_Escape)
    assert not page.isVisible()


def test_typical_figures_are_those_of_the_model_that_answered_last(stage: Stage) -> None:
    page = open_page(stage, 2)
    stage.states.performance.add(replace(figures(0), model="Other", tokens_per_second=300.0))
    rows = dict(page.rows)
    assert rows["Answers"] == "1, and 2 of other models"
    assert rows["Typical speed"] == "300.0 tokens/s"
    assert page.selected.text().startswith("The last answer: Other, 10 tokens, 300.0 tokens/s")


def test_a_chosen_answer_stays_selected_while_others_come(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, 4)
    qtbot.keyClick(page.plot, Qt.Key.Key_Left)
    chosen = stage.states.performance.answers[2]
    stage.states.performance.add(figures(4))
    assert stage.states.performance.answers[page.plot.index] is chosen
    assert page.selected.text() == answer_words(chosen, 3)
    stage.states.performance.set_earlier([figures(7), figures(8)])
    assert stage.states.performance.answers[page.plot.index] is chosen
    qtbot.keyClick(page.plot, Qt.Key.Key_End)
    stage.states.performance.add(figures(5))
    assert page.plot.index == 7
    page.plot._select(0)
    for at in range(MOST_ANSWERS):  # until it is not kept any more
        stage.states.performance.add(figures(at))
    assert page.plot.index == MOST_ANSWERS - 1


def test_only_the_selection_by_keys_is_announced(
    qtbot: QtBot, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(accessibility, "announce", lambda _, words: said.append(words))
    page = open_page(stage, 3)
    stage.window.activateWindow()
    page.close_button.setFocus()
    stage.states.performance.add(figures(3))
    stage.window.close_page()
    stage.states.performance.add(figures(4))
    assert said == []
    stage.window.performance.toggle()
    page.plot.setFocus(Qt.FocusReason.TabFocusReason)
    flush()
    qtbot.keyClick(page.plot, Qt.Key.Key_Left)
    assert said == [answer_words(figures(3), 2)]


def test_only_the_last_answers_are_kept(stage: Stage) -> None:
    for at in range(MOST_ANSWERS + 5):
        stage.states.performance.add(figures(at))
    answers = stage.states.performance.answers
    assert len(answers) == MOST_ANSWERS
    assert answers[-1] == figures(MOST_ANSWERS + 4)


@pytest.mark.parametrize("width", [420, 1080])
@pytest.mark.parametrize("answers", [1, 2, MOST_ANSWERS])
def test_points_stay_inside_in_any_width(stage: Stage, width: int, answers: int) -> None:
    page = open_page(stage, answers)
    stage.window.resize(width, 700)
    flush()
    assert page.plot._x(0) >= 0
    assert page.plot._x(answers - 1) <= page.plot.width()
    assert not page.plot.grab().isNull()


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (1, 1), (1.2, 1.5), (52, 60), (99.9, 100), (0.31, 0.4), (1e6, 1e6)]
)
def test_the_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert nice_above(value) == pytest.approx(top)


def test_the_settings_page_leads_to_it(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    stage.window.preferences.open()
    assert stage.window.preferences.page is not None
    qtbot.mouseClick(stage.window.preferences.page.about.performance, Qt.MouseButton.LeftButton)
    assert stage.window.performance.page is not None
    assert stage.window.performance.page.isVisible()
