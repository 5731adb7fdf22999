"""Engines elsewhere, contacts and the offline switch, as the page asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.servers.connections import EngineFault, purpose_words
from app.chat.servers.network import Outside
from app.domain.model_ref import Remote
from app.net.ledger import Purpose
from app.net.offline import Offline, gate
from app.settings.table import Settings
from app.state.connections import EngineEdit, EngineState, FoundRow
from fakes import MODEL
from outside import Directory
from stage import Stage


@pytest.fixture
def directory() -> Directory:
    return Directory()


@pytest.fixture
def wide(qtbot: QtBot, tmp_path: Path, directory: Directory) -> Iterator[Stage]:
    """The window with engines elsewhere, not started."""
    made = Stage(tmp_path, outside=Outside(directory=directory))
    yield made
    made.close()


def test_a_new_engine_is_kept_and_asked_for_its_models(wide: Stage, directory: Directory) -> None:
    directory.lists["https://gpu.example/v1"] = ["big", "small"]
    wide.start()
    wide.controller.network.connections.save(
        EngineEdit("", "GPU", "https://gpu.example/v1/", (("X-Team", "a"),), "secret")
    )
    wide.wait_until_idle()
    wide.wait_until_idle()
    (row,) = wide.states.connections.engines
    assert (row.name, row.address, row.has_key) == ("GPU", "https://gpu.example/v1", True)
    assert (row.state, row.models) == (EngineState.READY, ("big", "small"))
    assert directory.keys == {row.id: "secret"}
    wide.controller.network.connections.test(row.id)
    wide.controller.network.connections.test(row.id)  # it is being asked
    assert wide.states.connections.engines[0].state is EngineState.ASKING
    wide.wait_until_idle()
    wide.controller.network.connections.save(EngineEdit(row.id, "Big", row.address))
    wide.wait_until_idle()
    assert directory.keys == {row.id: "secret"}  # an edit without a key keeps it
    wide.controller.network.connections.delete(row.id)
    wide.wait_until_idle()
    wide.wait_until_idle()
    assert wide.states.connections.engines == ()


def test_a_wrong_address_is_refused_in_a_sentence(wide: Stage, directory: Directory) -> None:
    wide.start()
    wide.controller.network.connections.save(EngineEdit("", "", "what"))
    wide.wait_until_idle()
    state = wide.states.connections
    assert state.problem == "This is not the address of a server. Write it as http://host."
    assert (state.engines, directory.engines) == ((), {})
    wide.controller.network.connections.close_edit()
    assert state.problem == ""


def test_http_to_a_public_address_asks_once(wide: Stage, directory: Directory) -> None:
    wide.start()
    connections, state = wide.controller.network.connections, wide.states.connections
    connections.save(EngineEdit("", "", "http://public.example"))
    wide.wait_until_idle()
    assert state.question is not None
    assert "unencrypted" in state.question.text
    assert directory.engines == {}
    connections.save(state.question.edit)
    wide.wait_until_idle()
    wide.wait_until_idle()
    assert state.question is None
    assert [row.host for row in state.engines] == ["public.example"]


def test_an_engine_that_does_not_answer_says_so(wide: Stage, directory: Directory) -> None:
    directory.lists["http://10.0.0.2"] = EngineFault("10.0.0.2 does not answer.", "Start it.")
    wide.start()
    wide.controller.network.connections.save(EngineEdit("", "", "http://10.0.0.2"))
    wide.wait_until_idle()
    wide.wait_until_idle()
    (row,) = wide.states.connections.engines
    assert (row.state, row.problem) == (EngineState.FAILED, "10.0.0.2 does not answer.")
    directory.lists["http://10.0.0.2"] = ["now"]
    wide.controller.network.connections.test(row.id)
    assert wide.states.connections.engines[0].state is EngineState.ASKING
    wide.wait_until_idle()
    assert wide.states.connections.engines[0].models == ("now",)


def test_engines_of_this_machine_are_looked_for_on_the_page_only(
    wide: Stage, directory: Directory
) -> None:
    directory.running = (FoundRow("Ollama", "http://127.0.0.1:11434", 3),)
    wide.start()
    assert directory.searches == 0
    wide.window.connections.toggle()
    wide.wait_until_idle()
    assert directory.searches == 1
    assert wide.states.connections.found == directory.running
    wide.controller.network.connections.save(EngineEdit("", "Ollama", "http://127.0.0.1:11434"))
    wide.wait_until_idle()
    wide.wait_until_idle()
    assert wide.states.connections.found == ()  # it has a connection now
    wide.controller.network.connections.find()
    wide.wait_until_idle()
    assert wide.states.connections.found == ()


def test_the_page_shows_the_models_that_engines_have_now(wide: Stage, directory: Directory) -> None:
    directory.lists["http://10.0.0.2"] = ["old"]
    wide.start()
    connections, state = wide.controller.network.connections, wide.states.connections
    connections.save(EngineEdit("", "", "http://10.0.0.2"))
    wide.wait_until_idle()
    wide.wait_until_idle()
    assert state.engines[0].models == ("old",)
    directory.lists["http://10.0.0.2"] = ["new"]
    wide.window.connections.toggle()
    wide.wait_until_idle()
    assert state.engines[0].models == ("new",)
    wide.window.close_page()
    wide.controller.change_settings(offline=True)
    directory.lists["http://10.0.0.2"] = EngineFault("asked")
    wide.window.connections.toggle()
    wide.wait_until_idle()
    assert state.engines[0].models == ("new",)  # nobody is asked offline
    assert state.engines[0].problem == ""


def test_an_engine_connected_by_another_name_is_not_found_again(
    wide: Stage, directory: Directory
) -> None:
    directory.running = (FoundRow("vLLM", "http://127.0.0.1:8000/v1", 1),)
    wide.start()
    connections, state = wide.controller.network.connections, wide.states.connections
    connections.save(EngineEdit("", "web server", "http://127.0.0.1:80"))  # another program
    wide.wait_until_idle()
    wide.wait_until_idle()
    connections.find()
    wide.wait_until_idle()
    assert state.found == directory.running
    connections.save(EngineEdit("", "GPU", "http://localhost:8000"))
    wide.wait_until_idle()
    assert state.found == ()


def test_offline_nobody_is_asked(wide: Stage, directory: Directory) -> None:
    wide.start()
    wide.controller.change_settings(offline=True)
    assert wide.states.connections.offline
    wide.window.connections.toggle()
    wide.wait_until_idle()
    assert directory.searches == 0
    with pytest.raises(Offline):
        gate.allow("https://hub.example/words", Purpose.SEARCH)
    wide.controller.network.connections.watch(True)
    (contact,) = wide.states.connections.contacts
    assert (contact.host, contact.count, contact.refused) == ("hub.example", 0, 1)
    wide.controller.change_settings(offline=False)
    with gate.allow("https://hub.example/words", Purpose.SEARCH):
        pass
    wide.controller.network.connections.clear_contacts()
    assert wide.states.connections.contacts == ()


def test_the_switch_is_on_before_anything_can_connect(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path, settings=Settings(offline=True))
    try:
        with pytest.raises(Offline):
            gate.allow("https://hub.example", Purpose.DOWNLOAD)
    finally:
        stage.close()


def test_contacts_survive_a_restart(qtbot: QtBot, tmp_path: Path) -> None:
    for count in (1, 2):
        stage = Stage(tmp_path / str(count))
        try:
            stage.start()
            with gate.allow("https://hub.example/words?secret", "search"):
                pass
            stage.controller.network.connections.watch(True)
            (contact,) = stage.states.connections.contacts
            assert (contact.host, contact.port, contact.count) == ("hub.example", 443, count)
        finally:
            stage.close()


def test_every_purpose_has_words() -> None:
    assert len({purpose_words(each) for each in Purpose}) == len(Purpose)


def test_where_words_go_follows_the_model_of_the_chat(wide: Stage, directory: Directory) -> None:
    directory.save(EngineEdit("gpu", "GPU", "https://gpu.example/v1"))
    wide.ready(MODEL)
    state, window = wide.states.connections, wide.window
    promise = "Nothing you write leaves it."
    assert state.destination == ""
    assert promise in window.chat.empty_view.sentence.text()
    assert window.chat.destination.isHidden()
    there = replace(wide.state.settings(None), model=Remote("gpu", "big"))
    wide.controller.chat_settings.change(None, there)
    wide.wait_until_idle()
    assert state.destination == "gpu.example"
    words = "What you write goes to gpu.example."
    assert window.chat.destination.words.text() == words
    assert window.chat.destination.isVisible()
    assert window.chat.empty_view.sentence.isHidden()  # it is said once
    assert window.chat.empty_view.name.text() == "big"
    wide.controller.change_settings(offline=True)
    assert window.chat.destination.words.text() == "Offline: nothing goes to gpu.example."
    wide.controller.change_settings(offline=False)
    wide.controller.network.connections.delete("gpu")
    wide.wait_until_idle()
    wide.wait_until_idle()
    assert state.destination == ""
    assert window.chat.destination.isHidden()
    assert "not set up" in window.chat.model_line.words.text()
    assert window.chat.empty_view.sentence.isHidden()
    assert window.chat.empty_view.name.text() == "big"
    here = replace(wide.state.settings(None), model=None)
    wide.controller.chat_settings.change(None, here)
    wide.wait_until_idle()
    assert window.chat.destination.isHidden()
    assert promise in window.chat.empty_view.sentence.text()


def test_the_promise_of_the_settings_names_engines_elsewhere(
    wide: Stage, directory: Directory
) -> None:
    wide.start()
    wide.window.preferences.open()
    assert wide.window.preferences.page is not None
    about = wide.window.preferences.page.about
    assert about.promise.text().startswith("Nothing you type")
    wide.controller.network.connections.save(EngineEdit("", "", "https://gpu.example"))
    wide.wait_until_idle()
    wide.wait_until_idle()
    assert "Nothing you type" not in about.promise.text()
    assert "gpu.example: in chats with its models" in about.contacts.text()
    wide.controller.change_settings(offline=True)
    assert about.promise.text() == "Tokonoma is offline: it connects to nothing."
    assert about.contacts.isHidden()
