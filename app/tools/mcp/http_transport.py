"""HTTP of servers of tools: through the gate of all connections, bounded, errors kept to a request.

The SDK ends a whole connection when one request fails on the network. Here such a request is
answered with an error of its own, so that the next call can succeed. Redirects are followed by the
SDK only within one server; the entry's headers are sent to that server alone.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import cast

import httpx2

from app.net.hosts import is_private
from app.net.http import (
    CONNECT_SECONDS,
    USER_AGENT,
    WebError,
    check_address,
    proxy_for,
    tls_context,
)
from app.net.ledger import Purpose
from app.net.offline import Offline, Passage, gate
from app.net.socket_cutter import SocketCutter
from app.system.translation import tr
from app.tools.mcp.entry import ServerEntry
from app.tools.mcp.limits import HTTP_BYTES, HTTP_WIDE_BYTES, MessageMeter, Pacer, TooMuch

_WRITE_SECONDS = 60.0
_END_SECONDS = 3.0  # for the answer to the last request, which the user's "Stop" waits for


class Refused(httpx2.RequestError):
    """A request that is not sent: `str(error)` says why."""


def http_client(
    entry: ServerEntry, proxy: str, auth: httpx2.Auth | None, transport: GateTransport
) -> httpx2.AsyncClient:
    """The client of one server; `proxy` is the setting, "" the system's."""
    host = httpx2.URL(entry.address).host
    found = None if is_private(host) else proxy_for(host, proxy)
    transport.open(found and httpx2.Proxy(found.url, headers=found.headers))
    return httpx2.AsyncClient(
        transport=transport,
        auth=auth,
        trust_env=False,
        # Without a limit for reads: a call has its own, and a stream of events may be silent.
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS, write=_WRITE_SECONDS),
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
    )


