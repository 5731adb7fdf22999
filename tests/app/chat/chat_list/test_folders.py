"""Folders, pins, the archive and copies of chats, in the state and in the store."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.domain.chat import Conversation
from app.domain.chat_settings import ChatSettings
from app.state.chat import State
from app.store.store import Store
from engine import Chat, Role
from fakes import MODEL
from stage import Stage, until


def begin(stage: Stage, title: str, folder: int | None = None) -> int:
    """Begin a chat in a folder; it is answered."""
    stage.controller.new_conversation(folder)
    assert stage.controller.send(title)
    stage.drain()
    stage.engine.write(f"About {title}")
    stage.engine.finish()
    stage.wait_until_idle()
    assert stage.state.current is not None
    return stage.state.current


def places(stage: Stage) -> dict[str, int | None]:
    return {chat.title: chat.folder for chat in stage.state.conversations}


def stored(stage: Stage) -> tuple[list[Conversation], list[object]]:
    """The chats and folders as the store has them."""
    found: list[tuple[list[Conversation], list[object]]] = []

    def read(store: Store) -> tuple[list[Conversation], list[object]]:
        return store.conversations(), list(store.folders())

    stage.store_queue.read(read, found.append)
    until(lambda: bool(found))
    return found[0]


def assert_saved(stage: Stage) -> None:
    """The store has the chats, their places and the folders of the state."""
    stage.wait_until_idle()
    chats, folders = stored(stage)
    state = stage.state
    assert {(c.id, c.folder, c.pinned, c.archived) for c in chats} == {
        (c.id, c.folder, c.pinned, c.archived) for c in state.conversations
    }
    assert folders == list(state.folders)


def chat(state: State, number: int) -> Conversation:
    found = state.conversation(number)
    assert found is not None
    return found


def searched(stage: Stage, words: str) -> list[str]:
    stage.controller.conversations.search(words)
    stage.wait_until_idle()
    found = stage.state.found
    return [each.title for each in found]


def test_a_new_chat_begins_in_the_chosen_folder_with_its_instructions(stage: Stage) -> None:
    stage.ready(MODEL)
    folders = stage.controller.folders
    work = folders.create("Work")
    sub = folders.create("Sub", work)
    folder = stage.state.folder(work)
    assert folder is not None
    folders.change(replace(folder, instructions="Be brief."))
    begin(stage, "One", sub)
    assert places(stage) == {"One": sub}
    turns = stage.engine.last(Chat).turns
    assert (turns[0].role, turns[0].text) == (Role.SYSTEM, "Be brief.")
    stage.controller.new_conversation()
    begin(stage, "Two")
    assert places(stage)["Two"] is None
    assert stage.engine.last(Chat).turns[0].role is Role.USER
    assert_saved(stage)


def test_the_panel_shows_the_instructions_of_the_folder_of_a_new_chat(stage: Stage) -> None:
    stage.ready(MODEL)
    work = stage.controller.folders.create("Work")
    folder = stage.state.folder(work)
    assert folder is not None
    stage.controller.new_conversation(work)
    stage.controller.folders.change(replace(folder, instructions="Be brief."))
    assert stage.states.chat_settings.shown.usual_instructions == "Be brief."


def test_deleting_a_folder_moves_its_chats_to_the_trash_and_one_undo_restores_all(
    stage: Stage,
) -> None:
    stage.ready(MODEL)
    work = stage.controller.folders.create("Work")
    sub = stage.controller.folders.create("Sub", work)
    for title, folder in (("In", work), ("Deep", sub), ("Out", None)):
        begin(stage, title, folder)
    before = (places(stage), stage.state.folders)
    stage.controller.deletions.delete([], [work])
    stage.wait_until_idle()
    assert places(stage) == {"Out": None}
    assert stage.state.folders == ()
    assert {one.title for one in stage.state.trash} == {"In", "Deep"}
    assert_saved(stage)
    stage.controller.deletions.undo()
    stage.wait_until_idle()
    assert (places(stage), stage.state.folders) == before
    assert stage.state.trash == ()
    assert_saved(stage)


def test_a_chat_restored_from_the_trash_brings_its_folder_back(stage: Stage) -> None:
    stage.ready(MODEL)
    work = stage.controller.folders.create("Work")
    first, _ = begin(stage, "One", work), begin(stage, "Two", work)
    stage.controller.deletions.delete([], [work])
    stage.controller.deletions.restore([first])
    stage.wait_until_idle()
    assert places(stage) == {"One": work}
    assert [folder.name for folder in stage.state.folders] == ["Work"]
    stage.controller.deletions.undo()
    stage.wait_until_idle()
    assert places(stage) == {"One": work, "Two": work}
    assert_saved(stage)


def test_moves_and_archiving_are_undone_in_turn(stage: Stage) -> None:
    stage.ready(MODEL)
    folders, undo = stage.controller.folders, stage.controller.deletions.undo
    work, home = folders.create("Work"), folders.create("Home")
    one, two = begin(stage, "One"), begin(stage, "Two", home)
    folders.move([one, two], work)
    folders.archive([one], archived=True)
    folders.place(home, work)
    assert places(stage) == {"Two": work, "One": work}
    undo()
    assert [folder.parent for folder in stage.state.folders] == [None, None]
    undo()
    assert not any(chat.archived for chat in stage.state.conversations)
    undo()
    assert places(stage) == {"Two": home, "One": None}
    undo()  # nothing is left to undo
    assert_saved(stage)


def test_a_message_puts_an_archived_chat_back_into_the_list(stage: Stage) -> None:
    stage.ready(MODEL)
    one = begin(stage, "One")
    stage.controller.folders.archive([one], archived=True)
    assert stage.state.conversations[0].archived
    stage.controller.send("More")
    assert not stage.state.conversations[0].archived
    stage.controller.stop()
    assert_saved(stage)


def test_a_folder_needs_a_name_and_stays_out_of_itself(stage: Stage) -> None:
    stage.ready(MODEL)
    folders = stage.controller.folders
    work = folders.create("Work")
    sub = folders.create("Sub", work)
    folders.rename(work, "  ")
    folders.rename(work, "a\n b")
    folders.place(work, sub)
    assert [(f.name, f.parent) for f in stage.state.folders] == [("a b", None), ("Sub", work)]
    assert_saved(stage)


def test_a_fork_is_shown_and_goes_on_apart(stage: Stage) -> None:
    stage.ready(MODEL)
    work = stage.controller.folders.create("Work")
    source = begin(stage, "One", work)
    settings = ChatSettings(instructions="Be brief.", stop=("#",))
    stage.controller.chat_settings.change(source, settings)
    answer = stage.state.messages[-1]
    stage.controller.send("More")
    stage.controller.stop()
    stage.wait_until_idle()
    stage.controller.copies.fork(answer.id)
    stage.wait_until_idle()
    state = stage.state
    made = state.conversation(state.current)
    assert made is not None
    assert made.id != source
    assert (made.title, made.folder, made.settings) == ("One (fork)", work, settings)
    assert [message.text for message in state.messages] == ["One", "About One"]
    assert stage.controller.send("Apart")
    stage.controller.stop()
    stage.wait_until_idle()
    assert [message.text for message in state.branches[source]][:3] == ["One", "About One", "More"]
    assert_saved(stage)


def test_an_answer_in_progress_is_copied_as_far_as_it_is_written(stage: Stage) -> None:
    stage.ready(MODEL)
    source = begin(stage, "One")
    stage.controller.send("More")
    stage.drain()
    stage.engine.write("Half an answ")
    stage.drain()
    stage.controller.copies.duplicate([source])
    stage.wait_until_idle()
    state = stage.state
    assert state.title(state.current) == "One (copy)"
    assert [message.text for message in state.messages] == [
        "One", "About One", "More", "Half an answ",
    ]  # fmt: skip
    assert not state.busy
    stage.engine.finish()
    stage.wait_until_idle()
    assert state.branches[source][-1].text == "Half an answ"


@pytest.mark.parametrize("seed", range(3))
def test_any_moves_deletions_and_undos_lose_no_chat(stage: Stage, seed: int) -> None:
    """The state and the store agree after each, and undoing all deletions restores every chat."""
    stage.start()
    choose = random.Random(seed)
    folders, deletions, state = stage.controller.folders, stage.controller.deletions, stage.state
    titles = [f"Chat {number}" for number in range(6)]
    for title in titles:
        stage.controller.new_conversation()
        stage.controller.send(title)
        stage.controller.stop()
    for number in range(3):
        folders.create(f"Folder {number}")
    stage.wait_until_idle()
    for _ in range(40):
        chats = [chat.id for chat in state.conversations]
        known = [folder.id for folder in state.folders]
        some = choose.sample(chats, min(len(chats), choose.randrange(1, 3)))
        place = choose.choice([None, *known])
        match choose.randrange(8):
            case 0:
                folders.move(some, place)
            case 1:
                folders.archive(some, archived=choose.random() < 0.6)
            case 2 if known:
                folders.place(choose.choice(known), place, choose.choice([None, *known]))
            case 3 if known:
                deletions.delete(some[:1], [choose.choice(known)])
            case 4:
                deletions.delete(some)
            case 5:
                deletions.restore([one.id for one in state.trash[:1]])
            case 6:
                folders.create("Another", place, some)
            case _:
                deletions.undo()
        if choose.random() < 0.5:
            stage.wait_until_idle()
            everywhere = {c.title for c in state.conversations} | {c.title for c in state.trash}
            assert everywhere == set(titles)
            assert_saved(stage)
    while state.deletions:
        deletions.undo()
    deletions.restore([one.id for one in state.trash])
    stage.wait_until_idle()
    assert {chat.title for chat in state.conversations} == set(titles)
    assert state.trash == ()
    assert_saved(stage)


def test_archived_chat_goes_with_its_deleted_folder_and_comes_back_archived(stage: Stage) -> None:
    stage.ready(MODEL)
    folders, deletions = stage.controller.folders, stage.controller.deletions
    work = folders.create("Work")
    one = begin(stage, "One", work)
    folders.archive([one], archived=True)
    deletions.delete([], [work])
    stage.wait_until_idle()
    assert [each.title for each in stage.state.trash] == ["One"]
    deletions.undo()
    stage.wait_until_idle()
    back = chat(stage.state, one)
    assert (back.folder, back.archived) == (work, True)
    assert_saved(stage)


def test_pinned_chat_can_be_archived_and_keeps_folder_and_pin(stage: Stage) -> None:
    stage.ready(MODEL)
    folders = stage.controller.folders
    work = folders.create("Work")
    one = begin(stage, "One", work)
    folders.pin([one], pinned=True)
    assert chat(stage.state, one).folder == work
    folders.archive([one], archived=True)
    stage.wait_until_idle()
    assert searched(stage, "About") == ["One"]
    folders.archive([one], archived=False)
    folders.pin([one], pinned=False)
    back = chat(stage.state, one)
    assert (back.folder, back.pinned, back.archived) == (work, False, False)
    assert_saved(stage)


def test_order_is_by_last_message_and_not_by_sorting_the_list(stage: Stage) -> None:
    stage.ready(MODEL)
    folders = stage.controller.folders
    work = folders.create("Work")
    one, two = begin(stage, "One"), begin(stage, "Two")
    before = {each.id: each.updated for each in stage.state.conversations}
    folders.move([one], work)
    folders.pin([one], pinned=True)
    folders.archive([one], archived=True)
    folders.archive([one], archived=False)
    stage.controller.conversations.rename(one, "Other")
    stage.controller.open_conversation(one)
    stage.wait_until_idle()
    stage.controller.open_conversation(two)
    stage.wait_until_idle()
    assert {each.id: each.updated for each in stage.state.conversations} == before
    assert_saved(stage)


def test_chat_that_is_answered_is_moved_and_its_answer_goes_on(stage: Stage) -> None:
    stage.ready(MODEL)
    folders = stage.controller.folders
    work = folders.create("Work")
    one = begin(stage, "One")
    stage.controller.send("More")
    stage.drain()
    stage.engine.write("Half ")
    folders.move([one], work)
    folders.pin([one], pinned=True)
    stage.controller.new_conversation()
    stage.engine.write("and half")
    stage.engine.finish()
    stage.wait_until_idle()
    assert stage.state.branches[one][-1].text == "Half and half"
    assert places(stage) == {"One": work}
    assert_saved(stage)


def test_forks_of_forks_answer_apart_and_the_first_chat_is_as_it_was(stage: Stage) -> None:
    stage.ready(MODEL)
    first = begin(stage, "One")
    settings = replace(
        stage.state.settings(first), instructions="Be brief.", stop=("#",), sampling={"seed": 3}
    )
    stage.controller.chat_settings.change(first, settings)
    made = [first]
    for _ in range(3):
        stage.controller.copies.fork(stage.state.messages[-1].id)
        stage.wait_until_idle()
        assert stage.state.current is not None
        made.append(stage.state.current)
        assert stage.controller.send("More")
        stage.drain()
        command = stage.engine.last(Chat)
        assert command.sampling.seed == 3
        assert command.turns[0].text == "Be brief."
        stage.engine.write("Yes.")
        stage.engine.finish()
        stage.wait_until_idle()
    lengths = [len(stage.state.branches[number]) for number in made]
    assert lengths == [2, 4, 6, 8]
    assert len({message.id for n in made for message in stage.state.branches[n]}) == sum(lengths)
    assert all(stage.state.settings(number) == settings for number in made)


def test_fork_from_the_middle_leaves_out_what_follows_and_the_other_branch(stage: Stage) -> None:
    stage.ready(MODEL)
    source = begin(stage, "One")
    middle = stage.state.messages[-1].id
    stage.controller.regenerate(middle)
    stage.drain()
    stage.engine.write("Again")
    stage.engine.finish()
    stage.wait_until_idle()
    answer = stage.state.messages[-1].id
    stage.controller.send("More")
    stage.controller.stop()
    stage.wait_until_idle()
    stage.controller.copies.fork(answer)
    stage.wait_until_idle()
    assert [(m.text, m.siblings) for m in stage.state.messages] == [("One", 1), ("Again", 1)]
    stage.controller.open_conversation(source)
    stage.wait_until_idle()
    assert [m.text for m in stage.state.messages][:3] == ["One", "Again", "More"]
    assert stage.state.messages[1].siblings == 2


def test_duplicate_of_a_pinned_archived_chat_is_shown_in_the_list(stage: Stage) -> None:
    stage.ready(MODEL)
    folders = stage.controller.folders
    work = folders.create("Work")
    one = begin(stage, "One", work)
    folders.archive([one], archived=True)
    stage.controller.copies.duplicate([one])
    stage.wait_until_idle()
    made = chat(stage.state, stage.state.current or 0)
    assert (made.title, made.folder, made.archived) == ("One (copy)", work, False)
    assert chat(stage.state, one).archived
    assert_saved(stage)


def test_instructions_of_a_folder_reach_a_chat_that_is_moved_into_it(stage: Stage) -> None:
    stage.ready(MODEL)
    folders = stage.controller.folders
    work = folders.create("Work")
    folder = stage.state.folder(work)
    assert folder is not None
    folders.change(replace(folder, instructions="Be brief."))
    own = begin(stage, "Own")
    stage.controller.chat_settings.change(own, ChatSettings(instructions="Be long."))
    usual = begin(stage, "Usual")
    folders.move([own, usual], work)
    for number, expected in ((own, "Be long."), (usual, "Be brief.")):
        stage.controller.open_conversation(number)
        stage.wait_until_idle()
        assert stage.controller.send("More")
        stage.drain()
        assert stage.engine.last(Chat).turns[0].text == expected
        stage.engine.finish()
        stage.wait_until_idle()


def test_message_searched_in_a_folder_and_in_the_archive_is_found_after_a_restart(
    qtbot: QtBot, tmp_path: Path
) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    folders = stage.controller.folders
    sub = folders.create("Sub", folders.create("Work"))
    begin(stage, "One", sub)
    two = begin(stage, "Two")
    folders.archive([two], archived=True)
    folders.pin([two], pinned=True)
    stage.wait_until_idle()
    before = {(c.id, c.folder, c.pinned, c.archived) for c in stage.state.conversations}
    kept = stage.state.folders
    stage.close()
    again = Stage(tmp_path)
    try:
        again.start()
        assert sorted(searched(again, "About")) == ["One", "Two"]
        assert again.state.folders == kept
        assert {(c.id, c.folder, c.pinned, c.archived) for c in again.state.conversations} == before
    finally:
        again.close()


def test_the_folder_and_settings_of_the_new_chat_are_there_at_the_next_start(
    qtbot: QtBot, tmp_path: Path
) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    work = stage.controller.folders.create("Work")
    gone = stage.controller.folders.create("Gone")
    stage.controller.new_conversation(work)
    own = ChatSettings(instructions="Be brief.")
    stage.controller.chat_settings.change(None, own)
    stage.wait_until_idle()
    stage.close()
    stage = Stage(tmp_path)
    stage.start()
    stage.wait_until_idle()
    assert stage.state.new_folder == work
    assert stage.state.new_chat == own
    stage.controller.new_conversation(gone)
    stage.controller.folders.remove([gone])
    stage.wait_until_idle()
    stage.close()
    stage = Stage(tmp_path)
    stage.start()
    try:
        stage.wait_until_idle()
        assert stage.state.new_folder is None
    finally:
        stage.close()
