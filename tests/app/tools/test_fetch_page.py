"""Pages by their address: public hosts only, the allowed host, limits, the offline switch."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Iterator

import pytest

from app.domain.tools import CallContext, Effect, ToolError
from app.net.hosts import is_private, is_public
from app.net.ledger import Purpose
from app.net.offline import Gate
from app.tools.builtin import connection, web
from app.tools.builtin.fetch_page import FetchPage
from offline import clean_gate
from tool_services import RecordedServices
from web_stage import PUBLIC, Web, response
from web_stage import web as web_of

CONTEXT = CallContext(1)
PAGE = "<html><head><title>News</title></head><body><h1>Today</h1><p>Rain. <a href='/more'>More</a></p>"


@pytest.fixture(autouse=True)
def switch() -> Iterator[Gate]:
    with clean_gate() as gate:
        yield gate


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def tool(services: RecordedServices | None = None, proxy: str = "") -> FetchPage:
    return FetchPage(services or RecordedServices(), lambda: proxy)


def fetched(
    monkeypatch: pytest.MonkeyPatch, pages: dict[str, bytes], address: str, **more: int
) -> tuple[str, Web]:
    """What a call gives, and the web it was made in."""

    async def fetch() -> tuple[str, Web]:
        async with web_of(monkeypatch) as made:
            made.pages = pages
            return await tool().call({"address": address, **more}, CONTEXT), made

    return asyncio.run(fetch())


def refused(monkeypatch: pytest.MonkeyPatch, pages: dict[str, bytes], address: str) -> str:
    with pytest.raises(ToolError) as raised:
        fetched(monkeypatch, pages, address)
    return str(raised.value)


def test_a_page_is_read_as_markdown_with_whole_links(
    monkeypatch: pytest.MonkeyPatch, switch: Gate
) -> None:
    text, made = fetched(monkeypatch, {"a.org/news": response(PAGE)}, "http://a.org/news#top")
    assert text == "News\nhttp://a.org/news\n\n# Today\n\nRain. [More](http://a.org/more)"
    assert made.connected == [(PUBLIC, 80)]
    assert made.looked_up == ["a.org"]
    (contact,) = switch.ledger.all()
    assert (contact.host, contact.port, contact.purpose) == ("a.org", 80, Purpose.TOOLS)
    assert contact.received_bytes == len(PAGE)


def test_the_request_says_nothing_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {
        "a.org/1": response("", "Location: /2", "Set-Cookie: id=7; Path=/", status="302 Found"),
        "a.org/2": response(PAGE),
    }
    _, made = fetched(monkeypatch, pages, "http://a.org/1")
    names = {
        line.partition(":")[0].casefold()
        for head in made.heads
        for line in head.split("\r\n")[1:]
        if line
    }
    assert names == {"host", "user-agent", "accept", "accept-encoding", "connection"}
    assert made.paths == ["/1", "/2"]


LOCAL = [
    "http://127.0.0.1/", "http://localhost/", "http://localhost:8080/", "http://[::1]/",
    "http://0.0.0.0/", "http://10.1.2.3/", "http://172.16.0.1/", "http://192.168.1.1/admin",
    "http://169.254.169.254/latest/meta-data", "http://100.64.0.1/", "http://2130706433/",
    "http://0x7f.1/", "http://0177.0.0.1/", "http://127.1/", "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:a00:1]/", "http://[::127.0.0.1]/", "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::a00:1]/", "http://[2002:7f00:1::]/", "http://[2002:c0a8:101::]/",
    "http://[fe80::1]/", "http://[fc00::1]/", "http://[fd12::1]/", "http://224.0.0.1/",
    "http://255.255.255.255/", "http://[ff02::1]/", "http://192.0.2.1/", "http://198.18.0.1/",
    "https://127.0.0.1/", "http://[::]/", "http://\u2460\u2461\u2466.0.0.1/",
    "http://[fec0::1]/", "http://[5f00::1]/", "http://[64:ff9b:1::7f00:1]/",
]  # fmt: skip


@pytest.mark.parametrize("address", LOCAL)
def test_this_computer_and_its_network_are_not_opened(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    async def fetch() -> Web:
        async with web_of(monkeypatch, real_names=True) as made:
            with pytest.raises(ToolError, match=r"on this computer or its network|no server"):
                await tool().call({"address": address}, CONTEXT)
            return made

    assert asyncio.run(fetch()).connected == []


@pytest.mark.parametrize(
    "address",
    [
        PUBLIC,
        "2606:2800:220:1:248:1893:25c8:1946",
        f"::ffff:{PUBLIC}",
        "2002:5db8:d822::1",
        "64:ff9b::5db8:d822",  # of a network without IPv4
    ],
)
def test_a_public_address_is_public_in_each_of_its_forms(address: str) -> None:
    assert is_public(address)
    assert not is_private(address)


def test_a_name_that_is_unknown_is_said_to_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch() -> None:
        async with web_of(monkeypatch) as made:
            made.addresses["a.org"] = None
            with pytest.raises(ToolError, match=r"There is no server a\.org"):
                await tool().call({"address": "a.org"}, CONTEXT)

    asyncio.run(fetch())


@pytest.mark.parametrize(
    "found", [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["::1", PUBLIC], [], ["fe80::1%1"]]
)
def test_a_name_with_a_local_address_is_not_opened(
    monkeypatch: pytest.MonkeyPatch, found: list[str]
) -> None:
    async def fetch() -> Web:
        async with web_of(monkeypatch) as made:
            made.addresses["evil.org"] = found
            with pytest.raises(ToolError, match="only public web pages"):
                await tool().call({"address": "evil.org"}, CONTEXT)
            return made

    assert asyncio.run(fetch()).connected == []


def test_a_name_that_moves_to_this_computer_during_redirects_is_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fetch() -> Web:
        async with web_of(monkeypatch) as made:
            made.pages = {"a.org/1": response("", "Location: /2", status="302 Found")}

            async def resolved(host: str, port: int) -> list[str]:
                return ["127.0.0.1"] if made.heads else [PUBLIC]

            monkeypatch.setattr(connection, "resolved", resolved)
            with pytest.raises(ToolError, match="only public web pages"):
                await tool().call({"address": "http://a.org/1"}, CONTEXT)
            return made

    assert asyncio.run(fetch()).paths == ["/1"]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("http://other.org/x", "a.org redirects to another host, other.org, which was not allowed."),
        ("http://other.org/x", 'If that page is needed, call again with "http://other.org/x".'),
        ("//other.org/x", "another host, other.org"),
        ("https://www.a.org/", "another host, www.a.org"),
        ("http://a.org:8080/x", "another host, a.org:8080"),
        ("http://127.0.0.1/", "another host, 127.0.0.1"),
        ("http://a.org@other.org/", "user name or password"),
        ("file:///etc/passwd", "Only addresses that begin with https"),
        ("javascript:alert(1)", "Only addresses that begin with https"),
        ("/1", "redirects in a loop"),
    ],
)  # fmt: skip
def test_a_redirect_stays_with_the_host_that_was_allowed(
    monkeypatch: pytest.MonkeyPatch, place: str, said: str
) -> None:
    pages = {"a.org/1": response("", f"Location: {place}", status="302 Found")}
    assert said in refused(monkeypatch, pages, "http://a.org/1")


def test_a_redirect_to_the_same_host_with_https_is_followed() -> None:
    parts = web._redirected(web.parsed("http://a.org/x"), "https://a.org/x")
    assert parts.geturl() == "https://a.org/x"
    with pytest.raises(ToolError, match="not secure"):
        web._redirected(web.parsed("https://a.org/x"), "http://a.org/x")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ftp://a.org/", "begin with https:// or http://"),
        ("file:///etc/passwd", "begin with https:// or http://"),
        ("data:text/html,x", "begin with https:// or http://"),
        ("http://user:pass@a.org/", "user name or password"),
        ("http://", "no web address"),
        ("http://a.org\\@b.org/", "no web address"),
        ("http://a.org/ b", "no web address"),
        ("http://a.org:99999/", "begin with https:// or http://"),
        ("http://a\r\nHost: b/", "no web address"),
        ("https://" + "a" * 5000, "no web address"),
        ("http://[::1", "begin with https:// or http://"),
    ],
)
def test_what_is_no_address_of_a_page_is_refused(address: str, said: str) -> None:
    with pytest.raises(ToolError) as raised:
        web.parsed(address)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("address", "scope"),
    [
        ("https://Example.ORG/a?b", "example.org"),
        ("example.org/a", "example.org"),
        ("http://example.org:80", "http://example.org"),
        ("https://example.org:8443/", "example.org:8443"),
        ("https://b\u00fccher.example/", "xn--bcher-kva.example"),
        ("localhost:8080/x", "localhost:8080"),
    ],
)
def test_consent_is_bound_to_the_host(address: str, scope: str) -> None:
    assert tool().scope({"address": address}) == scope


def test_the_user_reads_which_host_is_asked_for_what() -> None:
    assert list(tool().changes({"address": "example.org/a b"[:13]}, CONTEXT)) == [
        "Asks example.org for the page https://example.org/a."
    ]
    assert tool().spec.effects == {Effect.NETWORK}


def test_offline_nothing_is_opened(monkeypatch: pytest.MonkeyPatch, switch: Gate) -> None:
    switch.set_offline(True)
    with pytest.raises(ToolError, match="The app is offline"):
        asyncio.run(tool().call({"address": "http://a.org/"}, CONTEXT))
    assert [each.refused for each in switch.ledger.all()] == [1]


def test_the_offline_switch_cuts_a_page_that_is_coming(
    monkeypatch: pytest.MonkeyPatch, switch: Gate
) -> None:
    async def fetch() -> None:
        async with web_of(monkeypatch) as made:
            made.pages = {"a.org/": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n..."}
            running = asyncio.ensure_future(tool().call({"address": "http://a.org/"}, CONTEXT))
            await made.hangs.wait()
            await asyncio.to_thread(switch.set_offline, True)
            with pytest.raises(ToolError, match="The app is offline"):
                await running

    asyncio.run(fetch())


def test_stop_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch() -> None:
        async with web_of(monkeypatch) as made:
            made.pages = {"a.org/": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n..."}
            running = asyncio.ensure_future(tool().call({"address": "http://a.org/"}, CONTEXT))
            await made.hangs.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            async with asyncio.timeout(10):
                await asyncio.gather(*made.serving)  # the server has read the end
            assert made.serving

    asyncio.run(fetch())


def test_a_server_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "SECONDS", 0.3)
    pages = {"a.org/": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n..."}
    assert "did not answer within" in refused(monkeypatch, pages, "http://a.org/")


def test_a_page_beyond_the_limit_is_cut_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "MOST_BYTES", 50_000)
    body = "<p>" + "word " * 20_000
    text, _ = fetched(monkeypatch, {"a.org/": response(body)}, "http://a.org/")
    assert "longer than the limit" in text


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_compressed_page_is_read_and_a_bomb_stays_small(
    monkeypatch: pytest.MonkeyPatch, coding: str
) -> None:
    compress = gzip.compress if coding == "gzip" else zlib.compress
    pages = {"a.org/": response(compress(PAGE.encode()), f"Content-Encoding: {coding}")}
    assert "Rain." in fetched(monkeypatch, pages, "http://a.org/")[0]
    inflater = connection.Inflater(coding)
    assert len(inflater.read(compress(b"\0" * 50_000_000), 1000)) == 1000


def test_an_unknown_compression_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"a.org/": response(b"x", "Content-Encoding: br")}
    assert "in a form that cannot be read" in refused(monkeypatch, pages, "http://a.org/")


def test_a_long_page_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"<p>Paragraph {n} {'x' * 50}</p>" for n in range(1000)]
    pages = {"a.org/": response("".join(lines))}
    seen, start = "", 0
    while start is not None:
        text, _ = fetched(monkeypatch, pages, "http://a.org/", start=start)
        body = text.partition("\n\n")[2]
        part, _, tail = body.partition('\n[To go on, send "start": ')
        seen += part
        start = int(tail.partition(";")[0]) if tail else None
    assert [line.split()[1] for line in seen.split("\n\n")] == [str(n) for n in range(1000)]


@pytest.mark.parametrize(
    ("body", "kind", "found"),
    [
        (b'{"a":  [1, 2]}', "application/json", '{"a": [1, 2]}'),
        ("Gr\u00f6\u00dfe".encode("latin-1"), "text/plain; charset=iso-8859-1", "Gr\u00f6\u00dfe"),
        (b"a,b\n1,2", "text/csv", "a,b\n1,2"),
        (b"<rss><item>x</item></rss>", "application/rss+xml", "<rss><item>x</item></rss>"),
    ],
)
def test_texts_that_are_no_pages_are_read(
    monkeypatch: pytest.MonkeyPatch, body: bytes, kind: str, found: str
) -> None:
    pages = {"a.org/": response(body, f"Content-Type: {kind}")}
    assert fetched(monkeypatch, pages, "http://a.org/")[0].endswith(f"\n\n{found}")


@pytest.mark.parametrize(
    ("pages", "said"),
    [
        ({}, "a.org answered 404: there is no such page."),
        ({"a.org/": response(b"\x89PNG", "Content-Type: image/png")}, "no page but image/png (4 bytes)"),
        ({"a.org/": response(bytes(range(256)) * 9, "Content-Type: text/plain")}, "data that is no text"),
        ({"a.org/": response("", status="500 Oh")}, "answered 500: the server has a fault"),
        ({"a.org/": b"SSH-2.0-OpenSSH_9.0\r\n"}, "The connection to a.org failed"),
        ({"a.org/": b""}, "The connection to a.org failed"),
        ({"a.org/": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort"}, "The connection to a.org failed"),
    ],
)  # fmt: skip
def test_what_is_no_page_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, pages: dict[str, bytes], said: str
) -> None:
    assert said in refused(monkeypatch, pages, "http://a.org/")


def test_a_pdf_is_read_by_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    services = RecordedServices()
    services.texts[b"%PDF-1.7"] = "page one"

    async def fetch() -> str:
        async with web_of(monkeypatch) as made:
            made.pages = {"a.org/x": response(b"%PDF-1.7", "Content-Type: application/pdf")}
            return await tool(services).call({"address": "http://a.org/x"}, CONTEXT)

    assert asyncio.run(fetch()) == "http://a.org/x\n\npage one"
    assert services.asked == [("text_of", ".pdf", "page.pdf")]


def test_a_large_page_is_read_by_the_service_so_that_the_window_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    services = RecordedServices()
    body = b"<p>" + b"word " * 110_000
    services.texts[b'<base href="http://a.org/x">' + body] = "all the words"

    async def fetch() -> str:
        async with web_of(monkeypatch) as made:
            made.pages = {"a.org/x": response(body)}
            return await tool(services).call({"address": "http://a.org/x"}, CONTEXT)

    assert asyncio.run(fetch()) == "http://a.org/x\n\nall the words"
    assert services.asked == [("text_of", ".html", "page.html")]


def test_an_empty_page_is_said_to_have_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = fetched(monkeypatch, {"a.org/": response("<p></p>")}, "http://a.org/")
    assert text == "http://a.org/ has no text; it may need a browser."


def test_through_a_proxy_only_public_names_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, switch: Gate
) -> None:
    async def fetch() -> Web:
        async with web_of(monkeypatch) as made:
            made.pages = {"a.org/x": response(PAGE)}
            made.addresses["rebound.org"] = ["10.0.0.1"]
            through = tool(proxy=f"http://proxy.example:{made.port}")
            assert "Rain." in await through.call({"address": "http://a.org/x"}, CONTEXT)
            made.addresses |= dict.fromkeys(("intranet", "nas.local", "x.home.arpa"))
            made.addresses["10.0.0.1"] = ["10.0.0.1"]
            for host in ("intranet", "nas.local", "10.0.0.1", "rebound.org", "x.home.arpa"):
                with pytest.raises(ToolError, match="only public web pages"):
                    await through.call({"address": f"http://{host}/x"}, CONTEXT)
            made.addresses["only.proxy.example"] = None  # which the proxy may know
            made.pages["only.proxy.example/x"] = response(PAGE)
            assert "Rain." in await through.call(
                {"address": "http://only.proxy.example/x"}, CONTEXT
            )
            return made

    made = asyncio.run(fetch())
    assert made.paths == ["http://a.org/x", "http://only.proxy.example/x"]
    assert {(each.host, each.purpose) for each in switch.ledger.all()} >= {
        ("a.org", Purpose.TOOLS),
        ("proxy.example", Purpose.PROXY),
    }


def test_a_certificate_is_checked_for_the_name_and_not_the_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import hostile_tls

    folder = tmp_path_factory.mktemp("tls")
    context = hostile_tls.server_context(folder)
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "certificate.pem"))

    async def fetch() -> list[str]:
        async with web_of(monkeypatch) as made:
            made.pages = {"hub.invalid/": response(PAGE), "other.invalid/": response(PAGE)}
            server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
            made.port = server.sockets[0].getsockname()[1]
            async with server:
                text = await tool().call({"address": "hub.invalid"}, CONTEXT)
                with pytest.raises(ToolError, match="its certificate is refused"):
                    await tool().call({"address": "other.invalid"}, CONTEXT)
            return [text, json.dumps(made.connected)]

    text, connected = asyncio.run(fetch())
    assert "Rain." in text
    assert json.loads(connected) == [[PUBLIC, 443], [PUBLIC, 443]]
