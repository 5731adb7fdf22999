"""The menu bar of macOS: every action in the menu of its group, each with its role there."""

from __future__ import annotations

from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QApplication

from app.actions import ACTIONS, OTHER_KEYS
from app.ui.menu_bar import MenuBar
from app.ui.settings.shortcuts import keys_of
from stage import Stage

ROLE = QAction.MenuRole


def test_no_key_of_macos_is_taken_or_shared(qapp: QApplication) -> None:
    keys = [key.toString() for action in ACTIONS for key in keys_of(action, "darwin")]
    assert len(set(keys)) == len(keys)
    # Minimise, hide, the next window, the search of the system; Ctrl is Command there.
    taken = {"Ctrl+M", "Ctrl+H", "Ctrl+`", "Ctrl+Space", "Ctrl+Alt+D"}
    assert not taken & {*keys, *(row.key for row in OTHER_KEYS)}


def test_each_action_is_in_the_menu_of_its_group(stage: Stage) -> None:
    bar = MenuBar(stage.window)
    shown = {
        action.text(): menu.title()
        for menu in (entry.menu() for entry in bar.actions())
        for action in menu.actions()
    }
    assert {row.text: row.group for row in ACTIONS}.items() <= shown.items()
    assert len(shown) == len(ACTIONS) + 2


def test_the_system_takes_three_entries_by_their_role(stage: Stage) -> None:
    bar = MenuBar(stage.window)
    actions = [action for entry in bar.actions() for action in entry.menu().actions()]
    roles = {action.text(): action.menuRole() for action in actions}
    assert {text: role for text, role in roles.items() if role is not ROLE.NoRole} == {
        "Settings": ROLE.PreferencesRole,
        "About": ROLE.AboutRole,
        "Quit": ROLE.QuitRole,
    }


def test_about_and_minimise_work(stage: Stage) -> None:
    bar = MenuBar(stage.window)
    bar.about.trigger()
    assert stage.window.preferences.page is not None
    assert stage.window.shown_page is stage.window.preferences.page
    assert bar.minimise.shortcut() == QKeySequence("Ctrl+M")
    bar.minimise.trigger()
    assert stage.window.isMinimized()
