"""The offline switch: no socket connects, running downloads stop and continue, nothing leaks."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.downloads.queue import Phase
from app.net import hub as hub_api
from app.net import offline as app_offline
from app.net.http import WebError, send_request
from app.net.hub import HubError, Source
from app.net.ledger import Purpose
from app.net.offline import Gate, Offline
from hostile_hub import Hub
from offline import clean_gate
from queue_recorder import HALF, TIMEOUT_SECONDS, QueueRecorder, content, source, stalled_half_way

ROOT = Path(__file__).parents[3]


@pytest.fixture
def switch() -> Iterator[Gate]:
    with clean_gate() as gate:
        yield gate


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(0)
        yield made


def nobody_came(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return True
    return False


def test_no_way_of_opening_a_connection_passes(switch: Gate, listener: socket.socket) -> None:
    port = listener.getsockname()[1]

    async def stream() -> None:
        await asyncio.open_connection("127.0.0.1", port)

    def udp() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as used:
            used.sendto(b"words", ("127.0.0.1", port))

    def plain() -> None:
        with socket.socket() as used:
            used.connect(("127.0.0.1", port))

    def numbered() -> None:
        with socket.socket() as used:
            assert not used.connect_ex(("127.0.0.1", port))

    def udp_message() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as used:
            used.sendmsg([b"words"], [], 0, ("127.0.0.1", port))

    ways: list[Callable[[], object]] = [
        plain,
        numbered,
        udp,
        *([udp_message] if hasattr(socket.socket, "sendmsg") else []),  # not on Windows
        lambda: socket.create_connection(("127.0.0.1", port)).close(),
        lambda: http.client.HTTPConnection("127.0.0.1", port).request("GET", "/"),
        lambda: urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://127.0.0.1:{port}/", timeout=1
        ),
        lambda: asyncio.run(stream()),
        lambda: socket.getaddrinfo("words.example", 80),
        lambda: socket.gethostbyname("words.example"),
    ]
    switch.set_offline(True)
    for way in ways:
        with pytest.raises(OSError, match="offline"):
            way()
    assert nobody_came(listener)
    switch.set_offline(False)
    plain()
    assert not nobody_came(listener)


def test_local_sockets_and_listening_still_work_offline(switch: Gate) -> None:
    switch.set_offline(True)
    one, other = socket.socketpair()
    with one, other, socket.create_server(("localhost", 0)):
        one.sendall(b"a")
        assert other.recv(1) == b"a"

    async def nothing() -> int:
        return 1

    assert asyncio.run(nothing()) == 1  # an event loop wakes itself by a pair of sockets


def test_requests_of_the_app_are_refused_in_one_sentence(switch: Gate, hub: Hub) -> None:
    switch.set_offline(True)
    with pytest.raises(WebError, match=r"^Tokonoma is offline\.$") as refused:
        send_request(f"{hub.endpoint}/words")
    assert "Connections" in refused.value.remedy
    assert not refused.value.retry
    with pytest.raises(HubError, match="offline"):
        hub_api.search("words of the user", hub.endpoint)
    with pytest.raises(HubError, match="offline"):
        hub_api.read_start(Source("maker/model1", file="model1-Q4_0.gguf"), 10, hub.endpoint)
    assert hub.requests == []
    assert [(each.count, each.refused) for each in switch.ledger.all()] == [(0, 2), (0, 1)]


def test_a_response_that_is_being_read_is_cut(switch: Gate, hub: Hub) -> None:
    reading = threading.Event()

    def hold(sent: int) -> None:
        reading.set()
        hub.released.wait(TIMEOUT_SECONDS)

    hub.gate = hold
    response = send_request(hub.url("maker/model1/model1-Q4_0.gguf"))
    assert reading.wait(TIMEOUT_SECONDS)
    switch.set_offline(True)
    with pytest.raises(WebError, match="offline"):
        response.read_all(1 << 30)
    response.close()


def test_a_running_download_stops_and_continues_later(
    switch: Gate, hub: Hub, watch: Callable[..., QueueRecorder]
) -> None:
    watched = watch()
    id = stalled_half_way(hub, watched)
    waiting = [watched.queue.add(source(number)) for number in (2, 3)]
    watched.clear()
    switch.set_offline(True)
    stopped = watched.wait_for_phase(id, Phase.QUEUED)
    assert stopped.note == "Offline. It continues when you go online again."
    assert stopped.done_bytes == HALF
    late = watched.queue.add(source(4))
    assert watched.wait_for_phase(late, Phase.QUEUED).note == stopped.note
    count = len(hub.requests)
    assert not watched.phases(id).count(Phase.FAILED)
    hub.released.set()
    watched.clear()
    switch.set_offline(False)
    done = watched.wait_for_phase(id, Phase.DONE)
    assert done.path.read_bytes() == content(1)
    for other in (*waiting, late):
        watched.wait_for_phase(other, Phase.DONE)
    assert len(hub.requests) > count
    assert any(each.headers.get("Range") == f"bytes={HALF}-" for each in hub.requests[count:])


def test_a_connection_of_another_client_is_cut_once(switch: Gate) -> None:
    cuts: list[int] = []
    passage = switch.allow("https://there.example/v1", Purpose.ANSWERS, lambda: cuts.append(1))
    with switch.allow("https://there.example/v1", Purpose.ANSWERS, lambda: cuts.append(2)):
        pass
    switch.set_offline(True)
    switch.set_offline(True)
    assert cuts == [1]
    assert passage.is_cut
    with pytest.raises(Offline):
        passage.check()
    with pytest.raises(Offline):
        switch.allow("https://there.example/v1", Purpose.ANSWERS)


def test_only_what_asks_the_gate_can_connect() -> None:
    imports = re.compile(
        r"^\s*(?:import|from) (socket|ssl|httpx2?|httpcore|urllib\.request|http\.client|http)\b",
        re.MULTILINE,
    )
    found = {
        path.parent.relative_to(ROOT).as_posix()
        for path in (ROOT / "app").rglob("*.py")
        if imports.search(path.read_text("utf-8"))
    }
    assert found == {
        *("app/net", "app/engines/remote", "app/tools/builtin", "app/tools/mcp"),
        "app/tools/sandbox",  # it tries whether programs in the sandbox can reach this computer
    }


def test_the_app_opens_no_connection_by_qt() -> None:
    """Qt's sockets are not of Python, so that no audit hook sees them."""
    used = re.compile(r"\bQ(NetworkAccessManager|TcpSocket|UdpSocket|SslSocket|WebSocket)\b")
    found = [
        path.name for path in (ROOT / "app").rglob("*.py") if used.search(path.read_text("utf-8"))
    ]
    assert found == []


