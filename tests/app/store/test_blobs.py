"""Blobs: bytes of attached files, kept as long as a row of the store names them."""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.parts import FilePart, ImagePart, Part, TextPart, search_text, without_empty_ends
from app.domain.unsent import Unsent
from app.store.blobs import KEEP_SECONDS, Blobs
from app.store.part_rows import from_row, to_row
from app.store.store import ReadOnlyStore, Store, StoreError
from app.store.writer import StoreQueue
from engine import Role
from stage import until


def kept(store: Store) -> set[str]:
    return {each.name for each in store.blobs.folder.rglob("*") if each.is_file()}


def make_old(blobs: Blobs) -> None:
    for each in blobs.folder.rglob("*"):
        if each.is_file():
            os.utime(each, (1_000, 1_000))


def test_bytes_and_files_are_kept_once_under_their_hash(store: Store, tmp_path: Path) -> None:
    content = bytes(range(256)) * 9000  # more than one piece
    file = tmp_path / "picture.png"
    file.write_bytes(content)
    name = store.blobs.add(content)
    assert name == hashlib.sha256(content).hexdigest() == store.blobs.add(file)
    assert store.blobs.read(name) == content
    assert kept(store) == {name}
    assert store.blobs.read(store.blobs.add(b"")) == b""
    if os.name == "posix":
        modes = {each.stat().st_mode & 0o077 for each in store.blobs.folder.rglob("*")}
        assert modes | {store.blobs.folder.stat().st_mode & 0o077} == {0}


def test_a_damaged_or_missing_blob_is_one_sentence_and_adding_it_mends_it(store: Store) -> None:
    name = store.blobs.add(b"bytes of a picture")
    place = next(each for each in store.blobs.folder.rglob(name))
    place.write_bytes(b"bytes of a picturE")
    with pytest.raises(StoreError, match=r"damaged on the disk: .*\.$"):
        store.blobs.read(name)
    assert store.blobs.add(b"bytes of a picture") == name
    assert store.blobs.read(name) == b"bytes of a picture"
    place.unlink()
    with pytest.raises(StoreError, match="cannot be read: No such file") as raised:
        store.blobs.read(name)
    assert raised.value.remedy == "Attach the file again."


