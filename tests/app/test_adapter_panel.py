"""The panel of adapters by mouse and by keyboard, what screen readers hear, and the leaf on answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QObject, QPoint, QPointF, QPropertyAnimation, Qt, QUrl, Slot
from PySide6.QtGui import QAccessible, QDesktopServices, QDragEnterEvent, QDropEvent, QImage
from PySide6.QtWidgets import (
    QApplication,
    QFileDialog,
    QHBoxLayout,
    QLineEdit,
    QMenu,
    QWidget,
)
from pytestqt.qtbot import QtBot

from adapter_stage import FOLDER, FORMAL, PIRATE, SHORT, WRONG, AdapterStage
from app.adapter_wiring import connect_adapters
from app.store import AdapterMark
from app.ui.adapter_panel import PANEL_WIDTH, AdapterPanel
from app.ui.adapter_row import details_of
from app.ui.message_tools import adapters_in_words, tools_for
from app.ui.strength_slider import StrengthSlider
from app.ui.switch import Switch
from app.ui.theme import DARK, HIGH_CONTRAST, LIGHT, Theme
from engine import AdapterInfo, AdapterUse, SetAdapters
from reader import click, message, open_transcript, tool_point
from stage import flush, until

# Qt's offscreen platform says this of every menu that opens.
pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
MARKS = (AdapterMark("pirate-speech", 0.8, "5f3a"), AdapterMark("formal-german", 1.0, "77aa"))


class Host(QWidget):
    """A window with a page that can be typed in, and the panel at its right."""

    def __init__(self, panel: AdapterPanel) -> None:
        super().__init__()
        self.page = QLineEdit()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.page, 1)
        layout.addWidget(panel)
        self.resize(1000, 700)


class Bench(AdapterStage):
    """The controller part, and the panel over it in a window."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        self.theme = Theme(application, "light")
        self.panel = AdapterPanel(self.state, self.shown)
        self.window = Host(self.panel)
        connect_adapters(self.panel, self.adapters)
        self.panel.apply_palette(LIGHT)
        self.window.show()
        self.window.activateWindow()
        self.window.page.setFocus()
        self.settle()

    @property
    def sliding(self) -> bool:
        running = QPropertyAnimation.State.Running
        found = self.window.findChildren(QPropertyAnimation)
        return any(each.state() is running for each in found)

    def rest(self) -> None:
        """Wait until nothing moves any more."""
        until(lambda: not self.sliding)
        flush()

    def open(self, *paths: Path) -> None:
        """Open the panel over these adapters, all of which fit."""
        self.load()
        for path in paths:
            self.adapters.add(path)
            self.play()
        self.panel.open()
        self.rest()

    def finish(self) -> None:
        self.window.close()  # what was typed and not entered counts now
        self.window.deleteLater()
        flush()
        self.close()
        self.theme.deleteLater()
        flush()


