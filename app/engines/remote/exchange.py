"""One HTTP request to a server: allowed by the gate, redirected only within the server, closed.

Each request opens a new connection: closing it stops the answer, and a connection that the server
has closed is never reused. httpx is imported by the first request.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from app.domain.connection import Connection
from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote import addresses
from app.engines.remote.errors import RemoteError
from app.engines.remote.keys import NO_CREDENTIALS, Credentials
from app.net.hosts import is_private
from app.net.http import (
    CONNECT_SECONDS,
    USER_AGENT,
    Proxy,
    WebError,
    cause,
    proxy_for,
    tls_context,
)
from app.net.ledger import Purpose
from app.net.socket_cutter import SocketCutter

if TYPE_CHECKING:
    import httpx

_MAX_REDIRECTS = 5
_WRITE_SECONDS = 60.0
_PLAIN_TO_TLS = re.compile(r"WRONG_VERSION_NUMBER|HTTP_REQUEST|UNKNOWN_PROTOCOL|RECORD_LAYER")


class Passage(Protocol):
    """A connection that was allowed: `app.net.offline.Passage`."""

    def count(self, *, sent: int = 0, received: int = 0) -> None:
        """Add bytes of bodies to the record."""
        ...

    def check(self) -> None:
        """Raise ConnectionError if the offline switch has cut it."""
        ...

    def close(self) -> None:
        """The connection is closed."""
        ...


class Allow(Protocol):
    """The gate of all connections, `app.net.offline.Gate.allow`.

    It raises ConnectionError while the app is offline; `cut` closes the socket, from any thread.
    """

    def __call__(self, address: str, purpose: Purpose, cut: Callable[[], None], /) -> Passage:
        """Record a connection to an address, and return it."""
        ...


@dataclass(frozen=True, slots=True)
class Times:
    """How long a server may be silent, in seconds."""

    connect: float = CONNECT_SECONDS
    first: float = 900.0  # until the first byte: it may load a model, and read a long prompt
    between: float = 180.0  # two bytes of an answer
    short: float = 15.0  # until the answer to anything else


@dataclass(frozen=True, slots=True)
class Server:
    """What a request needs to know of a connection."""

    connection: Connection
    allow: Allow
    credentials: Credentials = field(default=NO_CREDENTIALS, repr=False)
    proxy: str = ""  # the setting; "": the system's
    times: Times = Times()

    @property
    def name(self) -> str:
        """Host and port, as sentences name it."""
        return addresses.server_name(self.connection.address)

    def error(self, kind: RemoteFaultKind, about: str = "", **facts: Any) -> RemoteError:
        """An error of this server; its secrets are taken out of the text."""
        hidden = self.credentials.hidden(about)
        return RemoteError(kind, server=self.name, about=hidden, **facts)

    def headers(self) -> dict[str, str]:
        """The headers of every request, with the secrets."""
        made = {
            "User-Agent": USER_AGENT,
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        if self.credentials.key:
            made["Authorization"] = f"Bearer {self.credentials.key}"
        return made | dict(self.connection.headers) | dict(self.credentials.headers)


class Answer:
    """An open response."""

    def __init__(self, server: Server, response: httpx.Response, passage: Passage) -> None:
        self.status = response.status_code
        self._server, self._response, self._passage = server, response, passage

    def header(self, name: str) -> str:
        """Value of a header, "" when it is missing."""
        return self._response.headers.get(name, "")

    async def pieces(self, first: float, between: float) -> AsyncGenerator[bytes]:
        """The body, decompressed; raises RemoteError, also after so many silent seconds."""
        silence = first
        found = cast("AsyncGenerator[bytes]", self._response.aiter_bytes())
        async with contextlib.aclosing(found) as pieces:
            while True:
                with translated(self._server, self._passage):
                    async with asyncio.timeout(silence):
                        piece = await anext(pieces, None)
                if piece is None:
                    return
                silence = between
                self._passage.count(received=len(piece))
                yield piece

    async def read(self, limit: int) -> bytes:
        """The body up to a limit in bytes."""
        body, short = bytearray(), self._server.times.short
        async with contextlib.aclosing(self.pieces(short, short)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) >= limit:
                    break
        return bytes(body[:limit])


@contextlib.asynccontextmanager
async def exchange(
    server: Server,
    method: str,
    url: str,
    purpose: Purpose,
    body: bytes | None = None,
    silence: float = 0.0,
) -> AsyncGenerator[Answer]:
    """Send a request and open its response, which is closed at the end, as its socket is.

    `silence` is how long to wait for its head, 0: `Times.short`. Raises RemoteError.
    """
    import httpx

    if addresses.needs_consent(url) and not _is_consented(server.connection):
        raise server.error(RemoteFaultKind.CONSENT)
    try:
        proxy = None if is_private(addresses.host_of(url)) else _proxy(url, server.proxy)
        request = httpx.Request(
            method,
            url,
            headers=_encoded(server) | ({"Content-Type": "application/json"} if body else {}),
            content=body,
        )
    except WebError as error:
        raise server.error(RemoteFaultKind.PROXY, str(error)) from error
    for _ in range(_MAX_REDIRECTS + 1):
        cutter = SocketCutter()
        with translated(server, None):
            passage = server.allow(str(request.url), purpose, cutter.cut)
        try:
            request.extensions = {
                "timeout": httpx.Timeout(
                    silence or server.times.short,
                    connect=server.times.connect,
                    write=_WRITE_SECONDS,
                ).as_dict(),
                "trace": cutter.trace,
            }
            async with httpx.AsyncClient(
                verify=tls_context(os.environ.get("SSL_CERT_FILE", "")),
                proxy=proxy and httpx.Proxy(proxy.url, headers=proxy.headers),
                trust_env=False,
            ) as client:
                with translated(server, passage):
                    response = await client.send(request, stream=True)
                passage.count(sent=len(body or b""))
                try:
                    if response.next_request is None:
                        yield Answer(server, response, passage)
                        return
                    request = _redirected(server, request, response)
                finally:
                    await response.aclose()
        finally:
            cutter.cut()
            passage.close()
    raise server.error(RemoteFaultKind.REDIRECT, server.connection.address)


@contextlib.contextmanager
def translated(server: Server, passage: Passage | None) -> Generator[None]:
    """Convert the errors of httpx, the socket and the gate to RemoteError."""
    import httpx

    try:
        yield
    except httpx.TimeoutException as error:
        connecting = isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout)
        raise _error(
            server, passage, RemoteFaultKind.TIMEOUT if connecting else RemoteFaultKind.SILENT
        ) from error
    except TimeoutError as error:
        raise _error(server, passage, RemoteFaultKind.SILENT) from error
    except httpx.ProxyError as error:
        raise _error(server, passage, RemoteFaultKind.PROXY, str(error)[:100]) from error
    except httpx.InvalidURL as error:
        raise _error(server, passage, RemoteFaultKind.ADDRESS, str(error)) from error
    except (httpx.HTTPError, httpx.StreamError, OSError) as error:
        if passage is None:  # the gate refused
            raise server.error(RemoteFaultKind.OFFLINE) from error
        kind, about = _network_kind(error)
        raise _error(server, passage, kind, about) from error


def _error(
    server: Server, passage: Passage | None, kind: RemoteFaultKind, about: str = ""
) -> RemoteError:
    """The error, or that of the offline switch if it has cut the connection."""
    try:
        if passage is not None:
            passage.check()
    except ConnectionError:
        return server.error(RemoteFaultKind.OFFLINE)
    return server.error(kind, about)


def _network_kind(error: BaseException) -> tuple[RemoteFaultKind, str]:
    match found := cause(error):
        case socket.gaierror():
            return RemoteFaultKind.NO_HOST, ""
        case ssl.SSLCertVerificationError():
            return RemoteFaultKind.TLS, str(found.verify_message)
        case ssl.SSLError() if _PLAIN_TO_TLS.search(str(found)):
            return RemoteFaultKind.NOT_TLS, ""
        case ssl.SSLError():
            return RemoteFaultKind.TLS, str(found.reason or found)
        case TimeoutError():
            return RemoteFaultKind.TIMEOUT, ""
        case ConnectionResetError() | BrokenPipeError() | ConnectionAbortedError():
            return RemoteFaultKind.CLOSED, ""
        case OSError():
            return RemoteFaultKind.UNREACHABLE, _reason(found)
        case _:
            pass
    text = str(error)
    if "disconnected" in text or "closed connection" in text or not text:
        return RemoteFaultKind.CLOSED, ""
    if "Illegal header value" in text:
        return RemoteFaultKind.ADDRESS, "header"
    return RemoteFaultKind.INVALID, "no HTTP"


def _reason(error: BaseException) -> str:
    """The system's reason; a name may have several addresses, and the first one's is taken."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, OSError) and error.errno and error.strerror:
        asyncio_made = error.strerror.startswith("Connect call failed")
        return os.strerror(error.errno) if asyncio_made else error.strerror
    inner = error.__cause__
    return _reason(inner) if inner is not None else type(error).__name__


def _redirected(server: Server, request: httpx.Request, response: httpx.Response) -> httpx.Request:
    """The request at the place a response names, if it is the same server."""
    import httpx

    found = response.next_request
    place = str(found.url) if found is not None else ""
    same = addresses.same_server(str(request.url), place)
    if not same or (request.method != "GET" and response.status_code not in (307, 308)):
        raise server.error(
            RemoteFaultKind.REDIRECT, place.partition("?")[0], status=response.status_code
        )
    return httpx.Request(
        request.method, place, headers=request.headers, content=request.content or None
    )


def _encoded(server: Server) -> dict[str, str]:
    """The headers; raises RemoteError for one that cannot be sent."""
    made = server.headers()
    for name, value in made.items():
        if not (name + value).isascii() or any(ord(each) < 32 for each in name + value):
            raise server.error(RemoteFaultKind.ADDRESS, name)
    return made


def _is_consented(connection: Connection) -> bool:
    return addresses.same_server(connection.consent, connection.address)


def _proxy(url: str, setting: str) -> Proxy | None:
    return proxy_for(addresses.host_of(url), setting)
