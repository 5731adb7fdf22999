"""HTTP/1.1 connections of the server: uvicorn's, with limits on their number and on slow peers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.server.activity import Recorder
from engine.server.errors import ApiError, Family
from engine.server.framing import RequestReader
from engine.server.http import dumps
from engine.server.limits import Limits

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: 47\r\n\r\n"
    b'{"error":{"message":"Too many connections."}}\r\n'
)


class _Transport:
    """A transport that asks before it closes: `closes` returns whether that is done otherwise."""

    def __init__(self, transport: asyncio.Transport, closes: Callable[[], bool]) -> None:
        self._transport = transport
        self._closes = closes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Close the connection once what was written is sent."""
        if not self._closes():
            self._transport.close()


def protocol(limits: Limits, recorder: Recorder) -> type[H11Protocol]:
    """The class of connections with these limits; it counts open ones."""

    class Connection(H11Protocol):
        """A connection that is cut when its peer sends or reads too slowly."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.conn: RequestReader = RequestReader(limits)
            self._header_timer: asyncio.TimerHandle | None = None
            self._write_timer: asyncio.TimerHandle | None = None
            self._end_timer: asyncio.TimerHandle | None = None  # what arrives is thrown away
            self._discarded = 0  # bytes

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.transport: Any = _Transport(transport, self._close)
            recorder.connections = len(self.connections)
            if len(self.connections) > limits.connections:
                transport.write(_FULL)
                transport.close()
                return
            self._expect_header()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            recorder.connections = len(self.connections)
            for timer in (self._header_timer, self._write_timer, self._end_timer):
                if timer is not None:
                    timer.cancel()

        def data_received(self, data: bytes) -> None:
            if self._end_timer is not None:
                self._discarded += len(data)
                if self._discarded > limits.body_bytes:
                    self.transport.abort()
                return
            if self._is_idle() and self._header_timer is None:
                self._expect_header()
            super().data_received(data)
            if not self._is_idle() and self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None

        def handle_events(self) -> None:
            super().handle_events()
            scope: Any = self.scope  # None before the first request
            if scope is not None:
                scope["state"]["is_unread"] = self._is_unread

        def send_400_response(self, msg: str) -> None:
            """Refuse what is no request, and listen no more; nothing can be said within an answer."""
            refusal, cycle = self.conn.refusal, self.cycle
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                status, reason = refusal.error_status_hint if refusal else 400, str(refusal or msg)
                error = ApiError(status, f"The request is not valid HTTP: {reason}.")
                body = dumps(error.body(Family.OPENAI))
                names = {"Content-Type": "application/json", "Connection": "close"}
                headers = [*names.items(), ("Content-Length", str(len(body)))]
                phrase = HTTPStatus(status).phrase.encode()
                head = h11.Response(status_code=status, headers=headers, reason=phrase)
                self.transport.write(self.conn.send(head) + body)
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True  # what it would still send belongs to no request
                cycle.message_event.set()
            self._end()

        def shutdown(self) -> None:
            """The server is being stopped: end the answer that runs."""
            if self._end_timer is not None:
                self.transport.abort()
                return
            super().shutdown()
            scope: Any = self.scope  # None before the first request
            if not self._is_idle() and (stop := scope["state"].get("stop")) is not None:
                stop()

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

        def _is_unread(self) -> bool:
            """Whether the body of the request has not arrived yet."""
            return self.conn.their_state is h11.SEND_BODY

        def _close(self) -> bool:
            """Close later where the peer still sends; False: it does not."""
            if self._is_unread():
                self._end()
            return self._is_unread()

        def _end(self) -> None:
            """Send what is written, and close; not at once, as the peer would lose it while it sends."""
            if self._end_timer is None and not self.transport.is_closing():
                self.flow.resume_reading()
                self.transport.write_eof()
                self._end_timer = self.loop.call_later(limits.discard_seconds, self.transport.abort)

        def _expect_header(self) -> None:
            cut = self.transport.abort
            self._header_timer = self.loop.call_later(limits.header_seconds, cut)

    return Connection
