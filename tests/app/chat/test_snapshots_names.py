"""Snapshot names: a conversation is saved under its stored id, also when assigned late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from app.store.store import Store
from engine import AdaptersSet, LoadSnapshot, SaveSnapshot
from snapshot_fixture import SnapshotFixture
from stage import until


@pytest.fixture
def fixture(qtbot: QtBot, tmp_path: Path) -> Iterator[SnapshotFixture]:
    made = SnapshotFixture(tmp_path)
    yield made
    made.close()


def test_conversation_without_a_stored_id_is_not_saved(
    fixture: SnapshotFixture,
) -> None:
    fixture.load_model()
    fixture.state.show(-1, [])
    fixture.answer(-1)
    fixture.settle()
    fixture.sessions.shut_down()
    assert fixture.engine.count(SaveSnapshot) == 0


def test_left_conversation_is_saved_when_its_name_is_assigned(
    fixture: SnapshotFixture,
) -> None:
    fixture.load_model()
    disk = _begin_on_a_slow_disk(fixture)
    fixture.answer(-1)
    fixture.open(None)
    fixture.sessions.save()
    assert fixture.engine.count(SaveSnapshot) == 0
    disk.set()
    until(lambda: fixture.engine.count(SaveSnapshot) == 1)
    assert fixture.engine.last(SaveSnapshot).conversation == _name(fixture)
    fixture.sessions.shut_down()
    assert fixture.engine.count(SaveSnapshot) == 1, "nothing is written twice"


def test_shown_conversation_named_late_is_saved_after_the_idle_time(
    fixture: SnapshotFixture,
) -> None:
    fixture.load_model()
    disk = _begin_on_a_slow_disk(fixture)
    fixture.answer(-1)
    disk.set()
    fixture.settle()
    assert fixture.engine.count(SaveSnapshot) == 0
    fixture.open(None)
    assert fixture.engine.last(SaveSnapshot).conversation == _name(fixture)


@pytest.mark.parametrize("gone", ["answer", "restore", "leave", "adapters", "deleted"])
def test_context_lost_before_its_name_is_assigned_is_not_saved(
    fixture: SnapshotFixture, gone: str
) -> None:
    fixture.load_model()
    fixture.branch(fixture.ids[0])
    disk = _begin_on_a_slow_disk(fixture)
    fixture.answer(-1)
    fixture.open(fixture.ids[0])
    match gone:
        case "answer":
            fixture.ask(fixture.ids[0])
        case "restore":
            fixture.sessions.restore()
        case "leave":
            fixture.sessions.shut_down()
        case "adapters":
            fixture.engine.deliver(AdaptersSet(1000, (), changed=True))
            fixture.link.drain()
        case _:
            fixture.sessions.forget([-1])
    disk.set()
    fixture.settle()
    assert fixture.engine.count(SaveSnapshot) == 0


def _begin_on_a_slow_disk(fixture: SnapshotFixture) -> Event:
    """Show a new conversation, -1, whose stored id is assigned when the event is set."""
    disk = Event()

    def create(store: Store) -> None:
        disk.wait(30)
        fixture.store_queue.conversations.pair(-1, store.create_conversation("new").id)

    fixture.store_queue.write(create)
    fixture.state.show(-1, [])
    return disk


def _name(fixture: SnapshotFixture) -> str:
    """The snapshot name of a conversation created on a slow disk."""
    (number,) = fixture.stored(lambda store: [fixture.store_queue.conversations.known(-1)])
    return str(number)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["open", "answer", "ask", "end", "quiet", "restore", "leave", "model", "back", "disk"]
        ),
        st.integers(0, 3),
    ),
    max_size=25,
)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(steps=_STEPS)
def test_no_sequence_of_actions_saves_under_another_name(
    qapp: object, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    fixture = SnapshotFixture(tmp_path_factory.mktemp("fixture"))
    try:
        fixture.load_model()
        for conversation in fixture.ids:
            fixture.branch(conversation)
        disk = _begin_on_a_slow_disk(fixture)
        for step, which in steps:
            if step == "disk":
                disk.set()
                fixture.stored(lambda store: [])
            else:
                _take(fixture, step, [*fixture.ids, -1][which])
        disk.set()
        names = dict(zip(("first", "second", "third"), map(str, fixture.ids), strict=True))
        names["And"] = _name(fixture)  # it begins with what `SnapshotFixture.ask` asks
        holder = ""
        for command in fixture.commands:
            if isinstance(command, SaveSnapshot):
                assert command.conversation == holder
            else:
                holder = names[command.turns[1].text.split()[0]]
    finally:
        fixture.close()


def _take(fixture: SnapshotFixture, step: str, conversation: int) -> None:
    writing = bool(fixture.state.generations)
    match step:
        case "open":
            fixture.open(conversation)
        case "answer" if not writing:
            fixture.answer(conversation)
        case "ask" if not writing:
            fixture.ask(conversation)
        case "end" if writing:
            fixture.end_answer()
        case "quiet":
            fixture.sessions.save()
        case "restore":
            fixture.sessions.restore()
        case "leave":
            fixture.sessions.shut_down()
        case "model" if not writing:
            fixture.sessions.shut_down()
            fixture.load_model()
        case "back" if fixture.engine.count(LoadSnapshot):
            fixture.engine.load_snapshot(10, 10, 10)
            fixture.link.drain()
        case _:
            pass
