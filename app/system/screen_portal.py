"""Screenshots by the desktop: the interface `org.freedesktop.portal.Screenshot` of D-Bus.

The desktop lets the user choose a screen, a window or a region in its own way, and writes a file,
which is the user's: it is read and never deleted. To be imported on Linux only: the bundles for other
systems have no D-Bus.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from PySide6.QtCore import SLOT, QObject, QTimer, QUrl, Signal, Slot
from PySide6.QtDBus import (
    QDBusConnection,
    QDBusError,
    QDBusMessage,
    QDBusPendingCallWatcher,
    QDBusServiceWatcher,
)

from app.system.screen_grab import PortalFault

SERVICE = "org.freedesktop.portal.Desktop"
OBJECT = "/org/freedesktop/portal/desktop"
SCREENSHOT = "org.freedesktop.portal.Screenshot"
REQUEST = "org.freedesktop.portal.Request"
ASK_MILLISECONDS = 10_000  # until the desktop takes the request
CHOICE_MILLISECONDS = 600_000  # until the user has chosen
_TAKEN, _CANCELLED = 0, 1  # codes of a response
_MISSING = (  # ends of the names of errors
    "ServiceUnknown",
    "NameHasNoOwner",
    "UnknownObject",
    "UnknownInterface",
    "UnknownMethod",
    "NotSupported",
    "Disconnected",
    "NoServer",
)
_SLOW = ("NoReply", "Timeout", "TimedOut")


class _Request(QObject):
    """Receives the response to one request; that to an earlier one reaches nobody."""

    answered = Signal(object, object)  # code and results

    @Slot("uint", "QVariantMap")
    def on_response(self, code: int, results: Mapping[str, Any]) -> None:
        self.answered.emit(code, results)


class ScreenPortal(QObject):
    """Asks for one screenshot at a time; a second request ends the first."""

    taken = Signal(object)  # Path of the file
    cancelled = Signal()  # by the user
    failed = Signal(object)  # PortalFault

    def __init__(
        self,
        bus: Callable[[], QDBusConnection] | None = None,
        parent: QObject | None = None,
        *,
        ask_milliseconds: int = ASK_MILLISECONDS,
        choice_milliseconds: int = CHOICE_MILLISECONDS,
    ) -> None:
        """`bus` connects; None: to the bus of the user's session."""
        super().__init__(parent)
        self._connect = bus or QDBusConnection.sessionBus
        self._ask_milliseconds = ask_milliseconds
        self._bus: QDBusConnection | None = None
        self._request: _Request | None = None
        self._asked: QDBusPendingCallWatcher | None = None  # for the answer that it was taken
        self._service: QDBusServiceWatcher | None = None
        self._paths: list[str] = []  # of the request: the expected one, and the one it got
        self._wait = QTimer(self, singleShot=True, interval=choice_milliseconds)
        self._wait.timeout.connect(self._on_gone)

    def take(self, window: str = "") -> None:
        """Ask for a screenshot; `window` names the asking one, as the portal names windows."""
        self.close()
        bus = self._connect()
        if not bus.isConnected():
            self.failed.emit(PortalFault.MISSING)
            return
        self._bus, token = bus, f"tokonoma{secrets.token_hex(8)}"
        self._request = request = _Request(self)
        request.answered.connect(self._on_answer)
        sender = bus.baseService().removeprefix(":").replace(".", "_")
        self._listen(f"{OBJECT}/request/{sender}/{token}")  # first: the answer may be quick
        call = QDBusMessage.createMethodCall(SERVICE, OBJECT, SCREENSHOT, "Screenshot")
        call.setArguments([window, {"interactive": True, "handle_token": token}])
        self._asked = QDBusPendingCallWatcher(bus.asyncCall(call, self._ask_milliseconds), self)
        self._asked.finished.connect(self._on_asked)
        if self._service is None:
            gone = QDBusServiceWatcher.WatchModeFlag.WatchForUnregistration
            self._service = QDBusServiceWatcher(SERVICE, bus, gone, self)
            self._service.serviceUnregistered.connect(self._on_gone)
        self._wait.start()

    def close(self) -> None:
        """End the request, if there is one; nothing is said of it any more."""
        if self._request is not None and self._bus is not None:
            close = QDBusMessage.createMethodCall(SERVICE, self._paths[-1], REQUEST, "Close")
            self._bus.send(close)
        self._end()

    def _end(self) -> None:
        self._wait.stop()
        request, self._request = self._request, None
        for path in self._paths:
            if self._bus is not None and request is not None:
                self._bus.disconnect(SERVICE, path, REQUEST, "Response", request, _RESPONSE)
        self._paths = []
        if request is not None:
            request.deleteLater()

    def _listen(self, path: str) -> None:
        self._paths.append(path)
        if self._bus is not None and self._request is not None:
            self._bus.connect(SERVICE, path, REQUEST, "Response", self._request, _RESPONSE)

    def _on_asked(self, done: QDBusPendingCallWatcher) -> None:
        done.deleteLater()
        if done is not self._asked or self._request is None:
            return  # of an earlier request, or one that has ended
        if done.isError():
            self._fail(_fault_of(done.error()))
            return
        handle = next(iter(done.reply().arguments()), None)
        path = getattr(handle, "path", str)()
        if not path:
            self._fail(PortalFault.BROKEN)
        elif path not in self._paths:  # an old portal that does not use the token
            self._listen(path)

    def _on_gone(self) -> None:
        if self._request is not None:
            self._fail(PortalFault.SILENT)

    def _on_answer(self, code: int, results: Mapping[str, Any]) -> None:
        path = _file_of(results.get("uri"))
        self._end()
        if code == _CANCELLED:
            self.cancelled.emit()
        elif code != _TAKEN:
            self.failed.emit(PortalFault.REFUSED)
        elif path is None:
            self.failed.emit(PortalFault.BROKEN)
        else:
            self.taken.emit(path)

    def _fail(self, fault: PortalFault) -> None:
        if fault is PortalFault.SILENT:
            self.close()  # it may still ask the user, whose choice would go nowhere
        self._end()
        self.failed.emit(fault)


_RESPONSE: Any = SLOT("on_response(uint,QVariantMap)")  # a text, though the stubs say bytes


def _fault_of(error: QDBusError) -> PortalFault:
    name = error.name().rpartition(".")[2]
    if name in _MISSING or ".Spawn." in error.name():
        return PortalFault.MISSING
    return PortalFault.SILENT if name in _SLOW else PortalFault.REFUSED


def _file_of(uri: object) -> Path | None:
    """The file that an answer names; None: it names none."""
    url = QUrl(uri, QUrl.ParsingMode.StrictMode) if isinstance(uri, str) else QUrl()
    path = Path(url.toLocalFile()) if url.isLocalFile() and not url.host() else Path()
    try:
        return path if path.is_absolute() and path.is_file() else None
    except (OSError, ValueError):
        return None
