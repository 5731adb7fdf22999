"""Tools section of the settings: limits, where the web is searched, and keys that are not shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtWidgets import QLineEdit

from app.settings.table import Settings
from app.ui.settings.page import Preferences
from fakes import MODEL
from stage import Stage, flush


@pytest.fixture
def page(stage: Stage) -> Preferences:
    stage.ready(MODEL)
    page = stage.window.preferences.open()
    flush()
    return page


def typed(line: QLineEdit, text: str) -> None:
    """Type a text and press Enter."""
    line.setText(text)
    line.setModified(True)
    line.editingFinished.emit()


def line_of(page: Preferences, name: str) -> QLineEdit:
    found = page.rows[name].field.findChild(QLineEdit)
    assert isinstance(found, QLineEdit)
    return found


def test_the_limits_of_calls_are_set(stage: Stage, page: Preferences) -> None:
    typed(line_of(page, "tool_rounds"), "20")
    typed(line_of(page, "tool_seconds"), "90")
    assert (stage.controller.settings.tool_rounds, stage.controller.settings.tool_seconds) == (
        20,
        90,
    )
    typed(line_of(page, "tool_rounds"), "101")
    assert stage.controller.settings.tool_rounds == 20
    assert page.rows["tool_rounds"].problem.text() == "Enter a whole number from 1 to 100."


def test_only_what_a_search_service_needs_is_asked_for(stage: Stage, page: Preferences) -> None:
    def seen() -> tuple[bool, bool]:
        return page.rows["search_address"].isVisible(), page.tools.key.isVisible()

    assert seen() == (False, False)
    for provider, wanted in (
        ("searxng", (True, False)),
        ("brave", (False, True)),
        ("tavily", (False, True)),
        ("off", (False, False)),
    ):
        page.rows["search_provider"].changed.emit("search_provider", provider)
        assert stage.controller.settings.search_provider == provider
        assert seen() == wanted
        assert ("you allow tools to send" in page.about.promise.text()) is (provider != "off")


def test_a_key_is_emitted_once_and_shown_and_stored_nowhere(
    stage: Stage, page: Preferences
) -> None:
    tools, keys = page.tools, list[tuple[str, str]]()
    tools.key_changed.connect(lambda *values: keys.append(values))
    stage.controller.change_settings(search_provider="brave")
    assert tools.key_line.echoMode() is QLineEdit.EchoMode.Password
    assert not tools.forget_key.isVisible()
    typed(tools.key_line, " secret ")
    tools.key_line.editingFinished.emit()
    assert keys == [("brave", "secret")]
    assert tools.key_line.text() == ""
    assert not tools.key.reset.isVisible()
    assert "secret" not in (stage.folder / "settings.json").read_text(encoding="utf-8")
    tools.show_key("tavily", kept=True)  # of another
    assert not tools.forget_key.isVisible()
    tools.show_key("brave", kept=True)
    assert tools.forget_key.isVisible()
    assert tools.key_line.placeholderText() == "Kept; type a new one to replace it"
    tools.forget_key.click()
    assert keys[1:] == [("brave", "")]
    tools.show_key("brave", kept=False)
    assert not tools.forget_key.isVisible()
    assert tools.key_line.placeholderText() == ""


def test_a_key_that_is_typed_is_for_no_other_service(stage: Stage, page: Preferences) -> None:
    keys, wanted = list[tuple[str, str]](), list[str]()
    page.tools.key_changed.connect(lambda *values: keys.append(values))
    page.tools.key_wanted.connect(wanted.append)
    stage.controller.change_settings(search_provider="brave")
    page.tools.key_line.setText("half")
    page.tools.key_line.setModified(True)
    stage.controller.change_settings(search_provider="tavily")
    page.tools.key_line.editingFinished.emit()
    assert page.tools.key_line.text() == ""
    assert keys == []
    assert wanted == ["brave", "tavily"]
    page.show_settings(replace(Settings(), search_provider="tavily"))
    assert wanted == ["brave", "tavily"]  # not for every other setting


def test_the_section_leads_to_what_tools_did(stage: Stage, page: Preferences) -> None:
    page.tools.activity_button.click()
    assert stage.window.shown_page is stage.window.activity.page
