"""Comparing two answers in the whole window, with the real engine on a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

import tiny
import tiny_lora
from adapter_stage import FORMAL, PIRATE, accept
from app.domain.message import AnswerAgain, Message
from app.engines.client import Capabilities
from app.settings.table import Settings
from app.ui.comparison.card import ComparisonCard
from engine import AdapterUse, FinishReason
from fakes import MODEL, Cancel
from real_stage import RealStage
from scenes_adapters import add
from stage import Stage, flush, until

QUESTION = "why is the sky blue?"
SETTINGS = Settings(temperature=0.0, max_tokens=600, context=2048, threads=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=2048)


@contextmanager
def opened(folder: Path, model: Path | None) -> Iterator[Stage]:
    stage = RealStage(folder, settings=SETTINGS)
    try:
        stage.start(model)
        if model is not None:
            until(lambda: stage.state.model.loaded is not None)
        yield stage
    finally:
        stage.close()


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path, model: Path) -> Iterator[Stage]:
    with opened(tmp_path, model) as made:
        yield made


def ended(stage: Stage) -> None:
    until(lambda: not stage.state.busy)
    stage.wait_until_idle()


def ask(stage: Stage) -> Message:
    stage.window.composer.submitted.emit(QUESTION)
    ended(stage)
    return stage.state.messages[-1]


def add_adapter(stage: Stage, path: Path) -> None:
    stage.window.panel.open()
    stage.window.panel.adapters.added.emit(path)
    until(lambda: not stage.states.adapters.reading)
    stage.wait_until_idle()


def card_of(stage: Stage) -> ComparisonCard:
    card = stage.window.cards.comparison
    assert card is not None
    assert card.isVisible()
    return card


def use(stage: Stage, index: int, name: str) -> None:
    """Click a tool of a message, scrolled to where it is visible."""
    view = stage.window.transcript
    flush()
    tools, areas = view.tools.all(index)
    area = next(area for tool, area in zip(tools, areas, strict=True) if tool.name == name)
    view.scroller.scroll_to(view.stack.top(index) + area.top() - 100)
    place = QPointF(view.message_layout.left_of(index), view.message_layout.message_top(index))
    point = (area.center() + place).toPoint()
    QTest.mouseMove(view.viewport(), point)
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=point)
    flush()


def shown_texts(stage: Stage) -> list[str]:
    return [view.message.text for view in stage.window.transcript.stack.views]


def headers(stage: Stage) -> list[str]:
    return [words for _, words in stage.window.transcript.message_layout.headers()]


def test_with_and_without_the_adapter_kept_restarted_and_reopened(
    qtbot: QtBot, tmp_path: Path, model: Path
) -> None:
    with opened(tmp_path, model) as stage:
        base = ask(stage).text
        add_adapter(stage, tiny_lora.write(tmp_path / "pirate.gguf", model, size=1.5, seed=5))
        stage.window.transcript.regenerate_requested.emit(
            stage.state.messages[-1].id, AnswerAgain.SAME
        )
        ended(stage)
        adapted = stage.state.messages[-1].text
        assert adapted != base

        use(stage, 1, "compare")
        card = card_of(stage)
        assert [heading.text() for heading in card.headings] == ["pirate", "Without adapters"]
        qtbot.mouseClick(card.compare_button, Qt.MouseButton.LeftButton)
        assert not card.isVisible()
        view = stage.window.transcript
        assert len(view.stack) == 3
        assert view.stack.compared
        assert headers(stage) == ["pirate", "Without adapters"]
        pieces: list[int] = []
        stage.state.text_added.connect(lambda message, _text: pieces.append(message.id))
        ended(stage)
        one, other = (shown.message.id for shown in view.stack.views[1:])
        assert pieces.index(other) < len(pieces) - 1 - pieces[::-1].index(one)
        assert shown_texts(stage) == [QUESTION, adapted, base]
        assert headers(stage) == ["pirate", "Without adapters"]

        stage.window.composer.set_text("And now?")
        stage.window.composer.submitted.emit("And now?")
        assert stage.window.composer.text() == "And now?"
        assert [n.sentence for n in stage.state.notices.values()] == [
            "Keep one of the two answers to go on."
        ]
        stage.window.composer.set_text("")
        use(stage, 2, "keep")
        stage.wait_until_idle()
        assert shown_texts(stage) == [QUESTION, base]
        assert not stage.state.notices

    with opened(tmp_path, None) as again:
        again.controller.open_conversation(again.state.conversations[0].id)
        again.wait_until_idle()
        assert shown_texts(again) == [QUESTION, base]
        use(again, 1, "compared")
        again.wait_until_idle()
        view = again.window.transcript
        texts = shown_texts(again)
        assert sorted(texts[1:]) == sorted([adapted, base])
        words = dict(
            zip(texts[1:], (text for _, text in view.message_layout.headers()), strict=True)
        )
        assert words == {adapted: "pirate", base: "Without adapters"}
        use(again, 1 + texts[1:].index(adapted), "keep")
        again.wait_until_idle()
        assert shown_texts(again) == [QUESTION, adapted]


def test_an_open_comparison_is_shown_after_a_restart(
    qtbot: QtBot, tmp_path: Path, model: Path
) -> None:
    with opened(tmp_path, model) as stage:
        ask(stage)
        use(stage, 1, "compare")
        card = card_of(stage)
        assert [heading.text() for heading in card.headings] == ["Temperature 0", "Temperature 1"]
        qtbot.mouseClick(card.compare_button, Qt.MouseButton.LeftButton)
        ended(stage)
        texts = shown_texts(stage)
        assert len(texts) == 3
    with opened(tmp_path, None) as again:
        again.controller.open_conversation(again.state.conversations[0].id)
        again.wait_until_idle()
        assert shown_texts(again) == texts
        assert headers(again) == ["Temperature 0", "Temperature 1"]
        use(again, 2, "info")
        details = again.window.cards.details
        assert details is not None
        assert dict(details.rows)["Sampling"].startswith("temperature 1")


def test_one_of_both_is_stopped_and_the_other_goes_on(qtbot: QtBot, tmp_path: Path) -> None:
    with closing(Stage(tmp_path)) as made:
        made.ready(MODEL)
        made.controller.send(QUESTION)
        made.engine.write("Yes.")
        made.engine.finish()
        made.wait_until_idle()
        use(made, 1, "compare")
        qtbot.mouseClick(card_of(made).compare_button, Qt.MouseButton.LeftButton)
        one, other = made.engine.unfinished
        made.engine.interleave({one.request: "Because", other.request: "Well,"})
        made.drain()
        use(made, 1, "stop")
        assert made.engine.last(Cancel).request == one.request
        made.engine.finish(FinishReason.CANCELLED, request=one.request)
        made.engine.write(" who knows", request=other.request)
        made.drain()
        until(lambda: shown_texts(made)[1:] == ["Because", "Well, who knows"])
        assert made.state.busy
        use(made, 1, "keep")  # which stops the other
        assert made.engine.last(Cancel).request == other.request
        made.engine.finish(FinishReason.CANCELLED, request=other.request)
        made.wait_until_idle()
        assert shown_texts(made) == [QUESTION, "Because"]
        assert not made.window.composer.busy


def test_the_panel_compares_the_last_answer(
    stage: Stage, tmp_path: Path, model: Path, qtbot: QtBot
) -> None:
    button = stage.window.panel.adapters.compare_button
    ask(stage)
    assert button.isHidden()
    add_adapter(stage, tiny_lora.write(tmp_path / "pirate.gguf", model, size=1.5, seed=5))
    assert not button.isHidden()
    assert button.isEnabled()
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(card_of(stage).compare_button, Qt.MouseButton.LeftButton)
    assert not button.isEnabled() or button.isHidden()
    ended(stage)
    assert len(stage.state.compared) == 1
    assert button.isHidden()  # until one is kept


def test_an_engine_without_adapters_compares_temperatures(qtbot: QtBot, tmp_path: Path) -> None:
    with closing(Stage(tmp_path, capabilities=Capabilities())) as made:
        made.ready(MODEL)
        made.controller.send(QUESTION)
        made.engine.write("Yes.")
        made.engine.finish()
        made.wait_until_idle()
        use(made, 1, "compare")
        card = card_of(made)
        assert not card.columns[0].adapters
        assert [heading.text() for heading in card.headings] == [
            "Temperature 0.7",
            "Temperature 0.2",
        ]


def test_the_card_closes_when_its_question_is_not_shown_any_more(
    qtbot: QtBot, tmp_path: Path
) -> None:
    with closing(Stage(tmp_path)) as made:
        made.ready(MODEL)
        made.controller.send(QUESTION)
        made.engine.write("Yes.")
        made.engine.finish()
        made.wait_until_idle()
        use(made, 1, "compare")
        card = card_of(made)
        made.window.actions_by_id["new"].trigger()  # Ctrl+N reaches the window from a card
        made.wait_until_idle()
        if card.isVisible():
            qtbot.mouseClick(card.compare_button, Qt.MouseButton.LeftButton)
        assert not card.isVisible()
        assert not made.state.notices


def test_a_saved_mix_is_offered_and_writes_one_answer(qtbot: QtBot, tmp_path: Path) -> None:
    with closing(Stage(tmp_path)) as made:
        made.ready(MODEL)
        adapters = made.controller.adapters
        add(made, adapters, PIRATE, 0.8)
        adapters.save_mix("At sea")
        adapters.remove(0)
        accept(made.engine)
        made.wait_until_idle()
        add(made, adapters, FORMAL)
        made.controller.send(QUESTION)
        made.engine.write("Yes.")
        made.engine.finish()
        made.wait_until_idle()
        use(made, 1, "compare")
        card = card_of(made)
        button = card.columns[1].mix
        assert button is not None
        (sea,) = button.menu_of_choices().actions()
        sea.trigger()
        flush()
        assert [heading.text() for heading in card.headings] == [
            "formal-german",
            "pirate-speech at 0.80",
        ]
        qtbot.mouseClick(card.compare_button, Qt.MouseButton.LeftButton)
        one, other = made.engine.unfinished
        assert one.adapters == (AdapterUse(FORMAL, 1.0),)
        assert other.adapters == (AdapterUse(PIRATE, 0.8),)
        assert [entry.path for entry in made.states.adapters.stack] == [FORMAL]
