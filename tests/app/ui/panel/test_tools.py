"""The tools section of the panel: switches, what is greyed and why, and the files of tools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication, QFileDialog, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.chat.settings.tool_paths import ToolPaths
from app.domain.chat_settings import NO_SETTINGS, AnswerFormat, ChatSettings
from app.domain.tool_servers import ServerPhase, ServerRow
from app.state.chat_settings import ShownSettings
from app.state.tool_servers import ToolServersState
from app.state.tools import PathKind, ToolRow, ToolsState
from app.system.worker import BackgroundWorker
from app.ui.panel.tools import ToolsSection
from app.ui.presets.words import part_words
from app.ui.theme.theme import Theme
from fakes import MODEL
from stage import Stage, flush, until
from tool_rows import CALCULATE, CLOCK, ISSUES, PYTHON, READ, ROWS, WRITE, many, tool


class Panel:
    """The section without a panel around it, and the settings of a chat that it changes."""

    def __init__(self) -> None:
        self.settings, self.tools, self.servers = NO_SETTINGS, ToolsState(), ToolServersState()
        self.section = ToolsSection(self.tools, self.servers)
        self.section.edited.connect(self._edit)
        self.section.resize(336, 900)

    def _edit(self, values: dict[str, Any]) -> None:
        self.show(replace(self.settings, **values))

    def show(self, settings: ChatSettings) -> None:
        """Show these settings, as the panel does."""
        self.settings = settings
        self.section.show_settings(ShownSettings(settings))
        self.section.show_changed(settings != NO_SETTINGS)


@pytest.fixture
def panel(qtbot: QtBot, qapp: QApplication) -> Iterator[Panel]:
    theme, made = Theme(qapp, "light"), Panel()
    qtbot.addWidget(made.section)
    made.tools.set_rows(ROWS, "")
    made.section.show()
    yield made
    made.section.close()
    for each in (theme, made.tools):
        each.deleteLater()
    flush()


@pytest.fixture
def section(panel: Panel) -> ToolsSection:
    return panel.section


def settings(stage: Stage) -> ChatSettings:
    return stage.states.chat_settings.settings


@pytest.fixture
def in_window(stage: Stage) -> ToolsSection:
    """The section in the panel of the window."""
    stage.ready(MODEL)
    stage.states.tools.set_rows(ROWS, "")
    stage.window.activateWindow()
    stage.window.open_panel("tools")
    stage.wait_for_animations()
    return stage.window.panel.content.tools


def texts(lines: QWidget) -> list[str]:
    """What labels of a widget say."""
    flush()
    return [each.text() for each in lines.findChildren(QLabel) if each.isVisibleTo(lines)]


def words(section: ToolsSection) -> list[str]:
    """The texts of the switches that are shown, from top to bottom."""
    flush()
    labels = [each for each in section.switches.findChildren(QLabel) if each.isVisible()]
    places = [(each.mapTo(section, each.rect().topLeft()).y(), each.text()) for each in labels]
    return [text for _, text in sorted(places) if text]


def test_a_switch_puts_a_tool_into_the_settings_of_the_chat(
    stage: Stage, in_window: ToolsSection
) -> None:
    assert in_window.total.isHidden()
    in_window.switches.rows[CALCULATE.id].switch.click()
    in_window.switches.rows[CLOCK.id].switch.click()
    assert settings(stage).tools == (CALCULATE.id, CLOCK.id)
    tokens = sum(row.tokens for row in stage.states.tools.rows if row.tool in (CALCULATE, CLOCK))
    words = f"2 tools are on. That is ≈ {tokens} tokens of each prompt."
    assert in_window.total.text() == words
    assert "Changed in this chat" in (
        in_window.switches.rows[READ.id].switch.accessibleDescription()
    )
    in_window.switches.rows[CALCULATE.id].switch.click()
    assert settings(stage).tools == (CLOCK.id,)
    in_window.reset.click()
    assert settings(stage) == NO_SETTINGS
    stage.window.panel.content.undo_button.click()
    assert settings(stage).tools == (CLOCK.id,)


def test_tools_are_below_their_servers_with_a_line_and_what_they_cost(
    section: ToolsSection,
) -> None:
    assert words(section)[:7] == [
        "Built in",
        "Calculator", "Computes with exact decimals and units.", "≈ 85 tokens",
        "Date and time", "Tells the date and the time, and counts days.", "≈ 112 tokens",
    ]  # fmt: skip
    assert words(section)[-4:] == [
        "tracker",
        "List issues",
        "Lists the issues of a project. Returns at most 100, the newest first, as JSON.",
        "asks first",
    ]
    assert section.switches.search.isHidden()
    assert section.paths.servers.isVisible()


def test_all_tools_of_a_server_are_switched_at_once(panel: Panel, section: ToolsSection) -> None:
    more = [
        ToolRow(tool("files/a", "Read", "Reads.", server="files")),
        ToolRow(tool("files/b", "Write", "Writes.", server="files")),
        ToolRow(tool("files/c", "Burn", "Burns.", server="files", problem="No flame.")),
    ]
    panel.tools.set_rows([*ROWS, *more], "")
    panel.show(ChatSettings(tools=(CALCULATE.id, "files/a")))
    head = section.switches.heads["files"]
    assert head.text() == "All on"
    assert head.accessibleName() == "All on: files"
    assert section.switches.heads["tracker"].isHidden()  # it has one
    head.click()
    assert panel.settings.tools == (CALCULATE.id, "files/a", "files/b")
    assert head.text() == "All off"
    head.click()
    assert panel.settings.tools == (CALCULATE.id,)


def test_servers_that_are_on_and_do_not_run_say_so_with_start(
    panel: Panel, section: ToolsSection
) -> None:
    kept = ServerRow("a", "Notes", "notes", is_on=True, asks_first=False)
    off = replace(kept, id="b", name="Off", is_on=False)
    unknown = replace(kept, id="c", name="New", asks_first=True)
    started: list[tuple[str, bool]] = []
    section.stopped.started.connect(lambda *values: started.append(values))
    assert section.stopped.isHidden()
    panel.servers.set_rows((kept, off, unknown))
    assert texts(section.stopped) == ["Notes is not running."]
    section.stopped.buttons["a"].click()
    assert started == [("a", True)]
    panel.servers.set_rows((replace(kept, phase=ServerPhase.STARTING),))
    assert texts(section.stopped) == ["Notes starts…"]
    assert not section.stopped.buttons
    failed = replace(kept, phase=ServerPhase.FAILED, problem="Notes ended with exit code 3.")
    panel.servers.set_rows((failed,))
    assert texts(section.stopped) == ["Notes ended with exit code 3."]
    assert section.stopped.buttons["a"].accessibleName() == "Start: Notes"
    panel.servers.set_rows((replace(kept, phase=ServerPhase.READY),))
    assert section.stopped.isHidden()


def test_without_servers_no_heading_says_that_tools_are_built_in(
    panel: Panel, section: ToolsSection
) -> None:
    panel.tools.set_rows(ROWS[:2], "")
    assert words(section)[0] == "Calculator"
    assert section.paths.servers.isHidden()


def test_a_tool_with_a_problem_is_greyed_with_the_reason(
    panel: Panel, section: ToolsSection
) -> None:
    row = section.switches.rows[PYTHON.id]
    assert not row.switch.isEnabled()
    assert row.problem.text() == PYTHON.problem
    assert row.problem.isVisible()
    assert row.about.isHidden()
    panel.show(ChatSettings(tools=(PYTHON.id,)))
    assert section.total.isHidden()  # it is not offered to the model
    row.switch.click()  # but can be switched off
    assert panel.settings.tools == ()
    assert not row.switch.isEnabled()


def test_a_model_that_cannot_use_tools_greys_all_of_them_with_the_reason(
    panel: Panel, section: ToolsSection
) -> None:
    reason = "This model was not trained to use tools."
    panel.tools.set_rows(ROWS, reason)
    assert section.words.text() == reason
    assert not any(row.switch.isEnabled() for row in section.switches.rows.values())
    assert not section.paths.file_button.isEnabled()
    assert section.activity_button.isEnabled()
    panel.tools.set_rows(ROWS, "")
    assert section.switches.rows[CALCULATE.id].switch.isEnabled()
    assert "by itself" in section.words.text()


def test_with_a_format_the_section_says_that_tools_are_not_used(
    panel: Panel, section: ToolsSection
) -> None:
    on = ChatSettings(tools=(CALCULATE.id,))
    panel.show(on.with_format(AnswerFormat.JSON))
    assert section.words.text() == "Tools are not used while answers have a format."
    panel.show(on)
    assert "format" not in section.words.text()


def test_a_tool_that_is_gone_can_be_switched_off(panel: Panel, section: ToolsSection) -> None:
    panel.show(ChatSettings(tools=("old/find", CLOCK.id)))
    row = section.switches.rows["old/find"]
    assert (row.title.text(), row.switch.isChecked()) == ("find", True)
    assert "not there now" in row.problem.text()
    assert section.total.text().startswith("1 tool is on.")
    row.switch.click()
    assert panel.settings.tools == (CLOCK.id,)
    assert "old/find" not in section.switches.rows


def test_many_tools_can_be_searched_and_very_many_are_not_all_shown(
    panel: Panel, section: ToolsSection
) -> None:
    panel.show(ChatSettings(tools=("big/do_999",)))
    panel.tools.set_rows((*ROWS, *many(1000)), "")
    switches = section.switches
    assert switches.search.isVisible()
    assert len(switches.rows) == 60
    assert "big/do_999" in switches.rows  # it is on
    assert switches.more.text() == "And 946 more: find them by their names."
    switches.rows["big/do_999"].switch.click()
    assert "big/do_999" in switches.rows  # it stays where it was
    switches.search.setText("77 NUMBER")
    found = [f"big/do_{n}" for n in range(1000) if "77" in str(n)]
    assert list(switches.rows) == found
    assert switches.more.isHidden()
    switches.search.setText("nothing like it")
    assert not switches.rows
    assert switches.more.text().startswith("No tool has this")
    panel.tools.set_rows(ROWS, "")
    assert len(switches.rows) == len(ROWS)


def test_texts_of_a_server_are_shown_as_they_are(panel: Panel, section: ToolsSection) -> None:
    evil = tool("x/y", "<b>Good\u202e</b>\nnews", "<img src='a'>\u200bRun\nit", server="x<i>")
    panel.tools.set_rows([ToolRow(evil)], "")
    row = section.switches.rows["x/y"]
    assert row.title.text() == "<b>Good\\u202e</b> news"
    assert row.about.text() == "<img src='a'>\\u200bRun it"
    assert "<img" not in row.about.toolTip()
    assert "&lt;img" in row.about.toolTip()


def test_the_focus_stays_at_a_switch_when_other_tools_come(
    panel: Panel, section: ToolsSection
) -> None:
    section.switches.rows[ISSUES.id].switch.setFocus()
    panel.tools.set_rows((*many(2, "a"), *ROWS), "")
    flush()
    assert section.focusWidget() is section.switches.rows[ISSUES.id].switch


# --- files and folders ----------------------------------------------------------------------------


def test_files_and_folders_are_added_made_writable_and_removed(
    stage: Stage, in_window: ToolsSection, tmp_path: Path
) -> None:
    file, folder = tmp_path / "notes.txt", tmp_path / "Work"
    file.write_text("x", encoding="utf-8")
    folder.mkdir()
    paths = in_window.paths
    assert paths.none.isVisible()
    paths.add([file, file], folder=False)
    paths.add([folder], folder=True)
    stage.wait_until_idle()
    assert settings(stage).readable == (file, folder)
    assert paths.none.isHidden()
    assert not paths.rows[file].switch.isVisible()  # only folders can be written into
    paths.rows[folder].switch.click()
    assert (settings(stage).readable, settings(stage).writable) == ((file,), (folder,))
    paths.add([folder], folder=True)  # it is there
    assert settings(stage).readable == (file,)
    paths.rows[folder].switch.click()
    assert (settings(stage).readable, settings(stage).writable) == ((file, folder), ())
    paths.rows[file].remove_button.click()
    paths.rows[folder].remove_button.click()
    assert settings(stage) == NO_SETTINGS


def test_a_path_that_is_not_there_any_more_is_said_so(
    stage: Stage, in_window: ToolsSection, tmp_path: Path
) -> None:
    folder = tmp_path / "Work"
    folder.mkdir()
    in_window.paths.add([folder], folder=True)
    stage.wait_until_idle()
    assert in_window.paths.rows[folder].gone.isHidden()
    stage.window.panel.close_panel()
    folder.rmdir()
    stage.window.open_panel("tools")
    stage.wait_until_idle()
    row = in_window.paths.rows[folder]
    assert row.gone.isVisible()
    assert row.gone.text() == "It is not there any more."
    assert not row.switch.isVisible()


def test_a_path_that_no_system_can_have_is_gone(
    panel: Panel, section: ToolsSection, qapp: QApplication
) -> None:
    odd, files = Path("a\x00b" * 3000), BackgroundWorker("files")
    section.paths_wanted.connect(ToolPaths(panel.tools, files, files).look)
    panel.show(ChatSettings(readable=(odd,)))
    until(lambda: panel.tools.paths == {odd: PathKind.GONE})
    files.close()
    assert section.paths.rows[odd].gone.isVisible()
    assert "\x00" not in section.paths.rows[odd].title.text()


@pytest.mark.parametrize("folder", [False, True])
def test_a_dialog_asks_for_what_is_added(
    panel: Panel, section: ToolsSection, tmp_path: Path, folder: bool
) -> None:
    paths = section.paths
    (paths.folder_button if folder else paths.file_button).click()
    (dialog,) = section.findChildren(QFileDialog)
    assert dialog.windowTitle() == ("Add a folder" if folder else "Add files")
    dialog.filesSelected.emit([str(tmp_path)])
    assert panel.settings.readable == (tmp_path,)
    dialog.close()


# --- the composer and presets ---------------------------------------------------------------------


def test_the_composer_says_how_many_tools_are_on_and_opens_the_panel_there(
    stage: Stage, in_window: ToolsSection
) -> None:
    button = stage.window.composer.tools_button
    assert not button.isVisible()
    stage.window.panel.close_panel()
    on = ChatSettings(tools=(CALCULATE.id, WRITE.id, PYTHON.id, "old/find"))
    stage.controller.chat_settings.change_shown(on)
    assert button.isVisible()
    assert button.text() == "2"  # the others cannot be called
    assert button.accessibleName() == "2 tools are on."
    assert "Calculator, Write a file" in button.toolTip()
    button.click()
    flush()
    assert stage.window.panel.is_open
    assert stage.window.focusWidget() is in_window
    stage.controller.chat_settings.change_shown(on.with_format(AnswerFormat.JSON))
    assert button.accessibleName() == (
        "2 tools are on. Tools are not used while answers have a format."
    )
    assert button.property("unused")
    stage.controller.chat_settings.change_shown(on)
    stage.states.tools.set_rows(ROWS, "This model cannot use tools.")
    assert button.accessibleName() == "2 tools are on. This model cannot use tools."
    stage.states.tools.set_rows(ROWS[:1], "")
    assert button.text() == "1"
    stage.controller.chat_settings.change_shown(NO_SETTINGS)
    assert not button.isVisible()


def test_a_preset_says_how_many_tools_it_has() -> None:
    assert part_words("tools", ChatSettings(tools=("a/b", "c/d"))) == "2 tools"
    assert part_words("tools", ChatSettings(tools=("a/b",))) == "1 tool"
    assert part_words("tools", replace(NO_SETTINGS, readable=(Path("/a"),))) == "None"
