"""Single instance per profile: a second start passes the paths of its files to the first, and exits.

A lock file in the profile decides between simultaneous starts; a local socket transmits the paths.
The store has a separate lock, which protects the conversations if this one fails.
"""

# ruff: noqa: N802  (Qt names the method that is overridden)
from __future__ import annotations

import hashlib
import logging
import os
import time
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QFileOpenEvent
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from app import __version__
from engine import FileLock, FileLockHeld

_log = logging.getLogger(__name__)

_TIMEOUT_MILLISECONDS = 2000
_CLAIM_SECONDS = 10.0  # time for the lock's owner to answer, or to exit and release it
_RETRY_SECONDS = 0.05
_MAX_BYTES = 1 << 20  # of the version and all paths
_BETWEEN = "\0"  # paths, which cannot contain it
_ACKNOWLEDGED = b"heard\n"


class Instance(QObject):
    """Server or client of the profile's single instance."""

    called = Signal(list)  # by a second start: the paths of its files
    other_version = Signal(str)  # the second start was of this version of the app

    def __init__(self, profile: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        # Windows has several ways to write one path: in other letters, or as of a network drive.
        place = os.path.normcase(profile.resolve()).encode("utf-8", "surrogateescape")
        self._name = f"tokonoma-{hashlib.sha256(place).hexdigest()[:20]}"
        self._profile = profile
        self._lock: FileLock | None = None
        self._server: QLocalServer | None = None

    def claim(self, *files: Path) -> bool:
        """Become the single instance, or pass `files` to the running one; whether this is it now.

        Waits `_CLAIM_SECONDS` for an app that is starting or quitting. If that one hangs, this
        start continues, and the store reports that the conversations are in use.
        """
        limit = time.monotonic() + _CLAIM_SECONDS
        while not self._take_lock():
            if self.call(*files):
                return False
            if time.monotonic() > limit:
                return True
            time.sleep(_RETRY_SECONDS)
        # Read-only folders and some network drives do not support locks: there only an answer on
        # the socket shows that another app is running.
        return not self.call(*files)

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

    def call(self, *files: Path) -> bool:
        """Send `files` to the running app; False when none answers."""
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if not socket.waitForConnected(_TIMEOUT_MILLISECONDS):
            return False
        line = _BETWEEN.join((__version__, *map(str, files)))
        socket.write(f"{line}\n".encode("utf-8", "surrogateescape"))
        reply = b""
        while not reply.endswith(b"\n") and socket.waitForReadyRead(_TIMEOUT_MILLISECONDS):
            reply += bytes(socket.readAll().data())
        socket.abort()
        return reply == _ACKNOWLEDGED

    def listen(self) -> None:
        """Start the server; removes the stale socket of a crashed app."""
        QLocalServer.removeServer(self._name)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)
        self._server.listen(self._name)

    def close(self) -> None:
        """Stop the server; the lock is kept until the process exits, after saving."""
        if self._server is not None:
            self._server.close()

    def _on_connection(self) -> None:
        assert self._server is not None
        while self._server.hasPendingConnections():
            socket = self._server.nextPendingConnection()
            socket.setReadBufferSize(_MAX_BYTES)
            socket.disconnected.connect(socket.deleteLater)
            socket.readyRead.connect(lambda socket=socket: self._on_ready(socket))
            if socket.canReadLine():
                self._on_ready(socket)

    def _on_ready(self, socket: QLocalSocket) -> None:
        if socket.canReadLine():
            line = bytes(socket.readLine(_MAX_BYTES).data())
            socket.write(_ACKNOWLEDGED)
            socket.disconnectFromServer()
            sent = line.decode("utf-8", "surrogateescape").removesuffix("\n").split(_BETWEEN)
            self.called.emit([Path(path) for path in sent[1:] if path])
            if sent[0] != __version__:
                self.other_version.emit(sent[0])
        elif socket.bytesAvailable() >= _MAX_BYTES:
            socket.abort()


class DesktopRequests(QObject):
    """Event filter for what the desktop asks of the application: to open a file, and to quit.

    macOS sends the first when a file is double-clicked. The second comes at the end of a session:
    Qt would only close the window, which may keep a server running.
    """

    opened = Signal(str)
    quit = Signal()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QFileOpenEvent) and event.file():
            self.opened.emit(str(Path(event.file())))  # Qt writes / on every system
            return True
        if event.type() is QEvent.Type.Quit:
            event.ignore()  # the app ends by itself, when all is saved
            self.quit.emit()
            return True
        return False
