"""Fake model hub: a local HTTP server with the hub's URLs, and faults that a test can inject.

It has the paths of the real hub: /owner/name/resolve/main/file redirects to a file store, /cdn/...,
which supports Range and If-Range; /api/models lists and searches. A `Fault` changes one response.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import struct
import threading
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

PIECE = 1 << 14  # bytes of one send


def model_bytes(size: int, seed: int = 1) -> bytes:
    """`size` bytes that begin with the GGUF magic and differ for every seed."""
    block = hashlib.sha256(str(seed).encode()).digest() * 64
    return (b"GGUF" + block * (size // len(block) + 1))[:size]


@dataclass
class Stored:
    """A file on the hub."""

    content: bytes
    etag: str = '"v1"'
    hashed: bool = True  # responses state its SHA-256
    resumable: bool = True  # Range requests are honoured

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass
class Fault:
    """One faulty response of the file store."""

    status: int = 0  # sent instead of the file
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    reset_after: int = -1  # bytes, then the connection is reset
    stall_after: int = -1  # bytes, then none until `Hub.released` is set
    close_after: int = -1  # bytes, then the connection is closed cleanly
    extra: bytes = b""  # sent after the body
    no_length: bool = False  # no Content-Length header
    content: bytes | None = None  # served instead of the file's content
    shift: int = 0  # bytes by which the start of a partial response is too late


@dataclass(frozen=True)
class RecordedRequest:
    """One HTTP request that the hub received."""

    method: str
    path: str
    headers: dict[str, str]


class Hub:
    """The server: the file store takes its `faults` in turn, the redirect its `hub_faults`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.files: dict[str, Stored] = {}  # "owner/name/file"
        self.faults: deque[Fault] = deque()
        self.hub_faults: deque[Fault] = deque()
        self.api: dict[str, Fault] = {}  # path of the API to its response
        self.requests: list[RecordedRequest] = []
        self.sent_bytes = 0  # of file contents
        self.gate: Callable[[int], None] | None = None  # called with bytes sent so far, may block
        self.redirect = "/cdn/{path}"  # target of redirects of files
        self.silent = False  # accept requests without a response until `released`
        self.released = threading.Event()
        self.stalled = threading.Event()
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.hub = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.port = int(self._server.server_address[1])
        self.endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    def put(self, path: str, content: bytes, **settings: object) -> Stored:
        """Add a file "owner/name/file"."""
        self.files[path] = Stored(content, **settings)  # type: ignore[arg-type]
        return self.files[path]

    def url(self, path: str) -> str:
        """URL of a file "owner/name/file"."""
        owner, name, file = path.split("/", 2)
        return f"{self.endpoint}/{owner}/{name}/resolve/main/{file}"

    def store_requests(self) -> list[RecordedRequest]:
        with self.lock:
            return [one for one in self.requests if one.path.startswith("/cdn/")]

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    hub: Hub
    daemon_threads = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: tests disconnect clients on purpose."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 20

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub = self.server.hub
        self.close_connection = True
        with hub.lock:
            hub.requests.append(RecordedRequest(self.command, self.path, dict(self.headers)))
        if hub.silent:
            hub.stalled.set()
            hub.released.wait(20)
            return
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path)
        if path.startswith("/api/"):
            self._api(path)
        elif path.startswith("/cdn/"):
            self._store(hub.files.get(path.removeprefix("/cdn/")))
        elif path.startswith("/loop"):
            self._plain(302, {"Location": f"/loop{len(path)}"})
        elif match:
            self._resolve(f"{match[1]}/{match[2]}")
        else:
            self._store(hub.files.get(path.removeprefix("/")))

    def _api(self, path: str) -> None:
        hub = self.server.hub
        fault = hub.api.get(path)
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/[^/]+", path)
        if fault is not None:
            self._plain(fault.status or 200, fault.headers, fault.body)
        elif match and (rows := self._rows(match[1])):
            self._plain(200, {}, json.dumps(rows).encode())
        else:
            self._plain(404, {"X-Error-Code": "RepoNotFound"})

    def _rows(self, repository: str) -> list[dict[str, object]]:
        files = self.server.hub.files.items()
        return [
            {
                "type": "file",
                "oid": "0" * 40,
                "path": path.removeprefix(f"{repository}/"),
                "size": len(one.content),
                "lfs": {"oid": one.sha256, "size": len(one.content), "pointerSize": 135},
            }
            for path, one in files
            if path.startswith(f"{repository}/")
        ]

    def _resolve(self, path: str) -> None:
        """Redirect to a file in the store, with the headers that describe it."""
        hub = self.server.hub
        stored = hub.files.get(path)
        fault = hub.hub_faults.popleft() if hub.hub_faults else None
        if fault is not None:
            self._plain(fault.status, fault.headers, fault.body)
        elif stored is None:
            self._plain(404, {"X-Error-Code": "EntryNotFound"})
        else:
            headers = {
                "Location": hub.redirect.format(path=urllib.parse.quote(path)),
                "X-Repo-Commit": "c" * 40,
            }
            if stored.hashed:
                headers |= {
                    "X-Linked-Etag": f'"{stored.sha256}"',
                    "X-Linked-Size": str(len(stored.content)),
                }
            self._plain(302, headers)

    def _plain(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    # --- the file store -------------------------------------------------------------------------

    def _store(self, stored: Stored | None) -> None:
        hub = self.server.hub
        head = self.command == "HEAD"
        fault = hub.faults.popleft() if hub.faults and not head else Fault()
        if fault.status:
            self._plain(fault.status, fault.headers, fault.body)
            return
        if stored is None:
            self._plain(404, {})
            return
        content = stored.content if fault.content is None else fault.content
        start = self._start(stored)
        if start is not None and start >= len(content):
            self._plain(416, {"Content-Range": f"bytes */{len(content)}"})
            return
        headers = {"ETag": stored.etag, "Content-Type": "application/octet-stream"}
        end = self._end(len(content)) if start is not None else len(content)
        body = content[start or 0 : end]
        if start is not None:
            first = start + fault.shift
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(content)}"
        if not fault.no_length:
            headers["Content-Length"] = str(len(body))
        self.send_response(200 if start is None else 206)
        for name, value in {**headers, **fault.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if not head:
            self._send(body + fault.extra, fault)

    def _start(self, stored: Stored) -> int | None:
        """First byte of a partial response (206); None for a full one (200)."""
        match = re.fullmatch(r"bytes=(\d+)-\d*", self.headers.get("Range", ""))
        valid = self.headers.get("If-Range", stored.etag) == stored.etag
        return int(match[1]) if match and stored.resumable and valid else None

    def _end(self, size: int) -> int:
        """End of a partial response of a file of `size` bytes."""
        match = re.fullmatch(r"bytes=\d+-(\d+)", self.headers.get("Range", ""))
        return min(int(match[1]) + 1, size) if match else size

    def _send(self, body: bytes, fault: Fault) -> None:
        hub = self.server.hub
        stops = [
            one for one in (fault.reset_after, fault.stall_after, fault.close_after) if one >= 0
        ]
        end = min([len(body), *stops])
        for at in range(0, end, PIECE):
            piece = body[at : min(at + PIECE, end)]
            if hub.gate is not None:
                hub.gate(hub.sent_bytes)
            with hub.lock:  # before the write: the reader may look at the sum at once after it
                hub.sent_bytes += len(piece)
            try:
                self.wfile.write(piece)
            except OSError:
                with hub.lock:
                    hub.sent_bytes -= len(piece)
                raise
        if fault.stall_after >= 0:
            hub.stalled.set()
            hub.released.wait(20)
        if fault.reset_after >= 0:
            linger = struct.pack("ii", 1, 0)  # zero linger time: closing sends RST
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()


@contextmanager
def running(tls: ssl.SSLContext | None = None) -> Iterator[Hub]:
    """A hub for one test, during which connections other than to loopback fail."""
    with only_loopback() as attempts:
        hub = Hub(tls)
        try:
            yield hub
        finally:
            hub.close()
    assert attempts == []


@contextmanager
def only_loopback() -> Iterator[list[object]]:
    """Make connections other than to loopback fail; yields the addresses that were tried."""
    attempts: list[object] = []
    connect = socket.socket.connect
    look_up = socket.getaddrinfo

    def guarded(self: socket.socket, address: object) -> None:
        if isinstance(address, tuple) and not str(address[0]).startswith(("127.", "::1")):
            attempts.append(address)
            raise OSError("a test tried to connect to another machine")
        connect(self, address)  # type: ignore[arg-type]

    def guarded_look_up(host: object, *args: object, **settings: object) -> object:
        if host not in ("127.0.0.1", "localhost", "::1"):
            attempts.append(host)
            raise socket.gaierror(socket.EAI_NONAME, "a test tried to look up another machine")
        return look_up(host, *args, **settings)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        patch.setattr(socket, "getaddrinfo", guarded_look_up)
        yield attempts
