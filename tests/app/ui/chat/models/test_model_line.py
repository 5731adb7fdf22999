"""The line above the composer about a chat whose model is not in use, and the button in the bar."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QBoxLayout
from pytestqt.qtbot import QtBot

from app.domain.model_ref import Local
from app.state.chat import ChatModel, ModelFile
from app.ui.chat.models.model_line import ModelLine, sentence
from engine import Load
from fakes import MODEL
from stage import Stage, flush

OWN = "Qwen3.5-4B-Q4_K_M.gguf"
QWEN = ChatModel(Local(Path("/m/q.gguf")), "Qwen3.5 4B", "SmolLM2")


@pytest.fixture
def other(stage: Stage) -> Iterator[Stage]:
    """The shown chat has another model than the loaded one."""
    path = stage.folder / OWN
    path.write_bytes(b"GGUF")
    stage.ready(MODEL)
    stage.state.set_installed([ModelFile(path, "Qwen3.5 4B", 2_700_000_000, "Q4_K_M")])
    stage.controller.send("Why?")
    stage.engine.write("Because.")
    stage.engine.finish()
    stage.wait_until_idle()
    stage.controller.chat_models.choose(stage.state.current, Local(path))
    stage.wait_until_idle()
    return stage


def line(stage: Stage) -> ModelLine:
    return stage.window.chat.model_line


def test_line_is_hidden_while_the_models_agree(stage: Stage) -> None:
    stage.ready(MODEL)
    assert not line(stage).isVisible()
    stage.controller.send("Why?")
    stage.engine.finish()
    stage.wait_until_idle()
    assert not line(stage).isVisible()


def test_line_says_what_sending_loads_and_how_long_it_takes(other: Stage) -> None:
    assert line(other).isVisible()
    assert (
        line(other).words.text().startswith("This chat uses Qwen3.5 4B · sending loads it, about")
    )
    assert line(other).use_button.text() == "Use Small Model 135M (loaded)"
    assert not line(other).choose_button.isVisible()
    button = other.window.top_bar.model_button
    assert button.text() == "Qwen3.5 4B · Q4_K_M"
    assert button.accessibleName() == "Model: Qwen3.5 4B · Q4_K_M"
    assert other.window.picker.files.chosen == Local(other.folder / OWN)
    assert "Qwen3.5 4B" in other.window.composer.editor.placeholderText()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "This chat uses Qwen3.5 4B · sending loads it"),
        (0.2, "This chat uses Qwen3.5 4B · sending loads it, about 1 s"),
        (6.4, "This chat uses Qwen3.5 4B · sending loads it, about 6 s"),
        (150.0, "This chat uses Qwen3.5 4B · sending loads it, about 2 min"),
    ],
)
def test_time_in_words(seconds: float, words: str) -> None:
    assert sentence(ChatModel(QWEN.model, QWEN.name, load_seconds=seconds)) == words


def test_keyboard_reaches_the_link(other: Stage, qtbot: QtBot) -> None:
    button = line(other).use_button
    button.setFocus(Qt.FocusReason.TabFocusReason)
    assert button.hasFocus()
    qtbot.keyClick(button, Qt.Key.Key_Space)
    assert not line(other).isVisible()
    assert other.window.top_bar.model_button.text() == "Small Model 135M · Q4_1"


def test_line_is_hidden_while_the_model_loads_and_an_answer_waits(other: Stage) -> None:
    other.controller.send("And?")
    assert other.engine.count(Load) == 2
    assert not line(other).isVisible()
    assert other.window.chat.status_line.loading.text() == "Loading Qwen3.5 4B"


def test_links_are_below_the_words_in_a_narrow_window(other: Stage) -> None:
    layout = line(other).layout()
    assert isinstance(layout, QBoxLayout)
    assert layout.direction() is QBoxLayout.Direction.LeftToRight
    other.window.resize(420, 560)
    flush()
    assert layout.direction() is QBoxLayout.Direction.TopToBottom
    assert line(other).words.wordWrap()


def test_without_a_loaded_model_there_is_none_to_use(other: Stage) -> None:
    other.controller.unload_model()
    other.engine.finish_unload()
    other.wait_until_idle()
    assert line(other).isVisible()
    assert not line(other).use_button.isVisible()


def test_missing_model_offers_another(other: Stage) -> None:
    (other.folder / OWN).unlink()
    other.state.set_installed([])
    other.wait_until_idle()
    assert line(other).choose_button.isVisible()
    line(other).choose_button.click()
    assert other.window.picker_card.isVisible()
