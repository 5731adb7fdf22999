"""HTTP/1.1 connections of the server: uvicorn's, with limits on their number and on slow peers."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.server.activity import Recorder
from engine.server.limits import Limits

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: 47\r\n\r\n"
    b'{"error":{"message":"Too many connections."}}\r\n'
)


def protocol(limits: Limits, recorder: Recorder) -> type[H11Protocol]:
    """The class of connections with these limits; it counts open ones."""

    class Connection(H11Protocol):
        """A connection that is cut when its peer sends or reads too slowly."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._header_timer: asyncio.TimerHandle | None = None
            self._write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            recorder.connections = len(self.connections)
            if len(self.connections) > limits.connections:
                transport.write(_FULL)
                transport.close()
                return
            self._expect_header()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            recorder.connections = len(self.connections)
            for timer in (self._header_timer, self._write_timer):
                if timer is not None:
                    timer.cancel()

        def data_received(self, data: bytes) -> None:
            if self._is_idle() and self._header_timer is None:
                self._expect_header()
            super().data_received(data)
            if not self._is_idle() and self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._write_timer is None:
                self._write_timer = self.loop.call_later(limits.write_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None

        def _is_idle(self) -> bool:
            cycle: Any = self.cycle  # None before the first request
            return cycle is None or cycle.response_complete

        def _expect_header(self) -> None:
            cut = self.transport.abort
            self._header_timer = self.loop.call_later(limits.header_seconds, cut)

    return Connection
