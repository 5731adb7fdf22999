"""Model picker: listed models, keyboard, load progress and load errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

import tiny
from app.state.chat import ModelFile
from engine import Unload, models_folder
from fakes import MODEL, Cancel
from stage import Stage, flush, until

OTHER = Path("/models/other.gguf")


def show_two_models(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.state.set_installed(
        [
            ModelFile(MODEL, "Small Model 135M", 98_362_432, "Q4_1"),
            ModelFile(OTHER, "Other", 4_100_000_000, "Q4_K_M"),
        ]
    )


def test_button_shows_the_model_name_and_its_quantization(stage: Stage) -> None:
    stage.start()
    assert stage.window.top_bar.model_button.text() == "Choose a model"
    stage.controller.load_model(MODEL)
    stage.engine.finish_load("Small Model 135M")
    stage.drain()
    assert stage.window.top_bar.model_button.text() == "Small Model 135M · Q4_1"


def test_the_button_keeps_the_start_and_the_end_of_a_long_name(stage: Stage) -> None:
    stage.ready(MODEL)
    button = stage.window.top_bar.model_button
    for name, width, fits in (("Small Model 135M", 400, True), ("A long name " * 9, 520, False)):
        model = stage.state.model
        stage.state.set_model(replace(model, name=name))
        for size in (width, 1200, width):
            stage.window.resize(size, 600)
            flush()
            shown = button.shown
            assert button.fontMetrics().horizontalAdvance(shown) <= button.width()
            if fits and size == 1200:
                assert shown.startswith(name)
            assert shown.startswith(name[:2])
            assert shown.endswith("1")  # of the quantization
            assert ("…" in shown) is not (fits and size == 1200)


def test_second_line_shows_layout_and_size(stage: Stage) -> None:
    show_two_models(stage)
    files = stage.window.picker.files
    role = Qt.ItemDataRole.StatusTipRole
    assert files.index(0).data(role) == "Q4_1 · 98 MB"
    assert files.index(1).data(role) == "Q4_K_M · 4.1 GB"
    assert files.index(0).data(Qt.ItemDataRole.CheckStateRole) is True
    assert files.index(1).data(Qt.ItemDataRole.CheckStateRole) is False


def test_a_model_larger_than_the_memory_is_marked(stage: Stage) -> None:
    stage.ready(MODEL)
    small = ModelFile(MODEL, "Small Model 135M", 98_362_432, "Q4_1")
    large = ModelFile(OTHER, "Other", 4_100_000_000, "Q4_0", from_disk=True)
    stage.state.set_installed([small, large])
    words = stage.window.picker.files.index(1).data(Qt.ItemDataRole.StatusTipRole)
    assert words == "Q4_0 · 4.1 GB · runs from the disk, slowly"


def test_a_model_that_runs_from_the_disk_says_so_once_loaded(stage: Stage) -> None:
    stage.start()
    stage.controller.load_model(MODEL)
    stage.engine.finish_load("Large", offloaded=20)
    stage.drain()
    notice = stage.state.notices["model"]
    assert notice.sentence.startswith("Large does not fit in memory.")
    assert "about 2 s for each word" in notice.sentence
    assert "runs from the disk" in stage.window.chat.status_line.words.text()
    stage.controller.load_model(OTHER)
    assert "model" not in stage.state.notices
    stage.engine.finish_load("Small")
    stage.drain()
    assert "model" not in stage.state.notices


def test_a_click_loads_and_closes_the_card(qtbot: QtBot, stage: Stage) -> None:
    show_two_models(stage)
    stage.window.open_picker()
    picker = stage.window.picker
    place = picker.list.visualRect(picker.files.index(1)).center()
    qtbot.mouseClick(picker.list.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert stage.window.picker_card.isHidden()
    assert stage.engine.load.path == OTHER
    stage.wait_for_animations()


def test_arrow_keys_and_enter_choose(qtbot: QtBot, stage: Stage) -> None:
    show_two_models(stage)
    stage.window.open_picker()
    picker = stage.window.picker
    picker.list.setCurrentIndex(picker.files.index(0))
    qtbot.keyClick(picker.list, Qt.Key.Key_Down)
    qtbot.keyClick(picker.list, Qt.Key.Key_Return)
    assert stage.engine.load.path == OTHER
    stage.wait_for_animations()


def test_escape_closes_the_card_and_restores_focus(qtbot: QtBot, stage: Stage) -> None:
    show_two_models(stage)
    stage.window.activateWindow()
    stage.window.composer.setFocus()
    stage.window.open_picker()
    qtbot.keyClick(stage.window.picker.list, Qt.Key.Key_Escape)
    assert stage.window.picker_card.isHidden()
    assert stage.window.composer.editor.hasFocus()
    stage.wait_for_animations()


def test_tab_cycles_inside_the_card(qtbot: QtBot, stage: Stage) -> None:
    show_two_models(stage)
    stage.window.activateWindow()
    stage.window.open_picker()
    picker = stage.window.picker
    stops = (
        picker.search,
        picker.list,
        picker.browse_button,
        picker.open_button,
        picker.unload_button,
        picker.elsewhere_button,
    )
    for here, there in zip(stops, (*stops[1:], stops[0]), strict=True):
        assert here.hasFocus()
        qtbot.keyClick(here, Qt.Key.Key_Tab)
        assert there.hasFocus()
    qtbot.keyClick(picker.search, Qt.Key.Key_Backtab, Qt.KeyboardModifier.ShiftModifier)
    assert picker.elsewhere_button.hasFocus()
    stage.wait_for_animations()


def test_click_outside_closes_the_card(qtbot: QtBot, stage: Stage) -> None:
    show_two_models(stage)
    stage.window.open_picker()
    card = stage.window.picker_card
    qtbot.mouseClick(card, Qt.MouseButton.LeftButton, pos=card.rect().bottomRight())
    assert card.isHidden()
    stage.wait_for_animations()


def test_load_shows_progress_and_can_be_cancelled(qtbot: QtBot, stage: Stage) -> None:
    stage.start(MODEL)
    stage.window.open_picker()
    stage.engine.progress(0.25)
    stage.drain()
    picker = stage.window.picker
    assert not picker.progress.isHidden()
    assert picker.progress.bar.share == pytest.approx(0.25, abs=0.01)
    qtbot.mouseClick(picker.progress.cancel, Qt.MouseButton.LeftButton)
    stage.engine.cancel_load()
    stage.drain()
    assert picker.progress.isHidden()
    stage.wait_for_animations()


def test_failed_load_shows_error_and_remedy(stage: Stage) -> None:
    stage.start(MODEL)
    stage.engine.fail_load("The file is cut short.", "Download it again.")
    stage.drain()
    assert not stage.window.picker.failure.isHidden()
    assert stage.window.picker.failure.text() == "The file is cut short. Download it again."
    assert stage.window.banners.shown["model"].words.text().startswith("The file is cut short.")


def test_loaded_model_outside_the_folders_is_listed(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.state.set_installed([ModelFile(OTHER, "Other", 1)])
    files = stage.window.picker.files
    assert [files.index(row).data() for row in range(files.rowCount())] == [
        "Small Model 135M",
        "Other",
    ]


def test_the_card_stays_inside_a_small_window(stage: Stage) -> None:
    show_two_models(stage)
    stage.window.resize(420, 360)
    stage.window.open_picker()
    flush()
    assert stage.window.rect().contains(stage.window.picker.geometry())
    stage.wait_for_animations()


def test_typing_searches_and_enter_chooses_the_match(qtbot: QtBot, stage: Stage) -> None:
    show_two_models(stage)
    stage.window.activateWindow()
    stage.window.open_picker()
    picker = stage.window.picker
    qtbot.keyClicks(picker.search, "oth")
    assert [picker.files.index(row).data() for row in range(picker.files.rowCount())] == ["Other"]
    qtbot.keyClick(picker.search, Qt.Key.Key_Return)
    assert stage.engine.load.path == OTHER
    stage.window.open_picker()
    assert picker.files.rowCount() == 2
    stage.wait_for_animations()


def test_arrow_down_in_the_search_enters_the_list(qtbot: QtBot, stage: Stage) -> None:
    show_two_models(stage)
    stage.window.activateWindow()
    stage.window.open_picker()
    picker = stage.window.picker
    qtbot.keyClick(picker.search, Qt.Key.Key_Down)
    assert picker.list.hasFocus()
    assert picker.list.currentIndex().row() == 0
    qtbot.keyClick(picker.list, Qt.Key.Key_S)
    assert picker.search.hasFocus()
    assert picker.search.text() == "s"
    stage.wait_for_animations()


def test_search_without_a_match_says_so(qtbot: QtBot, stage: Stage) -> None:
    show_two_models(stage)
    stage.window.open_picker()
    picker = stage.window.picker
    picker.search.setText("nothing like it")
    assert picker.nothing.isVisible()
    assert not picker.list.isVisible()
    qtbot.keyClick(picker.search, Qt.Key.Key_Escape)
    assert picker.search.text() == ""
    assert picker.list.isVisible()
    stage.wait_for_animations()


def test_unload_button_frees_the_loaded_model(qtbot: QtBot, stage: Stage) -> None:
    show_two_models(stage)
    stage.window.open_picker()
    qtbot.mouseClick(stage.window.picker.unload_button, Qt.MouseButton.LeftButton)
    assert stage.engine.count(Unload) == 1
    stage.engine.finish_unload()
    stage.drain()
    assert stage.window.picker.unload_button.isHidden()
    stage.wait_for_animations()


def test_browse_button_opens_the_models_page(qtbot: QtBot, stage: Stage) -> None:
    stage.start()
    stage.window.open_picker()
    qtbot.mouseClick(stage.window.picker.browse_button, Qt.MouseButton.LeftButton)
    assert stage.window.library.page.isVisible()
    assert stage.window.picker_card.isHidden()
    stage.wait_for_animations()


def test_file_copied_in_is_listed_when_the_picker_opens(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.wait_until_idle()
    folder = models_folder()
    folder.mkdir(parents=True, exist_ok=True)
    tiny.write(folder / "Copied-1B-Q8_0.gguf", format="Q8_0")
    stage.window.open_picker()
    files = stage.window.picker.files
    until(lambda: "Copied 1B" in [files.index(row).data() for row in range(files.rowCount())])
    stage.wait_for_animations()


def test_escape_closes_the_empty_picker_and_not_the_answer(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    stage.controller.send("One")
    stage.state.set_model(replace(stage.state.model, model=None, loaded=None))
    stage.state.set_installed([])
    stage.window.composer.setFocus()
    stage.window.open_picker()
    flush()
    assert not stage.window.picker.search.isVisible(), "there is nothing to search"
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Escape)
    assert stage.window.picker_card.isHidden()
    assert stage.engine.count(Cancel) == 0
