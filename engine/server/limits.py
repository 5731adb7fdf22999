"""Where the server listens by default, and what one connection and one exchange may take."""

from __future__ import annotations

from dataclasses import dataclass

HOST, PORT = "127.0.0.1", 8080


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes and times; who exceeds one is refused or cut off."""

    body_bytes: int = 64 << 20
    body_seconds: float = 60.0  # until the whole body has arrived
    header_seconds: float = 15.0  # until the header of a request has arrived
    header_bytes: int = 64 << 10
    write_seconds: float = 60.0  # that a client may leave its answer unread
    idle_seconds: int = 60  # between two requests of a connection
    connections: int = 512
    closing_seconds: int = 2  # that running answers have when the server stops
