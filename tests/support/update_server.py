"""Loopback update server: it sends a description of a release and its packages, also wrong ones."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class UpdateServer:
    """What it sends, by path, and the requests that it got."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.answers: dict[str, Answer] = {}
        self.released = threading.Event()  # ends answers that wait
        self.address = ""

    @property
    def url(self) -> str:
        """The address of the description."""
        return f"{self.address}/newest.json"

    def describe(self, content: object, kind: str = "application/json") -> None:
        """Send this as the description; bytes as they are."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send("/newest.json", body, kind)

    def send(self, path: str, body: bytes, kind: str = "application/octet-stream") -> None:
        """Send a file, also from a later byte on."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            asked = request.headers.get("Range", "")
            start = int(asked.removeprefix("bytes=").rstrip("-") or 0)
            request.send_response(206 if asked else 200)
            request.send_header("Content-Type", kind)
            request.send_header("Content-Length", str(len(body) - start))
            if asked:
                request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            request.end_headers()
            request.wfile.write(body[start:])

        self.answers[path] = answer

    def release(self, version: str = "0.2.0", **packages: bytes) -> dict[str, Any]:
        """A description with these packages by kind (with _ for a dot), which are sent too."""
        rows: list[dict[str, Any]] = []
        for name, body in packages.items():
            kind = name.replace("_", ".")
            file = f"/tokonoma-{version}-x86_64.{'exe' if kind == 'setup.exe' else kind}"
            self.send(file, body)
            rows += [
                {
                    "kind": kind,
                    "machine": machine,
                    "url": self.address + file,
                    "size_bytes": len(body),
                    "sha256": hashlib.sha256(body).hexdigest(),
                }
                for machine in ("x86_64", "arm64")
            ]
        content = {
            "format": "tokonoma release",
            "version": version,
            "notes": f"## {version}\n- It is **new**.",
            "page": f"{self.address}/page",
            "packages": rows,
        }
        self.describe(content)
        return content


@contextmanager
def update_server() -> Iterator[UpdateServer]:
    """A server on a free port, until the context ends."""
    made = UpdateServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.requests.append((self.path, dict(self.headers)))
            answer = made.answers.get(self.path)
            if answer is None:
                self.send_error(404)
                return
            try:
                answer(self)
            except OSError:  # the client has gone
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield made
    finally:
        made.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
