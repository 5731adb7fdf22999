"""Importing and exporting in the app: preview, batches, Undo, files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from app.chat.transfer import native_json
from app.chat.transfer.controller import DONE_NOTICE, EXPORTED_NOTICE, NOTICE
from app.chat.transfer.files import FreePaths
from app.chat.transfer.sources import opened
from app.domain.chat import Folder, Preset
from app.domain.chat_settings import ChatSettings
from app.domain.chat_tree import ChatTree, node
from app.domain.folders import in_order
from app.domain.ids import new_id
from app.domain.parts import FilePart, ImagePart, TextPart
from app.domain.transfer import Dropped, ExportFormat, ImportPreview, Program
from app.store.store import Store
from busy_files import BusyFiles
from chat_makers import NODES, chatgpt_chat, write_silly_tavern
from engine import Role
from stage import Stage, until

T = TypeVar("T")


def export_of(folder: Path, *numbers: str, more: int = 0) -> Path:
    """A ChatGPT export; its chats are continued by `more` messages."""
    nodes = [*NODES]
    for n in range(more):
        nodes.append((f"more{n}", nodes[-1][0], "user" if n % 2 == 0 else "assistant", f"and {n}"))
    chats = [chatgpt_chat(number, nodes, nodes[-1][0]) for number in numbers]
    path = folder / "conversations.json"
    path.write_text(json.dumps(chats), encoding="utf-8")
    return path


def done(stage: Stage) -> None:
    until(lambda: not stage.controller.transfer.busy)
    stage.wait_until_idle()


def previewed(stage: Stage, *paths: Path) -> ImportPreview:
    stage.controller.transfer.preview(paths)
    done(stage)
    preview = stage.states.transfer.preview
    assert preview is not None
    return preview


def imported(stage: Stage, *paths: Path) -> None:
    previewed(stage, *paths)
    stage.controller.transfer.accept()
    done(stage)


def notice(stage: Stage, kind: str = NOTICE) -> str:
    return stage.state.notices[kind].sentence


def test_the_preview_counts_and_import_stores(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    preview = previewed(stage, export_of(tmp_path, "a", "b"))
    assert preview.programs == (Program.CHATGPT,)
    assert preview.untested == (Program.CHATGPT,)
    assert (preview.chats, preview.messages, preview.known) == (2, 10, 0)
    assert stage.state.conversations == ()  # nothing is imported yet
    stage.controller.transfer.accept()
    done(stage)
    assert [each.title for each in stage.state.conversations] == ["Numbers", "Numbers"]
    assert notice(stage, DONE_NOTICE) == "2 chats were imported."
    stage.controller.open_conversation(stage.state.conversations[0].id)
    stage.wait_until_idle()
    shown = [message.text for message in stage.state.messages]
    assert shown == [NODES[0][3], NODES[1][3], NODES[3][3], NODES[4][3]]
    assert stage.state.messages[1].siblings == 2


def test_one_undo_deletes_what_was_imported_and_another_brings_it_back(
    stage: Stage, tmp_path: Path
) -> None:
    stage.start()
    imported(stage, export_of(tmp_path, "a", "b"))
    stage.controller.act_on_notice(DONE_NOTICE)
    stage.wait_until_idle()
    assert stage.state.conversations == ()
    assert len(stage.state.trash) == 2
    stage.controller.deletions.undo()
    stage.wait_until_idle()
    assert len(stage.state.conversations) == 2


def test_undo_takes_back_the_import_and_then_the_deletion_before_it(
    stage: Stage, tmp_path: Path
) -> None:
    stage.start()
    state, deletions = stage.state, stage.controller.deletions
    imported(stage, export_of(tmp_path, "a"))
    [first] = [each.id for each in state.conversations]
    deletions.delete([first])
    imported(stage, export_of(tmp_path, "b", "c"))
    assert state.offered == 0  # the notice offers it
    deletions.undo()
    stage.wait_until_idle()
    assert (state.conversations, len(state.trash)) == ((), 3)
    assert DONE_NOTICE not in state.notices
    deletions.undo()
    stage.wait_until_idle()
    assert [each.id for each in state.conversations] == [first]
    deletions.undo()  # the first import
    stage.wait_until_idle()
    assert (state.conversations, state.deletions) == ((), ())


def test_undo_of_an_import_leaves_what_was_removed_for_good(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    state, deletions = stage.state, stage.controller.deletions
    imported(stage, export_of(tmp_path, "a", "b"))
    removed, kept = (each.id for each in state.conversations)
    deletions.delete([removed])
    deletions.remove([removed])
    deletions.undo()
    stage.wait_until_idle()
    assert state.conversations == ()
    assert [each.id for each in state.trash] == [kept]


def test_nothing_is_imported_twice(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    imported(stage, export_of(tmp_path, "a", "b"))
    preview = previewed(stage, export_of(tmp_path, "a", "b", "c", "c"))
    assert (preview.chats, preview.known, preview.changed) == (1, 2, 0)
    stage.controller.transfer.accept()
    done(stage)
    assert len(stage.state.conversations) == 3


def test_a_chat_that_was_continued_there_is_imported_again(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    imported(stage, export_of(tmp_path, "a"))
    preview = previewed(stage, export_of(tmp_path, "a", more=2))
    assert (preview.chats, preview.known, preview.changed) == (1, 0, 1)
    stage.controller.transfer.accept()
    done(stage)
    assert len(stage.state.conversations) == 2
    older = previewed(stage, export_of(tmp_path, "a", more=1))  # all of it is here
    assert (older.chats, older.known) == (0, 1)


def test_deleted_chats_can_be_imported_again(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    path = export_of(tmp_path, "a")
    imported(stage, path)
    stage.controller.deletions.delete([stage.state.conversations[0].id])
    stage.wait_until_idle()
    assert previewed(stage, path).chats == 1


def test_export_everything_delete_all_and_import(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    imported(stage, export_of(tmp_path, "a", "b"), write_silly_tavern(tmp_path / "s.jsonl"))
    found: list[list[int]] = []
    stage.controller.transfer.all_chats(found.append)
    until(lambda: bool(found))
    [ids] = found
    assert set(ids) == {each.id for each in stage.state.conversations}
    assert len(ids) == 3
    path = tmp_path / "all.json"
    stage.controller.transfer.export_chats(ids, ExportFormat.JSON, path)
    done(stage)
    assert str(path) in notice(stage, EXPORTED_NOTICE)
    assert previewed(stage, path).known == 3
    stage.controller.transfer.cancel()
    stage.controller.deletions.delete(ids)
    stage.controller.deletions.remove(ids)
    stage.wait_until_idle()
    imported(stage, path)
    assert len(stage.state.conversations) == 3
    with opened([path]) as source:
        before = [chat.tree for _, chat in source.chats(lambda _: None)]
    again = tmp_path / "again.json"
    stage.controller.transfer.export_chats(
        [each.id for each in stage.state.conversations], ExportFormat.JSON, again
    )
    done(stage)
    with opened([again]) as source:
        after = [chat.tree for _, chat in source.chats(lambda _: None)]
    assert {tree.origin: tree for tree in before if tree} == {
        tree.origin: tree for tree in after if tree
    }
    stage.controller.conversations.search("gardener")
    stage.wait_until_idle()


def test_folders_and_attached_files_come_back(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    controller, state = stage.controller, stage.state
    content = bytes(range(256)) * 10_000  # more than one piece
    sha256 = hashlib.sha256(content).hexdigest()
    preset = Preset(new_id(), "Mine", ChatSettings(instructions="Rhyme."), greeting="Hi")
    controller.presets.save(preset)
    outer = controller.folders.create("Outer")
    inner = controller.folders.create("Inner", outer)
    empty = controller.folders.create("Empty", outer)
    wanted = {
        outer: Folder(outer, "Outer", instructions="Be brief.", preset=3),
        inner: Folder(inner, "Inner", outer, "Be long.", preset.id),
        empty: Folder(empty, "Empty", outer, ""),
    }
    for folder in wanted.values():
        controller.folders.change(folder)
    chat = controller.conversations.begin((TextPart("q"),), ChatSettings(), inner)
    parts = (TextPart("q"), FilePart("a.bin", "", sha256), ImagePart("b.png", "0" * 64))
    placed = (TextPart("q"), replace(parts[1], path="/home/me/a.bin"), parts[2])
    stage.store_queue.write(lambda store: (
        store.blobs.add(content), store.add_message(chat, None, Role.USER, placed)
    ))  # fmt: skip
    before = folder_shapes(stage)
    path = tmp_path / "all.json"
    controller.transfer.export_chats([chat], ExportFormat.JSON, path)
    done(stage)
    assert "/home/me" not in path.read_text(encoding="utf-8")
    assert "1 attached file is not in it" in state.notices[EXPORTED_NOTICE].remedy
    controller.deletions.delete([chat], [outer])
    controller.deletions.remove([chat])
    controller.presets.delete(preset.id)
    stage.wait_until_idle()
    assert (state.conversations, state.folders) == ((), ())
    kept = stored(stage, lambda store: list(store.blobs.folder.glob("*/*")))
    assert kept == []

    imported(stage, path)
    assert folder_shapes(stage) == before
    assert stored(stage, lambda store: store.blobs.read(sha256)) == content
    [row] = state.conversations
    tree = stored(stage, lambda store: store.tree(row.id))
    assert tree.messages[0].parts == parts
    assert tree.folder == ("Outer", "Inner")

    controller.act_on_notice(DONE_NOTICE)
    stage.wait_until_idle()
    assert (state.conversations, state.folders) == ((), ())
    controller.deletions.undo()
    stage.wait_until_idle()
    assert folder_shapes(stage) == before


def folder_shapes(stage: Stage) -> list[tuple[object, ...]]:
    """The folders without their ids, with their presets."""
    stage.wait_until_idle()
    shown = stage.states.presets
    return [
        (depth, folder.name, folder.instructions, folder.position, found and replace(found, id=0))
        for folder, depth in in_order(stage.state.folders)
        for found in [shown.preset(folder.preset) if folder.preset else None]
    ]


def stored(stage: Stage, query: Callable[[Store], T]) -> T:
    found: list[T] = []
    stage.store_queue.read(query, found.append)
    until(lambda: bool(found))
    return found[0]


def test_undo_keeps_folders_that_were_used_since(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    controller, state = stage.controller, stage.state
    tree = ChatTree(
        "t", 1.0, 2.0, (node(1, None, Role.USER, (TextPart("q"),)),), 1, folder=("A", "B", "C")
    )
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        list(native_json.write(file, [tree], 0.0))
    imported(stage, path)
    ids = {folder.name: folder.id for folder in state.folders}
    own = controller.conversations.begin((TextPart("mine"),), ChatSettings(), ids["B"])
    controller.act_on_notice(DONE_NOTICE)
    stage.wait_until_idle()
    assert [each.id for each in state.conversations] == [own]
    assert {folder.name for folder in state.folders} == {"A", "B"}


def test_a_cancelled_import_leaves_no_folder(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    message = node(1, None, Role.USER, (TextPart("q"),))
    trees = [ChatTree(f"{n}", 1.0, 2.0, (message,), 1, folder=("A", f"B{n}")) for n in range(2000)]
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        list(native_json.write(file, trees, 0.0))
    previewed(stage, path)
    transfer = stage.controller.transfer
    transfer.accept()
    until(lambda: stage.states.transfer.progress is not None)
    transfer.cancel()
    done(stage)
    assert stored(stage, lambda store: store.folders()) == []
    assert stage.state.conversations == ()


def test_a_damaged_attached_file_is_counted(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    tree = ChatTree("t", 1.0, 2.0, (node(1, None, Role.USER, (TextPart("q"),)),), 1)
    path = tmp_path / "x.json"
    wrong = {"0" * 64: b"not this", "../../x": b"no name"}
    with path.open("wb") as file:
        list(native_json.write(file, [tree], 0.0, (), ((k, (v,)) for k, v in wrong.items())))
    assert previewed(stage, path).dropped == {Dropped.FILES: 1}


@pytest.mark.parametrize("format", [ExportFormat.MARKDOWN, ExportFormat.HTML])
def test_several_chats_are_a_file_each(stage: Stage, tmp_path: Path, format: ExportFormat) -> None:
    stage.start()
    imported(stage, export_of(tmp_path, "a", "b"))
    folder = tmp_path / "out"
    ids = [each.id for each in stage.state.conversations]
    stage.controller.transfer.export_chats(ids, format, folder)
    done(stage)
    names = sorted(each.name for each in folder.iterdir())
    assert names == [f"Numbers 2.{format.value}", f"Numbers.{format.value}"]
    assert "It is" in (folder / names[0]).read_text(encoding="utf-8")


def test_whole_chats_are_copied(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    imported(stage, export_of(tmp_path, "a"))
    copied: list[str] = []
    stage.controller.transfer.copy([stage.state.conversations[0].id], copied.append)
    until(lambda: bool(copied))
    assert "## You\n\nWhat is 2 < 3?" in copied[0]
    assert "It is **true**." in copied[0]


@pytest.mark.parametrize("format", [ExportFormat.MARKDOWN, ExportFormat.PDF])
def test_a_folder_that_cannot_be_written_is_said(
    stage: Stage, tmp_path: Path, format: ExportFormat
) -> None:
    stage.start()
    imported(stage, export_of(tmp_path, "a"))
    (tmp_path / "file").write_text("x", encoding="utf-8")
    number = stage.state.conversations[0].id
    stage.controller.transfer.export_chats([number], format, tmp_path / "file" / "chat")
    done(stage)
    assert "could not be written" in notice(stage)


def test_files_without_chats_are_refused(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    path = tmp_path / "x.json"
    path.write_text("[1, 2]", encoding="utf-8")
    stage.controller.transfer.preview([path])
    stage.wait_until_idle()
    done(stage)
    assert "no chats" in notice(stage)
    assert stage.states.transfer.preview is None


def test_a_dropped_export_opens_the_preview(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    path = export_of(tmp_path, "a").rename(tmp_path / "any name")
    stage.window.files_dropped.emit([path])
    until(lambda: stage.states.transfer.preview is not None)
    stage.controller.transfer.cancel()
    assert stage.states.transfer.preview is None


def test_a_cancelled_import_leaves_nothing(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    previewed(stage, export_of(tmp_path, *(f"n{n}" for n in range(400))))
    transfer = stage.controller.transfer
    transfer.accept()
    until(lambda: stage.states.transfer.progress is not None)
    transfer.cancel()
    done(stage)
    assert stage.state.conversations == ()
    assert stage.state.trash == ()
    assert DONE_NOTICE not in stage.state.notices


def test_quitting_during_an_import_leaves_nothing(tmp_path: Path, qapp: object) -> None:
    stage = Stage(tmp_path)
    stage.start()
    previewed(stage, export_of(tmp_path, *(f"n{n}" for n in range(400))))
    stage.controller.transfer.accept()
    seen: list[int] = []
    stage.store_queue.read(lambda store: len(store.origins()), seen.append)
    until(lambda: bool(seen))
    stage.close()
    store = Store.open(tmp_path / "conversations.sqlite")
    assert (store.conversations(), store.trash()) == ([], [])
    store.close()


@pytest.mark.parametrize("numbers", [("a",), ("a", "b")])
def test_pdf_is_written_between_the_events_of_the_window(
    stage: Stage, tmp_path: Path, numbers: tuple[str, ...]
) -> None:
    stage.start()
    imported(stage, export_of(tmp_path, *numbers))
    target = tmp_path / ("x.pdf" if len(numbers) == 1 else "out")
    ids = [each.id for each in stage.state.conversations]
    stage.controller.transfer.export_chats(ids, ExportFormat.PDF, target)
    done(stage)
    files = [target] if len(numbers) == 1 else sorted(target.iterdir())
    assert len(files) == len(numbers)
    assert all(each.read_bytes().startswith(b"%PDF") for each in files)
    assert notice(stage, EXPORTED_NOTICE).endswith(f"to {target}.")


def test_a_pdf_that_is_open_elsewhere_for_a_moment_is_replaced(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.start()
    imported(stage, export_of(tmp_path, "a"))
    (path := tmp_path / "x.pdf").write_bytes(b"before")
    busy = BusyFiles(monkeypatch)
    busy.hold(path)
    number = stage.state.conversations[0].id
    stage.controller.transfer.export_chats([number], ExportFormat.PDF, path)
    done(stage)
    assert path.read_bytes().startswith(b"%PDF")
    assert busy.refusals == 3
    assert not list(tmp_path.glob("x.pdf.*"))


def test_nothing_is_left_of_a_cancelled_pdf(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    imported(stage, export_of(tmp_path, "a"))
    (path := tmp_path / "x.pdf").write_bytes(b"before")
    number = stage.state.conversations[0].id
    stage.controller.transfer.export_chats([number], ExportFormat.PDF, path)
    stage.controller.transfer.cancel()
    done(stage)
    assert path.read_bytes() == b"before"
    assert not list(tmp_path.glob("x.pdf.*"))


def test_messages_of_the_window_are_stored_during_an_import(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    previewed(stage, export_of(tmp_path, *(f"n{n}" for n in range(400))))
    stage.controller.transfer.accept()
    stored: list[int] = []
    stage.store_queue.read(lambda store: len(store.conversations()), stored.append)
    until(lambda: bool(stored))
    assert stored[0] < 400
    done(stage)
    assert len(stage.state.conversations) == 400


def test_files_of_chats_with_one_title_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "A.md").touch()
    free = FreePaths(tmp_path, "md")
    assert [free.path(title).name for title in ("A", "B", "b")] == ["A 2.md", "B.md", "b 2.md"]
