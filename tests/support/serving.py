"""A real server on a real socket with a tiny model, and what its tests read from it."""

from __future__ import annotations

import json
import queue
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import httpx

from engine import Engine, Event, Failed, Load, Metrics, MetricsRead, ModelLoaded, Request
from engine.client import Limits
from engine.server.serve import Server, ServerOptions

TIMEOUT_SECONDS = 60
E = TypeVar("E", bound=Event)


class Served:
    """A running engine and server; `model` is loaded as the main one."""

    def __init__(
        self,
        model: Path | None = None,
        options: ServerOptions | None = None,
        limits: Limits = Limits(),  # noqa: B008  frozen
        engine: Engine | None = None,
    ) -> None:
        self.engine = engine or Engine(limits=limits)
        self.engine.start()
        if model is not None:
            self.load(model)
        self.server = Server(self.engine, replace(options or ServerOptions(), port=0))
        self.server.start()
        self.http = httpx.Client(base_url=self.server.address, timeout=TIMEOUT_SECONDS)

    def load(self, path: Path) -> ModelLoaded:
        return self.load_with(Load(path))

    def load_with(self, request: Load) -> ModelLoaded:
        ended: queue.Queue[Event] = queue.Queue()
        self.engine.submit(request, ended.put)
        while not isinstance(event := ended.get(timeout=TIMEOUT_SECONDS), ModelLoaded):
            assert not isinstance(event, Failed), event
        return event

    def ask(self, request: Request, kind: type[E]) -> E:
        """The last event of a request to the engine itself."""
        ended: queue.Queue[Event] = queue.Queue()
        self.engine.submit(request, ended.put)
        event = ended.get(timeout=TIMEOUT_SECONDS)
        assert isinstance(event, kind), event
        return event

    @property
    def running(self) -> int:
        """Answers in progress in the engine."""
        models = self.engine.resident
        return sum(self.ask(Metrics(one.path), MetricsRead).running for one in models)

    def socket(self, receive_bytes: int = 0) -> socket.socket:
        """A plain connection to the server; `receive_bytes` the system holds for it, if given."""
        url = httpx.URL(self.server.address)
        connection = socket.socket()
        connection.settimeout(TIMEOUT_SECONDS)
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.connect((url.host, url.port or 0))
        return connection

    def raw(self, sent: bytes) -> bytes:
        """What the server answers to these bytes until it closes the connection."""
        with self.socket() as connection:
            connection.sendall(sent)
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        self.http.close()
        self.server.stop()
        self.engine.stop()

    def get(self, path: str, **options: Any) -> Any:
        response = self.http.get(path, **options)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, body: Any, **options: Any) -> Any:
        response = self.http.post(path, json=body, **options)
        assert response.status_code == 200, response.text
        return response.json()

    def error(self, path: str, body: Any, status: int = 400, **options: Any) -> Any:
        response = self.http.post(path, json=body, **options)
        assert response.status_code == status, response.text
        return response.json()

    def stream(self, path: str, body: dict[str, Any]) -> list[Any]:
        """The values of the events of a stream; the end marker is checked and left out."""
        with self.http.stream("POST", path, json=body | {"stream": True}) as response:
            assert response.status_code == 200, response.read()
            lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
        assert lines.pop() == "[DONE]"
        return [json.loads(line) for line in lines]


def post_bytes(path: str, body: bytes, *headers: str) -> bytes:
    """A raw request that asks for the connection to be closed after it."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    if not any(line.startswith("Content-Length") for line in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def chat(text: str = "hello", **options: Any) -> dict[str, Any]:
    """A body of a chat with one question and a short answer."""
    messages = [{"role": "user", "content": text}]
    return {"model": "", "messages": messages, "max_tokens": 8, "seed": 1} | options


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for a condition, polling."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
