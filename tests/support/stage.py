"""Application test stage: the whole window over a fake engine and a real store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QEvent, QEventLoop, QObject, QPropertyAnimation
from PySide6.QtWidgets import QApplication

from app.chat.controller import Controller
from app.chat.documents.file_texts import TextExtractor
from app.chat.servers.network import Outside
from app.domain.tools import ToolSource, ToolSpec
from app.engines.client import Capabilities
from app.engines.local import EngineMaker, LocalClient
from app.first_paint import apply_settings
from app.net.ledger import Ledger
from app.net.offline import gate
from app.settings.table import Settings
from app.state.states import States
from app.state.tools import ToolsState
from app.store.writer import StoreQueue
from app.system.worker import BackgroundWorker
from app.tools.joined import JoinedTools
from app.ui.theme.theme import Theme
from app.ui.window import Window
from app.wiring import connect
from engine import Event
from fakes import FakeEngine
from plain_extractor import PlainExtractor

TIMEOUT_SECONDS = 30.0


class StagedClient(LocalClient):
    """The client of a fake engine with any capabilities."""

    def __init__(
        self,
        engine: EngineMaker,
        notify: Callable[[Event], None],
        parent: QObject,
        *,
        capabilities: Capabilities | None,
    ) -> None:
        super().__init__(engine, notify, parent)
        self._capabilities = capabilities

    @property
    def capabilities(self) -> Capabilities:
        return super().capabilities if self._capabilities is None else self._capabilities


class ShownTools(JoinedTools):
    """A source of the tools that a test has put into the state."""

    def __init__(self, state: ToolsState) -> None:
        super().__init__(())
        self._state = state

    def tools(self) -> Sequence[ToolSpec]:
        return [row.tool for row in self._state.rows]


class Stage:
    """The objects that `app.__main__` wires together, with fake engines."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Settings | None = None,
        answers: list[str] | None = None,
        theme: str = "light",
        capabilities: Capabilities | None = None,
        outside: Outside | None = None,
        extractor: TextExtractor | None = None,
        tool_source: Callable[[], ToolSource] | None = None,
    ) -> None:
        """`capabilities` are those of the engine; None: of the engine in this process. `extractor`
        extracts the texts of files; None: one for plain text.
        """
        self.folder, self.outside = folder, outside
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        self.theme = Theme(application, theme)
        self.states = States()
        self.state = self.states.chat
        self.store_queue = StoreQueue(folder / "conversations.sqlite")
        self.engines: list[FakeEngine] = []
        self.controller = Controller(
            self.states,
            self.store_queue,
            settings or Settings(),
            folder / "settings.json",
            partial(
                StagedClient,
                lambda deliver: self._engine(deliver, answers),
                capabilities=capabilities,
            ),
            outside=outside,
            extractor=lambda: extractor or PlainExtractor(),
            tool_source=tool_source or (lambda: ShownTools(self.states.tools)),
        )
        self.window = Window(self.states, lambda: self.controller.settings)
        apply_settings(self.window, self.controller.settings)
        connect(self.window, self.controller, self.theme)
        self.window.resize(1080, 760)  # its usual size; the offscreen screen is smaller

    def _engine(self, deliver: Callable[..., None], answers: list[str] | None) -> FakeEngine:
        self.engines.append(FakeEngine(deliver, answers))
        return self.engines[-1]

    @property
    def engine(self) -> FakeEngine:
        return self.engines[0]

    def start(self, model: Path | None = None) -> None:
        """Show the window and start the controller, as the app does after the first paint."""
        self.window.show()
        self.controller.start(model)
        self.wait_until_idle()

    def ready(self, model: Path) -> None:
        """Start and load the model."""
        self.start(model)
        self.engine.finish_load()
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until engine events are processed and the store and file workers are idle."""
        until(lambda: not self.window.sidebar.typing)
        self.drain()
        wait_for_workers(self.controller)
        done: list[int] = []
        self.store_queue.flush(done.append)
        until(lambda: bool(done))
        flush()

    def wait_for_animations(self) -> None:
        """Wait until every animation has ended."""
        until(lambda: not self.window.findChildren(QPropertyAnimation))
        flush()

    def drain(self) -> None:
        """Process the events the engine has delivered."""
        self.controller.drain()
        flush()

    def close(self) -> None:
        """End the threads and delete the window."""
        self.controller.close()
        self.window.finish()
        self.theme.deleteLater()
        self.window.deleteLater()
        self.controller.deleteLater()
        self.store_queue.deleteLater()
        for each in (
            self.states.chat,
            self.states.library,
            self.states.adapters,
            self.states.sessions,
            self.states.performance,
            self.states.transfer,
            self.states.connections,
            self.states.server,
            self.states.attachments,
        ):
            each.deleteLater()
        gate.set_offline(False)  # of this process, as its contacts are
        gate.ledger = Ledger()
        flush()


def wait_for_workers(owner: QObject) -> None:
    """Wait until the background workers below `owner` have finished their queued calls."""
    for worker in owner.findChildren(BackgroundWorker):
        done: list[bool] = []
        worker.run(lambda: True, done.append)
        # One that is closed meanwhile, such as that of a deleted connection, runs nothing more.
        until(lambda done=done, worker=worker: bool(done) or worker._closed)


def flush() -> None:
    """Process all pending Qt events, deferred deletions included."""
    QCoreApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents)
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QCoreApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents)


def reraise(error: Exception) -> None:
    """Error handler that fails the test: nothing may raise."""
    raise error


def until(condition: Callable[[], bool], seconds: float = TIMEOUT_SECONDS) -> None:
    """Process Qt events until the condition is true; fails after so many seconds."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "the condition was never true"
        QCoreApplication.processEvents()
        time.sleep(0.0005)  # lets the thread that is waited for run
