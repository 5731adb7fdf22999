"""Answer options in the whole window, with the real engine on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import tiny
from app.domain.chat_settings import NO_SETTINGS, AnswerFormat
from app.domain.message import Message, MessageState
from app.settings.table import Settings
from real_stage import RealStage
from stage import Stage, until

SETTINGS = Settings(max_tokens=40, context=512, threads=1)
ENDED = {MessageState.COMPLETE, MessageState.STOPPED}


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[RealStage]:
    made = RealStage(tmp_path, settings=SETTINGS)
    made.start(tiny.write(tmp_path / "tiny.gguf", context=512))
    until(lambda: made.state.model.loaded is not None)
    yield made
    made.close()


def ask(stage: Stage, question: str = "Is the fox quick?") -> Message:
    """The answer to a question, once it has ended."""
    assert stage.controller.send(question)
    until(lambda: stage.state.messages[-1].state in ENDED)
    return stage.state.messages[-1]


def test_answers_are_one_of_the_choices(stage: RealStage) -> None:
    stage.controller.chat_settings.change_shown(
        NO_SETTINGS.with_format(AnswerFormat.CHOICES, "yes\nno")
    )
    until(lambda: not stage.states.chat_settings.shown.checking)
    for _ in range(3):
        message = ask(stage)
        assert message.text in ("yes", "no")
        assert message.state is MessageState.COMPLETE
    stage.controller.chat_settings.change_shown(NO_SETTINGS)
    assert ask(stage).text not in ("yes", "no")


def test_answers_are_json_that_the_schema_describes(stage: RealStage) -> None:
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["age"],
        "additionalProperties": False,
    }
    options = NO_SETTINGS.with_format(AnswerFormat.SCHEMA, json.dumps(schema))
    stage.controller.chat_settings.change_shown(options)
    found = json.loads(ask(stage).text)
    assert set(found) == {"age"}
    assert 0 <= found["age"] <= 9


def test_a_document_cut_by_the_length_says_so(stage: RealStage) -> None:
    options = NO_SETTINGS.with_format(AnswerFormat.REGEX, "[a-z]{900}")
    stage.controller.chat_settings.change_shown(options)
    message = ask(stage)
    assert message.state is MessageState.STOPPED
    assert message.details is not None
    assert message.details.incomplete


def test_a_seed_makes_equal_answers(stage: RealStage) -> None:
    hot = NO_SETTINGS.with_value("temperature", 1.5).with_value("seed", 11)
    stage.controller.chat_settings.change_shown(hot)
    first = ask(stage)
    stage.controller.regenerate(first.id)
    until(lambda: stage.state.messages[-1].state in ENDED)
    second = stage.state.messages[-1]
    assert second.id != first.id
    assert second.text == first.text
    assert second.details is not None
    assert second.details.seed == 11
    stage.controller.chat_settings.change_shown(hot.with_value("seed", 12))
    stage.controller.regenerate(second.id)
    until(lambda: stage.state.messages[-1].state in ENDED)
    assert stage.state.messages[-1].text != first.text


def test_a_fault_is_found_without_a_model(qtbot: QtBot, tmp_path: Path) -> None:
    stage = RealStage(tmp_path)
    try:
        stage.start()
        stage.controller.chat_settings.change_shown(
            NO_SETTINGS.with_format(AnswerFormat.REGEX, "[0-9")
        )
        until(lambda: stage.states.chat_settings.shown.fault is not None)
        assert stage.states.chat_settings.shown.fault is not None
        assert stage.states.chat_settings.shown.fault.line == 1
    finally:
        stage.close()
