"""The one gate of every connection of the app: the offline switch, and the record of contacts.

Whatever opens a connection asks `gate.allow` first. While the switch is on that raises `Offline`,
open connections are cut, and an audit hook of the interpreter refuses to resolve a name or to
connect a socket, also for code that did not ask. Connections to this machine are refused too: a
tunnel may begin there. Local (Unix) sockets and sockets that listen are no connections.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from types import TracebackType
from typing import Any

from app.net.ledger import Ledger, Purpose
from app.system.translation import tr

_proactor: Any = None  # what connects for the event loop of Windows
if sys.platform == "win32":
    from asyncio import windows_events

    _proactor = windows_events.IocpProactor

_COUNT_SECONDS = 5.0  # between two entries of a connection's bytes
_PORTS = {"http": 80, "https": 443}
_RESOLVES = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
_CONNECTS = ("socket.connect", "socket.sendto", "socket.sendmsg")


class Offline(ConnectionError):
    """The offline switch refused or cut a connection: `str(error)` is the reason."""

    def __init__(self) -> None:
        super().__init__(tr("Tokonoma is offline."))
        self.remedy = tr("Switch “Offline” off in Connections to use the network again.")


class Passage:
    """One connection that was allowed; closed by its user, or cut by the offline switch."""

    def __init__(self, gate: Gate, key: tuple[str, int, Purpose], cut: Callable[[], object]):
        self.is_cut = False
        self._gate, self._key, self._cut = gate, key, cut
        self._sent = self._received = 0  # bytes that are not recorded yet
        self._counted = time.monotonic()

    def count(self, *, sent: int = 0, received: int = 0) -> None:
        """Add bytes of bodies to the record."""
        self._sent += sent
        self._received += received
        if time.monotonic() - self._counted >= _COUNT_SECONDS:
            self._record()

    def _record(self) -> None:
        self._counted = time.monotonic()
        if self._sent or self._received:
            self._gate.ledger.record(self._key, sent=self._sent, received=self._received)
            self._sent = self._received = 0

    def check(self) -> None:
        """Raise `Offline` if it was cut."""
        if self.is_cut:
            raise Offline

    def cut(self) -> None:
        """Cut it: calls the user's `cut`, on the thread of the switch."""
        self.is_cut = True
        self._cut()

    def close(self) -> None:
        """The connection is closed."""
        self._record()
        self._gate.release(self)

    def __enter__(self) -> Passage:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Gate:
    """Allows or refuses connections. Every method may be called from any thread."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._guard = threading.RLock()
        self._offline = False
        self._open: set[Passage] = set()
        self._followers: list[Callable[[], object]] = []

    @property
    def offline(self) -> bool:
        """Whether the offline switch is on."""
        return self._offline

    def set_offline(self, offline: bool) -> None:
        """Move the switch; when it is on, every open connection has been cut at the return."""
        with self._guard:
            changed = offline != self._offline
            self._offline = offline
            if offline:
                _watch_sockets()
            followers = list(self._followers) if changed else []
        for follow in followers:  # first: what stops by itself gives a better reason
            follow()
        if offline:
            with self._guard:
                passages, self._open = self._open, set()
            for passage in passages:
                passage.cut()

    def follow(self, call: Callable[[], object]) -> Callable[[], None]:
        """Call this after each change of the switch, on its thread; returns what ends that."""
        with self._guard:
            self._followers.append(call)

        def leave() -> None:
            with self._guard:
                if call in self._followers:
                    self._followers.remove(call)

        return leave

    def allow(
        self, address: str, purpose: Purpose | str, cut: Callable[[], object] = lambda: None
    ) -> Passage:
        """Record a connection to a URL, and return it; raises `Offline` while the switch is on.

        `purpose` is one of `Purpose`, or its value. `cut` closes its socket: it is called once, on any thread, when the switch is moved.
        """
        parts = urllib.parse.urlsplit(address)
        key = (parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0), Purpose(purpose))
        with self._guard:
            if self._offline:
                self.ledger.record(key, refused=1)
                raise Offline
            passage = Passage(self, key, cut)
            self._open.add(passage)
        self.ledger.record(key, count=1)
        return passage

    def release(self, passage: Passage) -> None:
        """A connection was closed by its user."""
        with self._guard:
            self._open.discard(passage)


gate = Gate()  # of this process, as the sockets are
_watching = False


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _watch_sockets() -> None:
    """Install the audit hook, once: it cannot be removed, and costs each audited event a call."""
    global _watching
    if not _watching:
        _watching = True
        sys.addaudithook(_refuse)
        if _proactor is not None:
            _audit_proactor(_proactor)


def _audit_proactor(proactor: Any) -> None:
    """Let the event loop of Windows tell the audit hook what it connects, as sockets do."""
    connect, send_to = proactor.connect, proactor.sendto

    def audited_connect(self: object, conn: socket.socket, address: object) -> object:
        sys.audit("socket.connect", conn, address)
        return connect(self, conn, address)

    def audited_send(
        self: object, conn: socket.socket, buf: object, flags: int = 0, addr: object = None
    ) -> object:
        sys.audit("socket.sendto", conn, addr)
        return send_to(self, conn, buf, flags, addr)

    proactor.connect, proactor.sendto = audited_connect, audited_send


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: raise `Offline` for what would leave this process, while the switch is on."""
    if not gate.offline or not event.startswith("socket."):
        return
    if event in _RESOLVES:
        host = arguments[0]
        name = host.decode("latin-1") if isinstance(host, bytes) else str(host or "")
        if name and not is_loopback(name):  # numbers of this machine need no server
            raise Offline
    elif event in _CONNECTS and not _is_local(*arguments[:2]):
        raise Offline


def _is_local(used: socket.socket, address: object) -> bool:
    """Whether a socket is of this machine alone: a Unix socket, or half of a pair."""
    if used.family == getattr(socket, "AF_UNIX", None):
        return True
    if address is None:  # connected before: `connect` was asked
        return True
    if os.name != "nt":
        return False
    # Windows has no Unix pairs: `socketpair` connects two sockets of this machine.
    # Known by its code: in a bundle, the name of its file is not that of the module.
    caller = sys._getframe(2).f_code  # pyright: ignore[reportPrivateUsage]
    return caller is getattr(socket.socketpair, "__code__", None)