class GateTransport(httpx2.AsyncBaseTransport):
    """Sends requests of one server; each opens a connection of its own, which the gate may cut."""

    def __init__(
        self, entry: ServerEntry, log: Callable[[str], None], pacer: Pacer | None = None
    ) -> None:
        """`pacer` slows GET requests: a server may end each of its streams at once, and the SDK
        then asks for the next as soon as the server says.
        """
        self.refusal = ""  # why the last request failed, one sentence
        self._entry, self._log = entry, log
        self._pacer = pacer or Pacer(burst=20.0, rate=1.0, patience=600.0)
        self._address = httpx2.URL(entry.address)
        self._inner: httpx2.AsyncBaseTransport | None = None
        self._proxy: httpx2.Proxy | None = None

    def open(self, proxy: httpx2.Proxy | None) -> None:
        """Make ready to send, through a proxy if there is one."""
        self._proxy = proxy
        self._inner = httpx2.AsyncHTTPTransport(
            verify=tls_context(os.environ.get("SSL_CERT_FILE", "")),
            trust_env=False,
            proxy=proxy,
            limits=httpx2.Limits(max_keepalive_connections=0),
        )

    async def aclose(self) -> None:
        """Close what is open."""
        if self._inner is not None:
            await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; a failure becomes an answer with status 503 and a JSON-RPC error."""
        try:
            if request.method == "GET":
                await self._pacer.spend(1, 0)
            async with asyncio.timeout(_END_SECONDS if request.method == "DELETE" else None):
                response = await self._sent(request)
        except (Refused, Offline, TooMuch, httpx2.HTTPError, OSError) as error:
            self.refusal = self._sentence(error, request.url.host)
            self._log(self.refusal)
            fault = {"code": -32000, "message": self.refusal}
            content = json.dumps({"jsonrpc": "2.0", "id": None, "error": fault})
            return httpx2.Response(
                503, headers={"Content-Type": "application/json"}, content=content, request=request
            )
        self.refusal = ""
        if response.status_code >= 400:
            self.refusal = self._status(response.status_code)
            self._log(f"{request.method} {request.url.path}: HTTP {response.status_code}")
        return response

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        assert self._inner is not None
        self._check(request)
        cutter = SocketCutter()
        passage = gate.allow(str(request.url), Purpose.TOOLS, cutter.cut)
        if self._proxy is not None:
            at = self._proxy.url
            gate.ledger.record((at.host, at.port or 80, Purpose.PROXY), count=1)
        try:
            request.extensions = {**request.extensions, "trace": cutter.trace}
            response = await self._inner.handle_async_request(request)
            passage.count(sent=int(request.headers.get("Content-Length", 0)))
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                await response.aclose()
                raise Refused(tr("The answer of {host} is compressed.", host=request.url.host))
            body = _Body(response, passage, cutter)
            kind = response.headers.get("Content-Type", "").lower()
            if kind.startswith("text/event-stream") and request.method != "DELETE":
                return httpx2.Response(
                    response.status_code,
                    headers=response.headers,
                    stream=body,
                    extensions=response.extensions,
                )
            async with body:
                content = b"".join([piece async for piece in body])
            return httpx2.Response(
                response.status_code,
                headers=[
                    pair
                    for pair in response.headers.multi_items()
                    if pair[0].lower() != "transfer-encoding"
                ],
                content=content,
                extensions=response.extensions,
            )
        except BaseException:
            cutter.cut()
            passage.close()
            raise

    def _check(self, request: httpx2.Request) -> None:
        """Add the entry's headers for its own server; raises Refused for a forbidden address."""
        url = request.url
        try:
            check_address(str(url))
        except WebError as error:
            raise Refused(f"{url.host}: {error}", request=request) from error
        if _origin(url) == _origin(self._address):
            for name, value in self._entry.headers:
                if name not in request.headers:
                    request.headers[name] = value
        elif is_private(url.host) and not is_private(self._address.host):
            # A server of the public network must not have this computer ask its neighbours.
            raise Refused(
                tr(
                    "{name} named the private address {host}.", name=self._entry.name, host=url.host
                ),
                request=request,
            )

    def _sentence(self, error: Exception, host: str) -> str:
        match error:
            case Refused() | Offline():
                return str(error)
            case TooMuch():
                return tr("{name} was stopped: it sent {what}.", name=self._entry.name, what=error)
            case httpx2.TimeoutException() | TimeoutError():
                return tr("{host} did not answer in time.", host=host)
            case _:
                reason = str(error) or type(error).__name__
                return tr("{host} could not be reached: {reason}.", host=host, reason=reason)

    def _status(self, status: int) -> str:
        name = self._entry.name
        if status in (401, 403):
            return tr("{name} refused the login (HTTP {status}).", name=name, status=status)
        return tr("{name} answered with HTTP {status}.", name=name, status=status)


class _Body(httpx2.AsyncByteStream):
    """The body of an answer: counted, bounded, paced; its connection ends with it."""

    def __init__(self, response: httpx2.Response, passage: Passage, cutter: SocketCutter) -> None:
        self._response, self._passage, self._cutter = response, passage, cutter
        self._pacer, self._meter = Pacer(), MessageMeter(HTTP_BYTES, HTTP_WIDE_BYTES)
        self._is_after_line = False  # the end of an event may come in two pieces
        self._is_stream = response.headers.get("Content-Type", "").startswith("text/event-stream")

    async def __aenter__(self) -> _Body:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in cast("httpx2.AsyncByteStream", self._response.stream):
            self._passage.check()
            self._passage.count(received=len(piece))
            if self._is_stream:
                text = piece.replace(b"\r\n", b"\n")
                if self._is_after_line and text.startswith(b"\n"):
                    self._meter.reset()
                self._is_after_line = text.endswith(b"\n")
                events = text.split(b"\n\n")
                for event in events[:-1]:
                    self._meter.feed(event)
                    self._meter.reset()
                self._meter.feed(events[-1])
                await self._pacer.spend(len(events), len(piece))
            else:
                self._meter.feed(piece)
            yield piece
        self._passage.check()

    async def aclose(self) -> None:
        """Close the connection."""
        try:
            await self._response.aclose()
        finally:
            self._cutter.cut()
            self._passage.close()


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
