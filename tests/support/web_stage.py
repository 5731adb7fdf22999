"""A web for the tools in tests: names with addresses, all of which lead to one local server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpcore
import pytest

from app.tools.builtin import connection

PUBLIC = "93.184.216.34"


def response(body: bytes | str = b"", *headers: str, status: str = "200 OK") -> bytes:
    """An HTTP response; a page unless a header says what it is."""
    content = body.encode() if isinstance(body, str) else body
    kind = (
        ()
        if any(each.startswith("Content-Type") for each in headers)
        else ("Content-Type: text/html",)
    )
    lines = (f"HTTP/1.1 {status}", *kind, f"Content-Length: {len(content)}", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


@dataclass
class Web:
    """What the server answers by host and path, and what it was asked."""

    pages: dict[str, bytes] = field(default_factory=dict)  # "host/path" to a response
    # Of a name, None: it is unknown; others have `PUBLIC`.
    addresses: dict[str, list[str] | None] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)  # requests without their bodies
    connected: list[tuple[str, int]] = field(default_factory=list)
    looked_up: list[str] = field(default_factory=list)
    port: int = 0
    serving: list[asyncio.Task[object]] = field(default_factory=list)
    hangs: asyncio.Event = field(default_factory=asyncio.Event)  # set when a request hangs

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        self.serving.append(serving)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            path = head.split(" ", 2)[1].partition("?")[0]
            host = next(
                line[6:] for line in head.split("\r\n") if line.casefold().startswith("host: ")
            )
            key = path.partition("://")[2] or host + path
            answer = self.pages.get(key, response("not here", status="404 Not Found"))
            writer.write(answer)
            await writer.drain()
            if answer.endswith(b"..."):  # the rest never comes
                self.hangs.set()
                await reader.read()
        writer.close()

    @property
    def paths(self) -> list[str]:
        return [head.split(" ", 2)[1] for head in self.heads]


@contextlib.asynccontextmanager
async def web(monkeypatch: pytest.MonkeyPatch, *, real_names: bool = False) -> AsyncIterator[Web]:
    """A web that is there until the end; `real_names`: the system looks names up."""
    made = Web()
    real = httpcore.AnyIOBackend.connect_tcp

    async def resolved(host: str, port: int) -> list[str]:
        made.looked_up.append(host)
        if (found := made.addresses.get(host, [PUBLIC])) is None:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return found

    async def connect(self: object, host: str, port: int, *more: object) -> object:
        made.connected.append((host, port))
        return await real(self, "127.0.0.1", made.port)

    with monkeypatch.context() as patch:
        if not real_names:
            patch.setattr(connection, "resolved", resolved)
        patch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
        server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
        made.port = server.sockets[0].getsockname()[1]
        try:
            async with server:
                yield made
        finally:
            async with asyncio.timeout(10):
                await asyncio.gather(*made.serving)  # each has read the end of its client
