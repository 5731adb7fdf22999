"""HTTP client: address checks, redirects, proxies, TLS, cancellation and error messages."""

from __future__ import annotations

import base64
import gzip
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.downloads.transfer import DownloadError, FileDownload, Limits, Stopped
from app.net.http import (
    CONNECT_SECONDS,
    Cancellation,
    Proxy,
    WebError,
    check_address,
    is_loopback,
    network_error,
    parse_proxy,
    proxy_for,
    send_request,
    sha256_of_etag,
)
from hostile_hub import Fault, Hub, model_bytes, running
from hostile_tls import proxy, server_context

MODEL = "maker/model/model-Q4_0.gguf"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as made:
        made.put(MODEL, model_bytes(50_000))
        yield made


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub behind TLS whose certificate this test trusts."""
    with running(server_context(tmp_path)) as made:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        made.put(MODEL, model_bytes(50_000))
        yield made


def body(url: str, **settings: str) -> bytes:
    response = send_request(url, **settings)  # type: ignore[arg-type]
    try:
        assert response.status == 200, response.status
        return response.read_all(1 << 20)
    finally:
        response.close()


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a",
        "https://example.org:8443/a?b=c",
        "http://127.0.0.1:8000/a",
        "http://localhost/a",
        "http://[::1]:80/a",
        "https://bücher.example/a",
    ],
)
def test_safe_addresses_are_accepted(url: str) -> None:
    assert check_address(url).geturl() == url


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/a",
        "http://localhost.example.org/a",
        "http://127.0.0.1.example.org/a",
        "ftp://example.org/a",
        "file:///etc/passwd",
        "//example.org/a",
        "example.org",
        "",
        "https://",
        "https:///a",
        "https://user@example.org/a",
        "https://:secret@example.org/a",
        "https://example.org/a b",
        "https://example.org/a\r\nX-Evil: 1",
        "https://exam\tple.org/",
        "https://a..b/",
        "https://" + "a" * 64 + ".org",
        "https://example.org:port/",
        "https://example.org:99999/",
        "https://[::1/",
    ],
)
def test_unsafe_addresses_raise_web_error(url: str) -> None:
    with pytest.raises(WebError) as caught:
        check_address(url)
    assert str(caught.value).endswith(".")
    assert "secret" not in str(caught.value)


@given(st.text())
def test_check_address_raises_only_web_error_for_any_text(text: str) -> None:
    for url in (text, f"https://{text}", f"http://{text}/"):
        try:
            parts = check_address(url)
        except WebError:
            continue
        assert parts.scheme == "https" or is_loopback(parts.hostname or "")


def test_redirects_are_followed(hub: Hub) -> None:
    assert body(hub.url(MODEL)) == model_bytes(50_000)
    assert len(hub.requests) == 2


def test_at_most_ten_redirects_are_followed(hub: Hub) -> None:
    with pytest.raises(WebError, match=r"^127.0.0.1 redirects in a loop\.$"):
        send_request(f"{hub.endpoint}/loop")
    assert len(hub.requests) == 11


@pytest.mark.parametrize(
    "location",
    [
        "http://example.org/a",
        "ftp://127.0.0.1/a",
        "file:///etc/passwd",
        "https://user:pw@example.org/a",
        "javascript:alert(1)",
        "http://[::1/",
    ],
)
def test_a_redirect_to_an_unsafe_address_is_not_followed(hub: Hub, location: str) -> None:
    hub.redirect = location
    with pytest.raises(WebError):
        send_request(hub.url(MODEL))
    assert len(hub.requests) == 1


def test_redirect_with_invalid_bytes_is_one_address(hub: Hub) -> None:
    hub.put("maker/model/ü.gguf", b"GGUF x")
    hub.redirect = "/cdn/maker/model/ü.gguf".encode().decode("latin-1")  # raw UTF-8 on the wire
    assert body(hub.url(MODEL)) == b"GGUF x"


def test_redirect_from_https_to_http_is_refused(secure: Hub) -> None:
    secure.redirect = f"http://127.0.0.1:{secure.port}/cdn/{MODEL}"
    with pytest.raises(WebError, match="redirects to an address that is not secure"):
        send_request(secure.url(MODEL))


def test_https_with_a_trusted_certificate_works(secure: Hub) -> None:
    assert body(secure.url(MODEL)) == model_bytes(50_000)


def test_untrusted_certificate_is_refused(secure: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(
        WebError, match=r"^The certificate of 127.0.0.1 could not be verified: "
    ) as caught:
        send_request(secure.url(MODEL))
    assert not caught.value.retry
    assert secure.requests == []


def test_certificate_of_another_host_is_refused(secure: Hub) -> None:
    with pytest.raises(WebError, match=r"^The certificate of localhost could not be verified: "):
        send_request(secure.url(MODEL).replace("127.0.0.1", "localhost"))


@pytest.mark.parametrize(
    ("setting", "meant"),
    [
        ("http://proxy.example:3128", Proxy("proxy.example", 3128)),
        ("proxy.example:3128", Proxy("proxy.example", 3128)),
        ("https://proxy.example:3128", Proxy("proxy.example", 3128)),
        ("http://proxy.example", Proxy("proxy.example", 8080)),
        (
            "http://me:p%40ss@proxy.example:1",
            Proxy("proxy.example", 1, "Basic " + base64.b64encode(b"me:p@ss").decode()),
        ),
    ],
)
def test_proxy_setting_is_parsed(setting: str, meant: Proxy) -> None:
    assert parse_proxy(setting) == meant
    assert proxy_for("example.org", setting) == meant


@pytest.mark.parametrize(
    "setting",
    ["socks5://proxy.example:1", "http://", "http://x:port", "https://me:pw@proxy.example:1"],
)
def test_invalid_proxy_setting_is_refused(setting: str) -> None:
    with pytest.raises(WebError) as caught:
        parse_proxy(setting)
    assert caught.value.remedy
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.9.9.9"])
def test_loopback_hosts_bypass_the_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:1")
    assert proxy_for(host, "http://proxy.example:2") is None


def test_system_proxy_is_used_unless_the_host_is_excluded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert proxy_for("example.org", "") is None
    monkeypatch.setenv("https_proxy", "http://proxy.example:1")
    monkeypatch.setenv("no_proxy", "intern.example")
    assert proxy_for("example.org", "") == Proxy("proxy.example", 1)
    assert proxy_for("a.intern.example", "") is None
    assert proxy_for("example.org", "http://other.example:2") == Proxy("other.example", 2)


def test_a_download_goes_through_the_proxy(secure: Hub, tmp_path: Path) -> None:
    place = tmp_path / "model.gguf"
    with proxy(secure.port, "me", "secret") as between:
        job = FileDownload(
            f"https://hub.invalid/{MODEL.replace('model/', 'model/resolve/main/')}",
            place,
            proxy=f"http://me:secret@127.0.0.1:{between.port}",
            limits=Limits(margin_bytes=0),
        )
        job.run()
    assert place.read_bytes() == model_bytes(50_000)
    assert [head.split(" HTTP/")[0] for head in between.heads] == ["CONNECT hub.invalid:443"] * 2
    seen = [name for one in secure.requests for name in one.headers]
    assert not [name for name in seen if "authorization" in name.lower()], "the hub sees no secret"


def test_request_uses_the_system_proxy(secure: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(secure.port) as between:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{between.port}")
        assert body(f"https://hub.invalid/cdn/{MODEL}") == model_bytes(50_000)
    assert len(between.heads) == 1


def test_proxy_that_requires_a_password_raises_web_error(secure: Hub, tmp_path: Path) -> None:
    with proxy(secure.port, "me", "secret") as between:
        job = FileDownload(
            "https://hub.invalid/m.gguf",
            tmp_path / "m.gguf",
            proxy=f"http://me:wrong@127.0.0.1:{between.port}",
        )
        with pytest.raises(
            DownloadError, match=r"^The proxy refused the connection: 407 "
        ) as caught:
            job.run()
    assert caught.value.remedy == "Check the proxy in the settings."
    assert len(between.heads) == 1, "asking again does not help"


@pytest.mark.parametrize("hangs_in", ["TLS", "the proxy", "the response"])
def test_stop_aborts_a_download_whose_peer_hangs(hangs_in: str, tmp_path: Path) -> None:
    if sys.platform == "win32" and hangs_in == "TLS":  # nothing ends a handshake there
        assert seconds_to_stop(hangs_in, tmp_path) < CONNECT_SECONDS + 2
        return
    # The best of three: another process may delay this one.
    assert min(seconds_to_stop(hangs_in, tmp_path) for _ in range(3)) < 0.1


def seconds_to_stop(hangs_in: str, folder: Path) -> float:
    """Seconds until a stopped download ends, whose peer accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = f"127.0.0.1:{listening.getsockname()[1]}"
        url = {
            "TLS": f"https://{here}/m.gguf",
            "the proxy": "https://hub.invalid/m.gguf",
            "the response": f"http://{here}/m.gguf",
        }[hangs_in]
        job = FileDownload(url, folder / "m.gguf", proxy=f"http://{here}")
        ended: list[BaseException] = []
        running_job = threading.Thread(target=lambda: ended.append(stopped(job)))
        running_job.start()
        peer, _ = listening.accept()
        with peer:
            assert peer.recv(1)  # the request was sent
            began = time.perf_counter()
            job.stop()
            running_job.join()
            return time.perf_counter() - began


