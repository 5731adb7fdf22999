"""Each action has one row, each key one action, and the list of shortcuts shows them all."""

from __future__ import annotations

from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QApplication, QLabel

from app.actions import ACTIONS, OTHER_KEYS
from app.ui.shortcuts import Shortcuts, keys_of
from stage import Stage


def test_no_two_actions_share_a_name_or_a_key(qapp: QApplication) -> None:
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)
    keys = [key.toString() for action in ACTIONS for key in keys_of(action)]
    assert len(set(keys)) == len(keys)


def test_every_key_is_one_qt_knows(qapp: QApplication) -> None:
    for action in ACTIONS:
        assert keys_of(action), action.id
        assert all(key.toString() for key in keys_of(action)), action.id
    for _, _, key in OTHER_KEYS:
        assert QKeySequence(key).toString()


def test_platform_keys_come_first(qapp: QApplication) -> None:
    new = next(action for action in ACTIONS if action.id == "new")
    assert keys_of(new)[0] == QKeySequence(QKeySequence.StandardKey.New)


def test_every_action_is_wired_in_the_window(stage: Stage) -> None:
    assert set(stage.window.actions_by_id) == {action.id for action in ACTIONS}


def test_the_list_shows_every_action(stage: Stage) -> None:
    card = Shortcuts(stage.window)
    words = {label.text() for label in card.findChildren(QLabel)}
    assert words >= {action.text for action in ACTIONS}
    assert words >= {text for _, text, _ in OTHER_KEYS}
