"""The whole window over a fake engine and a real store in a temporary folder, for tests and pictures."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QEvent, QEventLoop, QObject, QPropertyAnimation
from PySide6.QtWidgets import QApplication

from app.chat.controller import Controller
from app.settings.table import Settings
from app.state.states import States
from app.store.writer import Archive
from app.system.worker import BackgroundWorker
from app.ui.settings.page import Preferences
from app.ui.theme.theme import Theme
from app.ui.window import Window
from app.wiring import connect
from fakes import FakeEngine

TIMEOUT_SECONDS = 10.0  # seconds


class Stage:
    """Everything `app.__main__` wires, with an engine that does what it is told."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Settings | None = None,
        answers: list[str] | None = None,
        theme: str = "light",
    ) -> None:
        self.folder = folder
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        self.theme = Theme(application, theme)
        self.states = States()
        self.state = self.states.chat
        self.archive = Archive(folder / "conversations.sqlite")
        self.engines: list[FakeEngine] = []
        self.controller = Controller(
            self.states,
            self.archive,
            settings or Settings(),
            folder / "settings.json",
            engine=lambda deliver: self._engine(deliver, answers),
        )
        self.window = Window(
            self.states, lambda: Preferences(self.controller.settings, self.states.sessions)
        )
        connect(self.window, self.controller, self.theme)

    def _engine(self, deliver: Callable[..., None], answers: list[str] | None) -> FakeEngine:
        self.engines.append(FakeEngine(deliver, answers))
        return self.engines[-1]

    @property
    def engine(self) -> FakeEngine:
        return self.engines[0]

    def start(self, model: Path | None = None) -> None:
        """Show the window and start, as after the first paint."""
        self.window.show()
        self.controller.start(model)
        self.wait_until_idle()

    def ready(self, model: Path) -> None:
        """Start, with the model loaded."""
        self.start(model)
        self.engine.finish_load()
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until the engine's events are shown, and store and files are done with their work."""
        until(lambda: not self.window.sidebar.typing)
        self.drain()
        wait_for_workers(self.controller)
        done: list[int] = []
        self.archive.flush(done.append)
        until(lambda: bool(done))
        flush()

    def wait_for_animations(self) -> None:
        """Wait until nothing moves any more."""
        until(lambda: not self.window.findChildren(QPropertyAnimation))
        flush()

    def drain(self) -> None:
        """Show what the engine has delivered."""
        self.controller.drain()
        flush()

    def close(self) -> None:
        """End both threads and the window."""
        self.controller.close()
        self.window.finish()
        self.theme.deleteLater()
        self.window.deleteLater()
        self.controller.deleteLater()
        self.archive.deleteLater()
        for each in (
            self.states.chat,
            self.states.library,
            self.states.adapters,
            self.states.sessions,
        ):
            each.deleteLater()
        flush()


def wait_for_workers(owner: QObject) -> None:
    """Wait until the workers of files have done what they were given."""
    for worker in owner.findChildren(BackgroundWorker):
        done: list[bool] = []
        worker.run(lambda: True, done.append)
        until(lambda done=done: bool(done))


def flush() -> None:
    """Let Qt do everything that is due, deletions too."""
    QCoreApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents)
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QCoreApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents)


def reraise(request: int, error: Exception) -> None:
    """No event may be left unhandled."""
    raise error


def until(condition: Callable[[], bool]) -> None:
    """Run Qt's events until something holds."""
    limit = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < limit, "it never came"
        QCoreApplication.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents, 20)
