"""Collections: read and indexed, watched, searched for questions, kept over restarts."""

from __future__ import annotations

import os
import shutil
import threading
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import replace
from errno import ETIMEDOUT
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QTimer

import crash_collection
from app.chat.documents import collection_reader, collection_reading, collections
from app.chat.documents.collection_reader import ReadFile
from app.documents import folder_scan
from app.documents.folder_scan import changed_at
from app.domain.chat_settings import ChatSettings
from app.domain.collection import FileState
from app.domain.parts import TextPart
from app.domain.passages import passages_part
from app.store.store import Store
from collection_table import FILTER, Table
from fakes import MODEL
from plain_extractor import PlainExtractor
from stage import TIMEOUT_SECONDS, Stage, until


@pytest.fixture
def table(tmp_path: Path, qapp: object) -> object:
    made = Table(tmp_path)
    made.write("manual.txt", f"The pump is blue.\f{FILTER}")
    made.write("letters/one.txt", "Dear Ada, the harvest was good.")
    made.stage.ready(MODEL)
    made.add()
    yield made
    made.stage.close()


def test_a_question_is_answered_from_a_collection(table: Table) -> None:
    view = table.collections.state.view(table.id)
    assert (view.files, view.done, view.problems, view.scanned) == (2, 2, (), True)
    table.use()
    found = table.ask("When do I clean the filter?")
    assert found == [("manual.txt", FILTER)]
    question = table.stage.state.messages[-2]
    passage = passages_part(question.parts).passages[0]  # type: ignore[union-attr]
    assert passage.path == str(table.folder / "manual.txt")
    assert (passage.page, passage.unit) == ("2", "page")
    assert FILTER in table.stage.engine.last_generate.turns[-1].text


def test_a_chat_without_it_is_not(table: Table) -> None:
    stage = table.stage
    assert stage.controller.send((TextPart("When do I clean the filter?"),))
    assert passages_part(stage.state.messages[-2].parts) is None


def test_changes_are_indexed(table: Table) -> None:
    table.use()
    table.write("manual.txt", "The zirconium filter lasts forever, never clean it.")
    table.write("new.txt", "The turbine is made of titanium.")
    table.settle()
    assert [name for name, _ in table.ask("What is the turbine made of?")] == ["new.txt"]
    texts = [text for _, text in table.ask("When do I clean the zirconium filter?")]
    assert texts[0].startswith("The zirconium filter lasts")
    assert FILTER not in texts
    until(lambda: len(table.indexed()) == 3)  # the old text is gone


def test_a_renamed_file_is_not_read_again(table: Table) -> None:
    table.extractor.names.clear()
    (table.folder / "manual.txt").rename(table.folder / "handbook.txt")
    table.settle()
    assert table.extractor.names == []
    assert table.problems() == []
    table.use()
    assert table.ask("When do I clean the filter?") == [("handbook.txt", FILTER)]


def test_a_renamed_file_is_cited_by_its_new_name(table: Table) -> None:
    table.use()
    assert table.ask("When do I clean the filter?") == [("manual.txt", FILTER)]
    (table.folder / "manual.txt").rename(table.folder / "handbook.txt")
    table.settle()
    assert table.ask("When do I clean the zirconium filter?") == [("handbook.txt", FILTER)]
    part = passages_part(table.stage.state.messages[-2].parts)
    assert [each.path for each in part.passages] == [str(table.folder / "handbook.txt")]  # type: ignore[union-attr]


def test_a_collection_is_made_again_after_it_was_deleted(table: Table) -> None:
    table.collections.delete(table.id)
    table.stage.wait_until_idle()
    table.add()
    table.use()
    assert table.ask("When do I clean the filter?") == [("manual.txt", FILTER)]
    assert table.problems() == []


def test_decomposed_letters_are_found_by_composed_ones(table: Table) -> None:
    text = "\ud559\uc810\uc778\uc815: die Pr\u00fcfungsgr\u00f6\u00dfe ist zw\u00f6lf."
    name = unicodedata.normalize("NFD", "Gr\u00f6\u00dfen.txt")
    table.write(name, unicodedata.normalize("NFD", text))
    table.settle()
    table.use()
    for question in (
        "Pr\u00fcfungsgr\u00f6\u00dfe?",
        "\ud559\uc810\uc778\uc815 \uaddc\uce59\uc740?",
    ):
        assert [found for found, _ in table.ask(question)] == [name]


