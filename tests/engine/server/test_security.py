"""What a hostile page, client or network can do to the server: nothing but get a refusal."""

from __future__ import annotations

import json
import logging
import random
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from engine.client import Engine
from engine.client import Limits as QueueLimits
from engine.errors import RequestError
from engine.server.app import application
from engine.server.guards import Security
from engine.server.limits import Limits
from engine.server.serve import Server, ServerOptions
from serving import Served, chat, post_bytes, wait_until

CHAT = "/v1/chat/completions"
KEY = "secret-key"
PAGE = "http://pages.example:3000"
# So much that it has not ended when a test looks, however slow the test is.
LONG = {"max_tokens": 1900, "temperature": 0, "n": 16, "ignore_eos": True}


@pytest.fixture(scope="module")
def guarded(tiny_model: Path) -> Iterator[Served]:
    """A server with a key, one allowed page, and limits that a test can reach."""
    limits = Limits(
        body_bytes=100_000, body_seconds=0.3, header_seconds=0.3, write_seconds=0.3, connections=8
    )
    security = Security(KEY, (PAGE,), ("my.name",))
    made = Served(tiny_model, ServerOptions(security=security, limits=limits))
    yield made
    made.close()


def bearer(key: str = KEY) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:80", "[::1]:1", "a.localhost", "My.Name:1"]
)
def test_names_of_this_machine_are_served(guarded: Served, host: str) -> None:
    assert guarded.http.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", ":8080"),
        *("localhost:evil.example", "[::1]evil.example", "[::1].evil.example", "127.1"),
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(guarded: Served, host: str) -> None:
    response = guarded.http.get("/v1/models", headers={"Host": host} | bearer())
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "host_not_allowed"


def test_other_pages_are_refused_and_cannot_read(guarded: Served) -> None:
    for origin in ("http://evil.example", "null", "http://localhost:9", PAGE + ".evil.example"):
        response = guarded.http.post(CHAT, json=chat(), headers={"Origin": origin} | bearer())
        assert response.status_code == 403
        assert "access-control-allow-origin" not in response.headers


def test_what_a_page_fetches_without_an_origin_is_refused(served: Served) -> None:
    picture = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert served.http.get("/metrics?model=x", headers=picture).status_code == 403
    opened = picture | {"Sec-Fetch-Mode": "navigate"}  # by a script, or in a frame
    assert served.http.get("/metrics", headers=opened).status_code == 403
    for clicked in (opened | {"Sec-Fetch-User": "?1"}, {"Sec-Fetch-Site": "none"}):
        assert served.http.get("/metrics", headers=clicked).status_code == 200


def test_an_allowed_page_is_served_with_its_preflight(guarded: Served) -> None:
    asked = {"Origin": PAGE, "Access-Control-Request-Headers": "authorization, x-new"}
    preflight = guarded.http.options(CHAT, headers=asked)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-headers"] == "authorization, x-new"
    response = guarded.http.post(CHAT, json=chat(), headers={"Origin": PAGE} | bearer())
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == PAGE


def test_only_health_needs_no_key(guarded: Served) -> None:
    assert guarded.http.get("/health").status_code == 200
    assert guarded.http.get("/v1/health").status_code == 200
    for path in ("/v1/models", "/metrics", "/props", "/slots", "/nothing"):
        response = guarded.http.get(path)
        assert response.status_code == 401
        assert response.json()["error"]["type"] == "authentication_error"
        assert response.headers["www-authenticate"] == "Bearer"
    body = guarded.http.post("/v1/messages", json={}).json()
    assert body["type"] == "error"
    assert body["error"]["type"] == "authentication_error"
    assert isinstance(guarded.http.post("/api/chat", json={}).json()["error"], str)


def test_both_ways_to_send_the_key(guarded: Served) -> None:
    assert guarded.http.get("/v1/models", headers=bearer()).status_code == 200
    assert guarded.http.get("/v1/models", headers={"x-api-key": KEY}).status_code == 200
    wrong_keys: list[Any] = [{"x-api-key": KEY[:-1]}, bearer(KEY + "x")]
    wrong_keys += [{"Authorization": f"Basic {KEY}"}, {"x-api-key": f"{KEY}ü".encode()}]
    wrong_keys += [
        {"Authorization": b"Bearer \xff\xfe"},
        {"Authorization": "Bearer “key”".encode()},
    ]
    for wrong in wrong_keys:
        assert guarded.http.get("/v1/models", headers=wrong).status_code == 401


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b"[1]", "a list"),
        (b"null", "null"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON"),
        (b'{"a": [1' + b"0" * 400 + b"]}", "too large"),
        (b'{"a": -1e999}', "too large"),
        (b'{"a": "\xff"}', "UTF-8"),
        (json.dumps({"a": "x"}).encode("utf-16"), "UTF-8"),
        (rb'{"a": "\ud800"}', "half a character"),
        (b"[" * 50_000, "nested"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "nested"),
    ],
)
def test_a_body_that_is_no_json_is_refused_in_one_sentence(
    guarded: Served, body: bytes, word: str
) -> None:
    response = guarded.http.post(CHAT, content=body, headers=bearer())
    assert response.status_code == 400
    assert word in response.json()["error"]["message"]


