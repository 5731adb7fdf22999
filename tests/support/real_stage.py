"""The window with the real engine, and runs of the app one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.chat.documents.file_texts import TextExtractor
from app.settings.table import Settings
from engine import Engine, Event
from fakes import FakeEngine
from plain_extractor import PlainExtractor
from stage import Stage, until


class RealStage(Stage):
    """The window with the real engine."""

    def _engine(self, deliver: Callable[[Event], None], answers: list[str] | None) -> FakeEngine:
        return Engine(deliver)  # type: ignore[return-value]


class Runs:
    """Consecutive runs of the app with the same folder."""

    def __init__(
        self,
        folder: Path,
        model: Path,
        settings: Settings,
        extractor: Callable[[], TextExtractor] = PlainExtractor,
    ) -> None:
        self._folder, self._model, self._settings = folder, model, settings
        self._extractor = extractor
        self._running: Stage | None = None

    def start(self) -> Stage:
        """Quit the current run and start another."""
        self.stop()
        self._running = stage = RealStage(
            self._folder, settings=self._settings, extractor=self._extractor()
        )
        stage.start(self._model)
        until(lambda: stage.state.model.loaded is not None)
        return stage

    def stop(self) -> None:
        """Quit as the window does, after the store has saved everything."""
        if self._running is not None:
            self._running.wait_until_idle()
            self._running.close()
            self._running = None
