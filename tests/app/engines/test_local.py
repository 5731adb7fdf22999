"""Local client: events of any thread arrive on the GUI thread, in order and soon."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.engines.local import LocalClient
from app.engines.run import Run, start
from engine import Chat, Event, Text
from fakes import FakeEngine
from stage import reraise, until


class Received:
    """A client over a fake engine, and the events it has delivered."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.threads: set[int] = set()
        self.batches = 0
        self.engines: list[FakeEngine] = []
        self.then: Callable[[], None] = lambda: None  # called with each batch
        self.client = LocalClient(self._engine, lambda event: None)
        start(self._read(self.client.submit(Chat(()))), reraise)

    def _engine(self, notify: Callable[[Event], None]) -> FakeEngine:
        self.engines.append(FakeEngine(notify))
        return self.engines[-1]

    async def _read(self, run: Run) -> None:
        async for batch in run:
            self.events.extend(batch)
            self.threads.add(threading.get_ident())
            self.batches += 1
            self.then()


@pytest.fixture
def received(qtbot: QtBot) -> Iterator[Received]:
    made = Received()
    yield made
    made.client.deleteLater()


def text(number: int) -> Text:
    return Text(1, str(number), number, number)


def test_events_of_another_thread_arrive_on_this_one(received: Received) -> None:
    sent = [text(number) for number in range(2000)]

    def deliver() -> None:
        for event in sent:
            received.engines[0].deliver(event)

    thread = threading.Thread(target=deliver)
    thread.start()
    until(lambda: len(received.events) == len(sent))
    thread.join()
    assert received.events == sent
    assert received.threads == {threading.get_ident()}
    assert received.batches < len(sent), "events that come together are delivered together"


def test_event_delivered_while_others_are_handled_arrives(received: Received) -> None:
    engine = received.engines[0]

    def answer() -> None:
        if len(received.events) < 5:
            engine.deliver(text(len(received.events)))

    received.then = answer
    engine.deliver(text(0))
    until(lambda: len(received.events) == 5)


def test_drain_delivers_at_once(received: Received) -> None:
    received.engines[0].deliver(text(1))
    assert received.events == []
    received.client.drain()
    assert received.events == [text(1)]
    received.client.drain()
    assert received.batches == 1
