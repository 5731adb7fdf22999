"""Cuts the connection of an asynchronous HTTP request from any thread, as the offline switch does."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from typing import Any


class SocketCutter:
    """Shuts the socket of a request down, from any thread, so that a waiting read fails."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_cut = False

    async def trace(self, event: str, facts: Mapping[str, Any]) -> None:
        """Keep the socket of a new connection; httpcore calls this at every step of a request."""
        if not event.endswith(("connect_tcp.complete", "connect_unix_socket.complete")):
            return
        self.hold(facts["return_value"].get_extra_info("socket"))

    def hold(self, used: socket.socket | None) -> None:
        """Keep the socket of a new connection."""
        with self._guard:
            if used is not None:
                self._socket = used.dup()  # httpcore closes the first handle
            if self._is_cut:
                self._shut()

    def cut(self) -> None:
        """Shut the socket down, now or as soon as it is there."""
        with self._guard:
            self._is_cut = True
            self._shut()

    def _shut(self) -> None:
        used, self._socket = self._socket, None
        if used is not None:
            with contextlib.suppress(OSError):  # the peer has closed it already
                used.shutdown(socket.SHUT_RDWR)
            used.close()
