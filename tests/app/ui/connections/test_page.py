"""Page of connections: switches, server, engines, contacts, keyboard, names for screen readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from app.chat.servers.connections import EngineFault
from app.chat.servers.network import Outside
from app.chat.servers.serving import ServerUse
from app.net.ledger import Purpose
from app.net.offline import gate
from app.state.connections import EngineEdit, FoundRow
from app.state.server import ClientRow, LogRow
from app.system.translation import isolated
from app.ui.connections.page import ConnectionsPage
from app.ui.settings.fields import LineField, Segments
from outside import Directory, Servers
from stage import Stage, flush


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def directory() -> Directory:
    return Directory()


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path, servers: Servers, directory: Directory) -> Iterator[Stage]:
    made = Stage(tmp_path, outside=Outside(servers, directory))
    made.start()
    yield made
    made.close()


@pytest.fixture
def page(stage: Stage) -> ConnectionsPage:
    stage.window.actions_by_id["connections"].trigger()
    settle(stage)
    assert stage.window.connections.page is not None
    return stage.window.connections.page


def settle(stage: Stage) -> None:
    for _ in range(3):  # what is saved is read again, and then asked for its models
        stage.wait_until_idle()


def shown(*parts: QWidget) -> list[bool]:
    return [not part.isHidden() for part in parts]


def type_into(field: object, text: str) -> QLineEdit:
    assert isinstance(field, LineField)
    field.line.setText(text)
    field.line.setModified(True)
    return field.line


def log_row(number: int, **values: object) -> LogRow:
    facts = {
        "began": 1.0, "client": "curl", "method": "POST", "path": "/v1/chat/completions",
        "model": "starter", "status": 200, "seconds": 1.5, "prompt_tokens": 1200,
        "generated_tokens": 20, "outcome": "", "prompt": "", "answer": "",
    }  # fmt: skip
    return LogRow(number, **{**facts, **values})  # type: ignore[arg-type]


def test_the_offline_switch_is_that_of_the_app(
    qtbot: QtBot, stage: Stage, page: ConnectionsPage
) -> None:
    assert not gate.offline
    page.offline.switch.setFocus()
    qtbot.keyClick(page.offline.switch, Qt.Key.Key_Space)
    assert gate.offline
    assert stage.controller.settings.offline
    assert "connects to nothing" in page.offline.words.text()
    page.offline.switch.click()
    assert not gate.offline


def test_without_a_server_and_engines_their_sections_are_hidden(
    qtbot: QtBot, tmp_path: Path
) -> None:
    bare = Stage(tmp_path / "bare")
    try:
        bare.start()
        bare.window.connections.toggle()
        page = bare.window.connections.page
        assert page is not None
        assert shown(page.offline, page.server, page.engines, page.contacts) == [
            True, False, False, True,
        ]  # fmt: skip
    finally:
        bare.close()


def test_the_server_is_switched_on_and_its_address_copied(
    stage: Stage, page: ConnectionsPage, servers: Servers
) -> None:
    server = page.server
    rows = (server.address, server.key, server.closed, *server.rows.values())
    assert not any(shown(*rows, server.warning, server.log, server.users))
    server.switch.switch.click()
    settle(stage)
    assert all(shown(*rows))
    assert len(servers.running) == 1
    server.copy_button.click()
    assert QGuiApplication.clipboard().text() == "http://127.0.0.1:8080"
    assert server.copy_button.text() == "Copied"
    assert "no place for a symbol" in server.closed.words.text()  # offscreen there is none
    assert not server.closed.switch.isEnabled()
    stage.states.server.set(has_tray=True)
    assert "beside the clock" in server.closed.words.text()
    server.closed.switch.click()
    assert stage.controller.settings.serve_closed


def test_the_home_network_comes_with_a_warning(stage: Stage, page: ConnectionsPage) -> None:
    server = page.server
    server.switch.switch.click()
    field = server.rows["serve_network"].field
    assert isinstance(field, Segments)
    field.buttons["network"].click()
    settle(stage)
    assert stage.controller.settings.serve_network == "network"
    assert "Make a key" in server.warning.text()
    server.new_key.click()
    assert "not encrypted" in server.warning.text()
    assert shown(server.address, server.other_address) == [True, True]
    assert server.copy_other.text_to_copy in server.other_address.value.text()
    assert server.copy_other.text_to_copy != server.copy_button.text_to_copy
    page.offline.switch.click()
    assert "only this computer" in server.warning.text()


def test_a_key_is_hidden_until_it_is_asked_for(stage: Stage, page: ConnectionsPage) -> None:
    server = page.server
    server.switch.switch.click()
    assert shown(server.show_key, server.copy_key, server.no_key) == [False] * 3
    server.new_key.click()
    key = stage.controller.settings.serve_key
    assert key not in server.key.value.text()
    server.show_key.click()
    assert key in server.key.value.text()
    server.copy_key.click()
    assert QGuiApplication.clipboard().text() == key
    server.new_key.click()
    assert stage.controller.settings.serve_key != key
    server.no_key.click()
    assert stage.controller.settings.serve_key == ""


def test_a_port_is_typed_and_a_wrong_one_refused(
    stage: Stage, page: ConnectionsPage, servers: Servers
) -> None:
    page.server.switch.switch.click()
    settle(stage)
    row = page.server.rows["serve_port"]
    type_into(row.field, "80").editingFinished.emit()
    assert row.problem.text() == "Enter a whole number from 1,024 to 65,535."
    type_into(row.field, "5000").editingFinished.emit()
    settle(stage)
    assert [each.port for each in servers.running] == [5000]
    assert type_into(row.field, "5000").text() == "5000"


def test_who_uses_it_is_shown_with_a_log_without_texts(
    stage: Stage, page: ConnectionsPage, servers: Servers
) -> None:
    page.server.switch.switch.click()
    settle(stage)
    servers.made[0].shown = ServerUse(
        1, 3, 1,
        (ClientRow("OpenAI/Python", "127.0.0.1", 1, 3, 1.0), ClientRow("", "10.0.0.7", 0, 1, 1.0)),
        (log_row(3, is_running=True), log_row(2), log_row(1, status=401, outcome="The key is wrong.")),
    )  # fmt: skip
    page.opened.emit()
    server = page.server
    assert server.counts.text() == "3 requests so far · 1 is being answered · 1 failed"
    first, second = server.clients.text().split("\n")
    assert first == "OpenAI/Python · 127.0.0.1 · 3 requests · is being answered"
    assert second.startswith("Unnamed program · 10.0.0.7 · 1 request")
    texts = [server.log.item(row).text() for row in range(3)]
    assert texts[0].endswith("curl · starter · is being answered")
    assert texts[1].startswith("POST /v1/chat/completions 200\n")
    assert texts[1].endswith("curl · starter · 1.5 s · 1,200 tokens read, 20 written")
    assert texts[2].endswith("The key is wrong.")
    server.log.setCurrentRow(1)
    assert server.log_text.isHidden()
    server.texts.switch.click()
    assert stage.controller.settings.serve_texts
    row = log_row(4, prompt="Why?", answer="Because.")
    servers.made[0].shown = ServerUse(0, 4, 1, (), (row, log_row(2)))
    page.opened.emit()
    assert server.log.entry(server.log.currentRow()) == 2  # the chosen one stays
    server.log.setCurrentRow(0)
    assert server.log_text.toPlainText() == "Why?\n\nBecause."


def test_an_engine_is_added_by_keyboard(
    qtbot: QtBot, stage: Stage, page: ConnectionsPage, directory: Directory
) -> None:
    directory.lists["https://gpu.example/v1"] = [f"model{number}" for number in range(7)]
    engines, editor = page.engines, page.engines.editor
    engines.add.setFocus()
    qtbot.keyClick(engines.add, Qt.Key.Key_Return)
    assert shown(editor, engines.add) == [True, False]
    qtbot.keyClick(type_into(editor.rows["address"].field, "nonsense"), Qt.Key.Key_Return)
    settle(stage)
    assert shown(editor, editor.problem) == [True, True]
    type_into(editor.rows["address"].field, "https://gpu.example/v1")
    type_into(editor.rows["name"].field, "GPU")
    type_into(editor.rows["key"].field, " secret ")
    type_into(editor.rows["model"].field, "one, , team/two ")
    headers = editor.rows["headers"].field
    headers.editor.set_text("X-Team: a: b\n\nX-Two:c")  # type: ignore[union-attr]
    assert editor.key_line.echoMode() is QLineEdit.EchoMode.Password
    qtbot.keyClick(editor.key_line, Qt.Key.Key_Return)
    settle(stage)
    assert editor.isHidden()
    (card,) = engines.cards.values()
    assert card.name.text() == "GPU"
    assert card.words.text() == "7 models: model0, model1, model2, model3, model4 …"
    (row,) = stage.states.connections.engines
    assert row.headers == (("X-Team", "a: b"), ("X-Two", "c"))
    assert row.named == ("one", "team/two")
    assert list(directory.keys.values()) == ["secret"]
    card.edit.click()
    assert editor.key_line.text() == ""  # a kept key is not shown
    assert "replace" in editor.key_line.placeholderText()
    assert editor.edited() == EngineEdit(row.id, "GPU", row.address, row.headers, None, row.named)
    qtbot.keyClick(page, Qt.Key.Key_Escape)
    assert editor.isHidden()
    assert page.isVisible()
    card.edit.click()
    editor.forget_key.click()
    assert editor.edited().key == ""
    editor.save.click()
    settle(stage)
    assert not stage.states.connections.engines[0].has_key
    card.edit.click()
    assert editor.forget_key.isHidden()
    editor.cancel.click()
    page.offline.switch.click()
    assert not card.test.isEnabled()
    assert "Offline" in engines.searching.text()
    searches = directory.searches
    page.offline.switch.click()
    assert card.test.isEnabled()
    settle(stage)
    assert directory.searches == searches + 1  # it asks again
    assert card.chat.isVisible()
    card.delete.setFocus()
    card.delete.click()
    settle(stage)
    assert engines.cards == {}
    assert engines.undo.words.text() == f"“{isolated('GPU')}” was deleted."
    assert page.window().focusWidget() is engines.undo.button
    engines.undo.button.click()
    settle(stage)
    assert [each.name.text() for each in engines.cards.values()] == ["GPU"]
    assert engines.undo.isHidden()


def test_undo_takes_back_deleted_engines_with_their_keys_in_turn(
    stage: Stage, page: ConnectionsPage, directory: Directory
) -> None:
    connections, undo = stage.controller.network.connections, stage.window.actions_by_id["undo"]
    for name in ("One", "Two"):
        connections.save(EngineEdit("", name, f"https://{name}.example", key=name))
        settle(stage)
    for row in stage.states.connections.engines:
        connections.delete(row.id)
        settle(stage)
    assert (page.engines.cards, len(directory.keys)) == ({}, 2)
    assert stage.window.sidebar.undo.isHidden()  # the page offers it
    undo.trigger()
    settle(stage)
    assert [card.name.text() for card in page.engines.cards.values()] == ["Two"]
    assert "One" in page.engines.undo.words.text()
    undo.trigger()
    settle(stage)
    assert len(page.engines.cards) == 2
    assert page.engines.undo.isHidden()
    assert sorted(directory.keys.values()) == ["One", "Two"]
    connections.delete(stage.states.connections.engines[0].id)
    settle(stage)
    stage.controller.network.close()  # the app quits
    assert list(directory.keys.values()) == ["One"]


def test_engines_deleted_before_a_crash_are_forgotten_at_the_start(
    qtbot: QtBot, tmp_path: Path, directory: Directory
) -> None:
    id = directory.save(EngineEdit("", "Old", "https://old.example", key="secret"))
    directory.delete(id)
    made = Stage(tmp_path, outside=Outside(directory=directory))
    made.start()
    settle(made)
    made.close()
    assert (directory.keys, directory.deleted) == ({}, {})


def test_the_picker_and_the_panel_lead_to_engines_elsewhere(stage: Stage) -> None:
    window = stage.window
    for ask in (
        window.picker.elsewhere_button.click,
        window.chat.empty_view.elsewhere_button.click,
        lambda: _panel_menu(stage)[-1].trigger(),
    ):
        window.close_page()
        window.open_picker()
        ask()
        flush()
        page = window.connections.page
        assert page is not None
        assert page.isVisible()
        assert window.picker_card.isHidden()
        assert window.focusWidget() is page.engines.add
        assert page.engines.add.visibleRegion().boundingRect().height() > 0


def _panel_menu(stage: Stage) -> list[QAction]:
    stage.window.open_panel("model")
    flush()
    content = stage.window.panel.content
    assert content is not None
    return content.model.menu_of_models().actions()


def test_an_engine_found_that_asks_for_a_key_is_edited_first(
    stage: Stage, page: ConnectionsPage, directory: Directory
) -> None:
    directory.running = (FoundRow("vLLM", "http://127.0.0.1:8000/v1", needs_key=True),)
    page.engines.search.click()
    settle(stage)
    (found,) = page.engines.found
    assert found.words.text().endswith("runs on this computer. It asks for a key.")
    found.use.click()
    editor = page.engines.editor
    assert editor.edited().address == "http://127.0.0.1:8000/v1"
    assert editor.focusWidget() is editor.key_line
    editor.key_line.setText("secret")
    editor.save.click()
    settle(stage)
    assert list(directory.keys.values()) == ["secret"]
    assert page.engines.found == []


def test_unencrypted_http_is_agreed_to_first(
    qtbot: QtBot, stage: Stage, page: ConnectionsPage, directory: Directory
) -> None:
    editor = page.engines.editor
    page.engines.add.click()
    type_into(editor.rows["address"].field, "http://public.example")
    editor.save.click()
    settle(stage)
    assert shown(editor, editor.question, editor.agree, editor.save) == [True, True, True, False]
    qtbot.keyClick(editor.key_line, Qt.Key.Key_Return)
    settle(stage)
    assert directory.engines == {}  # the question has a button of its own
    editor.agree.click()
    settle(stage)
    assert editor.isHidden()
    assert len(directory.engines) == 1


def test_a_found_engine_is_offered_and_used_on_a_click(
    stage: Stage, page: ConnectionsPage, directory: Directory
) -> None:
    directory.running = (FoundRow("Ollama", "http://127.0.0.1:11434", 3),)
    directory.lists["http://127.0.0.1:11434"] = EngineFault("It is gone.", "Start it.")
    page.engines.search.click()
    settle(stage)
    (found,) = page.engines.found
    assert found.words.text() == "Ollama runs on this computer. It has 3 models."
    assert directory.engines == {}
    found.use.click()
    settle(stage)
    assert page.engines.found == []
    (card,) = page.engines.cards.values()
    assert (card.name.text(), card.words.text()) == ("Ollama", "It is gone. Start it.")


def test_contacts_are_listed_and_cleared(stage: Stage, page: ConnectionsPage) -> None:
    contacts = page.contacts
    assert shown(contacts.none, contacts.list, contacts.clear) == [True, False, False]
    gate.ledger.record(("hub.example", 443, Purpose.SEARCH), count=2, received=5_000_000)
    gate.ledger.record(("::1", 8080, Purpose.ANSWERS), count=1, sent=70_000, refused=1)
    page.opened.emit()
    texts = [contacts.list.item(row).text() for row in range(contacts.list.count())]
    assert texts[0].startswith("[::1]:8080\nfor answers in your chats · 1 time · refused 1 time")
    assert texts[0].endswith("70 kB sent")
    assert texts[1].startswith("hub.example:443\nto search for models · 2 times · last ")
    assert texts[1].endswith("5 MB received")
    contacts.clear.click()
    assert contacts.list.count() == 0
    assert not contacts.none.isHidden()


def test_every_control_can_be_reached_and_has_a_name(
    stage: Stage, page: ConnectionsPage, directory: Directory
) -> None:
    directory.save(EngineEdit("", "GPU", "https://gpu.example"))
    page.server.switch.switch.click()
    page.server.new_key.click()
    page.engines.add.click()
    settle(stage)
    flush()
    controls = [
        each
        for kind in (QAbstractButton, QLineEdit)
        for each in page.findChildren(kind)
        if each.isVisible()
    ]
    nameless = [each for each in controls if not (each.accessibleName() or each.text())]  # type: ignore[attr-defined]
    assert nameless == []
    unreachable = [
        each for each in controls if not each.focusPolicy() & Qt.FocusPolicy.TabFocus
        and not isinstance(each.parentWidget(), Segments)
    ]  # fmt: skip
    assert unreachable == []


def test_escape_goes_back_to_the_chat(qtbot: QtBot, stage: Stage, page: ConnectionsPage) -> None:
    qtbot.keyClick(page, Qt.Key.Key_Escape)
    assert stage.window.chat.isVisible()
    stage.window.preferences.open()
    assert stage.window.preferences.page is not None
    stage.window.preferences.page.connections_button.click()
    assert page.isVisible()


def test_the_editor_and_its_problem_are_scrolled_into_view(
    qtbot: QtBot, stage: Stage, page: ConnectionsPage
) -> None:
    stage.window.resize(1000, 900)
    editor = page.engines.editor
    page.engines.add.click()

    def is_seen(part: QWidget) -> bool:
        port = page.view.viewport()
        return port.rect().contains(part.rect().translated(part.mapTo(port, QPoint())))

    qtbot.waitUntil(lambda: is_seen(editor))
    stage.window.resize(700, 420)
    line = type_into(editor.rows["address"].field, "nonsense")
    qtbot.keyClick(line, Qt.Key.Key_Return)
    settle(stage)
    qtbot.waitUntil(lambda: is_seen(editor.problem))
