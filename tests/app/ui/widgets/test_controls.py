"""Buttons: Enter clicks the focused one, once per press."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QCursor, QKeyEvent
from PySide6.QtWidgets import QAbstractButton, QApplication, QMenu
from pytestqt.qtbot import QtBot

from app.ui.widgets.controls import (
    IconButton,
    RoundButton,
    TextButton,
    icon_after_text,
)
from app.ui.widgets.menus import popup_below

BUTTONS = {
    "text": lambda: TextButton("Go", "quiet"),
    "icon": lambda: IconButton("close", "Close"),
    "round": RoundButton,
}


@pytest.mark.parametrize("name", BUTTONS)
def test_enter_and_space_click_a_button(qtbot: QtBot, name: str) -> None:
    button: QAbstractButton = BUTTONS[name]()
    qtbot.addWidget(button)
    button.show()
    clicks: list[bool] = []
    button.clicked.connect(lambda: clicks.append(True))
    for number, key in enumerate((Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space), 1):
        qtbot.keyClick(button, key)
        assert len(clicks) == number
    none = Qt.KeyboardModifier.NoModifier
    repeated = QKeyEvent(QEvent.Type.KeyPress, Qt.Key.Key_Return, none, "", autorep=True)
    QApplication.sendEvent(button, repeated)
    assert len(clicks) == 3
    button.setEnabled(False)
    QApplication.sendEvent(button, QKeyEvent(QEvent.Type.KeyPress, Qt.Key.Key_Return, none))
    assert len(clicks) == 3


@pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
def test_a_button_is_not_hovered_once_its_menu_is_closed(qtbot: QtBot) -> None:
    button = TextButton("Open", "quiet")
    qtbot.addWidget(button)
    button.move(0, 0)
    button.show()
    QCursor.setPos(button.mapToGlobal(QPoint(button.width() + 200, 300)))
    icon_after_text(button)  # its own direction is not the window's
    menu = QMenu(button)
    menu.addAction("One")
    button.setAttribute(Qt.WidgetAttribute.WA_UnderMouse)
    popup_below(menu, button)
    assert abs(menu.x() - button.mapToGlobal(QPoint(0, 0)).x()) <= 1
    menu.close()
    assert not button.underMouse()
