"""The file of the settings: written after each change, and again while that fails."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QTimer

from app.settings.table import Settings, SettingsError, save
from app.state.chat import Notice, State
from app.system.worker import BackgroundWorker

NOTICE = "settings"
RETRY_MILLISECONDS = 2000


class SavedSettings:
    """Writes the newest settings; a notice says why not, until they are saved."""

    def __init__(self, state: State, worker: BackgroundWorker, path: Path) -> None:
        self._state, self._worker, self._path = state, worker, path
        self._newest = Settings()
        self._retry = QTimer(state, singleShot=True, interval=RETRY_MILLISECONDS)
        self._retry.timeout.connect(lambda: self.save(self._newest))

    def save(self, settings: Settings) -> None:
        """Write the settings on the worker's thread."""
        self._newest = settings
        self._retry.stop()

        def write() -> SettingsError | None:
            try:
                save(self._path, settings)
            except SettingsError as error:
                return error
            return None

        self._worker.run(write, self._on_saved)

    def _on_saved(self, error: SettingsError | None) -> None:
        notice = Notice(str(error), error.remedy) if error else None
        if notice != self._state.notices.get(NOTICE):
            self._state.set_notice(NOTICE, notice)
        if error is not None:
            self._retry.start()