@pytest.fixture
def bench(qtbot: QtBot, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.finish()


def names(bench: Bench) -> list[str]:
    return [row.name.text() for row in bench.panel.list.rows]


def menu_of(bench: Bench) -> QMenu:
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    return menu


def choose(bench: Bench, words: str) -> None:
    """Use an entry of the menu that is open."""
    menu = menu_of(bench)
    action = next(action for action in menu.actions() if action.text() == words)
    assert action.isEnabled()
    action.trigger()
    menu.close()
    flush()


def drag_in(panel: AdapterPanel, *paths: Path) -> bool:
    """Drop files onto the panel; whether they were taken."""
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    copy, left = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    none = Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(QPoint(40, 40), copy, data, left, none)
    enter.ignore()
    QApplication.sendEvent(panel.sheet, enter)
    if not enter.isAccepted():
        return False
    QApplication.sendEvent(panel.sheet, QDropEvent(QPointF(40, 40), copy, data, left, none))
    flush()
    return True


# --- opening and closing --------------------------------------------------------------------------


def test_it_slides_in_beside_the_page_and_out_again(bench: Bench) -> None:
    bench.panel.open()
    assert bench.panel.is_docked
    assert bench.window.page.width() == 1000 - PANEL_WIDTH
    bench.rest()
    assert bench.panel.sheet.geometry().getRect() == (680, 0, PANEL_WIDTH, 700)
    bench.panel.close_panel()
    assert bench.window.page.width() == 1000
    bench.rest()
    assert bench.panel.sheet.isHidden()


def test_where_it_is_tight_it_lies_over_the_page(bench: Bench) -> None:
    bench.window.resize(420, 640)
    bench.panel.open()
    bench.rest()
    assert not bench.panel.is_docked
    assert bench.window.page.width() == 420
    assert bench.panel.sheet.geometry().getRect() == (100, 0, PANEL_WIDTH, 640)


def test_it_follows_the_window_while_it_is_open(bench: Bench) -> None:
    bench.panel.open()
    bench.rest()
    for width, docked in ((1200, True), (500, False), (900, True)):
        bench.window.resize(width, 600)
        bench.panel.set_available_width(width)
        flush()
        assert bench.panel.is_docked is docked
        assert bench.panel.sheet.geometry().right() == width - 1
        assert bench.panel.sheet.height() == 600


def test_without_motion_it_is_there_at_once(bench: Bench) -> None:
    bench.window.setStyleSheet("* { widget-animation-duration: 0; }")
    bench.panel.open()
    assert not bench.sliding
    assert bench.panel.sheet.x() == 680
    bench.panel.close_panel()
    assert bench.panel.sheet.isHidden()


def test_toggling_in_mid_slide_turns_round(bench: Bench) -> None:
    for _ in range(5):
        bench.panel.toggle()
    assert bench.panel.is_open
    bench.rest()
    assert bench.panel.sheet.x() == 680
    for _ in range(3):
        bench.panel.toggle()
    bench.rest()
    assert bench.panel.sheet.isHidden()


def test_escape_closes_it_and_the_keyboard_goes_back(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    bench.panel.list.rows[0].slider.setFocus(Qt.FocusReason.TabFocusReason)
    with qtbot.waitSignal(bench.panel.closed):
        qtbot.keyClick(bench.panel.list.rows[0].slider, Qt.Key.Key_Escape)
    assert bench.window.page.hasFocus()


def test_the_keyboard_stays_where_the_person_put_it_meanwhile(bench: Bench) -> None:
    bench.open(PIRATE)
    bench.window.page.setFocus()
    bench.panel.close_panel()
    assert bench.window.page.hasFocus()


# --- empty and notes ------------------------------------------------------------------------------


def test_empty_it_has_one_sentence_and_one_action(bench: Bench) -> None:
    bench.open()
    panel = bench.panel
    assert panel.sentence.isVisible()
    assert panel.add_button.isVisible()
    for part in (panel.list, panel.clear_button, panel.mixes, panel.note):
        assert not part.isVisible()


def test_without_a_model_it_says_when_adapters_take_effect(bench: Bench) -> None:
    bench.panel.open()
    bench.adapters.add(PIRATE)
    assert "model is loaded" in bench.panel.note.text()
    assert bench.panel.note.isVisible()
    bench.load()
    assert not bench.panel.note.isVisible()


def test_during_an_answer_it_says_that_a_change_waits(bench: Bench) -> None:
    bench.open(PIRATE)
    bench.archive.write(lambda store: store.create_conversation("Sky"))
    bench.adapters.begin(1)
    bench.state.show(1, [])
    assert bench.adapters.ensure(1)
    bench.write(1)
    bench.panel.list.rows[0].switch.click()
    assert bench.panel.note.text() == "Takes effect with the next answer."
    bench.state.set_generation(None)
    assert not bench.panel.note.isVisible()


# --- a row ----------------------------------------------------------------------------------------


def test_the_switch_takes_an_adapter_out_and_puts_it_back(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    row = bench.panel.list.rows[0]
    qtbot.mouseClick(row.switch, Qt.MouseButton.LeftButton)
    assert bench.play() == (AdapterUse(FORMAL, 1.0),)
    qtbot.keyClick(row.switch, Qt.Key.Key_Space)
    assert bench.play() == (AdapterUse(PIRATE, 1.0), AdapterUse(FORMAL, 1.0))


def test_dragging_the_slider_ends_where_it_is_let_go(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    row = bench.panel.list.rows[0]
    start = QPoint(round(row.slider.place_of(100)), row.slider.height() // 2)
    end = QPoint(round(row.slider.place_of(-150)), start.y())
    qtbot.mousePress(row.slider, Qt.MouseButton.LeftButton, pos=start)
    for step in range(1, 31):
        qtbot.mouseMove(row.slider, start + (end - start) * step / 30)
    sent = bench.engine.count(SetAdapters)
    qtbot.mouseRelease(row.slider, Qt.MouseButton.LeftButton, pos=end)
    assert bench.shown.stack[0].strength == -1.5
    assert row.field.value() == -1.5
    assert bench.engine.count(SetAdapters) <= sent + 1
    assert bench.play() == (AdapterUse(PIRATE, -1.5),)


@pytest.mark.parametrize("detent", [100, 0])
def test_the_slider_jumps_onto_its_detents_from_some_pixels_away(bench: Bench, detent: int) -> None:
    bench.open(PIRATE)
    slider = bench.panel.list.rows[0].slider
    place = slider.place_of(detent)
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
    assert slider.place_of(-200) > slider.place_of(200)
    assert slider.value_at(slider.place_of(150)) == 150


def test_keys_move_the_slider_and_the_field_by_the_same_step(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    row = bench.panel.list.rows[0]
    qtbot.keyClick(row.slider, Qt.Key.Key_Right)
    assert (row.slider.strength, row.field.value()) == (1.05, 1.05)
    qtbot.keyClick(row.field, Qt.Key.Key_Down)
    qtbot.keyClick(row.field, Qt.Key.Key_Down)
    assert (row.slider.strength, row.field.value()) == (0.95, 0.95)
    assert bench.play() == (AdapterUse(PIRATE, 0.95),)


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
    bench.grant()
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
    bench.grant()
    assert not wrong.problem.isVisible()


def test_details_name_kind_rank_reach_size_and_file(bench: Bench) -> None:
    bench.open(PIRATE)
    row = bench.panel.list.rows[0]
    assert not row.details.isVisible()
    row.open_menu()
    choose(bench, "Details")
    assert row.details.text() == "GGUF · rank 16 · 210 matrices · 5 MB"
    assert row.file.text() == str(PIRATE)
    assert row.details.isVisible()
    row.open_menu()
    choose(bench, "Hide details")
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
    choose(bench, "Show in folder")
    QDesktopServices.unsetUrlHandler("file")
    assert desktop.shown == [FOLDER]


def test_one_can_be_removed_and_all_of_them(bench: Bench) -> None:
    bench.open(PIRATE, FORMAL, SHORT)
    bench.panel.list.rows[1].open_menu()
    choose(bench, "Remove")
    assert names(bench) == ["pirate-speech", "short answers"]
    bench.panel.clear_button.click()
    assert names(bench) == []
    assert bench.play() == ()


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
    assert [use.path for use in bench.play()] == [FORMAL, SHORT, PIRATE]
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
    bench.play()
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


# --- adding ---------------------------------------------------------------------------------------


def test_the_menu_offers_what_was_added_before_and_is_not_in_use(
    bench: Bench, tmp_path: Path
) -> None:
    there = tmp_path / "still & there.gguf"
    there.write_bytes(b"GGUF")
    bench.open(PIRATE, there)
    bench.adapters.clear()
    bench.adapters.add(SHORT)
    bench.panel.opened.emit()  # looks for the files
    bench.settle()
    bench.panel.add_button.click()
    offered = [(a.text(), a.isEnabled()) for a in menu_of(bench).actions() if a.text()]
    assert offered == [
        ("still && there", True),
        ("pirate-speech (missing)", False),
        ("Choose a file…", True),
        ("Choose a folder…", True),
    ]
    choose(bench, "still && there")
    assert [entry.path for entry in bench.shown.stack] == [SHORT, there]


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ("Choose a file…", QFileDialog.FileMode.ExistingFile),
        ("Choose a folder…", QFileDialog.FileMode.Directory),
    ],
)
def test_choosing_a_file_or_folder_does_not_hold_up_the_window(
    bench: Bench, words: str, mode: QFileDialog.FileMode
) -> None:
    bench.open()
    bench.panel.add_button.click()
    choose(bench, words)
    (dialog,) = bench.window.findChildren(QFileDialog)
    assert dialog.isVisible()
    assert dialog.fileMode() is mode
    dialog.fileSelected.emit(str(FORMAL))
    dialog.close()
    assert names(bench) == ["formal-german"]


def test_files_and_folders_can_be_dropped(bench: Bench, tmp_path: Path) -> None:
    bench.open()
    folder = tmp_path / "peft"
    folder.mkdir()
    assert not drag_in(bench.panel, tmp_path / "notes.txt")
    assert drag_in(bench.panel, PIRATE, tmp_path / "notes.txt", folder / "adapter_config.json")
    assert [entry.path for entry in bench.shown.stack] == [PIRATE, folder]


# --- mixes ----------------------------------------------------------------------------------------


def test_a_mix_is_saved_under_a_name_and_brought_back(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    mixes = bench.panel.mixes
    mixes.save_button.click()
    assert mixes.field.text() == "pirate-speech + formal-german"
    assert mixes.field.hasFocus()
    mixes.field.setText("Captain")
    qtbot.keyClick(mixes.field, Qt.Key.Key_Return)
    assert not mixes.field.isVisible()
    assert not mixes.save_button.isVisible()  # there is nothing new to save
    assert list(bench.shown.mixes) == ["Captain"]
    bench.panel.list.rows[0].switch.click()
    assert mixes.save_button.isVisible()
    mixes.lines[0].button.click()
    assert [entry.on for entry in bench.shown.stack] == [True, True]
    mixes.lines[0].remove.click()
    assert mixes.lines == []


def test_escape_leaves_the_name_and_not_the_panel(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    bench.panel.mixes.save_button.click()
    qtbot.keyClick(bench.panel.mixes.field, Qt.Key.Key_Escape)
    assert bench.panel.is_open
    assert bench.panel.mixes.save_button.hasFocus()
    assert not bench.shown.mixes


def test_a_mix_needs_a_name(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    bench.panel.mixes.save_button.click()
    bench.panel.mixes.field.setText("   ")
    qtbot.keyClick(bench.panel.mixes.field, Qt.Key.Key_Return)
    assert not bench.shown.mixes
    assert bench.panel.mixes.field.isVisible()


# --- screen readers -------------------------------------------------------------------------------


def access(widget: QWidget, text: QAccessible.Text) -> str:
    return QAccessible.queryAccessibleInterface(widget).text(text)


def role(widget: QWidget) -> QAccessible.Role:
    return QAccessible.queryAccessibleInterface(widget).role()


def test_every_control_has_a_name_and_the_right_role(bench: Bench) -> None:
    bench.open(PIRATE, FORMAL)
    row = bench.panel.list.rows[0]
    assert role(row.switch) is QAccessible.Role.CheckBox
    assert role(row.slider) is QAccessible.Role.Slider
    assert role(row.field) is QAccessible.Role.SpinBox
    assert access(row.switch, QAccessible.Text.Name) == "pirate-speech"
    assert access(row.slider, QAccessible.Text.Name) == "Strength of pirate-speech"
    stops = [stop for row in bench.panel.list.rows for stop in row.stops()]
    for stop in (*stops, bench.panel.add_button, bench.panel.close_button):
        assert access(stop, QAccessible.Text.Name)


def test_the_slider_is_read_as_the_strength_it_stands_for(bench: Bench) -> None:
    bench.open(PIRATE)
    row = bench.panel.list.rows[0]
    bench.adapters.set_strength(0, 1.25)
    assert access(row.slider, QAccessible.Text.Value) == "1.25"
    value = QAccessible.queryAccessibleInterface(row.slider).valueInterface()
    assert (value.currentValue(), value.minimumValue(), value.maximumValue()) == (1.25, -2.0, 2.0)
    value.setCurrentValue(-0.5)
    assert bench.shown.stack[0].strength == -0.5


def test_a_refusal_is_part_of_what_the_switch_says(bench: Bench) -> None:
    bench.open()
    bench.adapters.add(FORMAL)
    bench.refuse()
    switch = bench.panel.list.rows[0].switch
    assert WRONG in access(switch, QAccessible.Text.Description)


# --- drawing --------------------------------------------------------------------------------------


def picture(widget: QWidget) -> QImage:
    return widget.grab().toImage()


@pytest.mark.parametrize("palette", [LIGHT, DARK, HIGH_CONTRAST], ids=lambda p: p.name)
def test_on_and_off_and_focus_can_be_told_apart(qtbot: QtBot, palette) -> None:
    switch, slider = Switch(), StrengthSlider()
    for widget in (switch, slider):
        qtbot.addWidget(widget)
        widget.apply_palette(palette)
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
    for row in bench.panel.list.rows:
        for stop in row.stops():
            assert min(stop.width(), stop.height()) >= 28, stop


# --- the leaf -------------------------------------------------------------------------------------


def test_a_leaf_marks_an_answer_that_used_adapters_and_tells_which(qtbot: QtBot) -> None:
    plain = message(1, "Plain.")
    marked = replace(message(2, "Arr."), adapters=MARKS)
    assert [tool.name for tool in tools_for(plain, busy=False)] == ["copy", "regenerate"]
    leaf = tools_for(marked, busy=True)[0]
    assert (leaf.name, leaf.lasting) == ("leaf", True)
    assert leaf.text == "Written with pirate-speech at 0.80 and formal-german at 1.00"
    with open_transcript(qtbot) as view:
        view.set_messages([plain, marked])
        flush()
        point = tool_point(view, 1, "leaf")
        assert view.pointer.tip(QPointF(point)) == leaf.text
        with qtbot.waitSignal(view.adapters_requested):
            click(qtbot, view, point)
        reader = QAccessible.queryAccessibleInterface(view)
        described = reader.child(1).text(QAccessible.Text.Description)
        assert described == leaf.text
        assert reader.child(0).text(QAccessible.Text.Description) == ""


def test_an_answer_with_adapters_can_be_given_again_without(qtbot: QtBot) -> None:
    with open_transcript(qtbot) as view:
        view.set_messages([replace(message(2, "Arr."), adapters=MARKS)])
        flush()
        with qtbot.waitSignal(view.compare_requested) as asked:
            click(qtbot, view, tool_point(view, 0, "leaf_off"))
    assert asked.args == [2]


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ((), ""),
        (MARKS[:1], "Written with pirate-speech at 0.80"),
        (
            (*MARKS, AdapterMark("猫", -1.5, "")),
            "Written with pirate-speech at 0.80, formal-german at 1.00 and 猫 at -1.50",
        ),
    ],
)
def test_marks_in_words(marks: tuple[AdapterMark, ...], words: str) -> None:
    assert adapters_in_words(marks) == words
