"""Snapshots: saved before the context is lost, and loaded when the conversation is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from app.chat.models.snapshots import QUIET_MILLISECONDS
from app.domain.chat import Conversation
from app.domain.chat_settings import ChatSettings
from app.domain.ids import new_id
from app.domain.model_ref import Local
from app.state.chat import Deletion, ModelPhase, ModelStatus
from app.state.snapshots import Resume, ResumePhase
from app.store.store import Store
from engine import (
    AdaptersSet,
    Chat,
    ContextPolicy,
    Failed,
    Restore,
    Role,
    Save,
    SnapshotLoaded,
    Turn,
)
from fakes import MODEL, Cancel, kind_of
from snapshot_fixture import SnapshotFixture
from stage import until


@pytest.fixture
def fixture(qtbot: QtBot, tmp_path: Path) -> Iterator[SnapshotFixture]:
    made = SnapshotFixture(tmp_path)
    yield made
    made.close()


@pytest.fixture
def opened(fixture: SnapshotFixture) -> SnapshotFixture:
    """A model is loaded, and the first conversation is shown and restored."""
    fixture.load_model()
    fixture.open(fixture.ids[0])
    fixture.settle()
    fixture.engine.load_snapshot(4096, 4096, 4096)
    fixture.settle()
    return fixture


def test_opened_conversation_loads_its_snapshot_with_its_prompt(
    fixture: SnapshotFixture,
) -> None:
    fixture.load_model()
    fixture.open(fixture.ids[0])
    fixture.settle()
    (asked,) = fixture.commands
    assert isinstance(asked, Restore)
    assert asked.conversation == str(fixture.ids[0])
    assert asked.turns == (
        Turn(Role.SYSTEM, "Be brief."),
        Turn(Role.USER, "first question"),
        Turn(Role.ASSISTANT, "first answer"),
    )
    assert fixture.shown.resume == Resume(fixture.ids[0])
    fixture.engine.load_snapshot(4000, 4090, 4096, reading=1.5)
    fixture.settle()
    assert fixture.shown.resume == Resume(
        fixture.ids[0], ResumePhase.DONE, 4000, 4090, 4096, 0.2, 1.5, ""
    )
    assert fixture.shown.resume.unread_tokens == 6


def test_load_waits_for_a_model(fixture: SnapshotFixture) -> None:
    fixture.open(fixture.ids[0])
    fixture.settle()
    assert fixture.commands == []
    fixture.load_model()
    fixture.settle()
    assert [kind_of(c) for c in fixture.commands] == [Restore]


def test_zero_budget_saves_and_loads_nothing(
    fixture: SnapshotFixture,
) -> None:
    fixture.settings = replace(fixture.settings, snapshot_budget_gb=0.0)
    fixture.load_model()
    fixture.open(fixture.ids[0])
    fixture.settle()
    fixture.answer(fixture.ids[0])
    fixture.ask(fixture.ids[1])
    fixture.sessions.shut_down()
    assert [kind_of(c) for c in fixture.commands] == [Chat, Chat]
    assert {c.budget_bytes for c in fixture.commands if isinstance(c, Chat)} == {0}


def test_cached_branch_is_not_loaded_again(opened: SnapshotFixture) -> None:
    opened.open(None)
    opened.settle()
    opened.open(opened.ids[0])
    opened.settle()
    assert opened.engine.count(Restore) == 1


def test_empty_conversation_loads_nothing(fixture: SnapshotFixture) -> None:
    fixture.load_model()
    fixture.open(None)
    fixture.settle()
    fixture.state.show(99, [])
    fixture.settle()
    assert fixture.commands == []


def test_opening_another_conversation_cancels_the_load(fixture: SnapshotFixture) -> None:
    fixture.load_model()
    fixture.open(fixture.ids[0])
    fixture.settle()
    first = fixture.engine.last(Restore)
    fixture.open(fixture.ids[1])
    fixture.settle()
    assert fixture.engine.last(Cancel).request == first.request
    assert fixture.engine.last(Restore).request != first.request
    assert fixture.shown.resume == Resume(fixture.ids[1])
    fixture.engine.deliver(SnapshotLoaded(first.request, 9, 9, 9, 0.1, 0.0, "too late"))
    fixture.settle()
    assert fixture.shown.resume == Resume(fixture.ids[1])
    fixture.engine.load_snapshot(1000, 1000, 1000)
    fixture.settle()
    assert fixture.shown.resume is not None
    assert fixture.shown.resume.restored_tokens == 1000


def test_conversation_shown_briefly_is_not_loaded(fixture: SnapshotFixture) -> None:
    fixture.load_model()
    for conversation in fixture.ids:
        fixture.open(conversation)
    fixture.settle()
    (asked,) = fixture.commands
    assert isinstance(asked, Restore)
    assert asked.conversation == str(fixture.ids[-1])


def test_answer_is_saved_after_the_idle_time(opened: SnapshotFixture) -> None:
    opened.ask(opened.ids[0])
    asked = opened.engine.last(Chat)
    assert (asked.conversation, asked.budget_bytes) == (str(opened.ids[0]), 5_000_000_000)
    (quiet,) = opened.timers(QUIET_MILLISECONDS)
    assert not quiet.isActive()
    opened.end_answer()
    assert quiet.isActive()
    quiet.setInterval(1)
    until(lambda: opened.engine.count(Save) == 1)
    saved = opened.engine.last(Save)
    assert (saved.conversation, saved.budget_bytes) == (str(opened.ids[0]), 5_000_000_000)
    assert not quiet.isActive()
    opened.sessions.shut_down()
    assert opened.engine.count(Save) == 1, "nothing is written twice"


def test_next_question_delays_saving(opened: SnapshotFixture) -> None:
    opened.answer(opened.ids[0])
    (quiet,) = opened.timers(QUIET_MILLISECONDS)
    opened.ask(opened.ids[0])
    assert not quiet.isActive()
    assert opened.engine.count(Save) == 0


def test_context_is_saved_before_another_conversation_is_loaded(opened: SnapshotFixture) -> None:
    opened.answer(opened.ids[0])
    seen: list[list[type]] = []
    opened.state.conversation_changed.connect(  # connected last, as app.chat.models.adapters is
        lambda: seen.append([kind_of(c) for c in opened.commands])
    )
    opened.open(opened.ids[1])
    assert seen == [[Restore, Chat, Save]]
    opened.settle()
    assert [kind_of(c) for c in opened.commands[-2:]] == [Save, Restore]


def test_opening_a_new_chat_saves_the_context(opened: SnapshotFixture) -> None:
    opened.answer(opened.ids[0])
    opened.open(None)
    assert opened.engine.last(Save).conversation == str(opened.ids[0])


def test_new_conversation_is_saved_under_its_stored_id(
    fixture: SnapshotFixture,
) -> None:
    fixture.load_model()
    made = new_id()
    fixture.store_queue.write(lambda store: store.create_conversation("new", id=made))
    fixture.state.show(made, [])
    fixture.answer(made)
    fixture.settle()
    fixture.sessions.shut_down()
    (number,) = fixture.stored(
        lambda store: [c.id for c in store.conversations() if c.title == "new"]
    )
    assert fixture.engine.last(Save).conversation == str(number)


def test_answer_elsewhere_saves_then_loads_its_conversation(
    opened: SnapshotFixture,
) -> None:
    opened.answer(opened.ids[0])
    opened.ask(opened.ids[2])
    kinds = [kind_of(c) for c in opened.commands[-3:]]
    assert kinds == [Save, Restore, Chat]
    saved, loaded, asked = opened.commands[-3:]
    assert isinstance(saved, Save)
    assert isinstance(loaded, Restore)
    assert isinstance(asked, Chat)
    assert (saved.conversation, loaded.conversation) == (str(opened.ids[0]), str(opened.ids[2]))
    assert loaded.turns == asked.turns
    opened.engine.load_snapshot(100, 100, 100)
    opened.settle()
    assert opened.shown.resume is None


def test_shown_conversation_is_loaded_after_an_answer_elsewhere(
    opened: SnapshotFixture,
) -> None:
    opened.ask(opened.ids[2])
    opened.settle()
    before = opened.engine.count(Restore)
    opened.end_answer()
    opened.settle()
    assert [kind_of(c) for c in opened.commands[-2:]] == [Save, Restore]
    assert opened.engine.count(Restore) == before + 1
    assert opened.engine.last(Restore).conversation == str(opened.ids[0])
    assert opened.engine.last(Save).conversation == str(opened.ids[2])


def test_question_during_a_load_is_queued_after_it(fixture: SnapshotFixture) -> None:
    fixture.load_model()
    fixture.open(fixture.ids[0])
    fixture.settle()
    fixture.ask(fixture.ids[0])
    assert [kind_of(c) for c in fixture.commands] == [Restore, Chat]
    assert fixture.engine.count(Cancel) == 0
    assert fixture.shown.resume is None
    fixture.engine.load_snapshot(4096, 4096, 4096)
    fixture.settle()
    assert fixture.shown.resume is None, "it was about the next message, which is under way"
    fixture.end_answer()
    fixture.open(fixture.ids[1])
    fixture.settle()
    assert fixture.engine.count(Cancel) == 0, "it is long back"


def test_new_conversation_loads_nothing_before_its_first_answer(
    fixture: SnapshotFixture,
) -> None:
    fixture.load_model()
    fixture.state.show(fixture.ids[0], [])
    fixture.state.show(None)
    fixture.ask(fixture.ids[0])
    assert [kind_of(c) for c in fixture.commands] == [Chat]


def test_branch_switch_saves_the_old_branch_before_loading(
    opened: SnapshotFixture,
) -> None:
    opened.answer(opened.ids[0])
    opened.state.show(opened.ids[0], opened.state.branches[opened.ids[0]][:2])
    opened.settle()
    assert [kind_of(c) for c in opened.commands[-2:]] == [Save, Restore]
    assert [t.text for t in opened.engine.last(Restore).turns][1:] == [
        "first question",
        "first answer",
    ]


def test_closing_during_an_answer_saves_its_partial_context(
    opened: SnapshotFixture,
) -> None:
    opened.ask(opened.ids[0])
    opened.sessions.shut_down()
    assert [kind_of(c) for c in opened.commands[-2:]] == [Chat, Save]
    opened.sessions.shut_down()
    assert opened.engine.last(Save).conversation == str(opened.ids[0])


def test_closing_cancels_the_load(fixture: SnapshotFixture) -> None:
    fixture.load_model()
    fixture.open(fixture.ids[0])
    fixture.settle()
    fixture.sessions.shut_down()
    assert fixture.engine.last(Cancel).request == fixture.engine.last(Restore).request
    assert fixture.engine.count(Save) == 0


def test_deleted_conversation_is_not_saved(opened: SnapshotFixture) -> None:
    opened.answer(opened.ids[0])
    opened.state.set_deletions([Deletion((opened.ids[0],))], offered=1)
    opened.open(None)
    assert opened.engine.count(Save) == 0


def test_another_model_starts_empty_and_loads_the_shown_conversation(
    opened: SnapshotFixture,
) -> None:
    opened.answer(opened.ids[0])
    opened.sessions.shut_down()
    opened.load_model()
    assert opened.shown.resume is None
    opened.settle()
    opened.sessions.shut_down()
    assert [kind_of(c) for c in opened.commands[-2:]] == [Save, Restore]


def test_context_of_an_unloaded_model_is_not_saved(opened: SnapshotFixture) -> None:
    opened.answer(opened.ids[0])
    opened.state.set_model(ModelStatus(ModelPhase.FAILED, Local(MODEL)))
    opened.load_model()
    opened.sessions.shut_down()
    assert opened.engine.count(Save) == 0


def test_changed_adapters_trigger_a_new_load(
    opened: SnapshotFixture,
) -> None:
    opened.answer(opened.ids[0])
    opened.link.drain()
    opened.engine.deliver(AdaptersSet(1000, (), changed=True))
    opened.link.drain()
    opened.runner.on_adapters_set(AdaptersSet(1000, (), True))
    opened.settle()
    assert kind_of(opened.commands[-1]) is Restore
    assert opened.engine.count(Save) == 0, "there is nothing left to save"
    opened.engine.load_snapshot(0, 0, 4096, reading=12.0, refused="It had other adapters.")
    opened.settle()
    assert opened.shown.resume is not None
    assert opened.shown.resume.unread_tokens == 4096


@pytest.mark.parametrize(("request_number", "changed"), [(0, True), (1000, False)])
def test_unchanged_adapters_trigger_no_load(
    opened: SnapshotFixture, request_number: int, changed: bool
) -> None:
    asked = opened.engine.count(Restore)
    opened.runner.on_adapters_set(AdaptersSet(request_number, (), changed))
    opened.settle()
    assert opened.engine.count(Restore) == asked


def test_a_failed_save_is_reported_until_one_succeeds(opened: SnapshotFixture) -> None:
    opened.answer(opened.ids[0])
    opened.sessions.shut_down()
    request = opened.engine.last(Save).request
    opened.engine.deliver(Failed(request, "The disk is full.", "Free some space."))
    opened.settle()
    assert (opened.shown.saved.error, opened.shown.saved.remedy) == (
        "The disk is full.",
        "Free some space.",
    )
    opened.answer(opened.ids[0])
    opened.sessions.shut_down()
    opened.engine.save_snapshot()
    opened.settle()
    assert opened.shown.saved.error == ""


def test_failed_load_shows_no_resume_status(
    fixture: SnapshotFixture,
) -> None:
    fixture.load_model()
    fixture.open(fixture.ids[0])
    fixture.settle()
    fixture.engine.deliver(Failed(fixture.engine.last(Restore).request, "It has no template.", ""))
    fixture.settle()
    assert fixture.shown.resume is None
    assert fixture.resumes[-1] is None


def test_disk_space_is_measured_on_request_and_after_each_save(opened: SnapshotFixture) -> None:
    opened.answer(opened.ids[0])
    opened.sessions.shut_down()
    opened.engine.save_snapshot()
    opened.settle()
    assert opened.shown.saved.size_bytes == -1, "nobody has asked yet"
    opened.sessions.measure()
    until(lambda: opened.shown.saved.size_bytes == 700)
    opened.size = 900
    opened.answer(opened.ids[0])
    opened.sessions.shut_down()
    opened.engine.save_snapshot()
    opened.link.drain()
    until(lambda: opened.shown.saved.size_bytes == 900)


def test_deleting_all_snapshots_updates_the_size(opened: SnapshotFixture) -> None:
    opened.sessions.delete_saved()
    assert opened.shown.saved.deleting
    until(lambda: opened.shown.saved.size_bytes == 0)
    assert not opened.shown.saved.deleting
    assert opened.deletes == [None]


def test_failed_deletion_of_snapshots_is_reported(opened: SnapshotFixture) -> None:
    opened.delete_error = PermissionError(13, "Permission denied")
    opened.sessions.delete_saved()
    until(lambda: opened.shown.saved.size_bytes == 700)
    saved = opened.shown.saved
    assert saved.error == "The data for resuming chats could not be deleted: Permission denied."
    assert saved.remedy


def test_deleting_a_conversation_deletes_only_its_snapshot(opened: SnapshotFixture) -> None:
    first, second = opened.ids[:2]
    opened.sessions.forget([first, second])
    until(lambda: bool(opened.deletes))
    assert opened.deletes == [(str(first), str(second))]


def test_context_of_a_deleted_conversation_is_not_saved(opened: SnapshotFixture) -> None:
    first = opened.ids[0]
    opened.answer(first)
    saves = opened.engine.count(Save)
    opened.sessions.forget([first])
    opened.sessions.save()
    assert opened.engine.count(Save) == saves
    until(lambda: bool(opened.deletes))


def test_hanging_disk_does_not_block_conversations(fixture: SnapshotFixture) -> None:
    fixture.disk_answers.clear()
    try:
        fixture.sessions.measure()
        fixture.store_queue.write(lambda store: store.create_conversation("Saved meanwhile"))
        titles = fixture.stored(lambda store: [c.title for c in store.conversations()])
        assert "Saved meanwhile" in titles
    finally:
        fixture.disk_answers.set()
    fixture.settle()
    assert fixture.shown.saved.size_bytes == 700


def test_full_chat_whose_policy_is_to_stop_says_so(fixture: SnapshotFixture) -> None:
    fixture.load_model()
    for policy, full in ((ContextPolicy.STOP, True), (ContextPolicy.DROP_OLDEST, False)):
        row = Conversation(fixture.ids[0], "A chat", 0.0, 0.0, None, ChatSettings(policy=policy))
        fixture.state.set_conversations([row])
        fixture.open(fixture.ids[0])
        fixture.settle()
        model = fixture.state.model.loaded
        assert model is not None
        fixture.engine.load_snapshot(0, 0, model.context + 1, reading=9.0)
        fixture.settle()
        assert fixture.shown.resume is not None
        assert fixture.shown.resume.full is full
        fixture.open(fixture.ids[1])
        fixture.settle()


# --- names ----------------------------------------------------------------------------------------


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
