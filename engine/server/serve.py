"""Server: the application on a socket, with an event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import threading
from dataclasses import dataclass, field, replace

import uvicorn

from engine.client import Engine
from engine.errors import RequestError
from engine.server.activity import Activity
from engine.server.app import application
from engine.server.guards import Key, Security
from engine.server.limits import HOST, PORT, Limits
from engine.server.protocol import protocol
from engine.server.service import Service, ServiceOptions

try:
    import resource
except ImportError:  # Windows, where there is no such limit
    resource = None

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where the server listens, who may use it, and how it uses the engine."""

    host: str = HOST  # or several, with commas between them
    port: int = PORT  # 0: any free one
    security: Security = field(default_factory=Security)
    limits: Limits = field(default_factory=Limits)
    service: ServiceOptions = field(default_factory=ServiceOptions)


class Server:
    """The HTTP server of one engine; started and stopped from any thread."""

    def __init__(self, engine: Engine, options: ServerOptions | None = None) -> None:
        """The engine outlives the server: stopping ends the server's requests only."""
        self.options = options or ServerOptions()
        self.service = Service(engine, self.options.service)
        self._key = Key(self.options.security.key)
        self._sockets: list[socket.socket] = []
        self._thread: threading.Thread | None = None
        self._server: uvicorn.Server | None = None
        self._address = ""
        self.is_local = True  # only programs on this computer reach it

    @property
    def address(self) -> str:
        """The URL that clients use, such as "http://127.0.0.1:8080"; "" when it does not listen."""
        return self._address

    @property
    def activity(self) -> Activity:
        """Who is connected, requests so far and the log."""
        return self.service.activity()

    def start(self) -> None:
        """Listen and return; raises RequestError where the address cannot be used."""
        assert self._thread is None, "the server was started twice"
        options = self.options
        self._sockets = _listening_all(options.host, options.port)
        host, port = self._sockets[0].getsockname()[:2]
        hosts = [one.getsockname()[0] for one in self._sockets]
        self.is_local = all(ipaddress.ip_address(one).is_loopback for one in hosts)
        security = replace(options.security, is_local=self.is_local)
        limits = replace(options.limits, connections=_most_connections(options.limits.connections))
        app = application(self.service, security, limits, self._key)
        config = uvicorn.Config(
            app,
            http=protocol(limits, self.service.recorder),
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="critical",  # its warnings say what any peer sent
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=limits.idle_seconds,
            timeout_graceful_shutdown=limits.closing_seconds,
            h11_max_incomplete_event_size=limits.header_bytes,
        )
        self._server = uvicorn.Server(config)
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        self._address = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, end the requests that run, whose clients are told so, and wait."""
        if self._thread is None or self._server is None:
            return
        self._server.should_exit = True
        self._thread.join()
        self._thread = None
        self._address = ""

    def change(self, key: str, keep_seconds: float, *, keeps_texts: bool) -> None:
        """Take over what needs no restart, from any thread; answers in progress go on."""
        self._key.change(key)
        self.service.change(keep_seconds, keeps_texts=keeps_texts)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            log.exception("the server ended")

    async def _serve(self) -> None:
        assert self._server is not None
        server = self._server
        self.service.begin()
        try:
            await server.serve(self._sockets)
        finally:
            await self.service.close()
            for connection in list(server.server_state.connections):
                if connection.transport is not None:
                    connection.transport.abort()
            await asyncio.sleep(0)
            for one in self._sockets:
                one.close()


def _most_connections(wanted: int) -> int:
    """How many are served at once: of the files that the system lets a program open, half."""
    if resource is None:
        return wanted
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else min(wanted, max(files // 2, 1))


def _listening_all(hosts: str, port: int) -> list[socket.socket]:
    """Sockets at all addresses of a list with commas, with one port; raises RequestError."""
    made: list[socket.socket] = []
    parts = list(dict.fromkeys(part.strip() for part in hosts.split(",")))
    try:
        for host in parts:
            made.append(_listening(host, port, is_alone=len(parts) == 1))
            port = port or made[0].getsockname()[1]
    except RequestError:
        for one in made:
            one.close()
        raise
    return made


def _listening(host: str, port: int, *, is_alone: bool) -> socket.socket:
    """A socket that listens at an address; `is_alone`: "::" is all addresses of IPv4 too."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise RequestError(
            f"{host!r} is no address of this computer ({error}).",
            "Give 127.0.0.1, or 0.0.0.0 for the whole network.",
        ) from error
    made = socket.socket(family, kind, number)
    try:
        if os.name == "posix":  # on Windows it would let two programs share a port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not is_alone:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(512)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise RequestError(
            f"The server cannot listen at {host}, port {port} ({error.strerror or error}).",
            "Choose another port, or end the program that uses it.",
        ) from error
    return made