@pytest.mark.parametrize(
    "name", ["", "../" * 20 + "etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n"]
)
def test_what_is_not_a_hash_is_no_path(store: Store, name: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        store.blobs.read(name)


def test_a_file_that_cannot_be_read_is_named(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gone\.png cannot be read: No such file"):
        store.blobs.add(tmp_path / "gone.png")
    with pytest.raises(StoreError, match="cannot be read"):
        store.blobs.add(tmp_path)
    assert not store.blobs


def test_a_full_disk_is_reported_and_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StoreError, match="disk is full") as raised:
            store.blobs.add(b"x")
    assert raised.value.temporary
    assert not store.blobs
    assert kept(store) == set()


def test_a_copy_of_a_read_only_store_reads_and_adds_nothing(path: Path) -> None:
    with closing(Store.open(path)) as store:
        name = store.blobs.add(b"kept")
    with closing(Store.open_copy(path)) as copy:
        assert copy.blobs.read(name) == b"kept"
        with pytest.raises(ReadOnlyStore, match="Nothing can be saved"):
            copy.blobs.add(b"more")
        make_old(copy.blobs)
        copy.remove_unnamed_blobs()
        assert kept(copy) == {name}


def test_what_a_row_names_is_kept(store: Store) -> None:
    """In any branch, in what is deleted and can be restored, and in what is not sent."""
    names = [store.blobs.add(bytes([number])) for number in range(8)]
    parts: list[tuple[Part, ...]] = [
        (FilePart("a.txt", "text", name), ImagePart("b.png", name)) for name in names
    ]
    chat, gone, unsent = (store.create_conversation(each).id for each in "abc")
    first = store.add_message(chat, None, Role.USER, parts[0]).id
    store.add_message(chat, first, Role.USER, parts[1])
    store.add_message(chat, first, Role.USER, parts[2])
    store.delete_message(store.add_message(chat, first, Role.USER, parts[3]).id)
    store.add_message(gone, None, Role.USER, parts[4])
    store.delete([gone])
    store.set_draft(unsent, Unsent((*parts[5], TextPart("Typed")), (parts[6],)))
    store.set_draft(None, Unsent(parts[7]))
    unnamed = store.blobs.add(b"of no message")
    make_old(store.blobs)
    store.remove_unnamed_blobs()
    assert kept(store) == set(names)
    assert store.blobs.add(b"of no message") == unnamed
    store.remove_unnamed_blobs()
    assert unnamed in kept(store), "its message may not be written yet"
    assert KEEP_SECONDS == 3600.0


def test_a_hash_that_was_only_written_keeps_nothing(store: Store) -> None:
    name = store.blobs.add(b"a")
    chat = store.create_conversation("A chat").id
    store.add_message(chat, None, Role.USER, f"Its hash is {name}")
    make_old(store.blobs)
    store.remove_unnamed_blobs()
    assert not store.blobs


def test_purging_removes_the_bytes_at_once_and_every_trace(path: Path) -> None:
    with closing(Store.open(path)) as store:
        both, alone = store.blobs.add(b"named by both"), store.blobs.add(b"named by one")
        first, second = (store.create_conversation(each).id for each in "ab")
        store.add_message(first, None, Role.USER, (FilePart("secret.pdf", "Secret", alone),))
        store.add_message(first, None, Role.USER, (ImagePart("b.png", both),))
        store.add_message(second, None, Role.USER, (ImagePart("b.png", both),))
        store.delete([first])
        store.purge([first])
        assert kept(store) == {both}
        for file in path.parent.iterdir():
            if file.is_file():
                assert alone.encode() not in file.read_bytes()
                assert b"ecret" not in file.read_bytes()
        message = store.branch(second)[0].id
        store.delete_message(message)
        store.purge_deleted(3600)
        assert kept(store) == {both}
        store.purge_deleted(-1)
        assert not store.blobs


def test_a_crash_leaves_only_what_a_later_start_removes(
    qtbot: object, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Store.open(path)) as store:
        name, other = store.blobs.add(b"purged"), store.blobs.add(b"kept")
        chats = [store.create_conversation(each).id for each in "ab"]
        for chat, each in zip(chats, (name, other), strict=True):
            store.add_message(chat, None, Role.USER, (ImagePart("", each),))
        store.delete(chats[:1])

        def crash(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Blobs, "remove", crash)
            with pytest.raises(KeyboardInterrupt):
                store.purge(chats[:1])
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", crash)
            patch.setattr(os, "unlink", crash)
            with pytest.raises(KeyboardInterrupt):
                store.blobs.add(b"half of a file")
        assert len(kept(store)) == 3
        make_old(store.blobs)
    queue = StoreQueue(path)
    shown: list[object] = []
    queue.read(lambda store: store.conversations(), shown.append)
    until(lambda: bool(shown))
    queue.close()
    with closing(Store.open(path)) as store:
        assert kept(store) == {other}
        assert store.blobs.read(other) == b"kept"


def test_no_other_file_of_the_folder_is_removed(store: Store) -> None:
    name = store.blobs.add(b"a")
    notes = store.blobs.folder / name[:2] / "notes.txt"
    notes.write_text("of the user", encoding="utf-8")
    make_old(store.blobs)
    store.remove_unnamed_blobs()
    assert kept(store) == {"notes.txt"}


def test_a_file_that_disappears_while_unnamed_ones_are_removed_is_passed_over(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as an unfinished blob that gets its name just then."""
    store.blobs.add(b"unnamed")
    make_old(store.blobs)
    listed = [store.blobs.folder / "gone.part", *store.blobs._files()]
    monkeypatch.setattr(store.blobs, "_files", lambda: iter(listed))
    store.remove_unnamed_blobs()
    assert kept(store) == set()


def test_a_file_part_keeps_its_hash_and_only_its_text_is_searched(store: Store) -> None:
    part = FilePart("a.pdf", "\n\nextracted text\n", "ab" * 32)
    assert from_row(*to_row(part)) == part
    assert from_row(*to_row(FilePart("a.txt", "x"))) == FilePart("a.txt", "x")
    assert without_empty_ends((part,)) == (part,)
    assert "abab" not in search_text((part,))
    chat = store.create_conversation("A chat").id
    store.add_message(chat, None, Role.USER, (part,))
    assert store.branch(chat)[0].parts == (part,)
    assert [c.id for c in store.conversations("extracted")] == [chat]
    assert store.conversations("abab") == []


def test_a_store_without_blobs_is_not_read_for_them(store: Store) -> None:
    read: list[str] = []
    store._database.set_trace_callback(read.append)
    store.remove_unnamed_blobs()
    store.purge_deleted(3600)
    assert not any("part" in statement for statement in read)
