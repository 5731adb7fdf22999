"""One adapter of the panel by mouse and by keyboard: switch, strength, details and place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QPoint, Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import (
    QApplication,
)
from pytestqt.qtbot import QtBot

from adapter_bench import Bench, names, trigger_menu_entry
from adapter_stage import FOLDER, FORMAL, PIRATE, SHORT, WRONG
from app.ui.adapters.panel import PANEL_WIDTH
from app.ui.adapters.row import details_of
from engine import AdapterInfo, AdapterUse, SetAdapters
from stage import flush

# Qt's offscreen platform says this of every menu that opens.
pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)


@pytest.fixture
def bench(qtbot: QtBot, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.finish()


# --- a row ----------------------------------------------------------------------------------------


def test_the_switch_takes_an_adapter_out_and_puts_it_back(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    row = bench.panel.list.rows[0]
    qtbot.mouseClick(row.switch, Qt.MouseButton.LeftButton)
    assert bench.answer_requests() == (AdapterUse(FORMAL, 1.0),)
    qtbot.keyClick(row.switch, Qt.Key.Key_Space)
    assert bench.answer_requests() == (AdapterUse(PIRATE, 1.0), AdapterUse(FORMAL, 1.0))


def test_dragging_the_slider_ends_where_it_is_let_go(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    row = bench.panel.list.rows[0]
    start = QPoint(round(row.slider.x_for_value(100)), row.slider.height() // 2)
    end = QPoint(round(row.slider.x_for_value(-150)), start.y())
    qtbot.mousePress(row.slider, Qt.MouseButton.LeftButton, pos=start)
    for step in range(1, 31):
        qtbot.mouseMove(row.slider, start + (end - start) * step / 30)
    sent = bench.engine.count(SetAdapters)
    qtbot.mouseRelease(row.slider, Qt.MouseButton.LeftButton, pos=end)
    assert bench.shown.stack[0].strength == -1.5
    assert row.field.value() == -1.5
    assert bench.engine.count(SetAdapters) <= sent + 1
    assert bench.answer_requests() == (AdapterUse(PIRATE, -1.5),)


@pytest.mark.parametrize("detent", [100, 0])
def test_the_slider_jumps_onto_its_detents_from_some_pixels_away(bench: Bench, detent: int) -> None:
    bench.open(PIRATE)
    slider = bench.panel.list.rows[0].slider
    place = slider.x_for_value(detent)
    near = {slider.value_at(place + offset) for offset in range(-5, 6)}
    assert near == {detent}
    assert slider.value_at(place - 12) < detent < slider.value_at(place + 12)


def test_every_place_of_the_slider_is_a_whole_step(bench: Bench) -> None:
    bench.open(PIRATE)
    slider = bench.panel.list.rows[0].slider
    values = [slider.value_at(x) for x in range(-20, slider.width() + 20)]
    assert (values[0], values[-1]) == (-200, 200)
    assert values == sorted(values)
    assert all(value % 5 == 0 for value in values)


def test_from_right_to_left_the_slider_is_mirrored(bench: Bench) -> None:
    bench.open(PIRATE)
    slider = bench.panel.list.rows[0].slider
    slider.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    assert slider.x_for_value(-200) > slider.x_for_value(200)
    assert slider.value_at(slider.x_for_value(150)) == 150


def test_keys_move_the_slider_and_the_field_by_the_same_step(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    row = bench.panel.list.rows[0]
    qtbot.keyClick(row.slider, Qt.Key.Key_Right)
    assert (row.slider.strength, row.field.value()) == (1.05, 1.05)
    qtbot.keyClick(row.field, Qt.Key.Key_Down)
    qtbot.keyClick(row.field, Qt.Key.Key_Down)
    assert (row.slider.strength, row.field.value()) == (0.95, 0.95)
    assert bench.answer_requests() == (AdapterUse(PIRATE, 0.95),)


def test_a_number_can_be_typed(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    field = bench.panel.list.rows[0].field
    field.setFocus()
    field.selectAll()
    text = field.locale().toString(0.33, "f", 2)
    qtbot.keyClicks(field, text)
    assert bench.shown.stack[0].strength == 1.0  # not with every key
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert bench.shown.stack[0].strength == 0.33
    assert bench.panel.list.rows[0].slider.value() == 33


def test_what_is_being_typed_stays_when_the_engine_speaks(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    bench.adapters.add(FORMAL)
    field = bench.panel.list.rows[0].field
    field.setFocus()
    field.selectAll()
    text = field.locale().toString(0.3, "f", 1)
    qtbot.keyClicks(field, text)
    bench.accept()
    assert field.text() == text
    bench.window.page.setFocus()
    assert bench.shown.stack[0].strength == 0.3


def test_a_double_click_sets_the_strength_to_one(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    bench.adapters.set_strength(0, 0.2)
    slider = bench.panel.list.rows[0].slider
    qtbot.mouseDClick(slider, Qt.MouseButton.LeftButton, pos=QPoint(20, 14))
    assert bench.shown.stack[0].strength == 1.0


def test_what_is_refused_says_so_on_its_row(bench: Bench) -> None:
    bench.open(PIRATE)
    bench.adapters.add(FORMAL)
    bench.refuse()
    good, wrong = bench.panel.list.rows
    assert wrong.problem.text().startswith(WRONG)
    assert wrong.problem.isVisible()
    assert not good.problem.isVisible()
    assert [row.switch.isChecked() for row in (good, wrong)] == [True, False]
    wrong.switch.click()
    bench.accept()
    assert not wrong.problem.isVisible()


def test_details_name_kind_rank_reach_size_and_file(bench: Bench) -> None:
    bench.open(PIRATE)
    row = bench.panel.list.rows[0]
    assert not row.details.isVisible()
    row.open_menu()
    trigger_menu_entry(bench, "Details")
    assert row.details.text() == "GGUF · rank 16 · 210 matrices · 5 MB"
    assert row.file.text() == str(PIRATE)
    assert row.details.isVisible()
    row.open_menu()
    trigger_menu_entry(bench, "Hide details")
    assert not row.details.isVisible()


def test_details_count_one_matrix_as_one() -> None:
    info = AdapterInfo(PIRATE, "a", "0", "PEFT", 4, 1, 2_000_000, 1.0)
    assert details_of(info) == "PEFT · rank 4 · 1 matrix · 2 MB"
    assert details_of(None) == "Not loaded yet"


class Desktop(QObject):
    """The desktop that is asked to show a folder."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[Path] = []

    @Slot(QUrl)
    def show(self, url: QUrl) -> None:
        self.shown.append(Path(url.toLocalFile()))


