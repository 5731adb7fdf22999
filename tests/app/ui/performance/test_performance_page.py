"""Performance page: filled by answers, selected by pointer and keys, copied, and never in the way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app.state.performance import MOST_ANSWERS, AnswerFigures
from app.ui.performance.page import PerformancePage, answer_words
from app.ui.performance.plot import nice_above
from engine import Failed, MetricsRead, ReadMetrics
from fakes import MODEL
from stage import Stage, flush


def figures(at: int) -> AnswerFigures:
    return AnswerFigures("Model", 10 + at, 20.0 + at, 0.5, 0.05, 0.1, 100, 40, 1.0)


def open_page(stage: Stage, answers: int) -> PerformancePage:
    stage.ready(MODEL)
    for at in range(answers):
        stage.states.performance.add(figures(at))
    stage.window.toggle_performance()
    flush()
    page = stage.window.performance
    assert page is not None
    assert page.isVisible()
    return page


def read(stage: Stage) -> MetricsRead:
    """Answer the request for metrics."""
    request = stage.engine.last(ReadMetrics).request
    found = MetricsRead(request, model="M", prompt_tokens=200, reused_tokens=50, drafted_tokens=9)
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
    stage.window.toggle_performance()
    flush()
    assert len(stage.states.performance.answers) == 1
    assert page.plot.isVisible()
    assert not page.nothing.isVisible()
    assert page.selected.text().startswith("The last answer: ")


def test_metrics_are_read_once_at_a_time_and_shown(stage: Stage) -> None:
    page = open_page(stage, 2)
    assert stage.engine.count(ReadMetrics) == 1
    stage.states.performance.add(figures(3))
    assert stage.engine.count(ReadMetrics) == 1  # the first is not answered yet
    read(stage)
    rows = dict(page.rows)
    assert rows["Answers"] == "3"
    assert rows["From memory"] == "25 % of 200 tokens"
    assert rows["Guessed words"] == "0 of 9 tokens were right"
    stage.states.performance.add(figures(4))
    assert stage.engine.count(ReadMetrics) == 2
    stage.engine.deliver(Failed(stage.engine.last(ReadMetrics).request, "planted", ""))
    stage.drain()
    stage.states.performance.add(figures(5))
    assert stage.engine.count(ReadMetrics) == 3
    assert stage.state.notices == {}


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
    stage.window.open_settings()
    assert stage.window.preferences is not None
    qtbot.mouseClick(stage.window.preferences.about.performance, Qt.MouseButton.LeftButton)
    assert stage.window.performance is not None
    assert stage.window.performance.isVisible()
