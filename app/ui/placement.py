"""Place of the window: its geometry as a text, restored at start, saved after each move."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget

_MILLISECONDS = 500  # after the last move or resize the place is saved


class Placement(QObject):
    """Watches a window, once `start` was called."""

    changed = Signal(str)  # the window was moved or resized: `text`

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._timer = QTimer(self, singleShot=True, interval=_MILLISECONDS)
        self._timer.timeout.connect(lambda: self.changed.emit(self.text()))

    def start(self) -> None:
        """Watch from now on: what restores the geometry of the last run is no move."""
        self._window.installEventFilter(self)

    def text(self) -> str:
        """The geometry as Base64 text, for the settings."""
        return bytes(self._window.saveGeometry().toBase64().data()).decode("ascii")

    def restore(self, text: str) -> None:
        """Restore the geometry saved as `text`, or the usual size for an empty text.

        A window that is larger than its screen is made to fit.
        """
        window = self._window
        if text:
            window.restoreGeometry(QByteArray.fromBase64(text.encode("ascii")))
        if not window.isMaximized() and not window.isFullScreen():
            window.resize(window.size().boundedTo(window.screen().availableSize()))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Move, QEvent.Type.Resize):
            self._timer.start()
        return super().eventFilter(watched, event)