def test_the_folder_of_an_adapter_can_be_shown(bench: Bench) -> None:
    bench.open(PIRATE)
    desktop = Desktop()
    QDesktopServices.setUrlHandler("file", desktop, "show")
    bench.panel.list.rows[0].open_menu()
    trigger_menu_entry(bench, "Show in folder")
    QDesktopServices.unsetUrlHandler("file")
    assert desktop.shown == [FOLDER]


def test_one_can_be_removed_and_all_of_them(bench: Bench) -> None:
    bench.open(PIRATE, FORMAL, SHORT)
    bench.panel.list.rows[1].open_menu()
    trigger_menu_entry(bench, "Remove")
    assert names(bench) == ["pirate-speech", "short answers"]
    bench.panel.clear_button.click()
    assert names(bench) == []
    assert bench.answer_requests() == ()


def test_very_long_names_keep_their_ends_and_the_panel_its_width(bench: Bench) -> None:
    bench.open(FOLDER / f"{'very-long-' * 30}.gguf", FOLDER / ("猫" * 200), FOLDER / ("ق" * 200))
    assert bench.panel.sheet.width() == PANEL_WIDTH
    for row in bench.panel.list.rows:
        assert row.geometry().right() < PANEL_WIDTH
        assert row.more.isVisible()
        assert row.name.toolTip() == str(row.path)


