"""The adapters in the panel: adding files, notes, mixes, accessibility and drawing."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QImage
from PySide6.QtWidgets import (
    QFileDialog,
    QWidget,
)
from pytestqt.qtbot import QtBot

from adapter_bench import Bench, drop_files, menu_of, trigger_menu_entry
from adapter_stage import FORMAL, PIRATE, SHORT, WRONG, begin
from app.ui.adapters.strength_slider import StrengthSlider
from app.ui.theme.palette import DARK, HIGH_CONTRAST, LIGHT, show_palette
from app.ui.widgets.switch import Switch

# Qt's offscreen platform logs this for every opened menu.
pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)


# --- empty and notes ------------------------------------------------------------------------------


def test_empty_panel_shows_one_sentence_and_one_action(bench: Bench) -> None:
    bench.open()
    section = bench.section
    assert section.sentence.isVisible()
    assert section.add_button.isVisible()
    for part in (section.list, section.clear_button, section.mixes, bench.panel.content.note):
        assert not part.isVisible()


def test_note_without_a_model_says_when_adapters_take_effect(bench: Bench) -> None:
    bench.panel.open()
    bench.adapters.add(PIRATE)
    assert "model is loaded" in bench.panel.content.note.text()
    assert bench.panel.content.note.isVisible()
    bench.load()
    assert not bench.panel.content.note.isVisible()


def test_note_during_an_answer_says_that_a_change_is_pending(bench: Bench) -> None:
    bench.open(PIRATE)
    shown = begin(bench)
    assert bench.start_answer(shown)
    bench.start_streaming(shown)
    bench.section.list.rows[0].switch.click()
    assert bench.panel.content.note.text() == "Takes effect with the next answer."
    bench.state.end_generation(bench.request)
    assert not bench.panel.content.note.isVisible()


# --- adding ---------------------------------------------------------------------------------------


def test_menu_offers_recent_adapters_that_are_not_in_use(bench: Bench, tmp_path: Path) -> None:
    there = tmp_path / "still & there.gguf"
    there.write_bytes(b"GGUF")
    bench.open(PIRATE, there)
    bench.adapters.clear()
    bench.adapters.add(SHORT)
    bench.panel.opened.emit()  # checks which known files exist
    bench.wait_until_idle()
    bench.section.add_button.click()
    offered = [(a.text(), a.isEnabled()) for a in menu_of(bench).actions() if a.text()]
    assert offered == [
        ("still && there", True),
        ("pirate-speech (missing)", False),
        ("Choose files…", True),
        ("Choose a folder…", True),
    ]
    trigger_menu_entry(bench, "still && there")
    assert [entry.path for entry in bench.shown.stack] == [SHORT, there]


@pytest.mark.parametrize(
    ("words", "mode", "chosen"),
    [
        ("Choose files…", QFileDialog.FileMode.ExistingFiles, (FORMAL, PIRATE)),
        ("Choose a folder…", QFileDialog.FileMode.Directory, (FORMAL,)),
    ],
)
def test_file_and_folder_dialogs_do_not_block(
    bench: Bench, words: str, mode: QFileDialog.FileMode, chosen: tuple[Path, ...]
) -> None:
    bench.open()
    bench.section.add_button.click()
    trigger_menu_entry(bench, words)
    (dialog,) = bench.window.findChildren(QFileDialog)
    assert dialog.isVisible()
    assert dialog.fileMode() is mode
    dialog.filesSelected.emit([str(path) for path in chosen])
    dialog.close()
    assert [entry.path for entry in bench.shown.stack] == list(chosen)


def test_files_and_folders_can_be_dropped(bench: Bench, tmp_path: Path) -> None:
    bench.open()
    folder = tmp_path / "peft"
    folder.mkdir()
    assert not drop_files(bench.panel, tmp_path / "notes.txt")
    assert drop_files(bench.panel, PIRATE, tmp_path / "notes.txt", folder / "adapter_config.json")
    assert [entry.path for entry in bench.shown.stack] == [PIRATE, folder]


# --- mixes ----------------------------------------------------------------------------------------


def test_saved_mix_can_be_applied_and_deleted(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    mixes = bench.section.mixes
    mixes.save_button.click()
    assert mixes.field.text() == "pirate-speech + formal-german"
    assert mixes.field.hasFocus()
    mixes.field.setText("Captain")
    qtbot.keyClick(mixes.field, Qt.Key.Key_Return)
    assert not mixes.field.isVisible()
    assert not mixes.save_button.isVisible()  # there is nothing new to save
    assert list(bench.shown.mixes) == ["Captain"]
    bench.section.list.rows[0].switch.click()
    assert mixes.save_button.isVisible()
    mixes.lines[0].button.click()
    assert [entry.on for entry in bench.shown.stack] == [True, True]
    mixes.lines[0].remove.click()
    assert mixes.lines == []


def test_escape_in_the_name_field_keeps_the_panel_open(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    bench.section.mixes.save_button.click()
    qtbot.keyClick(bench.section.mixes.field, Qt.Key.Key_Escape)
    assert bench.panel.is_open
    assert bench.section.mixes.save_button.hasFocus()
    assert not bench.shown.mixes


def test_a_mix_needs_a_name(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    bench.section.mixes.save_button.click()
    bench.section.mixes.field.setText("   ")
    qtbot.keyClick(bench.section.mixes.field, Qt.Key.Key_Return)
    assert not bench.shown.mixes
    assert bench.section.mixes.field.isVisible()


# --- screen readers -------------------------------------------------------------------------------


def access(widget: QWidget, text: QAccessible.Text) -> str:
    return QAccessible.queryAccessibleInterface(widget).text(text)


def role(widget: QWidget) -> QAccessible.Role:
    return QAccessible.queryAccessibleInterface(widget).role()


def test_every_control_has_a_name_and_the_right_role(bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    row = bench.section.list.rows[0]
    assert role(row.switch) is QAccessible.Role.CheckBox
    assert role(row.slider) is QAccessible.Role.Slider
    assert role(row.field) is QAccessible.Role.SpinBox
    assert access(row.switch, QAccessible.Text.Name) == "pirate-speech"
    assert access(row.slider, QAccessible.Text.Name) == "Strength of pirate-speech"
    stops = [stop for row in bench.section.list.rows for stop in row.stops()]
    for stop in (*stops, bench.section.add_button, bench.panel.content.close_button):
        assert access(stop, QAccessible.Text.Name)


def test_accessible_value_of_the_slider_is_the_strength(bench: Bench) -> None:
    bench.open(PIRATE)
    row = bench.section.list.rows[0]
    bench.adapters.set_strength(0, 1.25)
    assert access(row.slider, QAccessible.Text.Value) == "1.25"
    value = QAccessible.queryAccessibleInterface(row.slider).valueInterface()
    assert (value.currentValue(), value.minimumValue(), value.maximumValue()) == (1.25, -2.0, 2.0)
    value.setCurrentValue(-0.5)
    assert bench.shown.stack[0].strength == -0.5


def test_error_is_in_the_accessible_description_of_the_switch(bench: Bench) -> None:
    bench.open()
    bench.adapters.add(FORMAL)
    bench.refuse()
    switch = bench.section.list.rows[0].switch
    assert WRONG in access(switch, QAccessible.Text.Description)


# --- drawing --------------------------------------------------------------------------------------


def picture(widget: QWidget) -> QImage:
    return widget.grab().toImage()


@pytest.mark.parametrize("palette", [LIGHT, DARK, HIGH_CONTRAST], ids=lambda p: p.name)
def test_on_off_and_focus_states_look_different(qtbot: QtBot, palette) -> None:
    show_palette(palette)
    switch, slider = Switch(), StrengthSlider()
    for widget in (switch, slider):
        qtbot.addWidget(widget)
        widget.show()
    off = picture(switch)
    switch.setChecked(True)
    assert picture(switch) != off
    acting = picture(slider)
    slider.set_strength(0.0)
    assert picture(slider) != acting
    slider.setFocus()
    qtbot.waitUntil(slider.hasFocus)


def test_hit_targets_are_large_enough(bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    for row in bench.section.list.rows:
        for stop in row.stops():
            assert min(stop.width(), stop.height()) >= 28, stop
