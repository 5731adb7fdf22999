"""The window offers, and the app asks for, only what the engine can do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.engines.client import Capabilities
from engine import Chat, Restore, Save, SetAdapters
from fakes import MODEL, kind_of
from stage import Stage

ADAPTER = Path("/adapters/pirate.gguf")


@pytest.fixture
def plain(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    """The window over an engine that only answers."""
    made = Stage(tmp_path, capabilities=Capabilities())
    made.ready(MODEL)
    yield made
    made.close()


def test_local_engine_offers_adapters(stage: Stage) -> None:
    stage.ready(MODEL)
    window = stage.window
    window.actions_by_id["adapters"].trigger()
    assert window.panel.is_open
    assert window.panel.adapters.isVisible()


def test_adapters_are_not_offered_by_an_engine_without_them(plain: Stage) -> None:
    window = plain.window
    assert not window.actions_by_id["adapters"].isEnabled()
    window.toggle_adapters()
    window.transcript.adapters_requested.emit()  # the badge of an answer that used some
    assert not window.panel.is_open
    window.actions_by_id["panel"].trigger()
    assert window.panel.is_open
    assert not window.panel.adapters.isVisible()


def test_adapters_of_a_model_elsewhere_are_greyed_with_the_reason(
    qtbot: QtBot, plain: Stage
) -> None:
    plain.state.set_capabilities(Capabilities(server="gpu:8000"))
    window = plain.window
    window.actions_by_id["adapters"].trigger()
    assert window.panel.is_open
    section = window.panel.adapters
    qtbot.waitUntil(section.isVisible)
    assert section.sentence.text() == plain.state.capabilities.reason("adapters")
    assert "gpu:8000" in section.sentence.text()
    assert not section.add_button.isEnabled()
    assert not window.panel.sheet.acceptDrops()
    plain.state.set_capabilities(Capabilities(adapters=True))
    assert section.add_button.isEnabled()
    assert "gpu:8000" not in section.sentence.text()
    assert window.panel.sheet.acceptDrops()


def test_engine_that_only_answers_is_asked_for_nothing_else(plain: Stage) -> None:
    plain.controller.adapters.add(ADAPTER)  # a stack chosen with another engine
    for text in ("One", "Two"):
        plain.controller.new_conversation()
        plain.controller.send(text)
        plain.engine.write("Here.")
        plain.engine.finish()
        plain.wait_until_idle()
    plain.controller.open_conversation(plain.state.conversations[1].id)
    plain.wait_until_idle()
    plain.controller.send("And then?")
    plain.controller.shut_down()
    kinds = {kind_of(each) for each in plain.engine.commands}
    assert Chat in kinds
    assert not kinds & {SetAdapters, Restore, Save}
