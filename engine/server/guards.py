"""Guards before every route: Host header, origins of web pages, the key, and the log.

A page in a browser can send requests to this machine. It is refused by its Origin header, and a
name that was made to point here (DNS rebinding) by its Host header.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.server.activity import Client, Recorder
from engine.server.bodies import BodyMemory
from engine.server.errors import ApiError
from engine.server.http import error_response, family_of
from engine.server.limits import Limits

log = logging.getLogger(__name__)

PUBLIC_PATHS = {"/health", "/v1/health"}
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::\d*)?")  # in brackets: an IPv6 address
_LOCAL_NAMES = {"localhost", "host.docker.internal"}
_WRONG_KEY_SECONDS = 0.25  # before a wrong key is refused
_PREFLIGHT_SECONDS = "600"
_MOST_NAME = 60  # characters of a client's name


@dataclass(frozen=True, slots=True)
class Security:
    """Who may use the server, and what of this computer."""

    key: str = ""  # "": none is needed
    # Of web pages, as "http://localhost:3000"; "localhost": all of this computer; "*": all.
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # further names of this machine
    is_local: bool = True  # it listens on loopback addresses only
    image_files: Path | None = None  # the folder whose pictures requests may name; None: none


class Key:
    """The key that clients must send; its owner may change it at any time, from any thread."""

    def __init__(self, text: str = "") -> None:
        """ "": none is needed."""
        self.change(text)

    def change(self, text: str) -> None:
        """Require another key from now on; answers in progress go on."""
        self._digest = _digest(text) if text else b""

    def __bool__(self) -> bool:
        return bool(self._digest)

    def fits(self, given: str) -> bool:
        """Whether it is the key; takes the same time for every wrong one."""
        return hmac.compare_digest(_digest(given), self._digest)


class Guards:
    """ASGI middleware: refuses, records, and adds headers for allowed origins."""

    def __init__(
        self, app: ASGIApp, security: Security, limits: Limits, recorder: Recorder, key: Key
    ) -> None:
        self._app = app
        self._security = security
        self._bodies = BodyMemory(limits)
        self._recorder = recorder
        self._key = key
        self._hosts = _LOCAL_NAMES | {name.lower() for name in security.hosts}
        if not security.is_local:
            name = socket.gethostname().lower()
            self._hosts |= {name, f"{name}.local"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        client = _client(scope, headers)
        exchange = self._recorder.begin(client, scope["method"], scope["path"])
        files = self._security.image_files
        scope["state"] |= {"exchange": exchange, "bodies": self._bodies, "image_files": files}
        origin = headers.get("origin", "")

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message["headers"] = [*message.get("headers", []), *self._headers(origin, headers)]
                if scope["state"]["is_unread"]():  # it is refused, and the connection with it
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            response = await self._refusal(scope, headers, origin)
            if response is not None:
                await response(scope, receive, answer)
            else:
                await self._app(scope, receive, answer)
        finally:
            self._recorder.end(exchange)

    async def _refusal(self, scope: Scope, headers: Headers, origin: str) -> Response | None:
        """The response to a request that is not let through; None: it is."""
        family = family_of(scope["path"])
        try:
            self._check_host(headers)
            self._check_origin(headers, origin)
            if scope["method"] == "OPTIONS":
                return Response()
            if scope["path"] not in PUBLIC_PATHS:
                await self._check_key(headers)
        except ApiError as error:
            scope["state"]["exchange"].outcome = str(error)
            return error_response(error, family)
        return None

    def _check_host(self, headers: Headers) -> None:
        name = _host_name(headers.get("host", ""))
        if name in self._hosts or name.endswith(".localhost") or _is_address(name):
            return
        raise ApiError(
            403,
            f"The host name {name[:100]!r} is not one of this server; use its IP address or localhost.",
            code="host_not_allowed",
        )

    def _check_origin(self, headers: Headers, origin: str) -> None:
        if not origin:
            self._check_site(headers)
            return
        if self._allows(origin) or origin == f"http://{headers.get('host', '')}":
            return
        raise ApiError(
            403,
            f"Web pages of {origin[:100]!r} may not use this server; allow the origin in its settings.",
            code="origin_not_allowed",
        )

    def _check_site(self, headers: Headers) -> None:
        """Refuse what another page fetches without an origin, such as a picture; a link is none."""
        is_foreign = headers.get("sec-fetch-site", "") in ("cross-site", "same-site")
        if not is_foreign or headers.get("sec-fetch-user") == "?1" or "*" in self._security.origins:
            return
        raise ApiError(
            403,
            "Other web pages may not use this server; allow their origin in its settings.",
            code="origin_not_allowed",
        )

    def _allows(self, origin: str) -> bool:
        allowed = self._security.origins
        if "localhost" in allowed and _is_of_this_computer(origin):
            return True
        return "*" in allowed or origin in allowed

    async def _check_key(self, headers: Headers) -> None:
        if not self._key:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not given:
            raise ApiError(
                401,
                "This server needs a key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.",
                code="missing_api_key",
            )
        if not self._key.fits(given):
            await asyncio.sleep(_WRONG_KEY_SECONDS)
            raise ApiError(401, "The key is wrong.", code="invalid_api_key")

    def _headers(self, origin: str, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Headers that let the page of an allowed origin read the response."""
        found = [(b"x-content-type-options", b"nosniff")]
        if not origin or not self._allows(origin):
            return found
        asked = headers.get("access-control-request-headers", "*")
        more = {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": "GET, POST, OPTIONS",
            "access-control-allow-headers": asked,
            "access-control-allow-private-network": "true",
            "access-control-max-age": _PREFLIGHT_SECONDS,
            "vary": "Origin",
        }
        return found + [(name.encode(), value.encode("latin-1")) for name, value in more.items()]


def _digest(key: str) -> bytes:
    """Of equal length for every key, so that comparing takes a constant time."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _client(scope: Scope, headers: Headers) -> Client:
    agent = headers.get("user-agent", "").split(" (")[0].strip()
    address = scope["client"][0] if scope.get("client") else ""
    return Client("".join(filter(str.isprintable, agent))[:_MOST_NAME], address)


def _host_name(host: str) -> str:
    """The name or address in a Host header, in lower case and without the port; "" if malformed."""
    found = _HOST.fullmatch(host.strip().lower())
    return (found[1] or found[2]).rstrip(".") if found else ""


def _is_of_this_computer(origin: str) -> bool:
    """Whether a page comes from a server on this computer."""
    scheme, _, host = origin.partition("://")
    name = _host_name(host)
    if scheme not in ("http", "https") or "/" in host:
        return False
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    """Whether it is an IP address, which no name server can redirect."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
