"""Tray symbol of the server: shows that other programs can use it, and opens the window again."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QMenu, QSystemTrayIcon, QWidget

from app.state.server import ServerStatus
from app.system.translation import isolated, tr


class ServerTray(QObject):
    """A symbol in the system tray; made when it is first shown."""

    def __init__(
        self,
        window: QWidget,
        icon: QIcon,
        open_window: Callable[[], object],
        quit_app: Callable[[], object],
    ) -> None:
        super().__init__(window)
        self._icon, self._open, self._quit = icon, open_window, quit_app
        self.symbol: QSystemTrayIcon | None = None
        self.menu: QMenu | None = None

    @property
    def is_available(self) -> bool:
        """Whether the desktop has a place for it."""
        return QSystemTrayIcon.isSystemTrayAvailable()

    def show_server(self, status: ServerStatus, *, on: bool) -> None:
        """Show it while `on`, with the address of the server."""
        if on and self.symbol is None and self.is_available:
            self.symbol = self._make()
        if self.symbol is not None:
            address = isolated(status.addresses[0]) if status.addresses else ""
            words = tr("Tokonoma serves at {address}", address=address) if address else "Tokonoma"
            self.symbol.setToolTip(words)
            self.symbol.setVisible(on)

    def _make(self) -> QSystemTrayIcon:
        self.menu = QMenu()
        self.menu.addAction(tr("Open Tokonoma"), self._open)
        self.menu.addAction(tr("Stop serving and quit"), self._quit)
        symbol = QSystemTrayIcon(self._icon, self)
        symbol.setContextMenu(self.menu)
        symbol.activated.connect(self._on_activated)
        return symbol

    def _on_activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason is not QSystemTrayIcon.ActivationReason.Context:
            self._open()