def test_a_fork_is_answered_from_its_files_when_the_first_chat_is_gone(table: Table) -> None:
    stage = table.stage
    table.use()
    stage.controller.attachments.attach([table.write("data.txt", "The code is 4711.")])
    for _ in range(3):
        stage.wait_until_idle()
    table.ask("When do I clean the filter?")
    first = stage.state.current
    stage.controller.copies.fork(stage.state.messages[-1].id)
    stage.wait_until_idle()
    fork = stage.state.current
    assert first is not None
    assert fork not in (None, first)
    stage.controller.deletions.delete([first])
    stage.controller.deletions.remove([first])
    stage.wait_until_idle()
    table.restart()
    table.stage.controller.open_conversation(fork)
    table.stage.wait_until_idle()
    (table.folder / "data.txt").unlink()
    assert "one.txt" in [name for name, _ in table.ask("Was the harvest of Ada good?")]
    question = table.stage.engine.last_generate.turns[0].text
    assert "The code is 4711." in question
    assert FILTER in question


def test_a_file_that_disappears_is_said(table: Table) -> None:
    (table.folder / "manual.txt").unlink()
    table.settle()
    assert table.problems() == ["manual.txt is no longer there."]
    until(lambda: len(table.indexed()) == 1)
    table.write("manual.txt", "It is back.")
    table.settle()
    assert table.problems() == []


def test_a_folder_that_vanishes_keeps_its_texts(table: Table) -> None:
    away = table.folder.with_name("away")
    table.folder.rename(away)
    table.settle()
    assert table.problems() == [f"{table.folder} cannot be reached."]
    table.use()
    assert table.ask("When do I clean the filter?") == [("manual.txt", FILTER)]
    table.extractor.names.clear()
    (away / "manual.txt").unlink()
    away.rename(table.folder)
    table.settle()
    assert table.problems() == ["manual.txt is no longer there."]
    assert table.extractor.names == []


def test_files_without_a_text_are_said(table: Table) -> None:
    table.write("empty.txt", "")
    table.write("blank.txt", " \n")
    table.write("locked.txt", "protected")
    table.write("picture.png", "unknown")
    table.settle()
    assert sorted(table.problems()) == [
        "There is no text in blank.txt.",
        "There is no text in empty.txt.",
        "locked.txt is protected with a password.",
    ]
    view = table.collections.state.view(table.id)
    assert (view.files, view.done, view.left_out) == (6, 6, 1)


def test_nothing_is_read_while_an_answer_is_written(table: Table) -> None:
    stage = table.stage
    assert stage.controller.send((TextPart("Hello"),))
    stage.wait_until_idle()
    table.extractor.names.clear()
    table.write("new.txt", "The turbine is made of titanium.")
    table.collections._scan(table.id)
    until(lambda: bool(table.collections._waiting))
    stage.wait_until_idle()
    assert table.extractor.names == []
    stage.engine.write("Hi")
    stage.engine.finish()
    table.settle()
    assert table.extractor.names == ["new.txt"]


def test_nothing_is_read_twice_after_a_restart(table: Table) -> None:
    table.restart()
    table.use()
    assert table.ask("When do I clean the filter?") == [("manual.txt", FILTER)]
    table.settle()
    assert table.extractor.names == []


def test_a_lost_index_is_made_anew(table: Table) -> None:
    table.stage.close()
    for path in table.place.glob("documents.sqlite*"):
        path.unlink()
    table.stage = Stage(table.place, extractor=table.extractor)
    table.extractor.names.clear()
    table.extractor.closed = False
    table.stage.ready(MODEL)
    until(lambda: table.collections._files is not None)
    table.settle()
    assert sorted(table.extractor.names) == ["manual.txt", "one.txt"]
    assert len(table.indexed()) == 2