def stopped(job: FileDownload) -> BaseException:
    with pytest.raises(Stopped) as caught:
        job.run()
    return caught.value


def test_authorization_is_not_sent_to_another_host(hub: Hub) -> None:
    hub.redirect = f"http://localhost:{hub.port}/cdn/{{path}}"
    response = send_request(
        hub.url(MODEL), headers={"Authorization": "Bearer secret", "X-Kept": "1"}
    )
    response.close()
    assert response.status == 200
    first, second = hub.requests
    assert first.headers["Authorization"] == "Bearer secret"
    assert "Authorization" not in second.headers
    assert (second.headers["Host"], second.headers["X-Kept"]) == (f"localhost:{hub.port}", "1")


def test_cookies_are_not_sent_back(hub: Hub) -> None:
    hub.hub_faults.append(
        Fault(status=302, headers={"Location": f"/cdn/{MODEL}", "Set-Cookie": "id=1; Path=/"})
    )
    assert body(hub.url(MODEL)) == model_bytes(50_000)
    assert [one.headers.get("Cookie") for one in hub.requests] == [None, None]


def test_no_address_is_logged(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    body(hub.url(MODEL))
    assert caplog.records == []


def test_response_headers_have_a_size_limit(hub: Hub) -> None:
    hub.hub_faults.append(Fault(status=200, headers={"X-Long": "a" * 1_000_000}))
    with pytest.raises(WebError, match="sent an invalid response"):
        send_request(hub.url(MODEL))


def test_the_body_of_a_redirect_is_not_read(hub: Hub) -> None:
    hub.hub_faults.append(
        Fault(status=302, headers={"Location": f"/cdn/{MODEL}", "Content-Length": "1000000000"})
    )
    assert body(hub.url(MODEL)) == model_bytes(50_000)


def test_compressed_body_is_not_decompressed(hub: Hub) -> None:
    packed = gzip.compress(bytes(1 << 20))
    hub.hub_faults.append(Fault(status=200, headers={"Content-Encoding": "gzip"}, body=packed))
    assert body(hub.url(MODEL)) == packed


def test_response_has_content_length(hub: Hub) -> None:
    response = send_request(f"{hub.endpoint}/cdn/{MODEL}")
    assert (response.length, response.host) == (50_000, "127.0.0.1")
    response.close()


@pytest.mark.parametrize("text", ["-5", "5x", "", "٣", "1e9"])
def test_invalid_content_length_is_none(hub: Hub, text: str) -> None:
    hub.hub_faults.append(Fault(status=404, headers={"Content-Length": text}))
    try:
        response = send_request(hub.url(MODEL))
    except WebError:
        return
    assert response.length in (None, 0)
    response.close()


def test_absurd_linked_size_is_ignored(hub: Hub) -> None:
    digits = "9" * 5000  # more than Python turns into a number
    hub.hub_faults.append(
        Fault(status=302, headers={"Location": f"/cdn/{MODEL}", "X-Linked-Size": digits})
    )
    response = send_request(hub.url(MODEL))
    response.close()
    assert response.linked.size_bytes == 0


def test_body_above_the_limit_raises_web_error(hub: Hub) -> None:
    response = send_request(f"{hub.endpoint}/cdn/{MODEL}")
    with pytest.raises(WebError, match="a response of more than 1,000 bytes"):
        response.read_all(1_000)
    response.close()


@pytest.mark.parametrize(
    ("etag", "sha256"),
    [
        (f'"{"a" * 64}"', "a" * 64),
        (f'W/"{"A" * 64}"', "a" * 64),
        ('"d41d8cd98f00b204e9800998ecf8427e-5"', ""),
        ("", ""),
        ("a" * 63, ""),
    ],
)
def test_only_a_sha256_etag_is_a_hash(etag: str, sha256: str) -> None:
    assert sha256_of_etag(etag) == sha256


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (socket.gaierror(-2, "Name or service not known"), "The server h.example was not found."),
        (TimeoutError(), "h.example does not answer."),
        (ConnectionResetError(), "h.example closed the connection."),
        (OSError(101, "Network is unreachable"), "The connection to h.example failed: Network is"),
        (ssl.SSLError(1, "bad record"), "The connection to h.example failed: bad record."),
        (ValueError("x"), "h.example sent an invalid response."),
    ],
)
def test_network_errors_become_web_errors(error: Exception, says: str) -> None:
    told = network_error(error, "h.example")
    assert str(told).startswith(says)
    assert told.retry
    assert told.remedy


class DeafSocket(Cancellation):
    """A cancellation whose socket waits on when it is shut down, as on Windows."""

    def __init__(self) -> None:
        super().__init__(polls=True)

    def cut(self) -> None:
        self._is_cut = True


def test_a_waiting_read_ends_where_a_shut_socket_waits_on(hub: Hub) -> None:
    hub.faults.append(Fault(stall_after=25_000))
    stop = DeafSocket()
    response = send_request(hub.url(MODEL), stall_seconds=60, cancellation=stop)
    ending = threading.Timer(0.3, stop.set)
    ending.start()
    with pytest.raises(WebError):
        response.read_all(100_000)
    ending.join()
    response.close()
    hub.released.set()


def test_a_read_that_is_looked_at_times_out_as_any_other(hub: Hub) -> None:
    hub.faults.append(Fault(stall_after=0))
    started = time.monotonic()
    response = send_request(hub.url(MODEL), stall_seconds=0.5, cancellation=DeafSocket())
    with pytest.raises(WebError) as caught:
        response.read_all(100_000)
    assert caught.value.retry
    assert time.monotonic() - started >= 0.4
    response.close()
    hub.released.set()
