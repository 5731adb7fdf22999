"""Folders in the store: saved, nested, deleted with their chats, restored; copies of chats."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.chat import Conversation, Folder
from app.domain.chat_settings import ChatSettings, settings_text
from app.domain.ids import new_id
from app.domain.message import AdapterMark, MessageState
from app.domain.parts import FilePart, TextPart, ThoughtPart
from app.store.store import AnswerDetails, Store
from engine import Role

USER, ASSISTANT = Role.USER, Role.ASSISTANT


def saved(store: Store, *folders: Folder) -> None:
    store.save_folders(folders)


def places(store: Store) -> dict[str, int | None]:
    return {chat.title: chat.folder for chat in store.conversations()}


def chat(store: Store, title: str, folder: int | None = None) -> int:
    return store.create_conversation(title, folder=folder).id


def test_folders_are_kept_with_all_their_fields(tmp_path: Path) -> None:
    work = Folder(1, "Work \ud800", None, "Be brief.\n", 7, 2.0)
    sub = Folder(2, "Sub", 1, position=0.5)
    store = Store.open(tmp_path / "a.sqlite")
    saved(store, work, sub)
    store.close()
    store = Store.open(tmp_path / "a.sqlite")
    assert store.folders() == [sub, replace(work, name="Work �")]
    saved(store, replace(sub, name="Other", parent=None, position=3.0))
    assert store.folders()[-1] == Folder(2, "Other", None, position=3.0)
    store.close()


def test_no_folder_comes_to_be_inside_itself(store: Store) -> None:
    saved(store, Folder(1, "a"), Folder(2, "b", 1), Folder(3, "c", 2))
    saved(store, Folder(1, "a", 3))
    assert {folder.id: folder.parent for folder in store.folders()} == {1: None, 2: 1, 3: 2}
    saved(store, Folder(2, "b", 2))
    assert {folder.id: folder.parent for folder in store.folders()} == {1: None, 2: None, 3: 2}


def test_an_unknown_or_deleted_folder_is_no_place(store: Store) -> None:
    saved(store, Folder(1, "a"))
    number = chat(store, "One", 9)
    assert places(store) == {"One": None}
    store.delete([], [1])
    store.set_places([(number, 1, False)])
    saved(store, Folder(2, "b", 1))
    assert places(store) == {"One": None}
    assert [folder.parent for folder in store.folders()] == [None]


def test_deleting_a_folder_takes_its_chats_and_restoring_brings_all_back(store: Store) -> None:
    saved(store, Folder(1, "a"), Folder(2, "b", 1), Folder(3, "c"))
    inner, outer, other = chat(store, "Inner", 2), chat(store, "Outer", 1), chat(store, "Other", 3)
    before = (places(store), store.folders())
    store.delete([inner, outer], [1, 2])
    assert places(store) == {"Other": 3}
    assert [folder.id for folder in store.folders()] == [3]
    assert {one.title for one in store.trash()} == {"Inner", "Outer"}
    store.restore([inner, outer], [1, 2])
    assert (places(store), store.folders()) == before
    assert other


def test_a_chat_restored_alone_brings_the_folders_around_it(store: Store) -> None:
    saved(store, Folder(1, "a"), Folder(2, "b", 1), Folder(3, "c", 1))
    inner, side = chat(store, "Inner", 2), chat(store, "Side", 3)
    store.delete([inner, side], [1, 2, 3])
    store.restore([inner])
    assert places(store) == {"Inner": 2}
    assert [folder.id for folder in store.folders()] == [1, 2]


def test_purging_a_folder_removes_no_chat_that_is_not_deleted(store: Store) -> None:
    saved(store, Folder(1, "a"), Folder(2, "b", 1))
    kept, gone = chat(store, "Kept", 2), chat(store, "Gone", 2)
    store.delete([gone], [1, 2])  # as if `kept` was moved in by another program meanwhile
    store.purge_deleted(-1)
    assert places(store) == {"Kept": None}
    assert store.folders() == []
    assert store.trash() == []
    assert kept


def test_pins_and_the_archive_are_kept_and_search_finds_archived_chats(store: Store) -> None:
    first, second = chat(store, "Tea one"), chat(store, "Tea two")
    store.set_pinned([first], pinned=True)
    store.set_places([(second, None, True)])
    found = {c.title: (c.pinned, c.archived) for c in store.conversations("tea")}
    assert found == {"Tea one": (True, False), "Tea two": (False, True)}


def test_any_moves_deletions_and_undos_lose_no_chat(store: Store) -> None:
    for seed in range(12):
        choose = random.Random(seed)
        folders = [new_id() for _ in range(4)]
        for number in folders:
            saved(store, Folder(number, str(number), choose.choice([None, *folders])))
        chats = {chat(store, f"{seed}-{n}", choose.choice([None, *folders])) for n in range(6)}
        undo: list[tuple[list[int], list[int]]] = []
        for _ in range(25):
            live = {c.id: c.folder for c in store.conversations() if c.id in chats}
            match choose.randrange(5):
                case 0:
                    one = choose.choice(folders)
                    saved(store, Folder(one, "again", choose.choice([None, *folders])))
                case 1 if live:
                    place = choose.choice([None, *folders])
                    store.set_places([(choose.choice([*live]), place, choose.random() < 0.5)])
                case 2:
                    one = choose.choice(folders)
                    inside = [number for number, folder in live.items() if folder == one]
                    store.delete(inside, [one])
                    undo.append((inside, [one]))
                case 3 if undo:
                    store.restore(*undo.pop())
                case _ if live:
                    one = choose.choice([*live])
                    store.delete([one])
                    undo.append(([one], []))
            everywhere = {c.id for c in store.conversations()} | {c.id for c in store.trash()}
            assert chats <= everywhere
            known = {folder.id: folder.parent for folder in store.folders()}
            for number in known:
                seen = set[int]()
                above: int | None = number
                while above in known and above not in seen:
                    seen.add(above)
                    above = known[above]
                assert above is None or above not in seen, "a cycle"


# --- copies ---------------------------------------------------------------------------------------


def tree(store: Store) -> tuple[int, list[int]]:
    """A chat with two branches, all columns in use, and an answer still being written."""
    number = chat(store, "Tree")
    ids = [
        store.add_message(
            number,
            None,
            USER,
            (TextPart("Q"), FilePart("a.txt", "x")),
        ).id
    ]
    for text in ("first", "second"):
        answer = store.add_message(number, ids[0], ASSISTANT, "", MessageState.STREAMING, "Small")
        store.append_text(answer.id, text)
        store.mark_message(answer.id, [AdapterMark("pirate", 0.5, "ab")])
        store.finish(
            answer.id, MessageState.COMPLETE, prompt_tokens=3, generated_tokens=4, seconds=0.5,
            details=AnswerDetails(model="Small"),
        )  # fmt: skip
        ids.append(answer.id)
    ids.append(store.add_message(number, ids[1], USER, (ThoughtPart("hm"), TextPart("More"))).id)
    last = store.add_message(number, ids[-1], ASSISTANT, "", MessageState.STREAMING, "Small")
    store.append_text(last.id, "Half")
    return number, [*ids, last.id]


def shape(store: Store, number: int) -> list[object]:
    """The whole tree without ids and times of the rows."""
    rows = store._database.execute(
        "SELECT id FROM message WHERE conversation = ? ORDER BY id", (number,)
    ).fetchall()
    messages = [store.message(row[0]) for row in rows]
    place = {message.id: at for at, message in enumerate(messages)}
    return [
        replace(
            message, id=0, conversation=0, parent=place.get(message.parent, -1), compared=0
        )
        for message in messages
    ]  # fmt: skip


def copy_of(store: Store, number: int, until: int | None = None) -> Conversation:
    source = next(c for c in store.conversations() if c.id == number)
    made = replace(source, id=new_id(), title="Copy", branch_tip=None)
    store.copy_conversation(number, made, until)
    return next(c for c in store.conversations() if c.id == made.id)


def test_a_copy_has_the_whole_tree_and_is_of_its_own(store: Store) -> None:
    number, ids = tree(store)
    before = shape(store, number)
    made = copy_of(store, number)
    after = shape(store, made.id)
    assert after[:-1] == before[:-1]
    assert after[-1] == replace(before[-1], state=MessageState.INTERRUPTED)
    assert [m.text for m in store.branch(made.id)] == [m.text for m in store.branch(number)]
    assert shape(store, number) == before
    store.finish(ids[-1], MessageState.COMPLETE)
    store.delete([number])
    store.purge([number])
    assert shape(store, made.id) == after
    assert [c.id for c in store.conversations("second")] == [made.id]


def test_a_fork_has_the_branch_up_to_the_message(store: Store) -> None:
    number, ids = tree(store)
    made = copy_of(store, number, ids[1])
    branch = store.branch(made.id)
    assert [message.text for message in branch] == [store.message(ids[0]).text, "first"]
    assert [(m.sibling, m.siblings) for m in branch] == [(1, 1), (1, 1)]
    assert made.branch_tip == branch[-1].id
    assert {message.id for message in branch}.isdisjoint(ids)


def test_copying_again_changes_nothing(store: Store) -> None:
    number, _ = tree(store)
    made = copy_of(store, number)
    before = shape(store, made.id)
    store.copy_conversation(number, made)
    assert shape(store, made.id) == before


def test_a_comparison_is_copied_with_both_answers_and_a_fork_of_one_ends_it(store: Store) -> None:
    number = chat(store, "Compared")
    question = store.add_message(number, None, USER, "Q").id
    details = [AnswerDetails(model="a"), AnswerDetails(model="b")]
    both = store.add_comparison(number, question, "a", details)
    for each in both:
        store.append_text(each.id, "text")
        store.finish(each.id, MessageState.COMPLETE)
    whole = copy_of(store, number)
    shown = store.branch(whole.id)[-1]
    assert shown.undecided
    [other] = store.others([shown])
    assert (other.compared, shown.compared) == (shown.id, other.id)
    fork = copy_of(store, number, both[0].id)
    last = store.branch(fork.id)[-1]
    assert (last.compared, last.undecided) == (0, False)


@pytest.mark.parametrize("how", ["opened", "read-only", "salvaged", "without its first page"])
def test_places_and_settings_survive_each_way_to_open_a_store(tmp_path: Path, how: str) -> None:
    path, new = tmp_path / "a.sqlite", tmp_path / "new.sqlite"
    store = Store.open(path)
    settings = ChatSettings(instructions="Be brief.", stop=("#",), sampling={"seed": 3})
    saved(store, Folder(1, "Work", None, "In French.", position=2.0), Folder(2, "Sub", 1))
    chats = [store.create_conversation(f"{n}", settings_text(settings)).id for n in range(3)]
    for number in chats:
        store.add_message(number, None, USER, "Why is the sky blue?")
    store.set_places([(chats[0], 2, False), (chats[1], 1, True)])
    store.set_pinned(chats[1:], pinned=True)
    before = (store.folders(), store.conversations())
    store.close()
    if how == "without its first page":
        path.write_bytes(bytes(4096) + path.read_bytes()[4096:])
    if how not in ("opened", "read-only"):
        Store.salvage(path, new)
        path = new
    store = Store.open_copy(path) if how == "read-only" else Store.open(path)
    assert (store.folders(), store.conversations()) == before
    assert len(store.conversations("sky")) == 3
    store.close()
