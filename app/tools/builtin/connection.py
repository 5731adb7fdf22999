"""Connections of the web tools over httpcore: to checked addresses only, cut by the offline switch.

A name is resolved once; each of its addresses must be public, and the connection is made to one of
them, so that a name cannot lead to this network between check and connection.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Iterable
from typing import Any, cast

import httpcore

from app.net.hosts import is_private, is_public
from app.net.http import Proxy
from app.net.socket_cutter import SocketCutter

SOCKET_OPTION = tuple[Any, ...]


class Refused(Exception):
    """The host is on this computer or its network: `str(error)` is the host."""


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects to public addresses, or to any if `is_private_allowed`."""

    def __init__(self, cutter: SocketCutter, *, is_private_allowed: bool) -> None:
        self._cutter, self._is_private_allowed = cutter, is_private_allowed
        self._inner = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as httpcore calls it
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to one of the host's addresses; raises Refused, OSError."""
        found = await resolved(host, port)
        if not self._is_private_allowed:
            check_public(host, found)
        fault: Exception = httpcore.ConnectError(f"no address of {host}")
        for address in found:
            try:
                stream = await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                fault = error
            else:
                self._cutter.hold(stream.get_extra_info("socket"))
                return stream
        raise fault

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """None: a page has no such address."""
        raise Refused(path)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


async def resolved(host: str, port: int) -> list[str]:
    """The addresses of a host, in the system's order; raises OSError."""
    rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


def check_public(host: str, addresses: Iterable[str]) -> None:
    """Raise Refused if one of a host's addresses is not on the public internet."""
    found = list(addresses)
    if not found or not all(map(is_public, found)):
        raise Refused(host)


async def check_behind_proxy(host: str, port: int) -> None:
    """Raise Refused for a host that a proxy would have to look for in this network."""
    if is_private(host):
        raise Refused(host)
    try:
        found = await resolved(host, port)
    except OSError:
        return  # only the proxy knows the name
    check_public(host, found)


class Inflater:
    """Decompresses a body piece by piece, never more than is asked for."""

    def __init__(self, encoding: str) -> None:
        """`encoding` is the Content-Encoding header; raises ValueError for an unknown one."""
        match encoding.strip().casefold():
            case "" | "identity":
                self._made = None
            case "gzip" | "x-gzip":
                self._made = zlib.decompressobj(16 + zlib.MAX_WBITS)
            case "deflate":
                self._made = zlib.decompressobj()
            case _:
                raise ValueError(encoding)

    def read(self, piece: bytes, most: int) -> bytes:
        """At most `most` bytes of what a piece holds; raises zlib.error."""
        if self._made is None:
            return piece[:most]
        return self._made.decompress(piece, max(most, 1))[:most]


def proxied(proxy: Proxy | None, **pool: Any) -> httpcore.AsyncConnectionPool:
    """A pool of one request's connections, through the proxy if there is one."""
    if proxy is None:
        return httpcore.AsyncConnectionPool(**pool)
    return httpcore.AsyncHTTPProxy(
        proxy_url=proxy.url,
        proxy_headers=[(name.encode(), value.encode()) for name, value in proxy.headers.items()],
        **pool,
    )