def test_more_values_than_can_be_parsed_in_time_are_refused(served: Served) -> None:
    body = b'{"x": [' + b"[]," * 600_000 + b"[]]}"
    response = served.http.post(CHAT, content=body)
    assert response.status_code == 413
    assert "1,000,000 commas" in response.json()["error"]["message"]


def test_more_text_biases_than_are_tokenized_in_time_are_refused(served: Served) -> None:
    biases = [[f"word {at}", 1] for at in range(1_001)]
    assert "1,001 texts" in served.error(CHAT, chat(logit_bias=biases))["error"]["message"]


def test_a_stop_string_that_would_hold_an_answer_is_refused(served: Served) -> None:
    assert "5,000 characters" in served.error(CHAT, chat(stop="a" * 5000))["error"]["message"]
    served.post(CHAT, chat(stop=[f"stop {at}" for at in range(10_000)]))


def test_a_large_body_is_refused_with_and_without_its_length(guarded: Served) -> None:
    large = json.dumps(chat("x" * 200_000)).encode()
    assert guarded.http.post(CHAT, content=large, headers=bearer()).status_code == 413
    parts = (large[at : at + 1000] for at in range(0, len(large), 1000))
    with suppress(OSError, httpx.TransportError):  # cut off while it was sending
        assert guarded.http.post(CHAT, content=parts, headers=bearer()).status_code == 413
    assert guarded.http.get("/health").status_code == 200


def test_slow_senders_are_cut_off(guarded: Served) -> None:
    for sent in (b"", b"GET /health HTTP/1.1\r\nHost: x"):
        assert guarded.raw(sent) == b""
    header = post_bytes(CHAT, b"", "Content-Length: 100", f"x-api-key: {KEY}")
    assert b"408" in guarded.raw(header + b"{").split(b"\r\n")[0]


def test_a_header_sent_drop_by_drop_is_cut_off(guarded: Served) -> None:
    with guarded.socket() as connection, pytest.raises(OSError, match=r"reset|pipe|abort"):
        drip(connection)


def drip(connection: socket.socket) -> None:
    for _ in range(100):
        connection.sendall(b"G")
        time.sleep(0.05)


def test_connections_are_limited(guarded: Served) -> None:
    guarded.http.close()
    opened = [guarded.socket() for _ in range(8)]
    try:
        assert b"503" in guarded.raw(b"")
    finally:
        for one in opened:
            one.close()
    guarded.http = httpx.Client(base_url=guarded.server.address)
    wait_until(lambda: guarded.server.service.recorder.connections == 0)
    assert guarded.http.get("/health").status_code == 200


