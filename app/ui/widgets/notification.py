"""System notification when a long answer ends while the window is not in front.

One that did not reach its end says why, as the line below it does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication, QSystemTrayIcon, QWidget

from app.domain.message import Message
from app.state.chat import Generation, State
from app.system.translation import tr

LONG_SECONDS = 10.0  # answers that take less are waited for
_SHOWN_MILLISECONDS = 10_000


class AnswerNotifier(QObject):
    """Notifies of the end of an answer that took long, unless the window is in front."""

    def __init__(
        self,
        state: State,
        window: QWidget,
        is_on: Callable[[], bool],
        come_forward: Callable[[], None],
        ending: Callable[[Message], str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_on` returns the setting; `come_forward` is called when the message is clicked.

        `ending` says why an answer did not reach its end; empty if it did.
        """
        super().__init__(window)
        self._state, self._window, self._is_on = state, window, is_on
        self._come_forward, self._ending, self._clock = come_forward, ending, clock
        self._began: dict[int, float] = {}  # request of an answer in progress: when it began
        self._before: Mapping[int, Generation] = {}
        self._tray: QSystemTrayIcon | None = None  # created on demand
        state.generations_changed.connect(self._on_generations)

    def show(self, title: str, text: str) -> None:
        """Mark the window in the task bar and, where there is a system tray, show a message."""
        QApplication.alert(self._window)
        if not QSystemTrayIcon.isSystemTrayAvailable():
            return
        if self._tray is None:
            self._tray = QSystemTrayIcon(self._window.windowIcon(), self)
            self._tray.messageClicked.connect(self._come_forward)
        self._tray.show()
        self._tray.showMessage(title, text, self._window.windowIcon(), _SHOWN_MILLISECONDS)
        QTimer.singleShot(_SHOWN_MILLISECONDS, self._tray, self._tray.hide)

    def _on_generations(self) -> None:
        before, now = self._before, self._state.generations
        self._before = now
        for request in now.keys() - before.keys():
            self._began[request] = self._clock()
        for request in before.keys() - now.keys():
            self._on_ended(before[request], self._clock() - self._began.pop(request))

    def _on_ended(self, generation: Generation, seconds: float) -> None:
        if generation.stopping or seconds < LONG_SECONDS:
            return
        if self._is_on() and not self._window.isActiveWindow():
            message = self._state.message(generation.message)
            ended = self._ending(message) if message else ""
            self.show(
                ended or tr("Your answer is ready"), self._state.title(generation.conversation)
            )