# --- the order ------------------------------------------------------------------------------------


def handle_drag(qtbot: QtBot, bench: Bench, index: int, y: int, *, release: bool = True) -> None:
    """Drag the handle of a row to a height of the list."""
    handle = bench.panel.list.rows[index].handle
    qtbot.mousePress(handle, Qt.MouseButton.LeftButton)
    target = bench.panel.list.mapToGlobal(QPoint(0, y))
    qtbot.mouseMove(handle, handle.mapFromGlobal(target))
    if release:
        qtbot.mouseRelease(handle, Qt.MouseButton.LeftButton)


def test_a_row_is_dragged_to_another_place(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL, SHORT)
    handle_drag(qtbot, bench, 0, bench.panel.list.height())
    assert names(bench) == ["formal-german", "short answers", "pirate-speech"]
    assert [use.path for use in bench.answer_requests()] == [FORMAL, SHORT, PIRATE]
    handle_drag(qtbot, bench, 2, -50)
    assert [entry.path for entry in bench.shown.stack] == [PIRATE, FORMAL, SHORT]


def test_nothing_is_sent_before_the_row_is_let_go(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    sent = bench.engine.count(SetAdapters)
    handle_drag(qtbot, bench, 0, bench.panel.list.height(), release=False)
    assert names(bench) == ["formal-german", "pirate-speech"]
    assert bench.engine.count(SetAdapters) == sent
    qtbot.mouseRelease(bench.panel.list.rows[1].handle, Qt.MouseButton.LeftButton)
    assert bench.engine.count(SetAdapters) == sent + 1


def test_a_drag_that_ends_where_it_began_changes_nothing(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    sent = bench.engine.count(SetAdapters)
    handle_drag(qtbot, bench, 0, 10)
    assert bench.engine.count(SetAdapters) == sent


def test_a_stack_that_changes_during_a_drag_ends_the_drag(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    handle = bench.panel.list.rows[0].handle
    handle_drag(qtbot, bench, 0, bench.panel.list.height(), release=False)
    bench.adapters.add(SHORT)
    qtbot.mouseRelease(handle, Qt.MouseButton.LeftButton)
    assert [entry.path for entry in bench.shown.stack] == [PIRATE, FORMAL, SHORT]
    assert names(bench) == ["pirate-speech", "formal-german", "short answers"]


def test_alt_and_arrows_move_a_row_and_the_focus_goes_along(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL, SHORT)
    alt = Qt.KeyboardModifier.AltModifier
    row = bench.panel.list.rows[0]
    row.switch.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(row.switch, Qt.Key.Key_Down, alt)
    assert names(bench) == ["formal-german", "pirate-speech", "short answers"]
    assert row.switch.hasFocus()
    qtbot.keyClick(row.slider, Qt.Key.Key_Down, alt)
    qtbot.keyClick(row.field, Qt.Key.Key_Down, alt)  # already the last
    assert [entry.path for entry in bench.shown.stack] == [FORMAL, SHORT, PIRATE]
    assert bench.shown.stack[2].strength == 1.0
    qtbot.keyClick(row.handle, Qt.Key.Key_Up)
    assert [entry.path for entry in bench.shown.stack] == [FORMAL, PIRATE, SHORT]


def test_tab_goes_as_the_eye_does_whatever_was_moved(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    bench.adapters.add(SHORT)
    bench.answer_requests()
    bench.adapters.move(2, 0)
    bench.adapters.save_mix("Sea")
    flush()
    panel = bench.panel
    wanted = [panel.close_button]
    for row in panel.list.rows:
        wanted += row.stops()
    line = panel.mixes.lines[0]
    wanted += [panel.add_button, panel.clear_button, line.button, line.remove]
    panel.close_button.setFocus(Qt.FocusReason.TabFocusReason)
    seen = []
    for _ in wanted:
        focused = QApplication.focusWidget()
        assert focused is not None
        seen.append(focused)
        qtbot.keyClick(focused, Qt.Key.Key_Tab)
    assert seen == wanted