def test_a_deleted_collection_can_be_restored(table: Table) -> None:
    assert table.stage.controller.send((TextPart("Hello"),))
    table.stage.engine.finish()
    table.stage.wait_until_idle()
    table.use()
    table.collections.delete(table.id)
    assert not list(table.collections.keys(table.stage.state.current or 0, ()))
    table.collections.restore()
    table.settle()
    assert len(list(table.collections.keys(table.stage.state.current or 0, ()))) == 2
    assert len(table.indexed()) == 2
    table.collections.delete(table.id)
    other = table.collections.add([table.folder / "letters"], "Letters")
    until(lambda: len(table.indexed()) == 1)
    stored: list[list[str]] = []
    table.stage.store_queue.read(
        Store.collections, lambda all: stored.append([e.name for e in all])
    )
    until(lambda: bool(stored))
    assert stored == [["Letters"]]
    table.collections.rename(other, " Old \n letters ")
    table.collections.add_sources(other, [table.folder, table.folder])
    table.id = other
    table.settle()
    assert table.collections.state.view(other).files == 2
    table.collections.remove_source(other, str(table.folder))
    table.settle()
    assert table.collections.state.view(other).files == 1
    assert [each.name for each in table.collections.state.collections] == ["Old letters"]


def test_attached_files_stay_in_the_index_beside_collections(table: Table) -> None:
    table.stage.controller.indexed_files.forget_unnamed()
    table.stage.wait_until_idle()
    assert len(table.indexed()) == 2


def test_a_folder_in_two_collections_is_read_once(table: Table) -> None:
    first = table.id
    table.extractor.names.clear()
    table.add()
    assert table.extractor.names == []
    table.collections.delete(first)
    table.collections.delete(table.id)
    until(lambda: len(table.indexed()) == 2)


def test_settings_name_collections_that_are_gone(table: Table) -> None:
    table.stage.controller.chat_settings.change(None, ChatSettings(collections=(5,)))
    assert table.stage.controller.send((TextPart("Hello"),))
    assert passages_part(table.stage.state.messages[-2].parts) is None


@pytest.mark.sweep
def test_thousands_of_files_renamed_deleted_and_changed(table: Table) -> None:
    table.extractor.free.clear()
    for number in range(2_500):
        table.write(f"{number % 100}/{number}.txt", f"Note {number} is about word{number}.")
    table.collections._scan(table.id)
    until(lambda: len(table.collections._files or ()) > 2_500)
    table.extractor.free.set()
    until(lambda: len(table.extractor.names) > 200)
    for number in range(0, 2_500, 100):
        (table.folder / "0" / f"{number}.txt").unlink()
    for number in range(1, 2_500, 100):
        path = table.folder / "1" / f"{number}.txt"
        path.rename(path.with_name(f"renamed {number}.txt"))
    for number in range(2, 2_500, 100):
        table.write(f"2/{number}.txt", f"Changed {number} is about other{number}.")
    shutil.rmtree(table.folder / "3")
    table.collections._scan(table.id)
    view = table.collections.state.view
    own, indexing = table.collections, table.stage.states.indexing
    until(lambda: not (own._waiting or own._reads.path or indexing.view.is_working), 300.0)
    table.settle()
    assert view(table.id).files == view(table.id).done == 2_452
    table.use()
    for question, name in (
        ("What is about word101?", "renamed 101.txt"),
        ("What is about other102?", "102.txt"),
        ("What is about word2499?", "2499.txt"),
    ):
        assert name in [each for each, _ in table.ask(question)]
    assert "100.txt" not in [name for name, _ in table.ask("What is about word100?")]


def test_texts_of_renamed_files_stay_while_other_files_are_read(table: Table) -> None:
    own = table.collections
    table.extractor.free.clear()
    table.write("a long one.txt", "It takes a while to read this.")
    own._scan(table.id)
    until(lambda: "a long one.txt" in table.extractor.names)
    (table.folder / "manual.txt").rename(table.folder / "renamed.txt")
    own._scan(table.id)
    until(lambda: not own._scanning)
    table.forget_unnamed()  # as when a chat is purged
    table.extractor.free.set()
    table.settle()
    table.use()
    assert table.ask("When do I clean the filter?") == [("renamed.txt", FILTER)]


def test_a_text_known_by_its_hash_is_read_again_when_the_index_was_lost_meanwhile(
    table: Table,
) -> None:
    own = table.collections
    file = own._files[str(table.folder / "manual.txt")]  # type: ignore[index]
    read = ReadFile(file)
    wanted = replace(file, state=FileState.WAITING)
    table.stage.controller.indexing.lost.emit()
    own._on_read(wanted, read)
    assert file.path in own._waiting or own._reads.path
    table.settle()
    assert own._files[file.path].state is FileState.READY  # type: ignore[index]
    assert "manual.txt" in table.extractor.names[2:]


