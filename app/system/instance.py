"""Single instance per profile: a second start hands its model over to the first, and ends.

A lock on a file of the profile decides between starts at the same moment; a local socket carries
what is handed over. The lock on the conversations is another one: it keeps a second app from harm.
"""

# ruff: noqa: N802  (Qt names the method that is overridden)
from __future__ import annotations

import hashlib
import logging
import time
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QFileOpenEvent
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from app.system.file_lock import FileLock, FileLockHeld

_log = logging.getLogger(__name__)

_PATIENCE_MILLISECONDS = 2000
_CLAIM_SECONDS = 10.0  # within which the app that has the lock answers, or ends and lets go of it
_RETRY_SECONDS = 0.05
_LONGEST = 32768  # bytes of a path
_HEARD = b"heard\n"


class Instance(QObject):
    """The app that has this profile open, seen from inside, or from a second start."""

    called = Signal(str)  # a second start: the path of the model it was given, or nothing

    def __init__(self, profile: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = f"tokonoma-{hashlib.sha256(str(profile.absolute()).encode()).hexdigest()[:20]}"
        self._profile = profile
        self._lock: FileLock | None = None
        self._server: QLocalServer | None = None

    def claim(self, model: Path | None) -> bool:
        """Become the instance, or hand `model` over to the app that is it; whether this is it now.

        An app that is still starting, or saving before it ends, is waited for. One that does
        neither is left alone: the lock on the conversations then says that they are in use.
        """
        limit = time.monotonic() + _CLAIM_SECONDS
        while not self._take_lock():
            if self.call(model):
                return False
            if time.monotonic() > limit:
                return True
            time.sleep(_RETRY_SECONDS)
        # A folder that cannot be written to and some network drives have no locks: there an answer
        # is the only sign of another app.
        return not self.call(model)

    def _take_lock(self) -> bool:
        """Lock the profile; False when another app has it locked."""
        try:
            self._profile.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self._profile / "instance.lock")
        except FileLockHeld:
            return False
        except OSError as error:
            _log.info("no lock on the profile: %s", error)
        return True

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
        """Answer second starts from now on; the socket of an app that crashed is removed."""
        QLocalServer.removeServer(self._name)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)
        self._server.listen(self._name)

    def close(self) -> None:
        """Answer no more; the lock stays until the process ends, as much is yet to be saved."""
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
