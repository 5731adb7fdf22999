"""One window for one profile: a second start shows the first one's window, and ends.

The lock on the conversations keeps a second app from harm; this keeps it from being in the way.
"""

# ruff: noqa: N802  (Qt names the method that is overridden)
from __future__ import annotations

import hashlib
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QFileOpenEvent
from PySide6.QtNetwork import QLocalServer, QLocalSocket

_PATIENCE_MILLISECONDS = 2000
_LONGEST = 32768  # bytes of a path
_HEARD = b"heard\n"


class Instance(QObject):
    """The app that has this profile open, seen from inside, or from a second start."""

    called = Signal(str)  # a second start: the path of the model it was given, or nothing

    def __init__(self, profile: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = f"tokonoma-{hashlib.sha256(str(profile.absolute()).encode()).hexdigest()[:20]}"
        self._server: QLocalServer | None = None

    def call(self, model: Path | None) -> bool:
        """Call the app that is open, from a second start; False when there is none that answers."""
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if not socket.waitForConnected(_PATIENCE_MILLISECONDS):
            return False
        socket.write(f"{model or ''}\n".encode("utf-8", "surrogateescape"))
        heard = b""
        while not heard.endswith(b"\n") and socket.waitForReadyRead(_PATIENCE_MILLISECONDS):
            heard += bytes(socket.readAll().data())
        socket.abort()
        return heard == _HEARD

    def listen(self) -> None:
        """Answer second starts from now on; a name that a crash left behind is taken over."""
        QLocalServer.removeServer(self._name)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)
        self._server.listen(self._name)  # without it, the lock still keeps a second app out

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()

    def _on_connection(self) -> None:
        assert self._server is not None
        while self._server.hasPendingConnections():
            socket = self._server.nextPendingConnection()
            socket.setReadBufferSize(_LONGEST)
            socket.disconnected.connect(socket.deleteLater)
            socket.readyRead.connect(lambda socket=socket: self._on_ready(socket))
            if socket.canReadLine():
                self._on_ready(socket)

    def _on_ready(self, socket: QLocalSocket) -> None:
        if socket.canReadLine():
            line = bytes(socket.readLine(_LONGEST).data())
            socket.write(_HEARD)
            socket.disconnectFromServer()
            self.called.emit(line.decode("utf-8", "surrogateescape").rstrip("\n"))
        elif socket.bytesAvailable() >= _LONGEST:
            socket.abort()


class FileOpens(QObject):
    """macOS hands a double-clicked file to the application that is open, as an event."""

    opened = Signal(str)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QFileOpenEvent) and event.file():
            self.opened.emit(event.file())
            return True
        return super().eventFilter(watched, event)
