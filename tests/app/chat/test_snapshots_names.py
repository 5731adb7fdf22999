"""Snapshot names: a conversation is saved under its id, also before it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from app.domain.ids import new_id
from app.store.store import Store
from engine import AdaptersSet, Restore, Save
from fakes import Cancel
from snapshot_fixture import SnapshotFixture


@pytest.fixture
def fixture(qtbot: QtBot, tmp_path: Path) -> Iterator[SnapshotFixture]:
    made = SnapshotFixture(tmp_path)
    yield made
    made.close()


def test_new_conversation_is_saved_at_once_although_the_disk_is_slow(
    fixture: SnapshotFixture,
) -> None:
    fixture.load_model()
    made, disk = _begin_on_a_slow_disk(fixture)
    fixture.answer(made)
    fixture.open(None)
    assert fixture.engine.last(Save).conversation == str(made)
    disk.set()
    assert made in fixture.stored(lambda store: [each.id for each in store.conversations()])
    fixture.sessions.save()
    fixture.sessions.shut_down()
    assert fixture.engine.count(Save) == 1, "nothing is written twice"


def test_shown_conversation_that_is_not_stored_is_saved_before_the_model_goes(
    fixture: SnapshotFixture,
) -> None:
    fixture.load_model()
    made, disk = _begin_on_a_slow_disk(fixture)
    fixture.answer(made)
    assert fixture.engine.count(Save) == 0, "it waits for the idle time"
    fixture.sessions.shut_down()
    assert fixture.engine.last(Save).conversation == str(made)
    disk.set()


@pytest.mark.parametrize("gone", ["answer", "restore", "leave", "adapters", "deleted"])
def test_context_lost_while_the_disk_is_slow_is_saved_once_under_its_own_name(
    fixture: SnapshotFixture, gone: str
) -> None:
    fixture.load_model()
    fixture.branch(fixture.ids[0])
    made, disk = _begin_on_a_slow_disk(fixture)
    fixture.answer(made)
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
            fixture.sessions.forget([made])
    disk.set()
    fixture.settle()
    saves = [each for each in fixture.commands if isinstance(each, Save)]
    assert [each.conversation for each in saves] == [str(made)]
    if gone == "deleted":
        assert fixture.engine.last(Cancel).request == saves[0].request
        assert fixture.deletes == [(str(made),)]


def _begin_on_a_slow_disk(fixture: SnapshotFixture) -> tuple[int, Event]:
    """Show a new conversation, which is stored when the event is set; its id, and the event."""
    made, disk = new_id(), Event()

    def create(store: Store) -> None:
        disk.wait(30)
        store.create_conversation("new", id=made)

    fixture.store_queue.write(create)
    fixture.state.show(made, [])
    return made, disk


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
        made, disk = _begin_on_a_slow_disk(fixture)
        for step, which in steps:
            if step == "disk":
                disk.set()
                fixture.stored(lambda store: [])
            else:
                _take(fixture, step, [*fixture.ids, made][which])
        disk.set()
        names = dict(zip(("first", "second", "third"), map(str, fixture.ids), strict=True))
        names["And"] = str(made)  # it begins with what `SnapshotFixture.ask` asks
        holder = ""
        for command in fixture.commands:
            if isinstance(command, Save):
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
        case "back" if fixture.engine.count(Restore):
            fixture.engine.load_snapshot(10, 10, 10)
            fixture.link.drain()
        case _:
            pass
