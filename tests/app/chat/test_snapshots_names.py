"""What was read is saved under the name of its conversation, also where a slow disk gives it late."""

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
from session_desk import Desk
from stage import until


@pytest.fixture
def desk(qtbot: QtBot, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


def test_a_conversation_the_store_does_not_know_yet_is_not_saved_under_a_wrong_name(
    desk: Desk,
) -> None:
    desk.load_model()
    desk.state.show(-1, [])
    desk.answer(-1)
    desk.settle()
    desk.sessions.shut_down()
    assert desk.engine.count(SaveSnapshot) == 0


def test_what_was_left_before_a_slow_disk_had_named_it_is_saved_then(desk: Desk) -> None:
    desk.load_model()
    disk = _begin_on_a_slow_disk(desk)
    desk.answer(-1)
    desk.open(None)
    desk.sessions.save()
    assert desk.engine.count(SaveSnapshot) == 0
    disk.set()
    until(lambda: desk.engine.count(SaveSnapshot) == 1)
    assert desk.engine.last(SaveSnapshot).conversation == _name(desk)
    desk.sessions.shut_down()
    assert desk.engine.count(SaveSnapshot) == 1, "nothing is written twice"


def test_what_a_slow_disk_names_while_it_is_shown_is_saved_in_its_time(desk: Desk) -> None:
    desk.load_model()
    disk = _begin_on_a_slow_disk(desk)
    desk.answer(-1)
    disk.set()
    desk.settle()
    assert desk.engine.count(SaveSnapshot) == 0
    desk.open(None)
    assert desk.engine.last(SaveSnapshot).conversation == _name(desk)


@pytest.mark.parametrize("gone", ["answer", "restore", "leave", "adapters", "deleted"])
def test_what_is_gone_when_a_slow_disk_names_it_is_not_saved(desk: Desk, gone: str) -> None:
    desk.load_model()
    desk.branch(desk.ids[0])
    disk = _begin_on_a_slow_disk(desk)
    desk.answer(-1)
    desk.open(desk.ids[0])
    match gone:
        case "answer":
            desk.ask(desk.ids[0])
        case "restore":
            desk.sessions.restore()
        case "leave":
            desk.sessions.shut_down()
        case "adapters":
            desk.engine.deliver(AdaptersSet(1000, (), changed=True, discarded_tokens=1))
            desk.link.drain()
        case _:
            desk.sessions.forget([-1])
    disk.set()
    desk.settle()
    assert desk.engine.count(SaveSnapshot) == 0


def _begin_on_a_slow_disk(desk: Desk) -> Event:
    """Show a new conversation, -1, whose number comes when the event is set."""
    disk = Event()

    def create(store: Store) -> None:
        disk.wait(30)
        desk.archive.conversations.pair(-1, store.create_conversation("new").id)

    desk.archive.write(create)
    desk.state.show(-1, [])
    return disk


def _name(desk: Desk) -> str:
    """What a conversation begun on a slow disk is called in the end."""
    (number,) = desk.stored(lambda store: [desk.archive.conversations.known(-1)])
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
def test_whatever_happens_nothing_is_saved_under_the_name_of_another(
    qapp: object, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    desk = Desk(tmp_path_factory.mktemp("desk"))
    try:
        desk.load_model()
        for conversation in desk.ids:
            desk.branch(conversation)
        disk = _begin_on_a_slow_disk(desk)
        for step, which in steps:
            if step == "disk":
                disk.set()
                desk.stored(lambda store: [])
            else:
                _take(desk, step, [*desk.ids, -1][which])
        disk.set()
        names = dict(zip(("first", "second", "third"), map(str, desk.ids), strict=True))
        names["And"] = _name(desk)  # it begins with what `Desk.ask` asks
        holder = ""
        for command in desk.commands:
            if isinstance(command, SaveSnapshot):
                assert command.conversation == holder
            else:
                holder = names[command.turns[1].text.split()[0]]
    finally:
        desk.close()


def _take(desk: Desk, step: str, conversation: int) -> None:
    writing = desk.state.generation is not None
    match step:
        case "open":
            desk.open(conversation)
        case "answer" if not writing:
            desk.answer(conversation)
        case "ask" if not writing:
            desk.ask(conversation)
        case "end" if writing:
            desk.end_answer()
        case "quiet":
            desk.sessions.save()
        case "restore":
            desk.sessions.restore()
        case "leave":
            desk.sessions.shut_down()
        case "model" if not writing:
            desk.sessions.shut_down()
            desk.load_model()
        case "back" if desk.engine.count(LoadSnapshot):
            desk.engine.load_snapshot(10, 10, 10)
            desk.link.drain()
        case _:
            pass
