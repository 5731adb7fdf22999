"""Whole chats in the store: read with all branches, and inserted in pieces."""

from __future__ import annotations

import io
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from app.chat.transfer import native_json
from app.chat.transfer.json_stream import JsonStream
from app.chat.transfer.pieces import MOST_MESSAGES, pieces_of
from app.domain.chat_settings import AdapterChoice, ChatSettings
from app.domain.chat_tree import ChatTree, node, renumbered
from app.domain.model_ref import Local
from app.domain.parts import TextPart, prompt_text
from app.domain.transfer import Program
from app.store.schema import RowNotFound
from app.store.store import Store
from chat_makers import chats
from engine import Role

MANY = [pytest.param(100, id="100"), pytest.param(300, id="300", marks=pytest.mark.sweep)]


def added(store: Store, tree: ChatTree, program: Program = Program.TOKONOMA) -> int:
    pieces = list(pieces_of(tree, program))
    for piece in pieces:
        store.import_pieces([piece])
    return pieces[0].conversation


def chain(count: int, *, title: str = "T", origin: str = "") -> ChatTree:
    """A chat of messages that follow each other."""
    messages = tuple(
        node(n, n - 1 or None, Role.USER if n % 2 else Role.ASSISTANT, (TextPart(f"word{n}"),))
        for n in range(1, count + 1)
    )
    return ChatTree(title, 1.0, 2.0, messages, count, origin=origin)


def numbered(tree: ChatTree) -> ChatTree:
    """With the ids that a file has."""
    messages = renumbered(tree.messages, range(1, len(tree.messages) + 1), 0)
    branch_tip = next(
        (n for n, each in enumerate(tree.messages, 1) if each.id == tree.branch_tip), None
    )
    return replace(tree, messages=tuple(messages), branch_tip=branch_tip)


def through_json(tree: ChatTree) -> ChatTree:
    file = io.BytesIO()
    list(native_json.write(file, [tree], 0.0))
    file.seek(0)
    [found] = native_json.read(JsonStream(file))
    assert found.tree is not None
    return found.tree


def has_half_characters(tree: ChatTree) -> bool:
    try:
        json.dumps(native_json.values_of(tree), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


@pytest.mark.parametrize("count", MANY)
def test_random_chats_survive_store_export_and_import(store: Store, count: int) -> None:
    @settings(max_examples=count, deadline=None, database=None, derandomize=True)
    @given(chats())
    def check(tree: ChatTree) -> None:
        if not tree.messages:
            return
        tree = replace(tree, title=tree.title if tree.title.strip() else "T", origin="other:1")
        stored = numbered(store.tree(added(store, tree)))
        if not has_half_characters(tree):  # for which the store keeps U+FFFD
            assert stored == tree
        again = through_json(stored)
        assert again == stored
        assert numbered(store.tree(added(store, again))) == stored

    check()


def test_imported_chats_are_listed_found_and_shown(store: Store) -> None:
    number = added(store, chain(3, title="Numbers"))
    [listed] = store.conversations()
    assert (listed.id, listed.title, listed.updated) == (number, "Numbers", 2.0)
    assert [each.id for each in store.conversations("word3")] == [number]
    assert [prompt_text(each.parts) for each in store.branch(number)] == ["word1", "word2", "word3"]


def test_a_chat_is_listed_from_its_last_piece_on(store: Store) -> None:
    pieces = list(pieces_of(chain(2 * MOST_MESSAGES + 1), Program.CHATGPT))
    assert [len(each.messages) for each in pieces] == [MOST_MESSAGES, MOST_MESSAGES, 1]
    for piece in pieces[:-1]:
        store.import_pieces([piece])
        assert store.conversations() == []
    store.import_pieces(pieces[-1:])
    assert len(store.branch(pieces[0].conversation)) == 2 * MOST_MESSAGES + 1


def test_what_was_imported_of_a_cancelled_import_is_removed(store: Store) -> None:
    number = added(store, chain(3))
    folder = store.import_folder(("A", "B"))
    used = store.import_folder(("C", "D"))
    store.create_conversation("mine", folder=used[-1])
    store.remove_imported([number], [*folder, *used])
    assert [each.name for each in store.folders()] == ["C", "D"]
    assert [each.title for each in store.conversations()] == ["mine"]
    store.delete([each.id for each in store.conversations()])
    store.purge([each.id for each in store.trash()])
    assert (store.conversations(), store.trash()) == ([], [])
    assert store.conversations("word2") == []


def test_a_chat_that_is_being_imported_is_not_among_the_deleted_ones(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    first, *rest = pieces_of(chain(MOST_MESSAGES + 1), Program.CHATGPT)
    with closing(Store.open(path)) as store:
        store.import_pieces([first])
        assert store.trash() == []
        store.purge_deleted(0)
        store.import_pieces(rest)
        assert len(store.branch(first.conversation)) == MOST_MESSAGES + 1
        cut_off = next(pieces_of(chain(MOST_MESSAGES + 1), Program.CHATGPT))
        store.import_pieces([cut_off])
    with closing(Store.open(path)) as store:  # the app had crashed
        assert [each.id for each in store.conversations()] == [first.conversation]
        with pytest.raises(RowNotFound):
            store.branch(cut_off.conversation)


def test_origins_are_those_of_chats_that_are_not_deleted(store: Store) -> None:
    tree = chain(2, origin="chatgpt:a")
    number = added(store, tree)
    own = added(store, chain(1))
    known = store.origins()
    assert known["chatgpt:a"].conversations == (number,)
    assert known["chatgpt:a"].digests == {tree.digest}
    assert set(known) == {"chatgpt:a", f"tokonoma:{number}", f"tokonoma:{own}"}
    store.delete([number])
    assert "chatgpt:a" not in store.origins()


def test_folders_are_made_once(store: Store) -> None:
    inner = replace(chain(1), folder=("Work", "Trip"))
    for tree in (inner, inner, replace(chain(1), folder=("Work",))):
        assert store.tree(added(store, tree)).folder == tree.folder
    count = store._database.execute("SELECT count(*) FROM folder").fetchone()  # pyright: ignore
    assert count == (2,)


def test_no_file_of_another_computer_is_taken_over(store: Store) -> None:
    there = (AdapterChoice(Path("//host/share/a")), AdapterChoice(Path("/here/a")))
    record = ChatSettings(model=Local(Path("\\\\host\\share\\m.gguf")), adapters=there)
    tree = store.tree(added(store, replace(chain(1), settings=record)))
    assert tree.settings == ChatSettings(adapters=there[1:])


def test_a_chat_that_is_gone_is_not_found(store: Store) -> None:
    with pytest.raises(RowNotFound):
        store.tree(12345)
