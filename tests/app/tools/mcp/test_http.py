"""Servers of tools over HTTP: the gate, redirects, bounds, faults of the network, logins."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.domain.tools import ToolError
from app.net.ledger import Purpose
from app.net.offline import Gate
from app.net.socket_cutter import SocketCutter
from app.tools.mcp.entry import ServerEntry
from app.tools.mcp.hooks import Hooks, ServerState
from app.tools.mcp.http_transport import GateTransport, _Body
from app.tools.mcp.limits import Pacer, TooMuch
from app.tools.mcp.oauth import Login
from offline import clean_gate
from tool_servers import Trial, trial
from tool_site import Site, site

READY, FAILED = ServerState.READY, ServerState.FAILED


@pytest.fixture
def gate() -> Iterator[Gate]:
    """The gate of this process, empty and online."""
    with clean_gate() as made:
        yield made


def entry_of(place: Site, **values: Any) -> ServerEntry:
    return ServerEntry(values.pop("id", ""), "Site", address=place.address, **values)


def with_site(
    home: Path,
    place: Site,
    use: Callable[[Trial], Awaitable[None]],
    hooks: Hooks | None = None,
    **values: Any,
) -> Trial:
    async def run() -> Trial:
        async with trial(home, entry_of(place, **values), hooks) as made:
            await use(made)
        return made

    return asyncio.run(run())


async def nothing(made: Trial) -> None:
    """Only start and stop."""


@pytest.mark.parametrize("behaviour", ["", "stream"])
def test_a_call_goes_through_the_gate(tmp_path: Path, gate: Gate, behaviour: str) -> None:
    async def use(made: Trial) -> None:
        assert (await made.call()).text == "done"
        assert made.servers.changes(f"{made.entry.id}/echo", {}, None) == (  # type: ignore[arg-type]
            f"The arguments are sent to Site (127.0.0.1:{place.server_address[1]}).",
        )

    with site(behaviour) as place:
        made = with_site(tmp_path, place, use, headers=(("X-Key", "secret"),))
        assert all(headers["X-Key"] == "secret" for _, _, headers in place.asked)
        assert place.asked[-1][0] == "DELETE"
    assert ("on the way" in made.log) is (behaviour == "stream")
    (contact,) = gate.ledger.all()
    assert (contact.host, contact.purpose) == ("127.0.0.1", Purpose.TOOLS)
    assert contact.count >= 6
    assert contact.sent_bytes > 500
    assert contact.received_bytes > 200


def test_the_offline_switch_refuses_a_call_and_the_next_one_succeeds(
    tmp_path: Path, gate: Gate
) -> None:
    async def use(made: Trial) -> None:
        gate.set_offline(True)
        with pytest.raises(ToolError, match=r"^Site: Tokonoma is offline\.$"):
            await made.call()
        gate.set_offline(False)
        assert (await made.call()).text == "done"

    with site() as place:
        with_site(tmp_path, place, use)


def test_the_offline_switch_cuts_a_call_that_waits(tmp_path: Path, gate: Gate) -> None:
    async def use(made: Trial) -> None:
        task = asyncio.create_task(made.call())
        await made.until(lambda: len(place.asked) >= 5)
        await asyncio.sleep(0.1)
        gate.set_offline(True)
        with pytest.raises(ToolError):
            await asyncio.wait_for(task, 2.0)

    with site("hangs") as place:
        with_site(tmp_path, place, use)


def test_headers_and_messages_go_to_no_other_server(tmp_path: Path, gate: Gate) -> None:
    with site() as other, site("redirects") as place:
        place.elsewhere = other.address
        made = with_site(tmp_path, place, nothing, headers=(("Authorization", "Bearer x"),))
        assert made.status.state is FAILED
        assert "not followed" in made.status.problem
        assert other.asked == []


@pytest.mark.parametrize(
    "address",
    ["https://10.0.0.1/", "https://router.lan/", "http://tools.example/", "ftp://a.example/"],
)
def test_a_public_server_cannot_have_the_app_ask_its_neighbours(gate: Gate, address: str) -> None:
    async def run() -> httpx2.Response:
        lines: list[str] = []
        entry = ServerEntry("", "Far", address="https://tools.example/mcp", headers=(("X", "1"),))
        transport = GateTransport(entry, lines.append)
        transport.open(None)
        request = httpx2.Request("GET", address)
        response = await transport.handle_async_request(request)
        assert "X" not in request.headers
        assert lines == [transport.refusal]
        return response

    response = asyncio.run(run())
    assert response.status_code == 503
    assert response.json()["error"]["message"]
    assert gate.ledger.all() == ()


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        ("large", "Site: Site was stopped: it sent a message of more than 6 MB."),
        ("values", "Site: Site was stopped: it sent a message of more than 100,000 values."),
        ("compressed", "Site: The answer of 127.0.0.1 is compressed."),
        ("drops", "Site: 127.0.0.1 could not be reached: "),
        ("hangs", "Site did not answer within 1 seconds."),
        ("pours", "Site: "),
    ],
)
def test_a_bad_answer_fails_one_call_and_not_the_connection(
    tmp_path: Path, gate: Gate, behaviour: str, sentence: str
) -> None:
    async def use(made: Trial) -> None:
        place.behaviour = behaviour
        with pytest.raises(ToolError) as failure:
            await made.call()
        assert str(failure.value).startswith(sentence)
        place.behaviour = ""
        assert (await made.call()).text == "done"
        assert made.status.state is READY

    with site() as place:
        with_site(tmp_path, place, use, seconds=1.0 if behaviour == "hangs" else 60.0)


def test_a_server_that_was_restarted_is_connected_to_again(tmp_path: Path, gate: Gate) -> None:
    async def use(made: Trial) -> None:
        place.session = 2
        assert (await made.call()).text == "done"
        assert made.status.state is READY

    with site() as place:
        with_site(tmp_path, place, use)


def test_calls_at_once_connect_once_to_a_server_that_was_restarted(
    tmp_path: Path, gate: Gate
) -> None:
    async def use(made: Trial) -> None:
        place.session = 2
        results = await asyncio.gather(*(made.call() for _ in range(4)))
        assert [each.text for each in results] == ["done"] * 4

    with site() as place:
        with_site(tmp_path, place, use)
        assert [method for method, _, _ in place.asked].count("DELETE") == 2


def test_a_proxy_is_in_the_record_of_contacts(gate: Gate) -> None:
    async def run() -> None:
        transport = GateTransport(
            ServerEntry("", "Far", address="https://tools.example/mcp"), print
        )
        transport.open(httpx2.Proxy("http://proxy.example:3128"))
        transport._inner = httpx2.MockTransport(lambda _: httpx2.Response(200))
        await transport.handle_async_request(httpx2.Request("POST", "https://tools.example/mcp"))

    asyncio.run(run())
    assert {(each.host, each.port, each.purpose) for each in gate.ledger.all()} == {
        ("tools.example", 443, Purpose.TOOLS),
        ("proxy.example", 3128, Purpose.PROXY),
    }


@pytest.mark.parametrize("limit", ["http_transport._END_SECONDS", "servers._STOP_SECONDS"])
def test_a_server_that_does_not_let_go_is_stopped(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    for each in ("http_transport._END_SECONDS", "servers._STOP_SECONDS"):
        monkeypatch.setattr(f"app.tools.mcp.{each}", 0.05 if each == limit else 60.0)

    async def use(made: Trial) -> None:
        async with asyncio.timeout(10):
            await made.servers.stop(made.entry.id)
        assert made.status.state is ServerState.STOPPED

    with site("stays") as place:
        with_site(tmp_path, place, use)
        assert place.asked[-1][0] == "DELETE"


def test_streams_that_end_at_once_are_asked_for_ever_more_slowly(gate: Gate) -> None:
    clock, pauses, lines = [0.0], list[float](), list[str]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=b"", request=request)

    async def run() -> list[int]:
        pacer = Pacer(20.0, 1.0, 60.0, lambda: clock[0], sleep)
        entry = ServerEntry("", "Far", address="https://tools.example/mcp")
        transport = GateTransport(entry, lines.append, pacer)
        transport._inner = httpx2.MockTransport(answer)
        made = [httpx2.Request(method, entry.address) for method in ["GET"] * 100 + ["POST"]]
        return [(await transport.handle_async_request(each)).status_code for each in made]

    found = asyncio.run(run())
    assert found[:20] == [200] * 20
    assert 60 < sum(pauses) < 70
    assert (found[-2], found[-1]) == (503, 200)
    assert lines[-1] == "Far was stopped: it sent messages without end."


@pytest.mark.parametrize(
    ("end", "fits"), [((b"\n", b"\n"), True), ((b"\r\n\r\n",), True), ((), False)]
)
def test_events_are_measured_one_by_one(gate: Gate, end: tuple[bytes, ...], fits: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            for piece in (b"data: [" + b"1" * 400_000, *end):
                yield piece

    async def run() -> int:
        response = httpx2.Response(
            200, headers={"Content-Type": "text/event-stream"}, content=pieces()
        )
        passage = gate.allow("https://a.example/", Purpose.TOOLS)
        async with _Body(response, passage, SocketCutter()) as body:
            return sum([len(piece) async for piece in body])

    if fits:
        assert asyncio.run(run()) > 8_000_000
    else:
        with pytest.raises(TooMuch):
            asyncio.run(run())


def test_the_connection_of_an_answer_that_is_not_read_is_closed(gate: Gate) -> None:
    class Pieces(httpx2.AsyncByteStream):
        is_closed = False

        async def aclose(self) -> None:
            self.is_closed = True

    stream = Pieces()
    answer = httpx2.Response(200, headers={"Content-Encoding": "gzip"}, stream=stream)

    async def run() -> None:
        transport = GateTransport(ServerEntry("", "Far", address="https://a.example/"), print)
        transport._inner = httpx2.MockTransport(lambda _: answer)
        request = httpx2.Request("POST", "https://a.example/")
        assert (await transport.handle_async_request(request)).status_code == 503

    asyncio.run(run())
    assert stream.is_closed


def test_no_address_is_in_the_log_of_the_app(
    tmp_path: Path, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with site() as place:
        entry = ServerEntry("", "Site", address=f"{place.address}?key=secret")

        async def run() -> ServerState:
            async with trial(tmp_path, entry) as made:
                return made.status.state

        assert asyncio.run(run()) is READY
        assert place.asked
    assert "secret" not in caplog.text


def test_a_server_that_is_not_there_says_so(tmp_path: Path, gate: Gate) -> None:
    with site() as place:
        pass
    made = with_site(tmp_path, place, nothing)
    assert made.status.state is FAILED
    assert made.status.problem.startswith("127.0.0.1 could not be reached: ")


def test_a_wrong_key_is_named_and_no_login_is_tried(tmp_path: Path, gate: Gate) -> None:
    with site("login") as place:
        made = with_site(tmp_path, place, nothing, headers=(("Authorization", "Bearer x"),))
        assert made.status.problem == "Site refused the login (HTTP 401)."
        assert {path for _, path, _ in place.asked} == {"/mcp"}


# --- logins -------------------------------------------------------------------------------------


class Browser:
    """What opens pages: it is logged in already, and follows redirects."""

    def __init__(self, *, declines: bool = False) -> None:
        self.pages: list[tuple[str, str]] = []
        self._declines = declines

    async def open(self, server: str, address: str, why: str) -> bool:
        self.pages.append((address, why))
        if self._declines:
            return False
        asyncio.get_running_loop().run_in_executor(None, self._visit, address)
        return True

    @staticmethod
    def _visit(address: str) -> None:
        wrong = urllib.parse.parse_qs(urllib.parse.urlsplit(address).query)["redirect_uri"][0]
        for attempt in (f"{wrong}?code=stolen&state=guessed", address):
            try:
                with urllib.request.urlopen(attempt, timeout=5) as page:
                    page.read()
            except OSError:
                pass


def test_a_login_is_kept_and_refreshed_without_the_user(tmp_path: Path, gate: Gate) -> None:
    async def use(made: Trial) -> None:
        assert (await made.call()).text == "done"

    browser = Browser()
    with site("login") as place:
        with_site(tmp_path, place, use, Hooks(open_page=browser.open), id="fixed")
        assert place.logins == 1
        (_, why), *others = browser.pages
        assert why.startswith("Site asks you to log in at 127.0.0.1:")
        assert not others
        keys = (tmp_path / "keys.json").read_text(encoding="utf-8")
        assert place.token in keys
        assert place.token not in (tmp_path / "servers.json").read_text(encoding="utf-8")
        # A token that has expired, as after a night.
        later = str(time.time() + 3600)[:8]
        assert later in keys
        expired = keys.replace(later, str(time.time() - 3600)[:8])
        (tmp_path / "keys.json").write_text(expired, encoding="utf-8")
        place.token = "other"
        with_site(tmp_path, place, use, Hooks(open_page=browser.open), id="fixed")
        assert (place.logins, place.refreshed) == (1, 1)


def test_the_token_that_refreshes_the_others_goes_to_the_server_of_the_login_alone(
    tmp_path: Path, gate: Gate
) -> None:
    async def use(made: Trial) -> None:
        assert (await made.call()).text == "done"

    browser = Browser()
    with site("login") as place, site() as login:
        place.issuer = login
        with_site(tmp_path, place, use, Hooks(open_page=browser.open), id="fixed")
        keys = (tmp_path / "keys.json").read_text(encoding="utf-8")
        expired = keys.replace(str(time.time() + 3600)[:8], str(time.time() - 3600)[:8])
        (tmp_path / "keys.json").write_text(expired, encoding="utf-8")
        login.token = "other"
        with_site(tmp_path, place, use, Hooks(open_page=browser.open), id="fixed")
        assert (login.logins, login.refreshed) == (1, 1)
        assert {path for _, path, _ in place.asked}.isdisjoint({"/token", "/register"})


def test_the_secret_of_the_app_goes_to_the_server_that_it_was_first_used_at(
    tmp_path: Path, gate: Gate
) -> None:
    values = {"client_id": "me", "client_secret": "hidden", "id": "fixed"}
    hooks = Hooks(open_page=Browser().open)
    with site("login") as place, site() as login, site() as other:
        place.issuer = login
        with_site(tmp_path, place, nothing, hooks, **values)
        assert any("Authorization" in headers for _, _, headers in login.asked)
        place.issuer = other
        for _ in range(2):
            other.token = "none"
            with_site(tmp_path, place, nothing, hooks, **values)
        assert {path for _, path, _ in other.asked} >= {"/register", "/token"}
        assert not any("Authorization" in headers for _, _, headers in other.asked)


def listening(use: Callable[[Login, asyncio.Task[None]], Awaitable[None]], *, opens: bool) -> None:
    """A login whose page is shown, or about to be."""

    async def show(*_: str) -> bool:
        if not opens:
            await asyncio.Event().wait()
        return True

    async def run() -> None:
        login = Login(ServerEntry("", "Site"), show, contextlib.nullcontext)
        with socket.create_server(("127.0.0.1", 0)) as free:
            login.port = free.getsockname()[1]
        shown = asyncio.create_task(login.show("https://a.example/authorize?state=s"))
        while login._server is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        try:
            await use(login, shown)
        finally:
            login.close()

    asyncio.run(run())


def test_a_login_that_is_cancelled_listens_no_more() -> None:
    async def use(login: Login, shown: asyncio.Task[None]) -> None:
        shown.cancel()
        with pytest.raises(asyncio.CancelledError):
            await shown
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.1", login.port)

    listening(use, opens=False)


def test_what_is_no_request_does_not_end_a_login() -> None:
    async def use(login: Login, shown: asyncio.Task[None]) -> None:
        await shown
        for line in (b"GET //[ HTTP/1.1", b"x" * 40_000, b"GET /callback?code=c&state=s HTTP/1.1"):
            reader, writer = await asyncio.open_connection("127.0.0.1", login.port)
            writer.write(line + b"\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 5)
            writer.close()
        assert (await login.result()).code == "c"

    listening(use, opens=True)


def test_a_login_that_the_user_declines_ends_the_start(tmp_path: Path, gate: Gate) -> None:
    with site("login") as place:
        hooks = Hooks(open_page=Browser(declines=True).open)
        made = with_site(tmp_path, place, nothing, hooks)
        assert made.status.problem == "Site could not be started: The login was cancelled."
        assert place.logins == 0


def test_a_page_that_is_no_web_page_is_not_opened(tmp_path: Path, gate: Gate) -> None:
    browser = Browser()
    with site("evil page") as place:
        made = with_site(tmp_path, place, nothing, Hooks(open_page=browser.open))
    assert made.status.state is FAILED
    assert "named a page for the login that is not opened" in made.status.problem
    assert browser.pages == []


def test_deleting_a_server_forgets_its_login(tmp_path: Path, gate: Gate) -> None:
    async def use(made: Trial) -> None:
        await made.servers.delete(made.entry.id)
        assert made.secrets.load is not None
        assert place.token not in (tmp_path / "keys.json").read_text(encoding="utf-8")
        assert made.entries.all() == ()

    with site("login") as place:
        with_site(tmp_path, place, use, Hooks(open_page=Browser().open))
