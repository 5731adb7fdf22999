"""The description of the newest release: what is asked, and answers of hostile servers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from app.domain.release import InstallKind, version_of
from app.net.http import WebError
from app.net.ledger import Purpose
from app.net.offline import gate
from app.updates import feed
from app.updates.feed import MAX_BYTES, fetch, parse
from offline import clean_gate
from signed_release import KEY, SIGNATURE, SIGNED, TEXT
from update_server import UpdateServer, update_server


@pytest.fixture
def server() -> Iterator[UpdateServer]:
    with clean_gate(), update_server() as made:
        yield made


def refused(server: UpdateServer, match: str, seconds: float = 20.0) -> WebError:
    """Expect one clear sentence, and advice."""
    with pytest.raises(WebError, match=match) as raised:
        fetch(server.url, seconds=seconds)
    sentence = str(raised.value)
    assert sentence.endswith(".")
    assert len(sentence) < 200
    assert "\n" not in sentence
    return raised.value


def test_a_release_is_read_and_only_the_request_is_sent(server: UpdateServer) -> None:
    server.release(deb=b"package", setup_exe=b"setup")
    found = fetch(server.url)
    assert found.version == version_of("0.2.0")
    assert "**new**" in found.notes
    package = found.package(InstallKind.DEB, "x86_64")
    assert package is not None
    assert (package.file, package.size_bytes) == ("tokonoma-0.2.0-x86_64.deb", 7)
    assert found.package(InstallKind.RPM, "x86_64") is None
    ((path, headers),) = server.requests
    assert path == "/newest.json"
    assert headers.pop("Host").startswith("127.0.0.1:")
    assert headers == {
        "User-Agent": "Tokonoma",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    ((contact),) = gate.ledger.all()
    assert (contact.host, contact.purpose, contact.sent_bytes) == ("127.0.0.1", Purpose.UPDATE, 0)


def test_nothing_is_asked_while_offline(server: UpdateServer) -> None:
    server.release()
    gate.set_offline(True)
    refused(server, "offline")
    assert server.requests == []


def page(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Content-Type", "text/html; charset=utf-8")
    request.end_headers()
    request.wfile.write(b"<html>Sign in to the hotel's network</html>")


def elsewhere(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("Location", "http://localhost:9/newest.json")
    request.end_headers()


def in_a_loop(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("Location", "/newest.json")
    request.end_headers()


def huge(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    for _ in range(MAX_BYTES // 1000 + 100):
        request.wfile.write(b"x" * 1000)


def status(code: int) -> Any:
    return lambda request: request.send_error(code)


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (page, "sent a web page instead"),
        (elsewhere, "redirects to another server, localhost"),
        (in_a_loop, "redirects in a loop"),
        (huge, "more than 262,144 bytes"),
        (status(404), r"no description of the newest version \(404\)"),
        (status(403), r"no description of the newest version \(403\)"),
        (status(503), "503|busy|not available|cannot answer"),
    ],
)
def test_a_hostile_answer_gives_one_sentence(server: UpdateServer, answer: Any, match: str) -> None:
    server.answers["/newest.json"] = answer
    refused(server, match)


def test_an_answer_that_drips_ends_in_time(server: UpdateServer) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not server.released.wait(0.02):
            request.wfile.write(b" ")
            request.wfile.flush()

    server.answers["/newest.json"] = drip
    began = time.monotonic()
    refused(server, "took too long", seconds=0.5)
    assert time.monotonic() - began < 10


def test_an_answer_that_never_comes_ends_in_time(server: UpdateServer) -> None:
    server.answers["/newest.json"] = lambda _: server.released.wait()
    refused(server, "took too long|does not answer", seconds=0.5)


NONE = "did not send a description"
GOOD: dict[str, Any] = {"format": feed.FORMAT, "version": "0.2.0"}
PACKAGE: dict[str, Any] = {
    "kind": "deb", "machine": "x86_64", "url": "https://a.example/tokonoma.deb", "size_bytes": 5,
    "sha256": "a" * 64,
}  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"version": "0.2.0"}',
        json.dumps({**GOOD, "version": 2}).encode(),
        json.dumps({**GOOD, "version": ["0.2.0"]}).encode(),
        json.dumps({**GOOD, "version": "newest"}).encode(),
        json.dumps({**GOOD, "version": "1" * 5000}).encode(),
        json.dumps({**GOOD, "format": "tokonoma chats"}).encode(),
        b'{"format": "tokonoma release", "version": "0.2.0"} more',
    ],
)  # fmt: skip
def test_an_answer_that_is_no_description_gives_one_sentence(body: bytes) -> None:
    with pytest.raises(WebError, match=NONE):
        parse(body, "a.example")


@pytest.mark.parametrize(
    "change",
    [
        {"url": "http://a.example/tokonoma.deb"},
        {"url": "https://user:pass@a.example/tokonoma.deb"},
        {"url": "https://a.example/../../.bashrc"},
        {"url": "https://a.example/thesis.deb"},  # it would replace that of the user
        {"url": "https://a.example/tokonoma.deb?token=1"},
        {"url": "https://a.example/tokonoma.exe"},
        {"url": "file:///etc/passwd.deb"},
        {"url": "https://a.example/%2e%2e%2ftokonoma.deb"},
        {"url": ["https://a.example/tokonoma.deb"]},
        {"size_bytes": -1},
        {"size_bytes": 1 << 60},
        {"size_bytes": True},
        {"size_bytes": "5"},
        {"sha256": "a" * 63},
        {"sha256": None},
        {"kind": "sh"},
        {"kind": "source"},
        {"minimum": "; rm -rf /"},
        {"minimum": 7},
        {"machine": 5},
    ],
)
def test_a_package_with_a_wrong_value_is_none(change: dict[str, Any]) -> None:
    packages = [{**PACKAGE, **change}, "x", None, PACKAGE]
    found = parse(json.dumps({**GOOD, "packages": packages}).encode(), "a.example")
    assert [each.sha256 for each in found.packages] == ["a" * 64]
    assert found.packages[0].size_bytes == 5


@pytest.mark.parametrize(
    "change",
    [{"notes": 5}, {"notes": None}, {"page": "javascript:alert(1)"}, {"page": 7},
     {"packages": "deb"}, {"packages": {"deb": 1}}, {"more": "keys"}],
)  # fmt: skip
def test_other_wrong_values_count_as_missing(change: dict[str, Any]) -> None:
    found = parse(json.dumps({**GOOD, **change}).encode(), "a.example")
    assert (found.notes, found.page, found.packages) == ("", "", ())
    assert found.version == version_of("0.2.0")


UNSIGNED = r"^The description of the newest version from a\.example has no valid signature\.$"


def test_a_signed_description_is_read() -> None:
    found = parse(json.dumps(SIGNED).encode(), "a.example", KEY)
    assert (found.version, found.notes) == (version_of("0.2.0"), "Neu für alle.")


def test_a_build_without_a_key_reads_a_signed_description() -> None:
    assert parse(json.dumps(SIGNED).encode(), "a.example").version == version_of("0.2.0")


@pytest.mark.parametrize(
    "change",
    [
        {"signed": TEXT.replace("0.2.0", "0.2.1")},
        {"signed": TEXT + " "},
        {"signed": None},
        {"signed": {"format": feed.FORMAT, "version": "0.2.0"}},
        {"signature": SIGNATURE[:-1] + "0"},
        {"signature": SIGNATURE[:-2]},
        {"signature": "no digits"},
        {"signature": 7},
        {"signature": None},
    ],
)
def test_a_changed_or_unsigned_description_gives_one_sentence(change: dict[str, Any]) -> None:
    body = json.dumps({**SIGNED, **GOOD, **change}).encode()
    with pytest.raises(WebError, match=UNSIGNED):
        parse(body, "a.example", KEY)


@pytest.mark.parametrize("key", ["00" * 32, KEY[:-2], "no digits", KEY[::-1]])
def test_another_key_gives_the_same_sentence(key: str) -> None:
    with pytest.raises(WebError, match=UNSIGNED):
        parse(json.dumps(SIGNED).encode(), "a.example", key)


def test_values_beside_the_signed_text_do_not_count() -> None:
    body = json.dumps({**SIGNED, "version": "9.0.0", "notes": "x", "packages": [PACKAGE]})
    found = parse(body.encode(), "a.example", KEY)
    assert (found.version, found.packages) == (version_of("0.2.0"), ())


def test_the_answer_is_verified_with_the_key(server: UpdateServer) -> None:
    server.describe(SIGNED)
    assert fetch(server.url, key=KEY).version == version_of("0.2.0")
    server.release("0.3.0")
    with pytest.raises(WebError, match="has no valid signature"):
        fetch(server.url, key=KEY)
