"""A chat whose model elsewhere cannot be reached: not listed, server off, connection deleted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.domain.message import MessageState
from app.state.connections import EngineEdit, EngineState
from fakes import MODEL
from hostile_server import Reply, Server, Step, answer, chunk, error, event, json_reply, serving
from remote_stage import Elsewhere


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        lists(made, "big")
        yield made


def lists(server: Server, *ids: str) -> None:
    rows = [{"id": id, "max_model_len": 4096, "owned_by": "vllm"} for id in ids]
    server.on("/v1/models", json_reply({"data": rows}))


def answered(window: Elsewhere, server: Server) -> None:
    """A chat with an answer of the model elsewhere, while another one is loaded."""
    window.ready(MODEL)
    server.chat(answer("A"))
    window.use()
    window.ask()
    window.ended()


def rows(window: Elsewhere) -> dict[str, tuple[str, bool]]:
    """The rows of the picker: their second lines, and whether each is checked."""
    files = window.window.picker.files
    found = [files.index(row) for row in range(files.rowCount())]
    roles = Qt.ItemDataRole
    return {
        each.data(): (each.data(roles.StatusTipRole), each.data(roles.CheckStateRole))
        for each in found
    }


def line(window: Elsewhere) -> str:
    """What is said above the composer; "": nothing."""
    shown = window.window.chat.model_line
    return "" if shown.isHidden() else shown.words.text()


def test_model_that_its_server_no_longer_lists(
    window: Elsewhere, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chat.servers.connections._AGAIN_SECONDS", 0.0)
    answered(window, server)
    assert line(window) == ""
    lists(server, "small")
    window.window.open_picker()  # asks its server
    window.until(lambda: "small" in rows(window))
    words = f"127.0.0.1:{server.port} does not have the model big."
    assert rows(window)["big"] == ("cannot be used", True)
    assert line(window) == words
    model_line = window.window.chat.model_line
    assert not model_line.choose_button.isHidden()
    assert not model_line.use_button.isHidden()  # of the loaded one
    assert [each.text for each in window.state.messages] == ["Why?", "A"]
    server.chat(error("The model `big` does not exist.", 404))
    window.ask("Again")  # its server has the last word
    assert window.ended().state is MessageState.FAILED


def test_server_that_is_off_is_said_beside_the_chat_until_it_answers(
    window: Elsewhere, server: Server
) -> None:
    answered(window, server)
    server.chat(Reply([event(chunk("Half")), 0.05, Step.CLOSE]))
    server.on("/v1/models", Reply([Step.RESET]))
    window.ask("Count")
    message = window.ended()
    assert message.text == "Half"
    connections = window.states.connections
    window.until(lambda: connections.engines[0].state is EngineState.FAILED)
    host = f"127.0.0.1:{server.port}"
    assert line(window) == f"{host} closed the connection before it answered."
    assert window.window.chat.model_line.words.isHidden()  # the answer says why it failed
    assert not window.window.chat.model_line.choose_button.isHidden()
    assert rows(window)["big"] == ("Office · cannot be used", True)
    lists(server, "big")
    server.chat(answer(" and whole"))
    window.controller.continue_answer(message.id)
    assert window.ended().text == "Half and whole"
    window.until(lambda: connections.engines[0].state is EngineState.READY)
    assert line(window) == ""
    assert rows(window)["big"] == ("Office · 4,096 tokens", True)


def test_wrong_question_does_not_ask_the_server_again(window: Elsewhere, server: Server) -> None:
    answered(window, server)
    before = len(server.received)
    server.chat(error("Rate limit", 429, Retry_After="3600"))
    window.ask("Again")
    window.ended()
    assert [each.path for each in server.received[before:]] == ["/v1/chat/completions"]


def test_the_picker_asks_servers_again_only_after_a_while(
    window: Elsewhere, server: Server
) -> None:
    window.until(lambda: bool(window.state.served))
    before = len(server.received)
    for _ in range(3):
        window.window.open_picker()
        window.window.picker_card.close_card()
    window.wait_until_idle()
    assert {each.path for each in server.received[before:]} >= {"/v1/models"}
    count = sum(each.path == "/v1/models" for each in server.received[before:])
    window.window.open_picker()
    window.wait_until_idle()
    assert sum(each.path == "/v1/models" for each in server.received[before:]) == count


def test_chat_of_a_deleted_connection_keeps_its_text_and_takes_another_model(
    window: Elsewhere, server: Server
) -> None:
    answered(window, server)
    window.controller.network.connections.delete(window.connection)
    window.until(lambda: not window.state.served)
    words = "big, the model of this chat, is on a server that is not set up here."
    assert line(window) == words
    assert rows(window)["big"] == ("cannot be used", True)
    assert not window.controller.send("And now?")
    window.window.chat.model_line.use_button.click()
    assert line(window) == ""
    assert [each.text for each in window.state.messages] == ["Why?", "A"]
    window.ask("And now?")
    window.engine.write("Here.")
    window.engine.finish()
    window.wait_until_idle()
    assert window.state.messages[-1].text == "Here."


def test_engine_that_hangs_keeps_no_other_one_waiting(
    window: Elsewhere, server: Server, qtbot: QtBot
) -> None:
    with serving() as other:
        lists(other, "small")
        server.on("/v1/models", Reply([Step.HOLD]))
        connections = window.controller.network.connections
        connections.test(window.connection)
        connections.save(EngineEdit("", "Other", other.address))
        window.until(lambda: "small" in rows(window))
        assert rows(window)["big"][0] == "Office · 4,096 tokens"  # as it was last listed
        first, second = window.states.connections.engines
        assert (first.state, second.state) == (EngineState.ASKING, EngineState.READY)
        connections.save(EngineEdit(window.connection, "Office", other.address))  # a correction
        window.until(lambda: window.states.connections.engines[0].models == ("small",))
        assert window.states.connections.engines[0].state is EngineState.READY


def test_chat_is_begun_from_the_page_of_connections(window: Elsewhere, server: Server) -> None:
    window.ready(MODEL)
    page = window.window.connections.open()
    window.until(lambda: window.states.connections.engines[0].state is EngineState.READY)
    card = page.engines.cards[window.connection]
    assert card.chat.isVisible()
    card.chat.click()
    window.wait_until_idle()
    assert window.window.chat.isVisible()
    assert window.state.settings(None).model == window.ref
    lists(server, "big", "small")
    window.window.connections.open()
    window.until(lambda: "small" in rows(window))
    window.until(lambda: window.states.connections.engines[0].state is EngineState.READY)
    card.chat.click()
    assert window.window.picker_card.isVisible()
    assert list(rows(window)) == ["big", "small"]  # those of this computer are not offered
    server.on("/v1/models", Reply([Step.RESET]))
    window.window.connections.open()
    card.test.click()
    window.until(lambda: window.states.connections.engines[0].state is EngineState.FAILED)
    assert not card.chat.isVisible()


def test_offline_the_picker_offers_no_model_elsewhere(window: Elsewhere, server: Server) -> None:
    answered(window, server)
    window.controller.change_settings(offline=True)
    assert rows(window)["big"] == ("Office · cannot be used", True)
    assert line(window) == ""  # the line below the field says it
    assert "Offline" in window.window.chat.destination.words.text()
    window.controller.change_settings(offline=False)
    assert rows(window)["big"] == ("Office · 4,096 tokens", True)