def test_broken_http_is_no_crash(guarded: Served) -> None:
    assert b"400" in guarded.raw(b"\x16\x03\x01\x02\x00\r\n\r\n")
    assert b"400" in guarded.raw(b"GET / HTTP/1.1\r\n\r\n")
    assert guarded.raw(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 431")
    assert guarded.http.get("/health").status_code == 200


def test_a_client_that_goes_away_frees_its_answer(served: Served) -> None:
    for body in (chat(**LONG), chat(**LONG, stream=True)):
        connection = served.socket()
        connection.sendall(post_bytes(CHAT, json.dumps(body).encode()))
        wait_until(lambda: served.running > 0)
        connection.close()
        wait_until(lambda: served.running == 0)
    log = served.server.activity.log
    assert "the client went away" in {one.outcome for one in log}


def test_a_client_that_goes_away_while_its_prompt_is_read_frees_it(served: Served) -> None:
    prompt = "".join(random.Random(3).choices("abcdefgh ", k=1700))
    connection = served.socket()
    connection.sendall(post_bytes(CHAT, json.dumps(chat(prompt, **LONG)).encode()))
    wait_until(lambda: served.running > 0)
    connection.close()
    wait_until(lambda: served.running == 0, 5.0)


def test_a_full_queue_asks_to_come_back_later(tiny_model: Path) -> None:
    made = Served(tiny_model, limits=QueueLimits(requests=3, per_client=1))
    try:
        with made.http.stream("POST", CHAT, json=chat(**LONG, stream=True)) as running:
            lines = running.iter_lines()  # kept: dropping it closes the connection
            next(lines)
            for body in (chat(), chat(stream=True)):
                refused = made.http.post(CHAT, json=body)
                assert refused.status_code == 503
                assert int(refused.headers["retry-after"]) >= 1
                assert refused.json()["error"]["code"] == "busy"
            other = made.http.post(CHAT, json=chat(), headers={"User-Agent": "another"})
            assert other.status_code == 200
        wait_until(lambda: made.running == 0)
        wait_until(lambda: made.http.post(CHAT, json=chat()).status_code == 200)
    finally:
        made.close()


def test_abandoned_connections_leave_nothing(served: Served) -> None:
    opened = [served.socket() for _ in range(100)]
    for number, one in enumerate(opened):
        if number % 2:
            one.sendall(post_bytes(CHAT, json.dumps(chat(**LONG, stream=True)).encode()))
    for one in opened:
        one.close()
    wait_until(lambda: served.running == 0 and served.server.activity.running == 0)
    assert served.post(CHAT, chat())["choices"][0]["finish_reason"] == "length"


def test_a_client_that_reads_nothing_is_cut_off(guarded: Served) -> None:
    wait_until(lambda: guarded.server.activity.connections <= 1)  # `running` opens none
    before = guarded.server.activity.connections
    with guarded.socket(receive_bytes=4096) as connection:
        body = chat(**LONG, logprobs=True, top_logprobs=20, stream=True)
        connection.sendall(post_bytes(CHAT, json.dumps(body).encode(), f"x-api-key: {KEY}"))
        wait_until(lambda: guarded.server.activity.connections == before + 1)
        wait_until(lambda: guarded.server.activity.connections == before)
        wait_until(lambda: guarded.running == 0)
    assert guarded.server.activity.log[0].outcome == "the client went away"


def test_an_internal_error_shows_no_traceback(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(wanted: object) -> None:
        raise RuntimeError("a secret path")

    monkeypatch.setattr(served.server.service, "generate", fail)
    with caplog.at_level(logging.ERROR):
        response = served.http.post(CHAT, json=chat())
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "Traceback" not in response.text
    assert "a secret path" in caplog.text


def test_fuzzed_bodies_are_answered_or_refused(served: Served) -> None:
    fuzz(served, random.Random(7), 150)


@pytest.mark.slow
def test_ten_thousand_fuzzed_bodies(served: Served) -> None:
    fuzz(served, random.Random(8), 10_000)


def fuzz(served: Served, random: random.Random, count: int) -> None:
    app = application(served.server.service)
    paths = [one.path for one in app.routes if isinstance(one, Route) and "POST" in one.methods]
    assert len(paths) > 5
    for _ in range(count):
        limits = {"max_output_tokens": 2, "options": {"num_predict": 2}}  # of other APIs
        body = (
            chat(max_tokens=2)
            | limits
            | {name: junk(random, 0) for name in random.sample(NAMES, random.randrange(4))}
        )
        response = served.http.post(random.choice(paths), json=body)
        assert response.status_code < 500, (body, response.text)
        assert "Traceback" not in response.text
    wait_until(lambda: served.running == 0)


NAMES = [
    "messages", "model", "max_tokens", "temperature", "top_p", "stop", "n", "seed", "logit_bias",
    "tools", "tool_choice", "response_format", "stream_options", "logprobs", "top_logprobs",
    "grammar", "json_schema", "input", "query", "documents", "prompt", "chat_template_kwargs",
    "reasoning", "thinking", "lora", "content", "tokens", "echo", "dry_sequence_breakers", "stream",
]  # fmt: skip


def junk(random: random.Random, depth: int) -> Any:
    kinds = ["null", "flag", "int", "big", "float", "text", "list", "object"][
        : 6 if depth > 2 else 8
    ]
    match random.choice(kinds):
        case "flag":
            return random.random() < 0.5
        case "int":
            return random.randrange(-3, 5)
        case "big":
            return random.choice([10**30, -(10**30), 2**31, 2**63, 10**400])
        case "float":
            return random.choice([0.5, -0.5, 1e308, 1e-308])
        case "text":
            return random.choice(
                ["", "\0", "a", "\U0001f600", "(" * 50, "<|im_end|>", "auto", "user"]
            )
        case "list":
            return [junk(random, depth + 1) for _ in range(random.randrange(3))]
        case "object":
            keys = ["role", "content", "type", "function", "name", "schema", "id", "1", "text"]
            return {
                key: junk(random, depth + 1) for key in random.sample(keys, random.randrange(4))
            }
    return None


def test_stopping_ends_running_streams(tiny_model: Path) -> None:
    made = Served(tiny_model)
    try:
        with made.http.stream("POST", CHAT, json=chat(**LONG, stream=True)) as response:
            lines = response.iter_lines()
            next(lines)
            address = made.server.address
            made.server.stop()
        assert made.server.address == ""
        wait_until(lambda: made.running == 0, 5.0)  # the engine acts on it in its next pass
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/health")
    finally:
        made.close()


def test_several_addresses(tiny_model: Path) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this computer has no IPv6")
    made = Served(tiny_model, ServerOptions(host="127.0.0.1, ::1", security=Security(KEY)))
    try:
        assert made.server.is_local
        port = httpx.URL(made.server.address).port
        for host in ("127.0.0.1", "[::1]"):
            url = f"http://{host}:{port}/v1/models"
            assert httpx.get(url).status_code == 401
            assert httpx.get(url, headers=bearer()).status_code == 200
    finally:
        made.close()


def test_of_several_addresses_none_listens_if_one_cannot(tiny_model: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = Engine()
    with pytest.raises(RequestError, match="no address of this computer"):
        Server(engine, ServerOptions(host="127.0.0.1,no.such.host.invalid", port=port)).start()
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))
