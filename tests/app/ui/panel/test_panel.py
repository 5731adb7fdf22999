"""The panel of a chat: docking, sliding, keys, focus and what opens it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QWheelEvent
from PySide6.QtWidgets import QAbstractSpinBox, QApplication, QRadioButton, QWidget
from pytestqt.qtbot import QtBot

from adapter_bench import Bench
from adapter_stage import FORMAL, PIRATE
from app.domain.chat_settings import NO_SETTINGS, AdapterChoice, AnswerFormat
from app.ui.panel.content import PanelContent
from app.ui.panel.panel import PANEL_WIDTH
from fakes import MODEL
from stage import Stage, flush

# --- opening and closing --------------------------------------------------------------------------


def test_docked_panel_slides_in_beside_the_page_and_out(bench: Bench) -> None:
    bench.panel.open()
    assert bench.window.page.width() == 1000 - PANEL_WIDTH
    bench.wait_for_animations()
    assert bench.panel.sheet.geometry().getRect() == (1000 - PANEL_WIDTH, 0, PANEL_WIDTH, 700)
    bench.panel.close_panel()
    assert bench.window.page.width() == 1000
    bench.wait_for_animations()
    assert bench.panel.sheet.isHidden()


def test_panel_overlaps_the_page_in_a_narrow_window(bench: Bench) -> None:
    bench.window.resize(420, 640)
    bench.panel.open()
    bench.wait_for_animations()
    assert bench.window.page.width() == 420
    assert bench.panel.sheet.geometry().getRect() == (420 - PANEL_WIDTH, 0, PANEL_WIDTH, 640)


def test_open_panel_follows_window_resizes(bench: Bench) -> None:
    bench.panel.open()
    bench.wait_for_animations()
    for width, docked in ((1200, True), (500, False), (900, True)):
        bench.window.resize(width, 600)
        bench.panel.set_available_width(width)
        flush()
        assert (bench.window.page.width() < width) is docked
        assert bench.panel.sheet.geometry().right() == width - 1
        assert bench.panel.sheet.height() == 600


def test_disabled_animations_open_the_panel_at_once(bench: Bench) -> None:
    bench.window.setStyleSheet("* { widget-animation-duration: 0; }")
    bench.panel.open()
    assert not bench.sliding
    assert bench.panel.sheet.x() == 1000 - PANEL_WIDTH
    bench.panel.close_panel()
    assert bench.panel.sheet.isHidden()


def test_toggling_during_the_slide_reverses_it(bench: Bench) -> None:
    for _ in range(5):
        bench.panel.toggle()
    assert bench.panel.is_open
    bench.wait_for_animations()
    assert bench.panel.sheet.x() == 1000 - PANEL_WIDTH
    for _ in range(3):
        bench.panel.toggle()
    bench.wait_for_animations()
    assert bench.panel.sheet.isHidden()


def test_escape_closes_the_panel_and_restores_focus(qtbot: QtBot, bench: Bench) -> None:
    bench.open(PIRATE)
    bench.section.list.rows[0].slider.setFocus(Qt.FocusReason.TabFocusReason)
    with qtbot.waitSignal(bench.panel.closed):
        qtbot.keyClick(bench.section.list.rows[0].slider, Qt.Key.Key_Escape)
    assert bench.window.page.hasFocus()


def test_closing_keeps_focus_that_was_moved_out_of_the_panel(bench: Bench) -> None:
    bench.open(PIRATE)
    bench.window.page.setFocus()
    bench.panel.close_panel()
    assert bench.window.page.hasFocus()


# --- in the window --------------------------------------------------------------------------------


def test_nothing_is_made_before_the_panel_is_opened(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.chat_settings.change_shown(NO_SETTINGS.with_value("top_k", 3))
    stage.window.close()
    assert stage.window.findChildren(PanelContent) == []
    stage.window.open_panel()
    assert len(stage.window.findChildren(PanelContent)) == 1


def test_keys_open_the_panel_at_its_top_or_at_the_adapters(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    window = stage.window
    window.activateWindow()
    window.actions_by_id["adapters"].trigger()
    flush()
    stage.wait_for_animations()
    assert window.focusWidget() is window.panel.adapters
    area = window.panel.content.area
    bar = area.verticalScrollBar()
    assert window.panel.adapters.mapTo(area.viewport(), QPoint()) == QPoint()
    window.actions_by_id["adapters"].trigger()
    assert not window.panel.is_open
    stage.wait_for_animations()
    window.actions_by_id["panel"].trigger()
    stage.wait_for_animations()
    assert bar.value() == 0
    window.actions_by_id["adapters"].trigger()  # goes there
    flush()
    assert window.panel.is_open
    assert bar.value() > 0
    window.actions_by_id["panel"].trigger()
    assert not window.panel.is_open


@pytest.mark.parametrize("page", ["library", "settings", "performance"])
def test_the_panel_is_of_the_chat_page(stage: Stage, page: str) -> None:
    stage.ready(MODEL)
    stage.window.open_panel()
    stage.window.actions_by_id[page].trigger()
    assert not stage.window.panel.is_open
    assert not stage.window.chat.isVisible()
    stage.window.actions_by_id["panel"].trigger()
    assert stage.window.panel.is_open
    assert stage.window.chat.isVisible()


def test_escape_in_each_field_closes_and_returns_to_the_composer(
    qtbot: QtBot, stage: Stage
) -> None:
    stage.start(MODEL)
    stage.engine.finish_load(can_think=True)
    stage.wait_until_idle()
    window = stage.window
    window.activateWindow()
    content = window.panel.content
    fields = [
        content.model.button,
        content.instructions.field.editor,
        content.sampling.rows["temperature"].field.line,
        content.stop.field.editor,
        content.format.field.kinds,
        content.thinking.choice.buttons["usual"],
        content.policy.choice.buttons["stop"],
        content.adapters.add_button,
    ]
    for field in fields:
        window.composer.setFocus()
        window.open_panel()
        stage.wait_for_animations()
        field.setFocus()
        qtbot.keyClick(field, Qt.Key.Key_Escape)
        assert not window.panel.is_open, field
        assert window.focusWidget() is window.composer.editor, field
        stage.wait_for_animations()


def stops(content: PanelContent) -> set[QWidget]:
    """What Tab is to reach: of radio buttons the checked one, the others by arrow keys."""
    return {
        each
        for each in content.findChildren(QWidget)
        if each.isVisible()
        and each.isEnabled()
        and each.focusPolicy() & Qt.FocusPolicy.TabFocus
        and not isinstance(each.parentWidget(), QAbstractSpinBox)
        and not (isinstance(each, QRadioButton) and not each.isChecked())
    }


def test_tab_reaches_every_control_from_the_top_to_the_bottom(qtbot: QtBot, stage: Stage) -> None:
    stage.start(MODEL)
    stage.engine.finish_load(can_think=True)
    stage.wait_until_idle()
    changed = replace(NO_SETTINGS, adapters=(AdapterChoice(PIRATE), AdapterChoice(FORMAL)))
    changed = changed.with_format(AnswerFormat.CHOICES, "yes").with_value("top_k", 3)
    stage.controller.chat_settings.change_shown(changed)
    stage.window.activateWindow()
    stage.window.open_panel()
    stage.wait_for_animations()
    sheet, content = stage.window.panel.sheet, stage.window.panel.content
    seen: list[QWidget] = []
    focused = sheet
    while len(seen) < 100:
        qtbot.keyClick(focused, Qt.Key.Key_Tab)
        focused = stage.window.focusWidget()
        if focused is None or not content.isAncestorOf(focused):
            break
        seen.append(focused)
    assert set(seen) == stops(content)
    rows = content.area.rows  # it scrolls: places are compared within it
    order = [
        each.mapTo(rows, QPoint(0, each.height() // 2)).y()
        for each in seen
        if rows.isAncestorOf(each)
    ]
    assert all(after > before - 24 for before, after in pairwise(order)), order


def test_every_control_of_the_panel_has_a_name(stage: Stage) -> None:
    stage.start(MODEL)
    stage.engine.finish_load(can_think=True)
    stage.wait_until_idle()
    changed = replace(NO_SETTINGS, adapters=(AdapterChoice(PIRATE),), instructions="Be brief")
    changed = changed.with_format(AnswerFormat.CHOICES, "yes").with_value("top_k", 3)
    stage.controller.chat_settings.change_shown(changed)
    stage.window.open_panel()
    stage.window.panel.content.sampling.more_button.click()
    flush()
    for each in stops(stage.window.panel.content):
        interface = QAccessible.queryAccessibleInterface(each)
        assert interface.text(QAccessible.Text.Name), each
        assert interface.role() not in (QAccessible.Role.NoRole, QAccessible.Role.Client), each
    for section in stage.window.panel.content.sections.values():
        interface = QAccessible.queryAccessibleInterface(section)
        assert interface.role() is QAccessible.Role.Grouping
        assert interface.text(QAccessible.Text.Name) == section.heading.text()


def test_the_wheel_changes_no_value(stage: Stage) -> None:
    stage.start(MODEL)
    stage.engine.finish_load(can_think=True)
    stage.wait_until_idle()
    changed = replace(NO_SETTINGS, adapters=(AdapterChoice(PIRATE),))
    stage.controller.chat_settings.change_shown(changed)
    stage.window.activateWindow()
    stage.window.open_panel()
    content = stage.window.panel.content
    for each in content.findChildren(QWidget):
        if not each.isVisible():
            continue
        if each.focusPolicy() != Qt.FocusPolicy.NoFocus:
            each.setFocus()
        middle = QPointF(each.rect().center())
        event = QWheelEvent(
            middle,
            each.mapToGlobal(middle),
            QPoint(),
            QPoint(0, -120),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(each, event)
    content.finish()
    assert stage.states.chat_settings.settings == changed


def test_the_button_of_the_top_bar_shows_what_is_set(stage: Stage) -> None:
    stage.ready(MODEL)
    button = stage.window.top_bar.panel_button
    flush()
    plain = button.grab().toImage()
    changed = replace(NO_SETTINGS.with_value("top_k", 3), stop=("###",))
    stage.controller.chat_settings.change_shown(changed)
    words = "Chat settings (Ctrl+Shift+O). Changed: Sampling, Stop texts"
    assert (button.toolTip(), button.accessibleName()) == (words, words)
    assert button.grab().toImage() != plain
    stage.controller.chat_settings.change_shown(NO_SETTINGS)
    assert button.toolTip() == "Chat settings (Ctrl+Shift+O)"
    assert button.grab().toImage() == plain
    button.click()
    assert stage.window.panel.is_open


def test_the_sheet_comes_from_the_left_in_a_window_from_right_to_left(
    qapp: QApplication, bench: Bench
) -> None:
    qapp.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    try:
        bench.panel.open()
        bench.wait_for_animations()
        assert bench.panel.sheet.geometry().getRect() == (0, 0, PANEL_WIDTH, 700)
        assert bench.window.page.x() == PANEL_WIDTH
    finally:
        qapp.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
