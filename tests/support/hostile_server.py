"""Fake server of OpenAI's routes on a real socket, whose responses a test scripts to the byte.

A `Reply` is sent piece by piece; steps between its pieces hold it, cut it or reset it. The server
records the requests and when their clients went away.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


class Step(Enum):
    """What happens between two pieces of a reply."""

    HOLD = auto()  # nothing is sent until the client goes away, or the server is closed
    RESET = auto()  # the connection is reset
    CLOSE = auto()  # it is closed, without the end of the body


@dataclass
class Reply:
    """One response."""

    pieces: list[bytes | Step | float] = field(default_factory=list)  # a number: seconds to wait
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""  # sent instead of a response


@dataclass
class Received:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    gone: threading.Event = field(default_factory=threading.Event)  # its client closed early


def chunk(content: str | None = None, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One chunk of an answer."""
    if content is not None:
        delta["content"] = content
    return {
        "id": "a", "object": "chat.completion.chunk", "model": "served",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }  # fmt: skip


def event(value: Any) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(value)}\n\n".encode()


DONE = b"data: [DONE]\n\n"


def stream(*values: Any, end: bytes = DONE) -> Reply:
    """A streamed answer; a value may be a chunk, bytes, a step or a number of seconds."""
    pieces = [event(value) if isinstance(value, dict) else value for value in values]
    return Reply([*pieces, end], headers={"Content-Type": "text/event-stream"})


def answer(*texts: str, finish: str = "stop", usage: dict[str, Any] | None = None) -> Reply:
    """A usual streamed answer."""
    made: list[Any] = [chunk("", role="assistant"), *map(chunk, texts), chunk(finish=finish)]
    if usage is not None:
        made.append({**chunk(), "choices": [], "usage": usage})
    return stream(*made)


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    """A response of JSON."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    body = json.dumps(value).encode()
    return Reply([body], status, {"Content-Type": "application/json", **named})


def error(message: str, status: int, code: Any = None, kind: str = "", **headers: str) -> Reply:
    """An error in OpenAI's shape."""
    inner = {"message": message, "type": kind or "invalid_request_error", "code": code}
    return json_reply({"error": inner}, status, **headers)


def page(title: str, status: int = 200) -> Reply:
    """A web page."""
    text = f"<!DOCTYPE html>\n<html><head><title>{title}</title></head><body><p>x</body></html>"
    return Reply([text.encode()], status, {"Content-Type": "text/html; charset=utf-8"})


NOT_FOUND = error("Not Found", 404)


class Server:
    """The server; a path without replies is answered with 404."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[Received] = []
        self._replies: dict[str, list[Reply]] = {}
        self._tls = tls
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0.02)
        self.port = int(self._listening.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        """Of its API."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    def on(self, path: str, *replies: Reply) -> None:
        """Answer requests to a path in turn; the last reply is repeated."""
        self._replies[path] = list(replies)

    def chat(self, *replies: Reply) -> None:
        """Answer requests for answers."""
        self.on("/v1/chat/completions", *replies)

    @property
    def asked(self) -> list[Any]:
        """The bodies of the requests for answers."""
        return [each.body for each in self.received if each.path.endswith("/completions")]

    def close(self) -> None:
        """Close all sockets and join the threads."""
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            with suppress(TimeoutError):
                client, _ = self._listening.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(client,)))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(5.0)
        try:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            received = self._read(client)
            if received is not None:
                self._reply(client, received)
        except OSError:
            return  # the client is gone
        finally:
            client.close()

    def _read(self, client: socket.socket) -> Received | None:
        data = b""
        while b"\r\n\r\n" not in data:
            if not (piece := client.recv(1 << 16)):
                return None
            data += piece
            if data[:1] == b"\x16":  # TLS, which this server does not speak
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                return None
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, *_ = first.split(" ")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        while len(body) < int(headers.get("content-length", 0)):
            body += client.recv(1 << 16)
        made = Received(method, path, headers, json.loads(body) if body else None)
        with self._guard:
            self.received.append(made)
        return made

    def _reply(self, client: socket.socket, received: Received) -> None:
        with self._guard:
            replies = self._replies.get(received.path.partition("?")[0], [NOT_FOUND])
            reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if reply.raw:
            client.sendall(reply.raw)
            return
        headers = {"Transfer-Encoding": "chunked", "Connection": "close", **reply.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        client.sendall(f"HTTP/1.1 {reply.status} X\r\n{head}\r\n".encode("latin-1"))
        for piece in reply.pieces:
            if isinstance(piece, bytes):
                if piece:
                    client.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            elif isinstance(piece, Step):
                self._step(client, piece, received)
                return
            else:
                time.sleep(piece)
        client.sendall(b"0\r\n\r\n")

    def _step(self, client: socket.socket, step: Step, received: Received) -> None:
        if step is Step.RESET:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif step is Step.HOLD:
            client.settimeout(0.02)
            while not self._closing.is_set():
                try:
                    if not client.recv(1):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            if not self._closing.is_set():
                received.gone.set()


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server for one test."""
    made = Server(tls)
    try:
        yield made
    finally:
        made.close()
