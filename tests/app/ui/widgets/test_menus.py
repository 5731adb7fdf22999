"""Menus that are made for one use."""

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QMenu, QWidget
from pytestqt.qtbot import QtBot

from app.ui.widgets.menus import new_menu
from stage import flush

# Qt's offscreen platform logs this for every opened menu.
pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)


def test_a_closed_menu_is_deleted(qtbot: QtBot) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    menu = new_menu(parent)
    menu.addAction("One")
    menu.popup(QPoint(0, 0))
    assert parent.findChildren(QMenu) == [menu]
    menu.close()
    flush()
    assert parent.findChildren(QMenu) == []
