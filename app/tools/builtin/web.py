"""One request of a web tool: checked address, redirects within the host, limits, no cookies."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, quote, urljoin, urlsplit, urlunsplit

from app.domain.tools import ToolError
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
from app.net.offline import Offline, Passage, gate
from app.net.socket_cutter import SocketCutter

MOST_BYTES = 5_000_000  # of a body
SECONDS = 20.0  # for a request with its redirects
_MOST_REDIRECTS = 5
_LONGEST_ADDRESS = 4000
_PORTS = {"http": 80, "https": 443}
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(?!\d+(?:/|$))")
_SAFE = "/:?#[]@!$&'()*+,;=%~"
_OFFLINE = "The app is offline: the user has switched the network off."
_STATUS = {
    400: "the request was wrong", 401: "it asks for a password", 403: "access is refused",
    404: "there is no such page", 410: "the page is gone", 429: "too many requests",
    500: "the server has a fault", 502: "the server has a fault", 503: "the server is busy",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: bytes = b""
    is_private_allowed: bool = False  # the user named the host, which may be on this computer
    proxy: str = ""  # the setting; "": the system's


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whose body ends at the limit."""

    url: str
    status: int
    headers: Mapping[str, str]  # names in small letters
    body: bytes
    is_cut: bool = False

    @property
    def type(self) -> str:
        """The media type, "" if there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().casefold()

    @property
    def charset(self) -> str:
        """The encoding that the header names; "": none."""
        found = re.search(
            r"charset\s*=\s*[\"']?([\w.:-]{1,40})", self.headers.get("content-type", "")
        )
        return found[1] if found else ""


def parsed(text: str) -> SplitResult:
    """The address of a page, with https:// if it has none; raises ToolError."""
    text = text.strip().strip("<>")
    if len(text) > _LONGEST_ADDRESS or any(
        ord(letter) < 33 or ord(letter) == 127 for letter in text
    ):
        raise ToolError('This is no web address: send one such as "https://example.org/page".')
    if not _SCHEME.match(text):
        text = f"https://{text.removeprefix('//')}"
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").encode("idna").decode("ascii"), parts.port
    except (ValueError, UnicodeError):
        host, port, parts = "", None, urlsplit("")
    if parts.scheme not in _PORTS:
        raise ToolError("Only addresses that begin with https:// or http:// can be opened.")
    if not host or "\\" in parts.netloc:
        raise ToolError('This is no web address: send one such as "https://example.org/page".')
    if parts.username is not None or parts.password is not None:
        raise ToolError("The address has a user name or password in it: send it without.")
    name = f"[{host}]" if ":" in host else host
    netloc = name if port in (None, _PORTS[parts.scheme]) else f"{name}:{port}"
    path = quote(parts.path or "/", safe=_SAFE)
    return SplitResult(parts.scheme, netloc, path, quote(parts.query, safe=_SAFE), "")


async def send(asked: Asked) -> Reply:
    """Send a request and follow redirects within its host; raises ToolError."""
    try:
        async with asyncio.timeout(SECONDS):
            return await _followed(asked)
    except TimeoutError:
        host = parsed(asked.url).hostname
        raise ToolError(f"{host} did not answer within {SECONDS:.0f} seconds.") from None


async def _followed(asked: Asked) -> Reply:
    parts = parsed(asked.url)
    for _ in range(_MOST_REDIRECTS + 1):
        reply = await _once(parts, asked)
        place = reply.headers.get("location", "")
        if reply.status not in (301, 302, 303, 307, 308) or not place:
            return reply
        if asked.method != "GET":
            raise ToolError(f"{parts.hostname} redirects, which a search must not do.")
        parts = _redirected(parts, place)
    raise ToolError(f"{parts.hostname} redirects in a loop.")


def _redirected(parts: SplitResult, place: str) -> SplitResult:
    """The address that a redirect leads to, if it is the same host; raises ToolError."""
    try:
        to = parsed(urljoin(urlunsplit(parts), place.strip()))
    except ValueError:
        raise ToolError(f"{parts.hostname} redirects to what is no address.") from None
    if parts.scheme == "https" and to.scheme != "https":
        raise ToolError(f"{parts.hostname} redirects to an address that is not secure.")
    upgraded = parts.scheme == "http" and to.scheme == "https" and not (parts.port or to.port)
    if to.hostname != parts.hostname or (to.netloc != parts.netloc and not upgraded):
        raise ToolError(
            f"{parts.hostname} redirects to another host, {to.netloc}, which was not allowed. "
            f'If that page is needed, call again with "{urlunsplit(to)[:300]}".'
        )
    return to


