"""Where the server listens by default, and what a connection, an exchange and all together may take."""

from __future__ import annotations

from dataclasses import dataclass

HOST, PORT = "127.0.0.1", 8080


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes and times; who exceeds one is refused or cut off."""

    body_bytes: int = 64 << 20
    bodies_bytes: int = 256 << 20  # of all requests that are not answered yet
    picture_bytes: int = 32 << 20  # of one picture, as a file
    pictures: int = 100  # of a request
    body_seconds: float = 60.0  # until the whole body has arrived
    header_seconds: float = 15.0  # until the header of a request has arrived
    header_bytes: int = 64 << 10
    header_lines: int = 100
    discard_seconds: float = 5.0  # that the rest of a refused request is read and thrown away
    write_seconds: float = 60.0  # that a client may leave its answer unread
    idle_seconds: int = 60  # between two requests of a connection
    connections: int = 512
    closing_seconds: int = 2  # that running answers have when the server stops
