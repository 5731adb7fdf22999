"""Requests that two programs could read differently, or that waste work, are refused once and closed."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.server.limits import Limits
from engine.server.serve import ServerOptions
from serving import Served, chat, wait_until

CHAT = "/v1/chat/completions"
CHUNKED = "Transfer-Encoding: chunked"
BODY = json.dumps(chat(max_tokens=1)).encode()
LENGTH = f"Content-Length: {len(BODY)}"


@pytest.fixture(scope="module")
def small(tiny_model: Path) -> Iterator[Served]:
    """A server that has little memory for bodies."""
    limits = Limits(body_bytes=200_000, bodies_bytes=300_000, discard_seconds=0.5)
    made = Served(tiny_model, ServerOptions(limits=limits))
    yield made
    made.close()


def request(*fields: str, body: bytes = b"", line: str = f"POST {CHAT} HTTP/1.1") -> bytes:
    return "\r\n".join([line, "Host: localhost", *fields, "", ""]).encode("latin-1") + body


INNER = request(line="GET /v1/models HTTP/1.1")
HEALTH = "GET /health HTTP/1.1"
REFUSED = {
    "both lengths": (request("Content-Length: 5", CHUNKED, body=b"0\r\n\r\n" + INNER), 400, "both"),
    "both, reversed": (request(CHUNKED, LENGTH, body=BODY + INNER), 400, "both"),
    "two lengths": (request(LENGTH, "Content-Length: 5", body=BODY), 400, "several"),
    "equal lengths": (request(LENGTH, LENGTH, body=BODY), 400, "several"),
    "list of lengths": (request(f"{LENGTH}, {len(BODY)}", body=BODY), 400, "Content-Length"),
    "length with plus": (request("Content-Length: +5", body=BODY), 400, "Content-Length"),
    "negative length": (request("Content-Length: -1", body=BODY), 400, "Content-Length"),
    "length in hex": (request("Content-Length: 0x5", body=BODY), 400, "Content-Length"),
    "empty length": (request("Content-Length:", body=BODY), 400, "Content-Length"),
    "length of 30 digits": (request(f"Content-Length: {'9' * 30}"), 400, "Content-Length"),
    "two encodings": (request(CHUNKED, CHUNKED, body=b"0\r\n\r\n"), 501, "Transfer-Encoding"),
    "other encoding": (request("Transfer-Encoding: xchunked"), 501, "chunked"),
    "encoding in 1.0": (request(CHUNKED, line=f"POST {CHAT} HTTP/1.0"), 400, "HTTP/1.0"),
    "space before colon": (request("Transfer-Encoding : chunked"), 400, "illegal header line"),
    "bare LF": (request(line=HEALTH).replace(b"\r\n", b"\n"), 400, "CR LF"),
    "bare LF in a field": (request("A: b\nTransfer-Encoding: chunked", LENGTH), 400, "CR LF"),
    "bare CR in a field": (request(f"A: b\r{CHUNKED}", LENGTH), 400, "CR LF"),
    "folded line": (request("A: b", " folded", line=HEALTH), 400, "white space"),
    "folded encoding": (request("Transfer-Encoding:", "\tchunked", LENGTH), 400, "white space"),
    "NUL in a value": (request("A: b\0c", line=HEALTH), 400, "illegal header line"),
    "NUL in a name": (request("A\0: b", line=HEALTH), 400, "illegal header line"),
    "two hosts": (request("Host: evil.example", line=HEALTH), 400, "Host"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "HTTP/1.1"),
    "chunk without size": (request(CHUNKED, body=b"zz\r\n" + BODY), 400, "chunk"),
    "chunk of huge size": (request(CHUNKED, body=b"f" * 30 + b"\r\n" + BODY), 400, "chunk"),
    "chunk of wrong size": (request(CHUNKED, body=b"2\r\n" + BODY), 400, "chunk"),
    "LF in an extension": (request(CHUNKED, body=b"1;a\nb\r\n{\r\n0\r\n\r\n"), 400, "chunk"),
    "long extension": (request(CHUNKED, body=b"1;" + b"a" * 300_000), 431, "too long"),
    "many extensions": (
        request(CHUNKED, body=(b"1;" + b"a" * 1_000 + b"\r\n \r\n") * 1_000), 400, "extensions"
    ),
    "many chunks": (request(CHUNKED, body=b"1\r\n \r\n" * 150_000), 400, "small chunks"),
    "101 fields": (request(*(f"x{at}: {at}" for at in range(100)), line=HEALTH), 431, "fields"),
    "10,000 fields": (request(*(f"x{at}: 1" for at in range(10_000)), line=HEALTH), 431, "than"),
    "long field": (request(f"A: {'a' * 70_000}", line=HEALTH), 431, "65,536 bytes"),
    "long path": (request(line=f"GET /{'a' * 300_000} HTTP/1.1"), 431, "65,536 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_two_readings_is_refused_once(served: Served, name: str) -> None:
    sent, status, word = REFUSED[name]
    head, _, body = served.raw(sent).partition(b"\r\n\r\n")
    assert re.findall(rb"^HTTP/1\.1 (\d+)", head) == [b"%d" % status]
    error = json.loads(body)["error"]  # nothing follows: it was answered once
    assert word in error["message"]
    assert error["message"].endswith(".")
    assert b"connection: close" in head.lower()
    assert served.get("/health")


def test_a_second_request_behind_a_refused_one_is_not_answered(served: Served) -> None:
    fine = request("Content-Length: 0", line=HEALTH)
    found = served.raw(fine + REFUSED["both lengths"][0])
    assert re.findall(rb"HTTP/1\.1 (\d+)", found) == [b"200", b"400"]


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ([f"x{at}: {at}" for at in range(97)], BODY),
        ([CHUNKED], b"".join(b"1;x=1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\nA: b\r\n\r\n"),
        (["Expect: 100-continue"], BODY),
    ],
    ids=["many fields", "small chunks with extensions and trailers", "expect"],
)
def test_what_is_odd_and_clear_is_answered(served: Served, fields: list[str], body: bytes) -> None:
    framing = [] if CHUNKED in fields else [LENGTH]
    found = served.raw(request("Connection: close", *fields, *framing, body=body))
    assert b"HTTP/1.1 200" in found


def rest(connection: socket.socket) -> bytes:
    """What comes until the other side ends."""
    with connection.makefile("rb") as file:
        return file.read()


def test_a_broken_body_ends_an_answer_that_runs(served: Served) -> None:
    """It was refused before its body came, and says nothing more."""
    sent = request(CHUNKED, line="POST /nothing HTTP/1.1")
    with served.socket() as connection:
        connection.sendall(sent)
        first = connection.recv(1)
        connection.sendall(b"zz\r\n")
        assert re.findall(rb"HTTP/1\.1 (\d+)", first + rest(connection)) == [b"404"]


def test_the_rest_of_a_refused_body_is_not_read_for_ever(small: Served) -> None:
    with small.socket() as connection:
        connection.sendall(request("Content-Length: 190000", line="POST /nothing HTTP/1.1"))
        refusal = rest(connection)
        assert b" 404 " in refusal
        assert b"connection: close" in refusal  # so that its pool does not use it again
        before = small.server.activity.connections
        assert before
        wait_until(lambda: small.server.activity.connections == before - 1)


def test_no_more_is_thrown_away_than_a_body_may_have(small: Served) -> None:
    with small.socket() as connection:
        connection.sendall(request(CHUNKED, line="POST /nothing HTTP/1.1"))
        assert b"404" in rest(connection)
        with pytest.raises(OSError, match=r"reset|pipe|abort"):
            connection.sendall(b"1\r\n \r\n" * 10_000_000)


def test_all_bodies_together_are_bounded(small: Served) -> None:
    large = json.dumps(chat("x" * 180_000)).encode()
    opened = [small.socket() for _ in range(2)]
    try:
        for one in opened:  # each all but its last byte
            one.sendall(request(f"Content-Length: {len(large)}", body=large[:-1]))

        def refused() -> bool:
            return small.http.post(CHAT, content=large).status_code == 503

        wait_until(refused)
        response = small.http.post(CHAT, content=large)
        assert int(response.headers["retry-after"]) >= 1
        assert "too large together" in response.json()["error"]["message"]
        assert small.post(CHAT, chat())  # a usual one has its place
    finally:
        for one in opened:
            one.close()
    wait_until(lambda: not refused())
