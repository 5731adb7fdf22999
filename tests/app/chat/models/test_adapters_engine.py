"""Adapters in the whole window, with the real engine on a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import tiny
import tiny_lora
from app.domain.message import AnswerAgain, MessageState
from app.settings.table import Settings
from app.ui.panel.adapters import AdapterSection
from app.ui.transcript.message.message_tools import tools_for
from engine import Role
from real_stage import RealStage
from stage import Stage, until

QUESTION = "the cat sat on the mat"
SETTINGS = Settings(temperature=0.0, max_tokens=12, context=256, threads=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path, model: Path) -> Iterator[RealStage]:
    made = RealStage(tmp_path, settings=SETTINGS)
    made.start(model)
    until(lambda: made.state.model.loaded is not None)
    yield made
    made.close()


def panel_of(stage: Stage) -> AdapterSection:
    stage.window.panel.open()
    return stage.window.panel.adapters


def add(stage: Stage, path: Path) -> None:
    """Add an adapter and wait until the engine has applied or refused it."""
    panel_of(stage).added.emit(path)
    until(lambda: not stage.states.adapters.reading)
    stage.wait_until_idle()


def answer(stage: Stage) -> str:
    """Ask in a new conversation, and wait for the complete answer."""
    if stage.state.messages:
        stage.window.transcript.regenerate_requested.emit(
            stage.state.messages[-1].id, AnswerAgain.SAME
        )
    else:
        stage.window.composer.submitted.emit(QUESTION)
    until(lambda: not stage.state.busy and bool(stage.state.messages))
    last = stage.state.messages[-1]
    assert last.role is Role.ASSISTANT
    assert last.state is not MessageState.FAILED
    return last.text


def badge(stage: Stage) -> str:
    tools = tools_for(stage.state.messages[-1], busy=False)
    return next((tool.text for tool in tools if tool.name == "adapter_badge"), "")


def test_adapter_changes_the_answer_and_switching_off_restores_it(
    stage: RealStage, model: Path, tmp_path: Path
) -> None:
    base = answer(stage)
    assert badge(stage) == ""
    add(stage, tiny_lora.write(tmp_path / "pirate.gguf", model, size=1.5, seed=1))
    adapted = answer(stage)
    assert adapted != base
    assert badge(stage) == "Written with pirate at 1.00"
    row = stage.window.panel.adapters.list.rows[0]
    row.switch.click()
    assert answer(stage) == base
    assert badge(stage) == ""
    row.switch.click()
    row.field.setValue(0.0)
    assert answer(stage) == base
    row.field.setValue(1.0)
    assert answer(stage) == adapted


def test_adapter_of_another_model_is_refused_on_its_row(
    stage: RealStage, model: Path, tmp_path: Path
) -> None:
    base = answer(stage)
    good = tiny_lora.write(tmp_path / "good.gguf", model, size=1.5, seed=2)
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"GGUF" + bytes(60))
    add(stage, good)
    adapted = answer(stage)
    add(stage, wrong)
    fits, refused = stage.window.panel.adapters.list.rows
    assert (fits.switch.isChecked(), refused.switch.isChecked()) == (True, False)
    assert refused.problem.text().count(".") >= 1
    assert answer(stage) == adapted != base
    assert badge(stage) == "Written with good at 1.00"


def test_each_conversation_answers_with_its_own_adapters(
    stage: RealStage, model: Path, tmp_path: Path
) -> None:
    add(stage, tiny_lora.write(tmp_path / "pirate.gguf", model, size=1.5, seed=1))
    adapted, first = answer(stage), stage.state.current
    assert first is not None
    stage.window.sidebar.new_requested.emit(None)
    base = answer(stage)
    assert base != adapted
    assert badge(stage) == ""
    stage.window.sidebar.opened.emit(first)
    assert answer(stage) == adapted
    assert badge(stage) == "Written with pirate at 1.00"


def test_a_click_on_the_badge_opens_the_panel(stage: RealStage) -> None:
    stage.window.transcript.adapters_requested.emit()
    assert stage.window.panel.is_open
