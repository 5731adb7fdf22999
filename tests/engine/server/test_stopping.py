"""The end of the server, and of clients that vanish while a model is loaded for them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

import tiny
from engine import Load, RequestHandle
from engine.server import models
from engine.server.activity import Client, Exchange
from engine.server.bodies import BodyMemory
from engine.server.http import Call, Stream, get, sse_error
from engine.server.limits import Limits
from engine.server.serve import ServerOptions
from engine.server.service import ServiceOptions
from engine.server.values import Content, Delta, Wanted
from engine_bench import with_printable_output
from serving import TIMEOUT_SECONDS, Served, chat, post_bytes, wait_until

CHAT = "/v1/chat/completions"
LONG = {"max_tokens": 1900, "temperature": 0, "ignore_eos": True}
STREAMS = {
    CHAT: chat(**LONG, stream=True),
    "/v1/messages": chat(max_tokens=1900, temperature=0, stream=True),
    "/v1/responses": {"model": "", "input": "hello", "max_output_tokens": 1900, "stream": True},
    "/api/chat": chat(stream=True) | {"options": {"num_predict": 1900, "temperature": 0}},
    "/completion": {"prompt": "hello", "n_predict": 1900, "ignore_eos": True, "stream": True},
}


def test_streams_end_with_an_error_when_the_server_is_stopped(tiny_model: Path) -> None:
    limits = Limits(closing_seconds=TIMEOUT_SECONDS)  # however slow the machine is
    made = Served(tiny_model, ServerOptions(limits=limits))
    began = threading.Semaphore(0)
    service = made.server.service
    generate = service.generate

    async def held(wanted: Wanted) -> AsyncGenerator[Delta, None]:
        """An answer that does not end, however fast it is."""
        async with aclosing(generate(wanted)) as deltas:
            async for delta in deltas:
                yield delta
                if isinstance(delta, Content):
                    await asyncio.Event().wait()

    service.generate = held  # type: ignore[method-assign]

    def stream(path: str) -> list[str]:
        lines = []
        with made.http.stream("POST", path, json=STREAMS[path]) as response:
            assert response.status_code == 200
            for line in response.iter_lines():
                lines.append(line)
                if len(lines) == 1:
                    began.release()
        return [line for line in lines if line]

    def whole() -> httpx.Response:
        began.release()
        return made.http.post(CHAT, json=chat(**LONG))

    try:
        with ThreadPoolExecutor(8) as pool:
            paths = [*STREAMS, CHAT, CHAT]
            streams = [pool.submit(stream, path) for path in paths]
            waiting = pool.submit(whole)
            for _ in range(8):
                assert began.acquire(timeout=TIMEOUT_SECONDS)
            wait_until(lambda: made.server.activity.running == 8)
            made.server.stop()
            for path, found in zip(paths, streams, strict=True):  # no connection breaks
                assert "being stopped" in "".join(found.result(TIMEOUT_SECONDS)[-2:]), path
            response = waiting.result(TIMEOUT_SECONDS)
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "answer_ended"
        assert int(response.headers["retry-after"]) >= 1
        wait_until(lambda: made.running == 0)
        assert made.server.activity.running == 0
    finally:
        made.close()


def test_a_stream_that_is_stopped_while_its_first_part_is_sent_ends_with_an_error() -> None:
    async def frames() -> AsyncGenerator[bytes, None]:
        yield b"data: 1\n\n"
        await asyncio.Event().wait()

    async def handler(call: Call) -> Stream:
        return Stream(frames(), sse_error)

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    state: dict[str, Any] = {"bodies": BodyMemory(Limits()), "image_files": None}
    state["exchange"] = Exchange(1, Client(), "GET", "/v1/x", 0.0)
    scope = {"type": "http", "method": "GET", "path": "/v1/x", "headers": [], "state": state}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("body") == b"data: 1\n\n":
            state["stop"]()

    application: Any = get("/v1/x", handler).app
    asyncio.run(application(scope, receive, send))
    assert b"being stopped" in sent[-2]["body"]
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Served]:
    """A server that loads models on demand and keeps them for a moment."""
    with_printable_output(tiny.write(tmp_path / "first.gguf", context=1024, seed=1))
    with_printable_output(tiny.write(tmp_path / "second.gguf", context=1024, seed=2))
    options = ServiceOptions(lambda: (tmp_path,), keep_seconds=0.05)
    made = Served(options=ServerOptions(service=options))
    yield made
    made.close()


def vanish(served: Served, model: str, event: threading.Event | None = None) -> None:
    """A request whose client goes away at once, or after an event."""
    with served.socket() as connection:
        connection.sendall(post_bytes(CHAT, json.dumps(chat(model=model)).encode()))
        assert event is None or event.wait(TIMEOUT_SECONDS)


def test_clients_that_vanish_while_a_model_is_loaded_leave_nothing(library: Served) -> None:
    for at in range(20):
        vanish(library, ("first", "second")[at % 2])
    for model in ("first", "second"):
        assert library.post(CHAT, chat(model=model))["model"] == model
    wait_until(lambda: not library.engine.resident)


def test_a_load_that_ends_after_its_client_left_is_unloaded(library: Served) -> None:
    submit, asked, release = library.engine.submit, threading.Event(), threading.Event()

    def late(request: Any, deliver: Any, *rest: Any, **named: Any) -> RequestHandle:
        if not isinstance(request, Load) or asked.is_set():
            return submit(request, deliver, *rest, **named)
        asked.set()

        def load() -> None:
            assert release.wait(TIMEOUT_SECONDS)
            submit(request, deliver)

        threading.Thread(target=load).start()
        return RequestHandle(request, deliver)

    library.engine.submit = late  # type: ignore[method-assign]
    vanish(library, "first", asked)
    wait_until(lambda: library.server.activity.running == 0)
    with ThreadPoolExecutor() as pool:
        second = pool.submit(library.post, CHAT, chat(model="first"))
        time.sleep(0.05)  # it waits for the load
        release.set()
        assert second.result(TIMEOUT_SECONDS)["model"] == "first"
    wait_until(lambda: not library.engine.resident)


def test_a_server_stops_while_a_model_is_loaded(library: Served) -> None:
    asked = threading.Event()

    def never(request: Any, deliver: Any, *_: Any, **__: Any) -> RequestHandle:
        asked.set()
        return RequestHandle(request, deliver)

    library.engine.submit = never  # type: ignore[method-assign]
    with ThreadPoolExecutor() as pool:
        found = pool.submit(library.http.post, CHAT, json=chat(model="first"))
        assert asked.wait(TIMEOUT_SECONDS)
        library.server.stop()
        assert found.result(TIMEOUT_SECONDS).status_code == 503


def test_a_model_whose_file_is_deleted_or_replaced_answers_from_memory(
    library: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "_SEARCHED_SECONDS", 0.0)
    library.server.service.change(60.0, keeps_texts=False)
    before = library.post(CHAT, chat(model="first", temperature=0))
    (loaded,) = library.engine.resident
    for content in (None, b"rubbish" * 1000):
        loaded.path.unlink() if content is None else loaded.path.write_bytes(content)
        after = library.post(CHAT, chat(model="first", temperature=0))
        assert after["choices"] == before["choices"]
        assert library.post(CHAT, chat())["model"] == "first"
        assert "first" in {one["id"] for one in library.get("/v1/models")["data"]}
    library.post("/api/generate", {"model": "first", "keep_alive": 0})
    wait_until(lambda: not library.engine.resident)
    error = library.error(CHAT, chat(model="first"), 500)["error"]
    assert error["code"] == "model_unusable"
    assert library.post(CHAT, chat(model="second"))