def test_only_the_pair_of_the_module_may_connect_on_windows(
    switch: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Windows makes it, where the file's name in a bundle is not that of the module."""
    monkeypatch.setattr("app.net.offline.os", SimpleNamespace(name="nt"))

    def socketpair() -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            one = socket.socket()
            try:
                one.connect(listening.getsockname())
            except OSError:
                one.close()
                raise
            return one, listening.accept()[0]

    switch.set_offline(True)
    with pytest.raises(Offline):
        socketpair()
    monkeypatch.setattr(socket, "socketpair", socketpair)
    for each in socketpair():
        each.close()


def test_the_event_loop_of_windows_is_refused_as_sockets_are(switch: Gate) -> None:
    """It connects without the module of sockets, and without an event for the audit hook."""
    done: list[str] = []

    class Proactor:
        def connect(self, conn: socket.socket, address: object) -> None:
            done.append("connect")

        def sendto(
            self, conn: socket.socket, buf: bytes, flags: int = 0, addr: object = None
        ) -> None:
            done.append("send")

    app_offline._audit_proactor(Proactor)
    with socket.socket() as used:
        for _ in range(2):
            switch.set_offline(False)
            Proactor().connect(used, ("192.0.2.1", 80))
            Proactor().sendto(used, b"words", 0, ("192.0.2.1", 80))
            switch.set_offline(True)
            with pytest.raises(Offline):
                Proactor().connect(used, ("192.0.2.1", 80))
            with pytest.raises(Offline):
                Proactor().sendto(used, b"words", 0, ("192.0.2.1", 80))
    assert done == ["connect", "send"] * 2
