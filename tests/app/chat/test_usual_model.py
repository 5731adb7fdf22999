"""New chats begin with the model used last, also if it is elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.domain.chat_settings import ChatSettings
from app.domain.model_ref import Local, Remote, remote_of
from app.settings.table import Settings
from fakes import MODEL
from hostile_server import Server, answer
from remote_stage import Elsewhere

Make = Callable[..., Elsewhere]


@pytest.fixture
def make(qtbot: QtBot, tmp_path: Path, server: Server) -> Iterator[Make]:
    """Starts a run of the app; each one goes on where the one before ended."""
    runs: list[Elsewhere] = []

    def started(settings: Settings | None = None) -> Elsewhere:
        for run in runs:
            run.close()
        runs[:] = [Elsewhere(tmp_path, server, qtbot, settings)]
        runs[0].start()
        return runs[0]

    yield started
    for run in runs:
        run.close()


def new_model(window: Elsewhere) -> object:
    """The model of a new chat."""
    window.controller.new_conversation()
    return window.state.settings(None).model


def load(window: Elsewhere) -> None:
    window.controller.load_model(MODEL)
    window.engine.finish_load()
    window.wait_until_idle()


def test_the_setting_names_a_model() -> None:
    for id in ("big", "two words", "/models/a b.gguf"):
        assert remote_of(Remote("a1", id).text) == Remote("a1", id)
    for text in ("", "a1", "a1 ", " big"):
        assert remote_of(text) is None


def test_new_chat_has_the_remote_model_that_answered_last(make: Make, server: Server) -> None:
    server.chat(answer("A"))
    window = make()
    load(window)
    assert new_model(window) is None
    window.use()
    window.ask()
    window.ended()
    first = window.state.current
    assert new_model(window) == window.ref
    assert window.window.top_bar.model_button.text() == "big"
    assert window.window.chat.destination.isVisible()  # where its words go
    assert not window.states.chat_settings.shown.changed  # it is as usual
    load(window)  # chosen in the new chat
    assert new_model(window) is None
    assert not window.window.chat.destination.isVisible()
    assert first is not None
    window.controller.open_conversation(first)
    window.wait_until_idle()
    assert window.state.settings(first).model == window.ref
    server.chat(answer("B"))
    window.ask("Again")
    window.ended()
    assert new_model(window) == window.ref


def test_an_answer_by_a_local_model_makes_that_the_usual_one(make: Make, server: Server) -> None:
    window = make()
    load(window)
    window.ask("Here?")
    window.engine.write("Here.")
    window.engine.finish()
    window.wait_until_idle()
    here = window.state.current
    assert here is not None
    window.controller.new_conversation()
    window.use()
    assert new_model(window) == window.ref
    window.controller.open_conversation(here)
    window.wait_until_idle()
    window.ask("And?")
    window.engine.write("So.")
    window.engine.finish()
    window.wait_until_idle()
    assert new_model(window) is None


def test_the_next_run_begins_with_it_and_a_file_opened_with_the_app_does_not(
    make: Make, server: Server
) -> None:
    window = make()
    window.use()
    window = make(window.controller.settings)
    assert window.state.settings(None).model == window.ref
    assert window.state.chat_model is not None
    assert window.state.chat_model.model == window.ref
    window.controller.start(MODEL)
    window.engine.finish_load()
    window.wait_until_idle()
    assert new_model(window) is None


def test_a_preset_with_a_model_keeps_it_and_one_without_leaves_it(make: Make) -> None:
    window = make()
    window.use()
    presets = window.controller.presets
    for settings, parts, expected in (
        (ChatSettings(instructions="Be brief."), ("instructions",), window.ref),
        (ChatSettings(model=Local(MODEL)), ("model",), Local(MODEL)),
    ):
        id = presets.add()
        made = window.states.presets.preset(id)
        assert made is not None
        presets.save(replace(made, settings=settings, parts=frozenset(parts)))
        presets.start(id)
        assert window.state.settings(None).model == expected
        presets.toggle(id)
        assert window.state.settings(None).model == window.ref


def test_without_its_connection_new_chats_follow_the_model_in_use(make: Make) -> None:
    window = make()
    load(window)
    window.use()
    assert new_model(window) == window.ref
    window.controller.network.connections.delete(window.connection)
    window.until(lambda: not window.state.served)
    window.wait_until_idle()
    assert window.state.settings(None).model is None
    window.controller.deletions.undo()
    window.until(lambda: bool(window.state.served))
    assert window.state.settings(None).model == window.ref


def test_a_load_that_is_given_up_gives_the_remote_model_back(make: Make, server: Server) -> None:
    window = make()
    load(window)
    window.ask("Here?")
    window.engine.write("Here.")  # and goes on
    window.drain()
    window.controller.new_conversation()
    window.use()
    window.controller.load_model(MODEL.with_name("other.gguf"))
    assert window.state.settings(None).model is None
    window.controller.close_notice("switch")
    assert window.state.settings(None).model == window.ref
    assert new_model(window) == window.ref
