"""Answers of engines elsewhere on the GUI thread: in order, ended once, stopped at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from app.domain.connection import Connection
from app.domain.deltas import AnswerEnd, EndReason, TextDelta
from app.domain.model_ref import Remote
from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote.connections import ConnectionStore
from app.engines.remote.engines import RemoteEngines
from app.engines.remote.errors import RemoteError
from app.engines.remote.keys import KeyStore
from app.engines.remote_client import RemoteClient, Told
from app.system.secret_store import NoKeyring
from hostile_server import Reply, Server, Step, answer, chunk, error, event
from remote_answers import Gate, question


def no_ring() -> Any:
    raise NoKeyring("no keyring was found")


class Window:
    """A client, and what it delivered."""

    def __init__(self, folder: Path, server: Server) -> None:
        store = ConnectionStore(
            folder / "connections.json", KeyStore(folder / "keys.json", no_ring)
        )
        made = store.save(Connection("", "One", server.address), None, [])
        self.gate = Gate()
        self.ref = Remote(made.id, "m")
        self.client = RemoteClient(RemoteEngines(store, self.gate.allow))
        self.told: list[Told] = []

    def take(self, told: Told) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.told.append(told)

    @property
    def text(self) -> str:
        return "".join(each.text for each in self.told if isinstance(each, TextDelta))

    @property
    def is_over(self) -> bool:
        return bool(self.told) and isinstance(self.told[-1], AnswerEnd | RemoteError)


@pytest.fixture
def window(qtbot: QtBot, tmp_path: Path, server: Server) -> Iterator[Window]:
    made = Window(tmp_path, server)
    yield made
    made.client.stop()


def test_answer_comes_to_the_gui_thread(qtbot: QtBot, window: Window, server: Server) -> None:
    server.chat(answer(*map(str, range(300))))
    handle = window.client.submit(window.ref, question(), window.take)
    assert handle.id < 0
    qtbot.waitUntil(lambda: window.is_over)
    assert window.text == "".join(map(str, range(300)))
    assert sum(isinstance(each, TextDelta) for each in window.told) < 300
    end = window.told[-1]
    assert isinstance(end, AnswerEnd)
    assert end.reason is EndReason.END


def test_stop_ends_at_once_and_closes_the_socket(
    qtbot: QtBot, window: Window, server: Server
) -> None:
    server.chat(Reply([event(chunk("One ")), Step.HOLD]))
    handle = window.client.submit(window.ref, question(), window.take)
    qtbot.waitUntil(lambda: window.text == "One ")
    handle.cancel()
    handle.cancel()
    window.client.drain()
    assert window.told[-1] == AnswerEnd(EndReason.CANCELLED)
    qtbot.waitUntil(server.received[0].gone.is_set)
    count = len(window.told)
    qtbot.wait(50)
    assert len(window.told) == count


def test_cancelled_before_it_begins(qtbot: QtBot, window: Window, server: Server) -> None:
    server.chat(answer("Never"))
    window.client.submit(window.ref, question(), window.take).cancel()
    window.client.drain()
    assert window.told == [AnswerEnd(EndReason.CANCELLED)]


def test_errors_are_the_last_thing(qtbot: QtBot, window: Window, server: Server) -> None:
    server.chat(Reply([event(chunk("Half")), Step.CLOSE]))
    window.client.submit(window.ref, question(), window.take)
    qtbot.waitUntil(lambda: window.is_over)
    assert window.text == "Half"
    last = window.told[-1]
    assert isinstance(last, RemoteError)
    assert last.fault.kind is RemoteFaultKind.CUT
    window.client.submit(Remote("unknown", "m"), question(), window.take)
    qtbot.waitUntil(lambda: window.told[-1] is not last)
    last = window.told[-1]
    assert isinstance(last, RemoteError)
    assert last.fault.kind is RemoteFaultKind.NO_CONNECTION


def test_receiver_that_fails_stops_nothing(
    qtbot: QtBot, window: Window, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.chat(answer("One"))

    def fail(_: Told) -> None:
        raise ValueError("receiver")

    window.client.submit(window.ref, question(), fail)
    window.client.submit(window.ref, question(), window.take)
    qtbot.waitUntil(lambda: window.is_over and "could not be handled" in caplog.text)
    assert window.text == "One"


def test_several_answers_at_once(qtbot: QtBot, window: Window, server: Server) -> None:
    server.chat(*(answer(f"{number} ", f"{number}") for number in range(5)))
    texts: list[list[Told]] = [[] for _ in range(5)]
    for told in texts:
        window.client.submit(window.ref, question(), told.append)
    qtbot.waitUntil(lambda: all(told and isinstance(told[-1], AnswerEnd) for told in texts))
    answers = {"".join(e.text for e in told if isinstance(e, TextDelta)) for told in texts}
    assert answers == {f"{number} {number}" for number in range(5)}


def test_stopping_the_client_ends_what_runs(qtbot: QtBot, window: Window, server: Server) -> None:
    server.chat(Reply([Step.HOLD]), error("Loading model", 503))
    for _ in range(2):
        window.client.submit(window.ref, question(), window.take)
    qtbot.waitUntil(lambda: len(server.received) == 2)
    window.client.stop()
    window.client.drain()
    ends = [each for each in window.told if isinstance(each, AnswerEnd)]
    assert ends == [AnswerEnd(EndReason.CANCELLED)] * 2
    assert window.gate.closed == len(window.gate.asked)
    window.client.stop()
