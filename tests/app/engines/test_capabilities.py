"""The window offers, and the app asks for, only what the engine can do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.domain.chat_settings import AnswerFormat
from app.domain.connection import ServerKind
from app.engines.client import Capabilities
from app.engines.remote.wire import formats_of, samplers_of
from app.settings.samplers import SAMPLERS
from engine import Chat, ConstraintKind, Restore, Save, SetAdapters
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


def test_settings_that_a_server_lacks_are_greyed_with_the_reason(plain: Stage) -> None:
    plain.window.open_panel()
    content = plain.window.panel.content
    assert content is not None
    everything = Capabilities(
        server="gpu:8000", formats=frozenset(ConstraintKind), budgets=True, forgetting=True
    )
    some = Capabilities(
        server="gpu:8000",
        formats=formats_of(ServerKind.LM_STUDIO),
        samplers=samplers_of(ServerKind.OLLAMA),
        thinking=False,
    )
    rows = content.sampling.rows
    top_k, temperature = rows["top_k"], rows["temperature"]
    thinking, format = content.thinking, content.format.field
    plain.state.set_capabilities(some)
    greyed = {name for name, row in rows.items() if not row.field.isEnabled()}
    assert greyed == SAMPLERS.keys() - samplers_of(ServerKind.OLLAMA)
    assert top_k.help.text() == "gpu:8000 does not use this value."
    assert temperature.help.text() == SAMPLERS["temperature"].help
    enabled = [name for name, each in thinking.choice.buttons.items() if each.isEnabled()]
    assert enabled == ["usual"]
    assert thinking.note.text() == some.reason("thinking")
    *actions, _, reason = format.kinds.menu_of_choices().actions()
    assert [each.text() for each in actions if each.isEnabled()] == [
        "Any text", "JSON", "JSON schema",
    ]  # fmt: skip
    assert (reason.text(), reason.isEnabled()) == (some.reason("formats"), False)
    settings = plain.state.settings(None)
    chosen = settings.with_format(AnswerFormat.REGEX, "[0-9]+").with_value("top_k", 5)
    plain.controller.chat_settings.change(None, chosen)
    plain.state.set_capabilities(some)  # a change of the settings shows those of its engine
    assert format.help.text() == "gpu:8000 does not support this answer format."
    assert top_k.reset.isVisible()  # a value of another model can be given up
    plain.state.set_capabilities(everything)
    assert all(row.field.isEnabled() for row in rows.values())
    assert top_k.help.text() == SAMPLERS["top_k"].help
    assert thinking.note.text() == "Slower, often better."
    assert all(each.isEnabled() for each in format.kinds.menu_of_choices().actions())
    assert format.help.text().startswith("Every answer matches")


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
