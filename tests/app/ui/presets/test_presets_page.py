"""The page of presets, the menu at New chat, and the chips, over the whole window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QRect, Qt
from PySide6.QtWidgets import QApplication, QMenu, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.chat.settings.builtin_presets import built_in
from app.domain.chat_settings import NO_SETTINGS, ChatSettings
from app.domain.presets import begin
from app.settings.samplers import Thinking
from app.ui.presets.page import PresetsPage
from app.ui.presets.words import part_words
from app.ui.widgets.wrap import WrapLayout
from fakes import MODEL
from stage import Stage, flush


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    made.ready(MODEL)
    yield made
    made.close()


def opened(stage: Stage, id: int | None = None) -> PresetsPage:
    page = stage.window.presets.open()
    if id is not None:
        page.show_preset(id)
    flush()
    return page


def rows(page: PresetsPage) -> list[str]:
    return [page.list.item(row).text() for row in range(page.list.count())]


def actions(menu: QMenu) -> dict[str, object]:
    return {action.text(): action for action in menu.actions() if action.text()}


def test_keys_choose_edit_and_delete(stage: Stage, qtbot: QtBot) -> None:
    stage.window.actions_by_id["presets"].trigger()
    flush()
    page = stage.window.presets.page
    assert page is not None
    assert rows(page)[1] == "Translator\nTranslates what you send"
    assert not page.restore_button.isVisible()
    qtbot.keyClick(page.list, Qt.Key.Key_Down)
    qtbot.keyClick(page.list, Qt.Key.Key_Delete)
    assert rows(page)[1].startswith("Explain simply")
    assert page.undo.words.text() == "“Translator” was deleted."
    page.undo.button.click()
    assert rows(page)[1].startswith("Translator")
    assert page.undo.isHidden()
    qtbot.keyClick(page.list, Qt.Key.Key_Return)
    assert page.editor.isVisible()
    assert page.editor.shown is not None
    qtbot.keyClick(page.editor, Qt.Key.Key_Escape)
    assert not page.editor.isVisible()
    qtbot.keyClick(page.list, Qt.Key.Key_Escape)
    assert not page.isVisible()


def test_a_preset_is_made_and_edited(stage: Stage, qtbot: QtBot) -> None:
    page, state = opened(stage), stage.states.presets
    page.add_button.click()
    flush()
    made = state.presets[-1]
    assert page.editor.shown == made.id
    assert made.name == "New preset"
    assert page.editor.texts["name"].field.line.selectedText() == "New preset"  # type: ignore[union-attr]
    assert stage.window.focusWidget() is page.editor.texts["name"].field.line  # type: ignore[union-attr]
    texts = page.editor.texts
    texts["name"].field.line.setText("")  # type: ignore[union-attr]
    qtbot.keyClicks(texts["name"].field.line, "Pirate")  # type: ignore[union-attr]
    qtbot.keyClicks(texts["instructions"].field.editor, "Talk like a pirate.")  # type: ignore[union-attr]
    page.back_button.click()
    made = state.presets[-1]
    assert (made.name, made.settings.instructions) == ("Pirate", "Talk like a pirate.")
    assert rows(page)[-1] == "Pirate\n"
    assert page.chosen == made.id
    page.edit_button.click()
    flush()
    page.editor.parts["instructions"].switch.click()
    assert state.presets[-1].parts == frozenset()
    page.editor.parts["instructions"].switch.click()
    assert begin(state.presets[-1]) == ChatSettings(instructions="Talk like a pirate.")
    page.start_button.click()
    flush()
    assert not page.isVisible()
    assert stage.state.new_chat.instructions == "Talk like a pirate."
    page = opened(stage, made.id)
    qtbot.keyClicks(page.editor.texts["greeting"].field.editor, "Arr!")  # type: ignore[union-attr]
    page.start_button.click()  # what was typed counts
    flush()
    assert [message.text for message in stage.state.messages] == ["Arr!"]


def test_a_chat_becomes_a_preset(stage: Stage) -> None:
    settings = ChatSettings(stop=("END",)).with_value("temperature", 0.4)
    stage.controller.chat_settings.change_shown(settings)
    stage.window.preset_menu.save_requested.emit()
    flush()
    page, made = stage.window.presets.page, stage.states.presets.presets[-1]
    assert page is not None
    assert page.editor.shown == made.id
    assert made.settings == settings
    assert page.editor.parts["stop"].words.text() == "END"
    assert page.editor.parts["sampling"].words.text() == "Temperature 0.4"
    stage.controller.chat_settings.change_shown(ChatSettings(thinking=Thinking.OFF))
    page.editor.take_button.click()
    made = stage.states.presets.presets[-1]
    assert made.settings.thinking is Thinking.OFF
    assert part_words("thinking", made.settings) == "Off"


def test_new_chats_begin_with_the_chosen_one(stage: Stage) -> None:
    page = opened(stage, 5)
    page.editor.new_chat.switch.click()
    assert stage.controller.settings.new_chat_preset == 5
    assert stage.state.new_chat == begin(built_in()[4])
    page.editor.model.switch.click()
    assert stage.controller.library.defaults.own(MODEL).preset == 5
    page.show_all()
    assert rows(page)[4].endswith("· for new chats, for new chats with Small Model 135M")
    page.show_preset(5)
    page.editor.new_chat.switch.click()
    page.editor.model.switch.click()
    assert stage.controller.settings.new_chat_preset == 0
    assert stage.state.new_chat == NO_SETTINGS
    page.editor.parts["sampling"].switch.click()
    page.show_all()
    assert page.restore_button.isVisible()
    page.restore_button.click()
    assert stage.states.presets.presets[:6] == built_in()
    assert rows(page)[6].startswith("Summarise\n")  # what was changed is lost to nobody


def test_the_menu_begins_applies_and_saves(stage: Stage) -> None:
    menu = stage.window.preset_menu.menu()
    found = actions(menu)
    assert list(found)[:6] == [preset.name for preset in built_in()]
    found["Code"].trigger()  # type: ignore[attr-defined]
    assert stage.state.new_chat == begin(built_in()[3])
    stage.controller.send("one")
    stage.engine.finish()
    stage.wait_until_idle()
    use = actions(stage.window.preset_menu.menu())["Use in this chat"]
    inner = {action.text(): action for action in use.menu().actions()}  # type: ignore[attr-defined]
    assert [name for name, action in inner.items() if action.isChecked()] == ["Code"]
    inner["Summarise"].trigger()
    settings = stage.state.settings(stage.state.current)
    assert settings == replace(begin(built_in()[4]), model=settings.model)  # the chat keeps its own
    actions(stage.window.preset_menu.menu())["All presets…"].trigger()  # type: ignore[attr-defined]
    assert stage.window.presets.page is not None


def test_a_chip_marks_the_preset_of_the_new_chat(stage: Stage, qtbot: QtBot) -> None:
    chips = stage.window.chat.empty_view.chips
    chips.chips[3].click()
    assert [id for id, chip in chips.chips.items() if chip.isChecked()] == [3]
    assert stage.state.new_chat == begin(built_in()[2])
    chips.chips[3].click()
    assert stage.state.new_chat == NO_SETTINGS
    assert not any(chip.isChecked() for chip in chips.chips.values())
    stage.controller.presets.delete(3)
    assert 3 not in chips.chips
    chips.more_button.click()
    assert stage.window.presets.page is not None
    assert stage.window.presets.page.isVisible()


@pytest.mark.parametrize("mirrored", [False, True])
def test_widgets_wrap_into_lines(
    qtbot: QtBot, qapp: QApplication, monkeypatch: pytest.MonkeyPatch, mirrored: bool
) -> None:
    monkeypatch.setattr(QApplication, "isRightToLeft", lambda: mirrored)
    page = QWidget()
    qtbot.addWidget(page)
    layout = WrapLayout(page, 10)
    boxes = [QPushButton() for _ in range(4)]
    for box in boxes:
        box.setFixedSize(100, 20)
        layout.addWidget(box)
    layout.setGeometry(QRect(0, 0, 330, 100))
    places = [(box.x(), box.y()) for box in boxes]
    lefts = [5, 115, 225, 115]
    if mirrored:
        lefts = [330 - left - 100 for left in lefts]
    assert places == [(lefts[0], 0), (lefts[1], 0), (lefts[2], 0), (lefts[3], 30)]
    assert layout.heightForWidth(330) == 50
    assert layout.heightForWidth(50) == 110
    boxes[1].hide()
    assert layout.heightForWidth(330) == 20
