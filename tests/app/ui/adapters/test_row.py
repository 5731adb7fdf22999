"""Adapter rows by mouse and keyboard: switch, strength, details and reordering."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QPoint, Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from adapter_bench import Bench, names, trigger_menu_entry
from adapter_stage import FOLDER, FORMAL, PIRATE, SHORT, WRONG
from app.system.file_manager import nearest_folder
from app.ui.adapters.row import details_of
from app.ui.panel.panel import PANEL_WIDTH
from engine import AdapterInfo, AdapterUse, Fault, FaultKind, SetAdapters
from stage import flush

# Qt's offscreen platform logs this for every opened menu.
pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)


# --- a row ----------------------------------------------------------------------------------------


def test_switch_disables_and_enables_an_adapter(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    row = bench.section.list.rows[0]
    qtbot.mouseClick(row.switch, Qt.MouseButton.LeftButton)
    assert bench.answer_requests() == (AdapterUse(FORMAL, 1.0),)
    qtbot.keyClick(row.switch, Qt.Key.Key_Space)
    assert bench.answer_requests() == (AdapterUse(PIRATE, 1.0), AdapterUse(FORMAL, 1.0))


def test_slider_drag_applies_the_strength_at_release(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    row = bench.section.list.rows[0]
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
def test_slider_snaps_to_nearby_detents(bench: Bench, detent: int) -> None:
    bench.open(PIRATE)
    slider = bench.section.list.rows[0].slider
    place = slider.x_for_value(detent)
    near = {slider.value_at(place + offset) for offset in range(-5, 6)}
    assert near == {detent}
    assert slider.value_at(place - 12) < detent < slider.value_at(place + 12)


def test_slider_values_are_whole_steps(bench: Bench) -> None:
    bench.open(PIRATE)
    slider = bench.section.list.rows[0].slider
    values = [slider.value_at(x) for x in range(-20, slider.width() + 20)]
    assert (values[0], values[-1]) == (-200, 200)
    assert values == sorted(values)
    assert all(value % 5 == 0 for value in values)


def test_slider_is_mirrored_in_right_to_left_layout(bench: Bench) -> None:
    bench.open(PIRATE)
    slider = bench.section.list.rows[0].slider
    slider.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    assert slider.x_for_value(-200) > slider.x_for_value(200)
    assert slider.value_at(slider.x_for_value(150)) == 150


def test_keys_move_the_slider_and_the_field_by_the_same_step(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    row = bench.section.list.rows[0]
    qtbot.keyClick(row.slider, Qt.Key.Key_Right)
    assert (row.slider.strength, row.field.value()) == (1.05, 1.05)
    qtbot.keyClick(row.field, Qt.Key.Key_Down)
    qtbot.keyClick(row.field, Qt.Key.Key_Down)
    assert (row.slider.strength, row.field.value()) == (0.95, 0.95)
    assert bench.answer_requests() == (AdapterUse(PIRATE, 0.95),)


def test_a_number_can_be_typed(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    field = bench.section.list.rows[0].field
    field.setFocus()
    field.selectAll()
    text = field.locale().toString(0.33, "f", 2)
    qtbot.keyClicks(field, text)
    assert bench.shown.stack[0].strength == 1.0  # not committed while typing
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert bench.shown.stack[0].strength == 0.33
    assert bench.section.list.rows[0].slider.value() == 33


def test_typed_strength_survives_an_engine_event(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    bench.adapters.add(FORMAL)
    field = bench.section.list.rows[0].field
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
    slider = bench.section.list.rows[0].slider
    qtbot.mouseDClick(slider, Qt.MouseButton.LeftButton, pos=QPoint(20, 14))
    assert bench.shown.stack[0].strength == 1.0


def test_rejected_adapter_shows_the_error_on_its_row(bench: Bench) -> None:
    bench.open(PIRATE)
    bench.adapters.add(FORMAL)
    bench.refuse()
    good, wrong = bench.section.list.rows
    assert wrong.problem.text().startswith(WRONG)
    assert wrong.problem.isVisible()
    assert not good.problem.isVisible()
    assert [row.switch.isChecked() for row in (good, wrong)] == [True, False]
    wrong.switch.click()
    bench.accept()
    assert not wrong.problem.isVisible()


def test_rejected_adapter_shows_a_sentence_and_the_exact_text_in_the_details(
    bench: Bench,
) -> None:
    bench.open(PIRATE)
    bench.adapters.add(FORMAL)
    bench.refuse(fault=Fault(FaultKind.OTHER_MODEL))
    wrong = bench.section.list.rows[1]
    assert wrong.problem.text() == (
        f"{FORMAL.name} was made for another model. Choose an adapter made for the model in use."
    )
    assert wrong.details.text().startswith(WRONG)
    wrong.switch.click()
    bench.accept()
    assert wrong.details.text().startswith("GGUF")


def test_details_show_kind_rank_matrices_size_and_file(bench: Bench) -> None:
    bench.open(PIRATE)
    row = bench.section.list.rows[0]
    assert not row.details.isVisible()
    row.open_menu()
    trigger_menu_entry(bench, "Details")
    assert row.details.text() == "GGUF · rank 16 · 210 matrices · 5 MB"
    assert row.file.text() == str(PIRATE)
    assert row.details.isVisible()
    row.open_menu()
    trigger_menu_entry(bench, "Hide details")
    assert not row.details.isVisible()


def test_details_use_the_singular_for_one_matrix() -> None:
    info = AdapterInfo(PIRATE, "a", "0", "PEFT", 4, 1, 2_000_000, 1.0)
    assert details_of(info) == "PEFT · rank 4 · 1 matrix · 2 MB"
    assert details_of(None) == "Not loaded yet"


class Desktop(QObject):
    """URL handler that records the folders it should show."""

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
    bench.section.list.rows[0].open_menu()
    trigger_menu_entry(bench, "Show in folder")
    QDesktopServices.unsetUrlHandler("file")
    assert desktop.shown == [nearest_folder(FOLDER)]  # the file is not there


def test_one_adapter_or_all_can_be_removed(bench: Bench) -> None:
    bench.open(PIRATE, FORMAL, SHORT)
    bench.section.list.rows[1].open_menu()
    trigger_menu_entry(bench, "Remove")
    assert names(bench) == ["pirate-speech", "short answers"]
    bench.section.clear_button.click()
    assert names(bench) == []
    assert bench.answer_requests() == ()


def test_long_names_are_elided_in_the_middle(bench: Bench) -> None:
    bench.open(FOLDER / f"{'very-long-' * 30}.gguf", FOLDER / ("猫" * 200), FOLDER / ("ق" * 200))
    assert bench.panel.sheet.width() == PANEL_WIDTH
    for row in bench.section.list.rows:
        assert row.geometry().right() < PANEL_WIDTH
        assert row.more.isVisible()
        assert row.name.toolTip() == str(row.path)


# --- the order ------------------------------------------------------------------------------------


def handle_drag(qtbot: QtBot, bench: Bench, index: int, y: int, *, release: bool = True) -> None:
    """Drag the handle of a row to `y`, in list coordinates."""
    handle = bench.section.list.rows[index].handle
    qtbot.mousePress(handle, Qt.MouseButton.LeftButton)
    target = bench.section.list.mapToGlobal(QPoint(0, y))
    qtbot.mouseMove(handle, handle.mapFromGlobal(target))
    if release:
        qtbot.mouseRelease(handle, Qt.MouseButton.LeftButton)


def test_dragging_the_handle_reorders_rows(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL, SHORT)
    handle_drag(qtbot, bench, 0, bench.section.list.height())
    assert names(bench) == ["formal-german", "short answers", "pirate-speech"]
    assert [use.path for use in bench.answer_requests()] == [FORMAL, SHORT, PIRATE]
    handle_drag(qtbot, bench, 2, -50)
    assert [entry.path for entry in bench.shown.stack] == [PIRATE, FORMAL, SHORT]


def test_order_is_sent_only_when_the_drag_ends(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    sent = bench.engine.count(SetAdapters)
    handle_drag(qtbot, bench, 0, bench.section.list.height(), release=False)
    assert names(bench) == ["formal-german", "pirate-speech"]
    assert bench.engine.count(SetAdapters) == sent
    qtbot.mouseRelease(bench.section.list.rows[1].handle, Qt.MouseButton.LeftButton)
    assert bench.engine.count(SetAdapters) == sent + 1


def test_drag_back_to_the_start_sends_nothing(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    sent = bench.engine.count(SetAdapters)
    handle_drag(qtbot, bench, 0, 10)
    assert bench.engine.count(SetAdapters) == sent


def test_stack_change_cancels_a_running_drag(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    handle = bench.section.list.rows[0].handle
    handle_drag(qtbot, bench, 0, bench.section.list.height(), release=False)
    bench.adapters.add(SHORT)
    qtbot.mouseRelease(handle, Qt.MouseButton.LeftButton)
    assert [entry.path for entry in bench.shown.stack] == [PIRATE, FORMAL, SHORT]
    assert names(bench) == ["pirate-speech", "formal-german", "short answers"]


def test_alt_arrows_move_a_row_and_keep_its_focus(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL, SHORT)
    alt = Qt.KeyboardModifier.AltModifier
    row = bench.section.list.rows[0]
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


def test_tab_order_is_the_visual_order_after_a_move(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    bench.adapters.add(SHORT)
    bench.answer_requests()
    bench.adapters.move(2, 0)
    bench.adapters.save_mix("Sea")
    flush()
    section = bench.section
    wanted: list[QWidget] = []
    for row in section.list.rows:
        wanted += row.stops()
    line = section.mixes.lines[0]
    wanted += [section.add_button, section.clear_button, line.button, line.remove]
    wanted[0].setFocus(Qt.FocusReason.TabFocusReason)
    seen = []
    for _ in wanted:
        focused = QApplication.focusWidget()
        assert focused is not None
        seen.append(focused)
        qtbot.keyClick(focused, Qt.Key.Key_Tab)
    assert seen == wanted
