"""Menu beside New chat: a new chat with a preset, or this chat as a preset."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QMenu, QWidget

from app.state.presets import PresetState
from app.system.translation import tr
from app.ui.widgets.menus import popup_below

_NAME_LENGTH = 40  # characters


class PresetMenu(QObject):
    """Makes the menu each time it is opened."""

    started = Signal(object)  # id
    applied = Signal(object)  # id, to the shown chat
    save_requested = Signal()
    manage_requested = Signal()

    def __init__(self, state: PresetState, parent: QWidget) -> None:
        super().__init__(parent)
        self._state, self._window = state, parent

    def open_below(self, button: QWidget) -> None:
        """Show the menu below a button."""
        popup_below(self.menu(), button)

    def menu(self) -> QMenu:
        """The menu, as it is now."""
        menu = QMenu(self._window)
        for preset in self._state.presets:
            menu.addAction(_shown(preset.name), partial(self.started.emit, preset.id))
        menu.addSeparator()
        use = menu.addMenu(tr("Use in this chat"))
        for preset in self._state.presets:
            action = use.addAction(_shown(preset.name), partial(self.applied.emit, preset.id))
            action.setCheckable(True)
            action.setChecked(preset.id == self._state.use.shown)
        use.menuAction().setVisible(bool(self._state.presets))
        menu.addAction(tr("Save this chat's settings as a preset"), self.save_requested.emit)
        menu.addAction(tr("All presets…"), self.manage_requested.emit)
        menu.aboutToHide.connect(menu.deleteLater)
        return menu


def _shown(name: str) -> str:
    """A name for a menu, in which "&" would mark a key."""
    cut = f"{name[: _NAME_LENGTH - 1].rstrip()}…" if len(name) > _NAME_LENGTH else name
    return cut.replace("&", "&&")