async def _once(parts: SplitResult, asked: Asked) -> Reply:
    """One request and its body; raises ToolError."""
    host, url = parts.hostname or "", urlunsplit(parts)
    try:
        proxy = None if asked.is_private_allowed else proxy_for(host, asked.proxy)
    except WebError as error:
        raise ToolError(f"The proxy setting is wrong: {error}") from None
    cutter = SocketCutter()
    try:
        passage = gate.allow(url, Purpose.TOOLS, cutter.cut)
    except Offline:
        raise ToolError(_OFFLINE) from None
    if proxy is not None:
        gate.ledger.record((proxy.host, proxy.port, Purpose.PROXY), count=1)
    with passage:
        try:
            return await _exchanged(parts, asked, proxy, cutter, passage)
        except ToolError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a library raises is a sentence
            raise _fault(error, host, passage) from None
        finally:
            cutter.cut()


async def _exchanged(
    parts: SplitResult, asked: Asked, proxy: Proxy | None, cutter: SocketCutter, passage: Passage
) -> Reply:
    from app.tools.builtin import connection

    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    if proxy is not None:
        await connection.check_behind_proxy(host, port)
    backend = connection.CheckedBackend(
        cutter, is_private_allowed=asked.is_private_allowed or proxy is not None
    )
    headers = {
        "Host": parts.netloc,
        "User-Agent": USER_AGENT,
        "Accept-Encoding": "identity",
        "Connection": "close",
        **asked.headers,
    }
    if asked.body:
        headers["Content-Length"] = str(len(asked.body))
    pool = connection.proxied(
        proxy, ssl_context=tls_context(os.environ.get("SSL_CERT_FILE", "")), network_backend=backend
    )
    limits = {"connect": CONNECT_SECONDS, "read": SECONDS, "write": SECONDS, "pool": SECONDS}
    async with (
        pool,
        pool.stream(
            asked.method,
            urlunsplit(parts),
            headers=[(name.encode(), value.encode()) for name, value in headers.items()],
            content=asked.body or None,
            extensions={"timeout": limits},
        ) as response,
    ):
        passage.count(sent=len(asked.body))
        found = {
            name.decode("latin-1").casefold(): value.decode("latin-1")
            for name, value in response.headers
        }
        inflater = connection.Inflater(found.get("content-encoding", ""))
        body = bytearray()
        async for piece in response.aiter_stream():
            passage.count(received=len(piece))
            body += inflater.read(piece, MOST_BYTES + 1 - len(body))
            if len(body) > MOST_BYTES:
                break
        passage.check()
    is_cut = len(body) > MOST_BYTES
    return Reply(urlunsplit(parts), response.status, found, bytes(body[:MOST_BYTES]), is_cut)


def _fault(error: Exception, host: str, passage: Passage) -> ToolError:
    """Why a request failed, in words."""
    from app.tools.builtin.connection import Refused

    if passage.is_cut or isinstance(error, Offline):
        return ToolError(_OFFLINE)
    match cause(error):
        case Refused():
            return ToolError(
                f"{host} is on this computer or its network, so it is not opened: only public web"
                " pages can be."
            )
        case socket.gaierror():
            return ToolError(f"There is no server {host}, or this computer has no network.")
        case ssl.SSLError():
            return ToolError(f"The connection to {host} is not secure: its certificate is refused.")
        case ValueError() | zlib.error():
            return ToolError(f"{host} sent a page in a form that cannot be read.")
        case _ if "Timeout" in type(error).__name__:
            return ToolError(f"{host} does not answer.")
        case _:
            return ToolError(f"The connection to {host} failed.")


def check_status(reply: Reply) -> None:
    """Raise ToolError for an answer that is no page."""
    if not 200 <= reply.status < 300:
        host = urlsplit(reply.url).hostname
        why = _STATUS.get(reply.status, "the server refused")
        raise ToolError(f"{host} answered {reply.status}: {why}.")


def host_of(address: str) -> str:
    """Host and port of an address, as consent is bound to it; raises ToolError.

    Where the way is not encrypted, that is part of it: others can read and change what is sent.
    """
    found = parsed(address)
    return found.netloc if found.scheme == "https" else f"{found.scheme}://{found.netloc}"
