"""What was read is saved before it is lost, under the right name, and comes back when it is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.snapshots import QUIET_MILLISECONDS
from app.state.chat import ModelPhase, ModelStatus
from app.state.snapshots import Resume, ResumePhase
from engine import (
    AdaptersSet,
    Cancel,
    Failed,
    Generate,
    LoadSnapshot,
    Role,
    SaveSnapshot,
    SnapshotLoaded,
    SnapshotSaved,
    Turn,
)
from fakes import MODEL
from session_desk import Desk
from stage import until


@pytest.fixture
def desk(qtbot: QtBot, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def opened(desk: Desk) -> Desk:
    """A model is there, and the first conversation is open and back."""
    desk.load_model()
    desk.open(desk.ids[0])
    desk.settle()
    desk.engine.load_snapshot(4096, 4096, 4096)
    desk.settle()
    return desk


def test_an_opened_conversation_is_brought_back_as_it_would_be_asked(desk: Desk) -> None:
    desk.load_model()
    desk.open(desk.ids[0])
    desk.settle()
    (asked,) = desk.commands
    assert isinstance(asked, LoadSnapshot)
    assert asked.conversation == str(desk.ids[0])
    assert asked.turns == (
        Turn(Role.SYSTEM, "Be brief."),
        Turn(Role.USER, "first question"),
        Turn(Role.ASSISTANT, "first answer"),
    )
    assert desk.shown.resume == Resume(desk.ids[0])
    desk.engine.load_snapshot(4000, 4090, 4096, reading=1.5)
    desk.settle()
    assert desk.shown.resume == Resume(
        desk.ids[0], ResumePhase.DONE, 4000, 4090, 4096, 0.2, 1.5, ""
    )
    assert desk.shown.resume.unread_tokens == 6
    assert desk.taken == [True]


def test_it_waits_for_a_model(desk: Desk) -> None:
    desk.open(desk.ids[0])
    desk.settle()
    assert desk.commands == []
    desk.load_model()
    desk.settle()
    assert [type(c) for c in desk.commands] == [LoadSnapshot]


def test_with_no_room_for_it_nothing_is_saved_and_nothing_brought_back(desk: Desk) -> None:
    desk.settings = replace(desk.settings, snapshot_budget_gb=0.0)
    desk.load_model()
    desk.open(desk.ids[0])
    desk.settle()
    desk.answer(desk.ids[0])
    desk.ask(desk.ids[1])
    desk.sessions.shut_down()
    assert [type(c) for c in desk.commands] == [Generate, Generate]


def test_what_is_there_is_not_asked_for_again(opened: Desk) -> None:
    opened.open(None)
    opened.settle()
    opened.open(opened.ids[0])
    opened.settle()
    assert opened.engine.count(LoadSnapshot) == 1


def test_an_empty_conversation_asks_for_nothing(desk: Desk) -> None:
    desk.load_model()
    desk.open(None)
    desk.settle()
    desk.state.show(99, [])
    desk.settle()
    assert desk.commands == []


def test_opening_another_conversation_gives_the_first_up(desk: Desk) -> None:
    desk.load_model()
    desk.open(desk.ids[0])
    desk.settle()
    first = desk.engine.last(LoadSnapshot)
    desk.open(desk.ids[1])
    desk.settle()
    assert desk.engine.last(Cancel).request == first.request
    assert desk.engine.last(LoadSnapshot).request != first.request
    assert desk.shown.resume == Resume(desk.ids[1])
    desk.engine.deliver(SnapshotLoaded(first.request, 9, 9, 9, 0.1, 0.0, "too late"))
    desk.settle()
    assert desk.shown.resume == Resume(desk.ids[1])
    assert desk.taken == [True]
    desk.engine.load_snapshot(1000, 1000, 1000)
    desk.settle()
    assert desk.shown.resume is not None
    assert desk.shown.resume.restored_tokens == 1000


def test_what_is_passed_by_is_never_asked_for(desk: Desk) -> None:
    desk.load_model()
    for conversation in desk.ids:
        desk.open(conversation)
    desk.settle()
    (asked,) = desk.commands
    assert isinstance(asked, LoadSnapshot)
    assert asked.conversation == str(desk.ids[-1])


def test_an_answer_is_saved_when_nothing_happens_for_a_while(opened: Desk) -> None:
    opened.ask(opened.ids[0])
    (quiet,) = opened.timers(QUIET_MILLISECONDS)
    assert not quiet.isActive()
    opened.end_answer()
    assert quiet.isActive()
    quiet.setInterval(1)
    until(lambda: opened.engine.count(SaveSnapshot) == 1)
    saved = opened.engine.last(SaveSnapshot)
    assert (saved.conversation, saved.budget_bytes) == (str(opened.ids[0]), 5_000_000_000)
    assert not quiet.isActive()
    opened.sessions.shut_down()
    assert opened.engine.count(SaveSnapshot) == 1, "nothing is written twice"


def test_the_next_question_puts_saving_off(opened: Desk) -> None:
    opened.answer(opened.ids[0])
    (quiet,) = opened.timers(QUIET_MILLISECONDS)
    opened.ask(opened.ids[0])
    assert not quiet.isActive()
    assert opened.engine.count(SaveSnapshot) == 0


def test_it_is_saved_before_anything_of_the_next_conversation(opened: Desk) -> None:
    opened.answer(opened.ids[0])
    seen: list[list[type]] = []
    opened.state.conversation_changed.connect(  # as app.chat.adapters listens: made after, told after
        lambda: seen.append([type(c) for c in opened.commands])
    )
    opened.open(opened.ids[1])
    assert seen == [[LoadSnapshot, Generate, SaveSnapshot]]
    opened.settle()
    assert [type(c) for c in opened.commands[-2:]] == [SaveSnapshot, LoadSnapshot]


def test_leaving_for_an_empty_chat_saves_too(opened: Desk) -> None:
    opened.answer(opened.ids[0])
    opened.open(None)
    assert opened.engine.last(SaveSnapshot).conversation == str(opened.ids[0])


def test_a_conversation_of_this_run_has_the_name_it_will_have_in_the_next(desk: Desk) -> None:
    desk.load_model()
    desk.archive.write(
        lambda store: desk.archive.conversations.pair(-1, store.create_conversation("new").id)
    )
    desk.state.show(-1, [])
    desk.answer(-1)
    desk.settle()
    desk.sessions.shut_down()
    (number,) = desk.stored(lambda store: [c.id for c in store.conversations() if c.title == "new"])
    assert desk.engine.last(SaveSnapshot).conversation == str(number)


def test_an_answer_elsewhere_first_saves_then_brings_its_own_conversation_back(
    opened: Desk,
) -> None:
    opened.answer(opened.ids[0])
    opened.ask(opened.ids[2])
    kinds = [type(c) for c in opened.commands[-3:]]
    assert kinds == [SaveSnapshot, LoadSnapshot, Generate]
    saved, loaded, asked = opened.commands[-3:]
    assert isinstance(saved, SaveSnapshot)
    assert isinstance(loaded, LoadSnapshot)
    assert isinstance(asked, Generate)
    assert (saved.conversation, loaded.conversation) == (str(opened.ids[0]), str(opened.ids[2]))
    assert loaded.turns == asked.turns
    opened.engine.load_snapshot(100, 100, 100)
    opened.settle()
    assert opened.taken[-1]
    assert opened.shown.resume is None


def test_an_answer_elsewhere_that_ends_makes_way_for_the_shown_conversation(opened: Desk) -> None:
    opened.ask(opened.ids[2])
    opened.settle()
    before = opened.engine.count(LoadSnapshot)
    opened.end_answer()
    opened.settle()
    assert [type(c) for c in opened.commands[-2:]] == [SaveSnapshot, LoadSnapshot]
    assert opened.engine.count(LoadSnapshot) == before + 1
    assert opened.engine.last(LoadSnapshot).conversation == str(opened.ids[0])
    assert opened.engine.last(SaveSnapshot).conversation == str(opened.ids[2])


def test_a_question_while_it_comes_back_queues_behind_it(desk: Desk) -> None:
    desk.load_model()
    desk.open(desk.ids[0])
    desk.settle()
    desk.ask(desk.ids[0])
    assert [type(c) for c in desk.commands] == [LoadSnapshot, Generate]
    assert desk.engine.count(Cancel) == 0
    assert desk.shown.resume is None
    desk.engine.load_snapshot(4096, 4096, 4096)
    desk.settle()
    assert desk.taken == [True]
    assert desk.shown.resume is None, "it was about the next message, which is under way"
    desk.end_answer()
    desk.open(desk.ids[1])
    desk.settle()
    assert desk.engine.count(Cancel) == 0, "it is long back"


def test_a_new_conversation_asks_for_nothing_before_its_first_answer(desk: Desk) -> None:
    desk.load_model()
    desk.state.show(desk.ids[0], [])
    desk.state.show(None)
    desk.ask(desk.ids[0])
    assert [type(c) for c in desk.commands] == [Generate]


def test_another_branch_is_asked_for_after_the_one_before_was_saved(opened: Desk) -> None:
    opened.answer(opened.ids[0])
    opened.state.show(opened.ids[0], opened.state.branches[opened.ids[0]][:2])
    opened.settle()
    assert [type(c) for c in opened.commands[-2:]] == [SaveSnapshot, LoadSnapshot]
    assert [t.text for t in opened.engine.last(LoadSnapshot).turns][1:] == [
        "first question",
        "first answer",
    ]


def test_leaving_in_the_middle_of_an_answer_saves_what_there_is_of_it(opened: Desk) -> None:
    opened.ask(opened.ids[0])
    opened.sessions.shut_down()
    assert [type(c) for c in opened.commands[-2:]] == [Generate, SaveSnapshot]
    opened.sessions.shut_down()
    assert opened.engine.last(SaveSnapshot).conversation == str(opened.ids[0])


def test_leaving_gives_up_what_is_on_its_way_back(desk: Desk) -> None:
    desk.load_model()
    desk.open(desk.ids[0])
    desk.settle()
    desk.sessions.shut_down()
    assert desk.engine.last(Cancel).request == desk.engine.last(LoadSnapshot).request
    assert desk.engine.count(SaveSnapshot) == 0


def test_a_deleted_conversation_is_not_saved(opened: Desk) -> None:
    opened.answer(opened.ids[0])
    opened.state.set_deleted([opened.ids[0]])
    opened.open(None)
    assert opened.engine.count(SaveSnapshot) == 0


def test_another_model_begins_with_nothing_and_is_brought_there(opened: Desk) -> None:
    opened.answer(opened.ids[0])
    opened.sessions.shut_down()
    opened.load_model()
    assert opened.shown.resume is None
    opened.settle()
    opened.sessions.shut_down()
    assert [type(c) for c in opened.commands[-2:]] == [SaveSnapshot, LoadSnapshot]


def test_what_a_model_took_along_is_not_saved_for_the_next(opened: Desk) -> None:
    opened.answer(opened.ids[0])
    opened.state.set_model(ModelStatus(ModelPhase.FAILED, MODEL))
    opened.load_model()
    opened.sessions.shut_down()
    assert opened.engine.count(SaveSnapshot) == 0


def test_adapters_that_make_the_engine_forget_are_followed_by_what_that_costs(
    opened: Desk,
) -> None:
    opened.answer(opened.ids[0])
    opened.link.drain()
    opened.engine.deliver(AdaptersSet(1000, (), changed=True, discarded_tokens=4096))
    opened.link.drain()
    opened.sessions.on_adapters_set(AdaptersSet(1000, (), True, 4096))
    opened.settle()
    assert type(opened.commands[-1]) is LoadSnapshot
    assert opened.engine.count(SaveSnapshot) == 0, "there is nothing left to save"
    opened.engine.load_snapshot(0, 0, 4096, reading=12.0, refused="It had other adapters.")
    opened.settle()
    assert opened.shown.resume is not None
    assert opened.shown.resume.unread_tokens == 4096


@pytest.mark.parametrize(("request_number", "changed"), [(0, True), (1000, False)])
def test_adapters_that_change_nothing_now_cost_nothing(
    opened: Desk, request_number: int, changed: bool
) -> None:
    asked = opened.engine.count(LoadSnapshot)
    opened.sessions.on_adapters_set(AdaptersSet(request_number, (), changed, 0))
    opened.settle()
    assert opened.engine.count(LoadSnapshot) == asked


def test_a_save_that_fails_is_told_until_one_succeeds(opened: Desk) -> None:
    opened.answer(opened.ids[0])
    opened.sessions.shut_down()
    request = opened.engine.last(SaveSnapshot).request
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
    assert all(opened.taken)


def test_a_conversation_that_cannot_be_brought_back_is_left_as_it_is(desk: Desk) -> None:
    desk.load_model()
    desk.open(desk.ids[0])
    desk.settle()
    desk.engine.deliver(Failed(desk.engine.last(LoadSnapshot).request, "It has no template.", ""))
    desk.settle()
    assert desk.taken == [True]
    assert desk.shown.resume is None
    assert desk.resumes[-1] is None


def test_events_of_others_are_left_to_them(opened: Desk) -> None:
    assert not opened.sessions.on_failed(Failed(999, "What?", ""))
    assert not opened.sessions.on_snapshot_loaded(SnapshotLoaded(999, 0, 0, 0, 0.0, 0.0, ""))
    assert not opened.sessions.on_snapshot_saved(SnapshotSaved(999, 1, 1, 0.1, 0))


def test_what_is_saved_is_measured_when_asked_and_after_each_save(opened: Desk) -> None:
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


def test_deleting_what_is_saved_shows_that_it_is_gone(opened: Desk) -> None:
    opened.sessions.delete_saved()
    assert opened.shown.saved.deleting
    until(lambda: opened.shown.saved.size_bytes == 0)
    assert not opened.shown.saved.deleting
    assert opened.deletes == [None]


def test_what_cannot_be_deleted_is_said(opened: Desk) -> None:
    opened.delete_error = PermissionError(13, "Permission denied")
    opened.sessions.delete_saved()
    until(lambda: opened.shown.saved.size_bytes == 700)
    saved = opened.shown.saved
    assert saved.error == "Saved reading could not be deleted: Permission denied."
    assert saved.remedy


def test_deleting_a_conversation_deletes_what_was_read_of_it_alone(opened: Desk) -> None:
    first, second = opened.ids[:2]
    opened.sessions.forget([first, second])
    until(lambda: bool(opened.deletes))
    assert opened.deletes == [(str(first), str(second))]


def test_a_deleted_conversation_is_not_saved_any_more(opened: Desk) -> None:
    first = opened.ids[0]
    opened.answer(first)
    saves = opened.engine.count(SaveSnapshot)
    opened.sessions.forget([first])
    opened.sessions.save()
    assert opened.engine.count(SaveSnapshot) == saves
    until(lambda: bool(opened.deletes))


def test_a_disk_that_does_not_answer_holds_up_no_conversation(desk: Desk) -> None:
    desk.disk_answers.clear()
    try:
        desk.sessions.measure()
        desk.archive.write(lambda store: store.create_conversation("Saved meanwhile"))
        titles = desk.stored(lambda store: [c.title for c in store.conversations()])
        assert "Saved meanwhile" in titles
    finally:
        desk.disk_answers.set()
    desk.settle()
    assert desk.shown.saved.size_bytes == 700
