"""Buttons: Enter clicks the focused one, once per press."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractButton, QApplication
from pytestqt.qtbot import QtBot

from app.ui.widgets.controls import IconButton, RoundButton, TextButton

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
