"""Tray symbol of the server: shown while it serves, opens the window and quits."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QSystemTrayIcon, QWidget
from pytestqt.qtbot import QtBot

from app.state.server import ServerStatus
from app.ui.theme import icons
from app.ui.widgets.tray import ServerTray


class DesktopTray(ServerTray):
    """A tray on a desktop that has a place for it."""

    there = True

    @property
    def is_available(self) -> bool:
        return self.there


@pytest.mark.qt_log_ignore("systemTrayWindowChanged")
def test_it_shows_the_address_and_opens_the_window(qtbot: QtBot) -> None:
    window, calls = QWidget(), list[str]()
    qtbot.addWidget(window)
    tray = DesktopTray(
        window, icons.application_icon(), lambda: calls.append("open"), lambda: calls.append("quit")
    )
    tray.show_server(ServerStatus(), on=False)
    assert tray.symbol is None  # not before it is needed
    tray.show_server(ServerStatus(addresses=("http://127.0.0.1:8080",)), on=True)
    assert tray.symbol is not None
    assert tray.menu is not None
    assert tray.symbol.toolTip() == "Tokonoma serves at http://127.0.0.1:8080"
    tray.symbol.activated.emit(QSystemTrayIcon.ActivationReason.Trigger)
    tray.symbol.activated.emit(QSystemTrayIcon.ActivationReason.Context)
    for action in tray.menu.actions():
        action.trigger()
    assert calls == ["open", "open", "quit"]
    assert QGuiApplication.clipboard().text() == "http://127.0.0.1:8080"
    tray.show_server(ServerStatus(), on=False)
    assert not tray.symbol.isVisible()


def test_without_a_place_for_it_there_is_none(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    tray = ServerTray(window, icons.application_icon(), window.show, window.close)
    assert not tray.is_available
    tray.show_server(ServerStatus(), on=True)
    assert tray.symbol is None


@pytest.mark.qt_log_ignore("systemTrayWindowChanged")
def test_a_tray_that_is_gone_is_noticed_and_one_that_restarts_is_not(qtbot: QtBot) -> None:
    window, lost = QWidget(), list[bool]()
    qtbot.addWidget(window)
    tray = DesktopTray(window, icons.application_icon(), window.show, window.close)
    tray.lost.connect(lambda: lost.append(True))
    tray.show_server(ServerStatus(), on=True)
    assert tray.is_shown
    for there in (True, False, True, False):
        tray.there = there
        tray.look()
    assert lost == []
    tray.look()
    tray.look()
    assert lost == [True]
    assert not tray.is_shown
