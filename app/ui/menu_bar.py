"""Menu bar of macOS, at the top of the screen: the table of actions, a menu for each group.

The system takes three of its entries into the menu of the app, by their role, and names these
itself: the settings, the text about the app, and Quit. Other systems show no menu bar.
"""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar

from app.actions import ACTIONS
from app.system.translation import tr
from app.ui.window import Window

_Role = QAction.MenuRole
_ROLES = {"settings": _Role.PreferencesRole, "quit": _Role.QuitRole}


class MenuBar(QMenuBar):
    """Menus of the actions of a window, which macOS shows while the window is in front."""

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        actions = window.actions_by_id
        menus: dict[str, QMenu] = {}
        for row in ACTIONS:
            if row.group not in menus:
                menus[row.group] = self.addMenu(tr(row.group))
            # Without a role, Qt would guess one from the text: "Settings" is in three of them.
            actions[row.id].setMenuRole(_ROLES.get(row.id, _Role.NoRole))
            menus[row.group].addAction(actions[row.id])
        last = menus[ACTIONS[-1].group]
        self.about = last.addAction(tr("About"))
        self.about.setMenuRole(_Role.AboutRole)
        self.about.triggered.connect(lambda: window.preferences.open().show_updates())
        # Qt's own translation.
        text = QCoreApplication.translate("QMdiSubWindow", "Minimize")
        self.minimise = last.addAction(text, window.showMinimized)
        self.minimise.setShortcut(QKeySequence("Ctrl+M"))
        self.minimise.setMenuRole(_Role.NoRole)