def test_copies_with_other_endings_have_one_text(table: Table) -> None:
    table.extractor.names.clear()
    table.write("copy.md", f"The pump is blue.\f{FILTER}")
    table.settle()
    assert table.extractor.names == []
    table.restart()
    table.settle()
    assert table.extractor.names == []


def test_an_emptied_folder_keeps_its_texts_until_the_user_lets_them_go(table: Table) -> None:
    away = table.folder.with_name("away")
    table.folder.rename(away)
    table.folder.mkdir()  # on which the drive was mounted
    table.settle()
    words = f"{table.folder} is empty now: all 2 files that were in it are gone."
    assert table.problems() == [words]
    assert [each.kept for each in table.collections.state.view(table.id).problems] == [2]
    table.use()
    assert table.ask("When do I clean the filter?") == [("manual.txt", FILTER)]
    table.restart()
    table.settle()
    assert table.problems() == [words]
    table.folder.rmdir()
    away.rename(table.folder)
    table.settle()
    assert table.problems() == []
    assert table.extractor.names == []
    shutil.rmtree(table.folder)
    table.folder.mkdir()
    table.settle()
    table.collections.let_go(table.id, str(table.folder))
    table.settle()
    assert table.problems() == []
    assert table.collections.state.view(table.id).files == 0
    until(lambda: len(table.indexed()) == 1)  # a chat cites it


def test_files_that_are_gone_are_counted_once_all_is_read(table: Table) -> None:
    for number in range(120):
        table.write(f"many/{number:03}.txt", f"Number {number}.")
    table.settle()
    for number in range(120):
        path = table.folder / "many" / f"{number:03}.txt"
        if number < 10:
            path.rename(path.with_name(f"renamed {number}.txt"))
        else:
            path.unlink()
    table.extractor.free.clear()
    table.write("new.txt", "This takes a while.")
    table.collections._scan(table.id)
    until(lambda: not table.collections._scanning)
    table.collections._show()
    assert table.problems() == []  # they may have other names
    table.extractor.free.set()
    table.settle()
    problems = table.problems()
    assert problems[0] == "010.txt is no longer there."
    assert problems[-1] == "10 more files are no longer there."
    assert len(problems) == 101
    until(lambda: len(table.indexed()) == 13)


def test_a_text_that_the_index_lacks_is_read_again(table: Table) -> None:
    own, indexing = table.collections, table.stage.controller.indexing
    key = own._files[str(table.folder / "manual.txt")].sha256  # type: ignore[index]
    indexing.forget([key])  # whatever the cause may be
    until(lambda: key not in table.indexed())
    table.write("letters/two.txt", "Dear Bo, all is well.")
    table.settle()
    until(lambda: key in table.indexed())
    assert table.extractor.names[2:] == ["two.txt", "manual.txt"]


def missing(table: Table) -> int | None:
    part = passages_part(table.stage.state.messages[-2].parts)
    return part.missing if part else None


def test_a_question_waits_for_a_few_files_that_are_not_read_yet(table: Table) -> None:
    table.use()
    table.extractor.free.clear()
    for number in range(5):
        table.write(f"new {number}.txt", f"The turbine {number} is made of titanium.")
    table.collections._scan(table.id)
    until(lambda: "new 0.txt" in table.extractor.names)
    QTimer.singleShot(200, table.extractor.free.set)
    found = table.ask("What is the turbine made of?")
    assert sorted(name for name, _ in found) == [f"new {number}.txt" for number in range(5)]
    assert missing(table) == 0


def test_a_question_does_not_wait_for_many_files_and_says_how_many(table: Table) -> None:
    table.use()
    table.extractor.free.clear()
    for number in range(50):
        table.write(f"new {number}.txt", f"The turbine {number} is made of titanium.")
    table.collections._scan(table.id)
    until(lambda: len(table.collections._waiting) >= 49 and bool(table.collections._reads.path))
    assert table.stage.controller.send((TextPart("When do I clean the filter?"),))
    until(lambda: missing(table) is not None)
    assert missing(table) == 50
    table.extractor.free.set()


def test_a_question_right_after_the_start_waits_until_collections_are_known(
    table: Table,
) -> None:
    table.use()
    assert table.ask("When do I clean the filter?") == [("manual.txt", FILTER)]
    settings = table.stage.state.settings(table.stage.state.current)
    table.stage.close()
    table.stage = Stage(table.place, extractor=PlainExtractor())
    table.stage.start(MODEL)
    table.stage.engine.finish_load()
    table.stage.drain()
    table.stage.controller.new_conversation()
    table.stage.controller.chat_settings.change(None, settings)
    assert table.ask("When do I clean the filter?") == [("manual.txt", FILTER)]


