"""Virtualised model list: keyboard, accessibility, hundreds of rows, narrow windows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

import scenes_library as scenes
from app.downloads.queue import Phase
from app.state.library import FileState
from app.ui.library.installed_rows import GET
from app.ui.library.row import LibraryRow
from library_shown import Shown, focused_row, many, press, show
from scenes_library import BONSAI, SMOL
from stage import flush

# --- keyboard and screen readers ----------------------------------------------------------------


def test_tab_visits_every_control_then_leaves_the_list(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_full)
    after = QWidget(shown.page)
    after.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    after.show()
    seen: list[str] = []
    shown.page.search.setFocus()
    for _ in range(300):
        press(qtbot, Qt.Key.Key_Tab)
        widget = QApplication.focusWidget()
        if widget is after:
            break
        assert widget is not None
        assert widget.accessibleName() or widget.toolTip()
        seen.append(widget.accessibleName())
    assert QApplication.focusWidget() is after
    named = [f"Use {BONSAI.name}", f"More for {SMOL.name}", "Add folder…"]
    assert [name for name in named if name not in seen] == []
    downloads = [f"Download {row.model.name}" for row in shown.library.catalog if not row.offer.problem and not row.offer.here]  # fmt: skip
    assert [name for name in downloads if name not in seen] == []
    back: list[str] = []
    for _ in range(len(seen)):
        press(qtbot, Qt.Key.Key_Backtab)
        back.append(QApplication.focusWidget().accessibleName())
    assert back == seen[::-1]


def test_arrow_keys_move_between_rows_and_enter_activates(qtbot: QtBot, shown: Shown) -> None:
    shown.library.set_installed(many(40))
    flush()
    shown.page.search.setFocus()
    press(qtbot, Qt.Key.Key_Down)
    assert focused_row() == "Model 0"
    for _ in range(25):
        press(qtbot, Qt.Key.Key_Down)
    assert focused_row() == "Model 25"
    with qtbot.waitSignal(shown.page.use_requested) as used:
        press(qtbot, Qt.Key.Key_Return)
    assert used.args == [Path("/models/25.gguf")]
    press(qtbot, Qt.Key.Key_Right)
    assert QApplication.focusWidget().accessibleName() == "More for Model 25"
    press(qtbot, Qt.Key.Key_Up)
    assert focused_row() == "Model 24"
    press(qtbot, Qt.Key.Key_PageUp)
    assert focused_row() not in ("", "Model 24", "Model 0")
    press(qtbot, Qt.Key.Key_Home)
    press(qtbot, Qt.Key.Key_Down)
    assert focused_row() in ("Model 0", "Model 1")
    press(qtbot, Qt.Key.Key_End)
    row = QApplication.focusWidget().parentWidget()
    assert shown.page.list.viewport().rect().intersects(row.geometry())


def test_links_of_a_heading_take_keys_and_jump_to_its_rows(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_full)
    shown.library.set_installed(many(40))
    flush()
    shown.page.search.setFocus()
    press(qtbot, Qt.Key.Key_Tab)
    while (link := QApplication.focusWidget()).accessibleName() != "Get a model":
        press(qtbot, Qt.Key.Key_Tab)
    press(qtbot, Qt.Key.Key_Down)
    assert focused_row() == "Model 0"
    press(qtbot, Qt.Key.Key_Up)
    assert QApplication.focusWidget() is link
    press(qtbot, Qt.Key.Key_Return)
    assert GET in shown.page.list.seen
    heading = shown.page.list.row(GET)
    assert heading is not None
    assert heading.y() == 0


def test_focused_row_is_scrolled_into_view(qtbot: QtBot, shown: Shown) -> None:
    shown.library.set_installed(many(60))
    flush()
    shown.page.list.setFocus(Qt.FocusReason.TabFocusReason)
    for _ in range(90):
        press(qtbot, Qt.Key.Key_Tab)
        widget = QApplication.focusWidget()
        row = widget.parentWidget()
        assert shown.page.list.viewport().rect().contains(row.geometry().center())


def test_focus_moves_to_a_neighbour_when_its_row_or_action_is_removed(
    qtbot: QtBot, shown: Shown
) -> None:
    rows = many(6)
    shown.library.set_installed(rows)
    flush()
    shown.row("Model 2").action.setFocus()
    shown.library.set_installed([row for row in rows if row.name != "Model 2"])
    flush()
    assert focused_row() == "Model 3"
    shown.state.set_model(scenes.in_use(rows[3]))
    flush()
    assert focused_row() == "Model 3"
    assert QApplication.focusWidget().accessibleName() == "More for Model 3"


def test_accessible_text_of_a_row_is_complete(shown: Shown) -> None:
    show(shown, scenes.library_full)
    row = shown.row("Bonsai 8B")
    access = QAccessible.queryAccessibleInterface(row)
    assert access.role() is QAccessible.Role.ListItem
    assert access.text(QAccessible.Text.Name) == "Bonsai 8B"
    description = access.text(QAccessible.Text.Description)
    for part in ("1.2 GB", "Q1_0", "2.1 GB of 6.2 GB", "fits in memory"):
        assert part in description
    action = QAccessible.queryAccessibleInterface(row.action)
    assert action.role() is QAccessible.Role.Button
    assert action.text(QAccessible.Text.Name) == "Use Bonsai 8B"
    heading = QAccessible.queryAccessibleInterface(shown.page.list.row("installed"))
    assert heading.role() is QAccessible.Role.Heading
    assert heading.text(QAccessible.Text.Name) == "On this computer"
    page_list = QAccessible.queryAccessibleInterface(shown.page.list)
    assert page_list.role() is QAccessible.Role.List


# --- hundreds of rows, narrow windows -----------------------------------------------------------


def test_only_visible_rows_of_500_have_widgets(
    shown: Shown,
) -> None:
    emitted: list[tuple[Path, ...]] = []
    shown.page.seen.connect(emitted.append)
    rows = many(500)
    shown.library.set_installed([replace(row, state=FileState.UNKNOWN) for row in rows])
    flush()
    assert len(shown.page.findChildren(LibraryRow)) < 40
    assert max(len(paths) for paths in emitted) < 30
    bar = shown.page.list.verticalScrollBar()
    for share in (0.5, 1.0, 0.25):
        bar.setValue(int(bar.maximum() * share))
        flush()
    assert len(shown.page.findChildren(LibraryRow)) < 60
    bar.setValue(bar.maximum())
    flush()
    assert "Folders" in shown.texts()


def test_rows_added_above_keep_the_scroll_anchor(shown: Shown) -> None:
    shown.library.set_installed(many(100))
    flush()
    shown.page.list.verticalScrollBar().setValue(2000)
    flush()
    key = shown.page.list.seen[3]
    before = shown.page.list.row(key).y()
    row = scenes.download(1, "a.gguf", Phase.FAILED, 1, 2, error="It failed. " * 30)
    shown.library.set_downloads([row])
    flush()
    assert shown.page.list.row(key).y() == before


@pytest.mark.sweep
@pytest.mark.parametrize("width", [420, 520, 816, 1600])
@pytest.mark.parametrize(
    "scene",
    [scenes.library_downloading, scenes.library_failed, scenes.library_names, scenes.library_hub],
)
def test_no_text_is_clipped_or_overlaps_at_any_width(
    shown: Shown, width: int, scene: scenes.LoadedScene
) -> None:
    shown.page.resize(width, 3000)
    show(shown, scene)
    rows = [row for row in shown.page.findChildren(LibraryRow) if row.isVisible()]
    assert len(rows) > 4
    for row in rows:
        parts = [
            part for part in row.findChildren(QWidget) if part.isVisible() and part.parent() is row
        ]
        for part in parts:
            assert row.rect().contains(part.geometry()), (row.view.name, part.geometry())
        for one in parts:
            for other in parts:
                if one is not other:
                    shared = one.geometry().intersected(other.geometry())
                    assert shared.isEmpty() or min(shared.width(), shared.height()) <= 4, (
                        row.view, one, one.geometry(), other, other.geometry(),
                    )  # fmt: skip
