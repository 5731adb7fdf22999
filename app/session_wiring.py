"""Connects what the settings page says with what is done about it; neither knows the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices

from app.sessions import Sessions
from app.settings import Settings
from app.state import ModelPhase, State
from app.ui.preferences import Preferences
from app.ui.theme import Theme


def connect_preferences(
    preferences: Preferences,
    sessions: Sessions,
    state: State,
    theme: Theme,
    *,
    change: Callable[[str, object], None],
    reload: Callable[[Path], None],
) -> Callable[[Settings], None]:
    """Wire every intent of the page; returns what is to be told the settings when they changed.

    `change` is given a setting's name and its new value, `reload` the model to load again.
    """

    def changed(name: str, value: object) -> None:
        if name == "theme":
            theme.choose(str(value))
        change(name, value)

    def load_again() -> None:
        if state.model.path is not None:
            reload(state.model.path)

    loaded: list[object] = [None]

    def show_model() -> None:
        model = state.model
        if model.phase is ModelPhase.READY and model.loaded is loaded[0]:
            return
        loaded[0] = model.loaded if model.phase is ModelPhase.READY else None
        preferences.show_model(loaded[0] is not None)

    preferences.changed.connect(changed)
    preferences.opened.connect(sessions.measure)
    preferences.delete_requested.connect(sessions.delete_saved)
    preferences.folder_requested.connect(show_in_folder)
    preferences.reload_requested.connect(load_again)
    state.model_changed.connect(show_model)
    show_model()
    return preferences.show_settings


def show_in_folder(path: Path) -> bool:
    """Open the folder a file lies in, or the nearest one there is, in the system's own way."""
    return QDesktopServices.openUrl(QUrl.fromLocalFile(str(nearest_folder(path))))


def nearest_folder(path: Path) -> Path:
    """The folder itself, or else the nearest one above that exists."""
    return next((each for each in (path, *path.parents) if each.is_dir()), Path.home())