def test_a_question_about_files_that_are_new_to_the_app(tmp_path: Path, qapp: object) -> None:
    table = Table(tmp_path)
    table.stage.ready(MODEL)
    table.write("manual.txt", FILTER)
    table.id = table.collections.add([table.folder])
    table.use()
    assert table.ask("When do I clean the filter?") == [("manual.txt", FILTER)]
    table.stage.close()


@pytest.mark.sweep
def test_the_index_is_that_of_the_folder_after_the_app_was_killed(tmp_path: Path) -> None:
    kills = list(crash_collection.rounds(tmp_path, kills=2, seed=3))
    assert [kill for kill in kills if not kill.kept] == []


def test_a_file_that_is_only_touched_is_not_extracted_again(table: Table) -> None:
    table.extractor.names.clear()
    os.utime(table.folder / "manual.txt", (1_000_000_000, 1_000_000_000))
    table.settle()
    os.utime(table.folder / "manual.txt")
    table.settle()
    assert table.extractor.names == []


@pytest.mark.skipif(os.name == "nt", reason="only the time of the file itself is known there")
def test_another_file_of_the_same_size_and_time_is_seen(table: Table) -> None:
    path = table.folder / "manual.txt"
    before = path.stat()
    other = path.read_text(encoding="utf-8").replace("blue", "pink")
    path.with_name("other.tmp").write_text(other, encoding="utf-8")
    path.with_name("other.tmp").replace(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    table.settle()
    table.use()
    assert "pink" in table.ask("Which colour has the pump?")[0][1]


def test_a_change_in_the_same_tick_of_the_clock_is_seen(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table.write("tick.txt", "The turbine is green.")
    stamp = changed_at(path.stat())
    monkeypatch.setattr(folder_scan, "changed_at", lambda facts: stamp)
    monkeypatch.setattr(collection_reader, "changed_at", lambda facts: stamp)
    table.settle()
    table.write("tick.txt", "The turbine is white.")
    table.settle()
    table.use()
    assert "white" in table.ask("Which colour has the turbine?")[0][1]


def test_a_copy_stays_when_the_original_is_deleted(table: Table) -> None:
    shutil.copy(table.folder / "manual.txt", table.folder / "letters" / "copy.txt")
    table.settle()
    (table.folder / "manual.txt").unlink()
    table.settle()
    table.use()
    assert table.ask("When do I clean the filter?") == [("copy.txt", FILTER)]


def test_files_of_one_name_are_told_apart(table: Table) -> None:
    for year in (2024, 2025):
        table.write(f"{year}/invoice.txt", f"Invoice for the turbine of the year {year}.")
    table.settle()
    table.use()
    names = [name for name, _ in table.ask("What was the invoice for the turbine?")]
    assert sorted(names) == ["2024/invoice.txt", "2025/invoice.txt"]


def test_texts_go_with_the_last_that_uses_them_and_the_index_gets_smaller(table: Table) -> None:
    for number in range(40):
        words = " ".join(f"word{number}x{n}" for n in range(3_000))
        table.write(f"many/{number}.txt", f"Note {number}. {words}")
    table.settle()
    many = table.folder / "many"
    other = table.collections.add([many], "Many")
    full = index_bytes(table)
    assert full > 2_000_000
    table.collections.delete(table.id)
    table.collections.add([many / "0.txt"], "One")  # the deleted one is restorable until now
    table.collections.delete(other)
    assert len(table.indexed()) >= 40
    table.collections.add([many / "0.txt"], "The same")
    table.restart()  # nothing can be restored any more
    table.id = table.collections.state.collections[0].id
    table.settle()
    until(lambda: len(table.indexed()) == 1)
    assert set(table.collections._files or ()) == {str(many / "0.txt")}
    assert index_bytes(table) < full / 10


def test_a_deleted_collection_leaves_no_texts_behind(table: Table) -> None:
    table.collections.delete(table.id)
    table.restart()
    until(lambda: not table.indexed())
    until(lambda: not table.collections._files)


def index_bytes(table: Table) -> int:
    """The size of the file of the index when all that can be is erased."""
    found: list[int] = []
    index = table.stage.controller.indexing

    def tidy() -> int:
        while index._index().tidy():
            pass
        database = index._index()._database
        assert database is not None
        pages, size = (
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
        )
        return pages * size

    index._worker.run(tidy, found.append)
    until(lambda: bool(found))
    return found[0]


def test_a_drive_that_does_not_respond_keeps_no_other_from_being_read(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    responds, usual = threading.Event(), collections.scan

    def waits(sources: Iterable[str], *rest: Any, **more: Any) -> folder_scan.Scan:
        if str(table.folder) in sources:
            responds.wait(TIMEOUT_SECONDS)
        return usual(sources, *rest, **more)

    monkeypatch.setattr(collections, "scan", waits)
    own = table.collections
    own._scan(table.id)
    other = tmp_path / "other"
    other.mkdir()
    (other / "new.txt").write_text("The turbine is made of titanium.", encoding="utf-8")
    id = own.add([other])
    until(lambda: "new.txt" in table.extractor.names)
    assert table.id in own._scanning
    assert id in own._scans
    responds.set()
    table.settle()


def test_a_question_does_not_wait_for_a_drive_that_does_not_respond(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    responds, usual = threading.Event(), collections.scan
    monkeypatch.setattr(collections, "_WAIT_MILLISECONDS", 1_000_000)
    monkeypatch.setattr(collections, "_RESPONSE_SECONDS", 0.1)

    def waits(sources: Iterable[str], *rest: Any, **more: Any) -> folder_scan.Scan:
        if str(tmp_path / "far") in sources:
            responds.wait(TIMEOUT_SECONDS)
        return usual(sources, *rest, **more)

    monkeypatch.setattr(collections, "scan", waits)
    current, own = table.stage.state.current, table.collections
    far = own.add([tmp_path / "far"])
    settings = replace(table.stage.state.settings(current), collections=(table.id, far))
    table.stage.controller.chat_settings.change(current, settings)
    stage = table.stage
    assert stage.controller.send((TextPart("When do I clean the filter?"),))
    until(lambda: passages_part(stage.state.messages[-2].parts) is not None)
    part = passages_part(stage.state.messages[-2].parts)
    assert [each.text for each in part.passages] == [FILTER]  # type: ignore[union-attr]
    assert far in own._scanning
    assert own.unread(stage.state.current) == 1  # type: ignore[arg-type]
    responds.set()
    until(lambda: far in own._scans)


def test_the_files_of_the_app_are_in_no_collection(table: Table) -> None:
    (table.place / "leaked.txt").write_text("The zirconium filter of the app.", encoding="utf-8")
    table.collections.add_sources(table.id, [table.folder.parent])
    table.settle()
    assert "leaked.txt" not in table.extractor.names
    assert table.collections.state.view(table.id).files == 2


def test_a_drive_that_hangs_while_a_file_is_read_keeps_no_other_from_being_read(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    responds, usual = threading.Event(), collection_reader.sha256_of
    monkeypatch.setattr(collection_reading, "HANG_SECONDS", 0.05)
    monkeypatch.setattr(collection_reading, "_CHECK_MILLISECONDS", 10)

    def hangs(path: Path, cancelled: Callable[[], bool]) -> str:
        if path.parent.name == "far":
            responds.wait(TIMEOUT_SECONDS)
        return usual(path, cancelled)

    monkeypatch.setattr(collection_reader, "sha256_of", hangs)
    own, names = table.collections, table.extractor.names
    table.write("../far/a.txt", "The turbine is made of titanium.")
    table.write("../far/b.txt", "The pipe is made of copper.")
    far = own.add([tmp_path / "far"])
    until(lambda: bool(own._reads.stuck))
    table.write("new.txt", "The wheel is made of wood.")
    own._scan(table.id)
    until(lambda: "new.txt" in names)
    assert not {"a.txt", "b.txt"} & {*names}
    view = own.state.view(far)
    assert (view.files, view.done) == (2, 0)
    (problem,) = view.problems
    path = tmp_path / "far" / "a.txt"
    assert problem.sentence == f"{path} cannot be read: {os.strerror(ETIMEDOUT)}."
    assert own._hangs(far)
    responds.set()
    until(lambda: {"a.txt", "b.txt"} <= {*names})
    table.settle()
    view = own.state.view(far)
    assert (view.files, view.done, view.problems) == (2, 2, ())
    assert not own._reads.stuck
