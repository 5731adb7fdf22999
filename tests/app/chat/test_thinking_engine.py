"""Thinking in the whole window, with the real engine on a tiny model that never stops thinking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import thinkers
from app.domain.chat_settings import NO_SETTINGS
from app.domain.message import Message, MessageState
from app.domain.parts import TextPart, ThoughtPart
from app.settings.samplers import Thinking
from app.settings.table import Settings
from real_stage import RealStage
from stage import Stage, flush, until
from thinkers import FAMILIES, WORD

ANSWER, BUDGET = 12, 40  # tokens
SETTINGS = Settings(max_tokens=ANSWER, context=2048, threads=1)
ENDED = {MessageState.COMPLETE, MessageState.STOPPED}


@pytest.fixture(params=["gpt-oss", "Qwen3", "Mistral", "Gemma 4"])
def stage(request: pytest.FixtureRequest, qtbot: QtBot, tmp_path: Path) -> Iterator[RealStage]:
    made = RealStage(tmp_path, settings=SETTINGS)
    made.start(thinkers.write(tmp_path / "tiny.gguf", FAMILIES[request.param]))
    until(lambda: made.state.model.loaded is not None)
    yield made
    made.close()


def ended(stage: Stage) -> Message:
    until(lambda: stage.state.messages[-1].state in ENDED)
    stage.wait_until_idle()
    return stage.state.messages[-1]


def row_words(stage: Stage) -> list[str]:
    view = stage.window.transcript.stack.views[-1]
    return [row.words for row in view.rows]


def test_the_fold_shows_the_thoughts_and_that_their_budget_was_reached(stage: RealStage) -> None:
    assert stage.states.chat_settings.shown.can_think
    stage.controller.chat_settings.change_shown(
        replace(NO_SETTINGS, thinking=Thinking.BUDGET, thinking_budget=BUDGET)
    )
    stage.controller.send("hello")
    message = ended(stage)
    thought, answer = message.parts
    assert isinstance(thought, ThoughtPart)
    assert isinstance(answer, TextPart)
    assert thought.text.strip() == WORD * BUDGET
    assert answer.text.strip() == WORD * ANSWER
    assert message.details is not None
    assert (message.details.thought_tokens, message.details.thought_budget) == (BUDGET, BUDGET)
    flush()
    (words,) = row_words(stage)
    assert words.startswith("Thought")
    assert words.endswith(f"(budget of {BUDGET} tokens reached)")
    view = stage.window.transcript
    assert WORD * BUDGET not in view.stack.views[1].spoken  # folded
    view.message_layout.toggle_row(1, 0)
    shown = view.stack.views[1].sections[0].text.strip()
    assert shown == WORD * BUDGET


def test_thinking_off_gives_the_answer_alone(stage: RealStage) -> None:
    stage.controller.chat_settings.change_shown(replace(NO_SETTINGS, thinking=Thinking.OFF))
    stage.controller.send("hello")
    message = ended(stage)
    assert message.text.strip() == WORD * ANSWER
    assert row_words(stage) == []
