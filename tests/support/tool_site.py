"""A server of tools over HTTP on this machine, by hand, with what goes wrong there; and its login."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_TOOL = {"name": "echo", "inputSchema": {"type": "object", "properties": {}}}


class Site(ThreadingHTTPServer):
    """The server; `behaviour` is looked at with each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behaviour = ""
        self.elsewhere = ""  # where it redirects to
        self.session = 1
        self.asked: list[tuple[str, str, dict[str, str]]] = []  # method, path, headers
        self.logins = 0  # pages of the login that were shown
        self.refreshed = 0
        self.challenge = ""
        self.token = "none"
        self.issuer: Site | None = None  # the server of its login; None: itself
        self.released = threading.Event()  # calls that hang

    @property
    def root(self) -> str:
        """Its address without a path."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def address(self) -> str:
        """Where its tools are."""
        return f"{self.root}/mcp"


@contextmanager
def site(behaviour: str = "") -> Iterator[Site]:
    """A server that runs."""
    made = Site()
    made.behaviour = behaviour
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        made.released.set()
        made.shutdown()
        thread.join()
        made.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Site
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._note()
        path, _, query = self.path.partition("?")
        site, values = self.server, dict(urllib.parse.parse_qsl(query))
        if path.startswith("/.well-known/oauth-protected-resource"):
            issuer = (site.issuer or site).root
            self._json(200, {"resource": site.address, "authorization_servers": [issuer]})
        elif path.startswith("/.well-known/oauth-authorization-server"):
            page = f"{site.root}/authorize"
            if site.behaviour == "evil page":
                page = "http://a.example/$(calc.exe)"
            self._json(200, {
                "issuer": site.root, "authorization_endpoint": page,
                "token_endpoint": f"{site.root}/token",
                "registration_endpoint": f"{site.root}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            })  # fmt: skip
        elif path == "/authorize":
            site.logins += 1
            site.challenge = values["code_challenge"]
            place = f"{values['redirect_uri']}?code=granted&state={values['state']}"
            self._reply(302, b"", {"Location": place})
        else:
            self._reply(405 if path == "/mcp" else 404, b"")

    def do_DELETE(self) -> None:
        self._note()
        if self.server.behaviour == "stays":
            self.server.released.wait(20)
        self._reply(200, b"")

    def do_POST(self) -> None:
        self._note()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match self.path:
            case "/register":
                self._json(201, {**json.loads(body), "client_id": "made"})
            case "/token":
                self._token(dict(urllib.parse.parse_qsl(body.decode())))
            case _:
                self._message(json.loads(body))

    def _token(self, values: dict[str, str]) -> None:
        site = self.server
        if values["grant_type"] == "refresh_token":
            site.refreshed += 1
        else:
            made = hashlib.sha256(values["code_verifier"].encode()).digest()
            if base64.urlsafe_b64encode(made).decode().rstrip("=") != site.challenge:
                self._json(400, {"error": "invalid_grant"})
                return
        site.token = f"token-{time.monotonic_ns()}"
        self._json(200, {
            "access_token": site.token, "token_type": "Bearer", "expires_in": 3600,
            "refresh_token": "again",
        })  # fmt: skip

    def _message(self, message: dict[str, Any]) -> None:
        site, id, method = self.server, message.get("id"), message.get("method")
        behaviour = site.behaviour
        is_known = self.headers.get("Authorization") == f"Bearer {(site.issuer or site).token}"
        if behaviour in ("login", "evil page") and not is_known:
            place = f"{site.root}/.well-known/oauth-protected-resource/mcp"
            self._reply(401, b"", {"WWW-Authenticate": f'Bearer resource_metadata="{place}"'})
            return
        if behaviour == "redirects":
            self._reply(307, b"", {"Location": site.elsewhere})
        elif behaviour == "refuses":
            self._reply(401, b"")
        elif id is None:
            self._reply(202, b"")
        elif method == "server/discover":
            self._json(400, {"error": "what?"})
        elif method == "initialize":
            self._result(id, {
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "site", "version": "1"},
            })  # fmt: skip
        elif self.headers.get("Mcp-Session-Id") != str(site.session):
            self._reply(404, b"")
        elif method == "tools/list":
            self._result(id, {"tools": [_TOOL]})
        else:
            self._called(id)

    def _called(self, id: Any) -> None:
        site = self.server
        result = {"content": [{"type": "text", "text": "done"}]}
        match site.behaviour:
            case "large":
                self._result(id, {"content": [{"type": "text", "text": "x" * 20_000_000}]})
            case "fits":
                self._result(id, {"content": [{"type": "text", "text": "x" * 5_900_000}]})
            case "values":
                self._reply(200, b'{"jsonrpc":"2.0","id":1,"result":{"x":[' + b"[]," * 500_000)
            case "compressed":
                body = gzip.compress(json.dumps({"id": id, "result": result}).encode())
                self._reply(200, body, {"Content-Encoding": "gzip"})
            case "drops":
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            case "hangs":
                site.released.wait(20)
            case "stream":
                self._stream(id, result)
            case "pours":
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                try:
                    while True:
                        self.wfile.write(b"data: " + b"x" * 65_536)
                except OSError:
                    self.close_connection = True
            case _:
                self._result(id, result)

    def _stream(self, id: Any, result: Any) -> None:
        event = json.dumps({"jsonrpc": "2.0", "id": id, "result": result})
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message",
                           "params": {"level": "info", "data": "on the way"}})  # fmt: skip
        body = f"event: message\ndata: {note}\n\nevent: message\ndata: {event}\n\n".encode()
        self._reply(200, body, {"Content-Type": "text/event-stream"})

    def _note(self) -> None:
        self.server.asked.append((self.command, self.path, dict(self.headers)))

    def _result(self, id: Any, result: Any) -> None:
        self._json(
            200,
            {"jsonrpc": "2.0", "id": id, "result": result},
            {"Mcp-Session-Id": str(self.server.session)},
        )

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self._reply(status, json.dumps(value).encode(), headers or {})

    def _reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        made = {"Content-Type": "application/json", **(headers or {})}
        self.send_response(status)
        for name, value in made.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True
