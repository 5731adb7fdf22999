"""Tray symbol of the server: shows that other programs can use it, and opens the window again."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QGuiApplication, QIcon
from PySide6.QtWidgets import QMenu, QSystemTrayIcon, QWidget

from app.state.server import ServerStatus
from app.system.translation import isolated, tr

_LOOK_MILLISECONDS = 3000  # between two looks whether the tray is still there
_MOST_MISSED = 2  # looks: a panel that restarts is away for a moment


class ServerTray(QObject):
    """A symbol in the system tray; made when it is first shown."""

    lost = Signal()  # the desktop has no place for it any more

    def __init__(
        self,
        window: QWidget,
        icon: QIcon,
        open_window: Callable[[], object],
        quit_app: Callable[[], object],
    ) -> None:
        super().__init__(window)
        self._icon, self._open, self._quit = icon, open_window, quit_app
        self._address = ""
        self.symbol: QSystemTrayIcon | None = None
        self.menu: QMenu | None = None
        self._missed = 0  # looks without a tray
        self._looks = QTimer(self, interval=_LOOK_MILLISECONDS)
        self._looks.timeout.connect(self.look)

    @property
    def is_available(self) -> bool:
        """Whether the desktop has a place for it."""
        return QSystemTrayIcon.isSystemTrayAvailable()

    @property
    def is_shown(self) -> bool:
        """Whether the user can see it."""
        return self.symbol is not None and self.symbol.isVisible() and self.is_available

    def show_server(self, status: ServerStatus, *, on: bool) -> None:
        """Show it while `on`, with the address of the server."""
        if on and self.symbol is None and self.is_available:
            self.symbol = self._make()
        if self.symbol is not None:
            self._address = status.addresses[0] if status.addresses else self._address
            where = isolated(self._address)
            self.symbol.setToolTip(tr("Tokonoma serves at {address}", address=where))
            self.symbol.setVisible(on)
            if on:
                self._looks.start()
            else:
                self._looks.stop()

    def look(self) -> None:
        """Look whether the desktop still has a place for it; emits `lost` if not."""
        self._missed = 0 if self.is_available else self._missed + 1
        if self._missed == _MOST_MISSED:
            self.lost.emit()

    def _make(self) -> QSystemTrayIcon:
        self.menu = QMenu()  # not a child of the window, which is hidden when it is opened
        self.destroyed.connect(self.menu.deleteLater)
        self.menu.addAction(tr("Open Tokonoma"), self._open)
        self.menu.addAction(tr("Copy the address"), self._copy)
        self.menu.addAction(tr("Stop serving and quit"), self._quit)
        symbol = QSystemTrayIcon(self._icon, self)
        symbol.setContextMenu(self.menu)
        symbol.activated.connect(self._on_activated)
        return symbol

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._address)

    def _on_activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason is not QSystemTrayIcon.ActivationReason.Context:
            self._open()
