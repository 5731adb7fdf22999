"""RequestReader: h11's parser of requests, without what it takes though it can be read in two ways.

A proxy before the server and the server must agree where a request ends; otherwise the rest of one
is answered as another (request smuggling). RFC 9112, sections 2.2, 5.2, 6.1 and 6.3.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import h11

from engine.server.limits import Limits

_BLANK = re.compile(rb"\n\r?\n")
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_LENGTH = re.compile(rb"\ncontent-length:([^\r\n]*)", re.IGNORECASE)
_VERSIONS = (b"1.0", b"1.1")
# Of a body in chunks, besides its data: this much of each chunk, and as much again as the data.
_CHUNK_BYTES = 16
_MOST_SMALL = 30_000  # chunks with less data than that on average


class RequestReader(h11.Connection):
    """The server's side of a connection; `refusal` is why its peer is not listened to any more."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(h11.SERVER, limits.header_bytes)
        self.refusal: h11.RemoteProtocolError | None = None
        self._limits = limits
        self._received = 0  # bytes, since the header ended
        self._data = 0  # of these, data of the body
        self._chunks = 0

    def receive_data(self, data: bytes) -> None:
        """Take in bytes from the peer."""
        self._received += len(data)
        super().receive_data(data)

    def next_event(self) -> Any:
        """The next event, as h11 has it. Raises h11.RemoteProtocolError with a status."""
        try:
            if self.their_state is h11.IDLE:
                self._check_header()
            event = super().next_event()
            if isinstance(event, h11.Request):
                self._check_request(event)
            elif isinstance(event, h11.Data):
                self._data += len(event.data)
                self._chunks += event.chunk_start
                if self._chunks > max(_MOST_SMALL, self._data // _CHUNK_BYTES):
                    _refuse("The body comes in too many small chunks")
            elif event is h11.NEED_DATA and self.their_state is h11.SEND_BODY:
                self._check_waste()
        except h11.RemoteProtocolError as error:
            self.refusal = error
            raise
        return event

    def _check_header(self) -> None:
        """Refuse the lines of a header as they were sent."""
        raw, _ = self.trailing_data
        end = _BLANK.search(raw)
        header = raw[: end.end()] if end else raw
        limits = self._limits
        if len(header) > limits.header_bytes:
            _refuse(f"The header has more than {limits.header_bytes:,} bytes", 431)
        if header.count(b"\n") > limits.header_lines + 2:  # the request's line and the empty one
            _refuse(f"The header has more than {limits.header_lines} fields", 431)
        if end is None:
            return
        if _BARE.search(header):
            _refuse("A line of the header does not end with CR LF")
        if b"\n " in header or b"\n\t" in header:
            _refuse("A line of the header begins with white space")
        lengths = _LENGTH.findall(header)
        if len(lengths) > 1:
            _refuse("The header has several fields Content-Length")
        if lengths and not lengths[0].strip(b" \t").isdigit():
            _refuse("Content-Length is no number of bytes")

    def _check_request(self, request: h11.Request) -> None:
        self._received = len(self.trailing_data[0])
        self._data = self._chunks = 0
        names = {name for name, _ in request.headers}
        if request.http_version not in _VERSIONS:
            _refuse("The server speaks HTTP/1.1 only", 505)
        if b"transfer-encoding" not in names:
            return
        if b"content-length" in names:
            _refuse("The header has both Content-Length and Transfer-Encoding")
        if request.http_version == b"1.0":
            _refuse("HTTP/1.0 has no Transfer-Encoding")

    def _check_waste(self) -> None:
        """Refuse a body whose chunks carry more beside their data, such as extensions."""
        allowed = self._data + _CHUNK_BYTES * self._chunks + 2 * self._limits.header_bytes
        if self._received - self._data > allowed:
            _refuse("The chunks of the body have too long extensions")


def _refuse(reason: str, status: int = 400) -> NoReturn:
    raise h11.RemoteProtocolError(reason, status)
