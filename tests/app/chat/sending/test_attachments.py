"""Attached files: shown at once, read in order, part of the draft, the message and its edits."""

from __future__ import annotations

import os
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.chat.sending.attachments import MOST_AT_ONCE, MOST_FILES, NOTICE
from app.documents.extract import Extractor
from app.domain.documents import Reads
from app.domain.parts import FilePart, TextPart, files, prompt_text
from app.state.attachments import Attachment, AttachmentPhase, Editing
from engine import Role
from fakes import MODEL
from plain_extractor import PlainExtractor
from stage import Stage, until

READING, READY, FAILED = AttachmentPhase


@pytest.fixture
def extractor() -> PlainExtractor:
    return PlainExtractor()


@pytest.fixture
def make(qtbot: QtBot, tmp_path: Path, extractor: PlainExtractor) -> Iterator[Callable[[], Stage]]:
    """Makes stages over one store, one after the other: each is a start of the app."""
    made: list[Stage] = []

    def start() -> Stage:
        if made:
            made[-1].close()
        made.append(Stage(tmp_path / "data", extractor=extractor))
        made[-1].ready(MODEL)
        return made[-1]

    (tmp_path / "data").mkdir()
    yield start
    made[-1].close()


@pytest.fixture
def stage(make: Callable[[], Stage]) -> Stage:
    return make()


def _file(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _of(stage: Stage, place: int | Editing | None = None) -> tuple[Attachment, ...]:
    return stage.states.attachments.of(place)


def _settle(stage: Stage) -> None:
    for _ in range(3):  # a look at a path leads to a read, and that to a count
        stage.wait_until_idle()


def _attach(stage: Stage, *paths: Path) -> None:
    stage.controller.attachments.attach(paths)
    _settle(stage)


def _read_draft(stage: Stage, conversation: int | None = None) -> tuple[FilePart, ...]:
    found: list[tuple[FilePart, ...]] = []
    stage.store_queue.read(lambda store: files(store.draft(conversation).field), found.append)
    until(lambda: bool(found))
    return found[0]


def test_files_are_shown_at_once_and_read_in_order(
    stage: Stage, tmp_path: Path, extractor: PlainExtractor
) -> None:
    extractor.free.clear()
    names = ["b.txt", "a.txt", "c.txt"]
    stage.controller.attachments.attach(
        [_file(tmp_path, name, f"Text of {name}") for name in names]
    )
    assert [(each.name, each.phase) for each in _of(stage)] == [(name, READING) for name in names]
    extractor.free.set()
    _settle(stage)
    assert [each.phase for each in _of(stage)] == [READY] * 3
    assert [each.part.text for each in _of(stage) if each.part] == [f"Text of {n}" for n in names]
    assert extractor.names == names


def test_a_message_has_its_files_before_its_text(stage: Stage, tmp_path: Path) -> None:
    _attach(stage, _file(tmp_path, "notes.txt", "The sky is green."))
    assert stage.controller.send("What colour is the sky?")
    parts = stage.state.messages[0].parts
    assert [type(part) for part in parts] == [FilePart, TextPart]
    assert prompt_text(parts).endswith("</document>\n\nWhat colour is the sky?")
    assert stage.engine.last_generate.turns[-1].text == prompt_text(parts)
    assert _of(stage) == () == _of(stage, stage.state.current)
    _settle(stage)
    assert _read_draft(stage) == ()
    found = files(parts)[0]
    store_file = stage.store_queue.path
    blob = store_file.with_name(store_file.name + ".blobs") / found.sha256[:2] / found.sha256
    assert blob.read_text(encoding="utf-8") == "The sky is green."
    assert stage.state.title(stage.state.current) == "What colour is the sky?"


def test_a_message_of_files_alone_is_named_after_the_first(stage: Stage, tmp_path: Path) -> None:
    _attach(stage, _file(tmp_path, "report.txt", "Numbers"))
    assert stage.controller.send("")
    assert stage.state.title(stage.state.current) == "report.txt"


def test_sending_waits_for_a_file_that_is_read(
    stage: Stage, tmp_path: Path, extractor: PlainExtractor
) -> None:
    extractor.free.clear()
    stage.controller.attachments.attach([_file(tmp_path, "long.txt", "Text")])
    assert not stage.controller.send("Sum it up")
    assert "long.txt is still being read" in stage.state.notices[NOTICE].sentence
    extractor.free.set()
    _settle(stage)
    assert stage.controller.send("Sum it up")
    assert NOTICE not in stage.state.notices


@pytest.mark.parametrize("fault", ["protected", "damaged", "too large", "too slow", "unknown"])
def test_a_file_without_text_keeps_its_message_unsent(
    stage: Stage, tmp_path: Path, fault: str
) -> None:
    _attach(stage, _file(tmp_path, "bad.pdf", fault))
    [bad] = _of(stage)
    assert bad.phase is FAILED
    assert bad.fault.count("bad.pdf") == 1
    for text in ("", "Sum it up"):
        stage.state.set_notice(NOTICE, None)
        assert not stage.controller.send(text)
        assert stage.state.notices[NOTICE].sentence == bad.fault
    _file(tmp_path, "bad.pdf", "Mended")
    stage.controller.attachments.retry(bad.id)
    _settle(stage)
    assert stage.controller.send("Sum it up")


def test_the_notice_of_an_unread_file_ends_with_its_reason(
    stage: Stage, tmp_path: Path, extractor: PlainExtractor
) -> None:
    extractor.free.clear()
    attachments = stage.controller.attachments
    attachments.attach([_file(tmp_path, name, "damaged") for name in ("a.pdf", "b.pdf")])
    assert not stage.controller.send("Sum it up")
    extractor.free.set()
    _settle(stage)
    for each in _of(stage):
        assert stage.state.notices[NOTICE].sentence == each.fault
        attachments.remove(each.id)
    assert NOTICE not in stage.state.notices


def test_a_missing_file_is_named(stage: Stage, tmp_path: Path) -> None:
    _attach(stage, tmp_path / "gone.txt")
    assert "gone.txt was not found" in _of(stage)[0].fault


def test_a_file_is_not_attached_twice_but_read_again(stage: Stage, tmp_path: Path) -> None:
    path, bad = _file(tmp_path, "a.txt", "Old"), _file(tmp_path, "bad.txt", "damaged")
    _attach(stage, path, bad, path)
    assert [each.name for each in _of(stage)] == ["a.txt", "bad.txt"]
    _attach(stage, _file(tmp_path, "a.txt", "Newer"), _file(tmp_path, "bad.txt", "Mended"))
    assert [each.part.text for each in _of(stage) if each.part] == ["Newer", "Mended"]


def test_a_removed_file_that_was_replaced_is_attached_as_it_is_now(
    stage: Stage, tmp_path: Path
) -> None:
    path = _file(tmp_path, "sample.txt", "The first text.")
    _attach(stage, path)
    facts = path.stat()
    stage.controller.attachments.remove(_of(stage)[0].id)
    _file(tmp_path, "sample.txt", "Another text ..")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    _attach(stage, path)
    assert [each.part.text for each in _of(stage) if each.part] == ["Another text .."]


def test_removing_a_file_stops_reading_it(
    stage: Stage, tmp_path: Path, extractor: PlainExtractor
) -> None:
    extractor.free.clear()
    first, second = _file(tmp_path, "a.txt", "A"), _file(tmp_path, "b.txt", "B")
    stage.controller.attachments.attach([first, second])
    until(lambda: extractor.names == ["a.txt"])
    stage.controller.attachments.remove(_of(stage)[0].id)
    until(lambda: extractor.names == ["a.txt", "b.txt"])
    extractor.free.set()
    _settle(stage)
    assert [each.name for each in _of(stage)] == ["b.txt"]
    assert [part.name for part in _read_draft(stage)] == ["b.txt"]


def test_the_same_bytes_are_extracted_once(
    make: Callable[[], Stage], tmp_path: Path, extractor: PlainExtractor
) -> None:
    stage = make()
    _attach(stage, _file(tmp_path, "a.txt", "One\fTwo"))
    before = _of(stage)[0].part
    stage.controller.send("Hello")
    stage.engine.finish()
    _settle(stage)
    stage = make()
    _attach(stage, _file(tmp_path / "copies", "again.txt", "One\fTwo"))
    now = _of(stage)[0].part
    assert extractor.names == ["a.txt"]
    assert before is not None
    assert now is not None
    assert (now.text, now.pages, now.unit) == (before.text, before.pages, before.unit)
    assert now.name == "again.txt"
    _attach(stage, _file(tmp_path, "again.csv", "One\fTwo"))  # another format by its name
    assert extractor.names == ["a.txt", "again.csv"]


def test_a_damaged_text_of_before_is_extracted_again(
    stage: Stage, tmp_path: Path, extractor: PlainExtractor
) -> None:
    path = _file(tmp_path, "a.txt", "Text")
    _attach(stage, path)
    [kept] = stage.store_queue.path.parent.rglob("*.extracted")
    kept.write_bytes(kept.read_bytes()[:-5])
    stage.controller.new_conversation()
    stage.controller.attachments.reload(_of(stage)[0].id)
    _settle(stage)
    assert [each.part.text for each in _of(stage) if each.part] == ["Text"]
    assert extractor.names == ["a.txt"] * 2


def test_unsent_files_survive_a_crash_in_all_phases(
    make: Callable[[], Stage], tmp_path: Path, extractor: PlainExtractor
) -> None:
    stage = make()
    paths = [_file(tmp_path, "ready.txt", "A\fB\fC"), _file(tmp_path, "bad.txt", "damaged")]
    _attach(stage, *paths)
    stage.controller.attachments.set_pages(_of(stage)[0].id, [2, 0])
    extractor.free.clear()
    stage.controller.attachments.attach([_file(tmp_path, "reading.txt", "R")])
    until(lambda: "reading.txt" in extractor.names)
    assert all(part.text == "" for part in _read_draft(stage))  # its text is kept beside the blob
    paths[0].unlink()
    _file(tmp_path, "bad.txt", "Mended")
    stage = make()
    _settle(stage)
    assert [(each.name, each.phase) for each in _of(stage)] == [
        ("ready.txt", READY), ("bad.txt", READY), ("reading.txt", READY)
    ]  # fmt: skip
    part = _of(stage)[0].part
    assert part is not None
    assert (part.text, part.reads, part.chosen) == ("A\n\nB\n\nC", Reads.PAGES, (0, 2))
    assert stage.controller.send("Hello")
    assert "[page 1]\nA\n\n[page 3]\nC" in stage.engine.last_generate.turns[-1].text


def test_each_chat_has_its_own_files(
    make: Callable[[], Stage], tmp_path: Path, extractor: PlainExtractor
) -> None:
    stage = make()
    stage.controller.send("First")
    stage.engine.finish()
    chat = stage.state.current
    assert chat is not None
    _attach(stage, _file(tmp_path, "a.txt", "A"))
    stage.controller.new_conversation()
    _attach(stage, _file(tmp_path, "b.txt", "B"))
    assert [each.name for each in _of(stage, chat)] == ["a.txt"]
    assert [each.name for each in _of(stage)] == ["b.txt"]
    stage = make()
    stage.controller.open_conversation(chat)
    _settle(stage)
    assert [each.name for each in _of(stage, chat)] == ["a.txt"]


def test_a_waiting_message_has_its_files(stage: Stage, tmp_path: Path) -> None:
    stage.controller.send("First")
    _attach(stage, _file(tmp_path, "a.txt", "A"))
    assert stage.controller.send("Second")
    chat = stage.state.current
    assert chat is not None
    assert _of(stage, chat) == ()
    number = stage.state.outbox[chat][0].number
    stage.window.chat.waiting.edit_requested.emit(number)
    assert [each.name for each in _of(stage, chat)] == ["a.txt"]
    assert stage.window.composer.text() == "Second"
    assert stage.controller.send("Second")
    stage.engine.finish()
    _settle(stage)
    assert [part.name for part in files(stage.state.messages[2].parts)] == ["a.txt"]


def test_an_edited_message_keeps_its_files_and_gets_others(stage: Stage, tmp_path: Path) -> None:
    _attach(stage, _file(tmp_path, "a.txt", "A"), _file(tmp_path, "b.txt", "B"))
    stage.controller.send("Question")
    stage.engine.finish()
    message = stage.state.messages[0]
    place = Editing(message.id)
    stage.controller.attachments.begin_edit(message.id)
    assert [each.name for each in _of(stage, place)] == ["a.txt", "b.txt"]
    stage.controller.attachments.remove(_of(stage, place)[0].id)
    stage.controller.attachments.attach([_file(tmp_path, "c.txt", "C")], editing=message.id)
    _settle(stage)
    stage.controller.edit(message.id, (*message.parts[:2], TextPart("Other question")))
    now = stage.state.messages[0]
    assert [part.name for part in files(now.parts)] == ["b.txt", "c.txt"]
    assert prompt_text(now.parts).endswith("Other question")
    assert _of(stage, place) == ()
    stage.engine.finish()
    stage.controller.edit(now.id, now.parts)  # without the files at its editor: as it was
    assert files(stage.state.messages[0].parts) == files(now.parts)


def test_an_edit_that_cannot_be_sent_is_kept(
    stage: Stage, tmp_path: Path, extractor: PlainExtractor
) -> None:
    stage.controller.send("Question")
    stage.engine.finish()
    _settle(stage)
    message = stage.state.messages[0]
    editing = stage.window.transcript.editing
    stage.window.transcript.edit_message(message.id)
    extractor.free.clear()
    stage.controller.attachments.attach([_file(tmp_path, "a.txt", "A")], editing=message.id)
    assert editing.editor is not None
    editing.editor.submitted.emit((TextPart("Other question"),))
    assert "a.txt is still being read" in stage.state.notices[NOTICE].sentence
    assert stage.state.messages[0] == message
    assert editing.editor.text() == "Other question"
    extractor.free.set()
    _settle(stage)
    editing.editor.submitted.emit(editing.editor.parts())
    assert stage.state.messages[0].text.endswith("Other question")
    assert [part.name for part in files(stage.state.messages[0].parts)] == ["a.txt"]
    assert editing.editor is None


def test_an_edit_with_only_an_unreadable_file_is_kept(stage: Stage, tmp_path: Path) -> None:
    stage.controller.send("Question")
    stage.engine.finish()
    _settle(stage)
    message = stage.state.messages[0]
    stage.controller.attachments.begin_edit(message.id)
    stage.controller.attachments.attach([_file(tmp_path, "bad.pdf", "damaged")], editing=message.id)
    _settle(stage)
    assert not stage.controller.messages.edit(message.id, "")
    assert "bad.pdf" in stage.state.notices[NOTICE].sentence
    assert stage.state.messages[0] == message


def test_a_document_stays_in_the_prompts_of_later_questions(stage: Stage, tmp_path: Path) -> None:
    """Also when its bytes are gone: only exports need them."""
    _attach(stage, _file(tmp_path, "a.txt", "What it says"))
    for question in ("First", "Second"):
        stage.controller.send(question)
        stage.engine.write("Yes.")
        stage.engine.finish()
        stage.wait_until_idle()
        assert "What it says" in stage.engine.last_generate.turns[0].text
    for blob in stage.store_queue.path.with_name("conversations.sqlite.blobs").rglob("*"):
        if blob.is_file():
            blob.unlink()
    stage.controller.edit(stage.state.messages[0].id, stage.state.messages[0].parts)
    assert "What it says" in stage.engine.last_generate.turns[0].text


def test_a_cancelled_edit_changes_nothing(stage: Stage, tmp_path: Path) -> None:
    _attach(stage, _file(tmp_path, "a.txt", "A"))
    stage.controller.send("Question")
    stage.engine.finish()
    message = stage.state.messages[0]
    stage.controller.attachments.begin_edit(message.id)
    stage.controller.attachments.remove(_of(stage, Editing(message.id))[0].id)
    stage.controller.attachments.cancel_edit(message.id)
    assert stage.state.messages[0] == message
    stage.controller.regenerate(stage.state.messages[1].id)
    assert stage.engine.last_generate.turns[-1].text == prompt_text(message.parts)


def test_the_files_of_a_folder_are_attached(stage: Stage, tmp_path: Path) -> None:
    for name, text in {"b.txt": "B", "sub/a.txt": "A", ".hidden": "H", "x.bin": "unknown"}.items():
        _file(tmp_path, f"notes/{name}", text)
    _attach(stage, tmp_path / "notes")
    assert [each.name for each in _of(stage)] == ["b.txt", "a.txt"]
    assert stage.state.notices[NOTICE].sentence.startswith("notes: 1 file is of a kind")
    assert stage.state.notices[NOTICE].remedy == "x.bin"


def test_a_large_folder_is_not_attached_but_counted(stage: Stage, tmp_path: Path) -> None:
    for number in range(MOST_FILES + 1):
        _file(tmp_path, f"many/{number}.txt", "Text")
    _attach(stage, tmp_path / "many")
    assert _of(stage) == ()
    assert "many has 26 files" in stage.state.notices[NOTICE].sentence
    (tmp_path / "empty").mkdir()
    _attach(stage, tmp_path / "empty")
    assert "no files" in stage.state.notices[NOTICE].sentence


def test_too_many_files_are_not_attached_but_offered_as_a_collection(
    stage: Stage, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(MOST_AT_ONCE + 1)]
    _attach(stage, *paths)
    assert _of(stage) == ()
    notice = stage.state.notices[NOTICE]
    assert notice.sentence == "101 files are too many to attach at once."
    assert notice.action == "Make a collection"
    assert stage.controller.attachments.take_large_folders() == paths
    assert NOTICE not in stage.state.notices


def test_a_file_changed_on_disk_is_offered_again(stage: Stage, tmp_path: Path) -> None:
    path = _file(tmp_path, "a.txt", "Old")
    other = _file(tmp_path, "b.txt", "Same")
    _attach(stage, path, other)
    stage.controller.send("Question")
    stage.engine.finish()
    _file(tmp_path, "a.txt", "Newer")
    other.touch()  # another time, the same content
    stage.controller.attachments.check_changed()
    _settle(stage)
    [known] = stage.states.attachments.outdated
    assert (known.name, known.changed) == ("a.txt", True)
    stage.controller.attachments.attach_known(known)
    _settle(stage)
    stage.controller.attachments.check_changed()
    _settle(stage)
    assert stage.states.attachments.outdated == ()
    [again] = _of(stage, stage.state.current)
    assert again.part is not None
    assert again.part.text == "Newer"
    _file(tmp_path, "a.txt", "Newest of all")
    QApplication.sendEvent(stage.window, QEvent(QEvent.Type.WindowActivate))
    _settle(stage)
    assert _of(stage, stage.state.current)[0].changed
    stage.controller.attachments.reload(again.id)
    _settle(stage)
    [read] = _of(stage, stage.state.current)
    assert read.part is not None
    assert (read.part.text, read.changed) == ("Newest of all", False)


def test_a_file_that_is_gone_has_not_changed(stage: Stage, tmp_path: Path) -> None:
    path = _file(tmp_path, "a.txt", "What it says")
    _attach(stage, path)
    path.unlink()
    stage.controller.attachments.check_changed()
    _settle(stage)
    assert not _of(stage)[0].changed


def test_a_file_whose_hash_is_not_known_has_not_changed(stage: Stage, tmp_path: Path) -> None:
    path = _file(tmp_path, "a.txt", "What it says")
    part = FilePart("a.txt", "What it says", path=str(path))
    stage.controller.attachments.restore(stage.state.current, [part])
    stage.controller.attachments.check_changed()
    _settle(stage)
    assert not _of(stage)[0].changed


def test_known_files_are_those_of_the_chat_the_newest_first(stage: Stage, tmp_path: Path) -> None:
    _attach(stage, _file(tmp_path, "a.txt", "A"), _file(tmp_path, "b.txt", "B"))
    stage.controller.send("Question")
    stage.engine.finish()
    copies = _file(tmp_path, "c.txt", "C"), _file(tmp_path / "copies", "c.txt", "C")
    _attach(stage, *copies)
    known = stage.controller.attachments.known_files(stage.state.current)
    assert [each.name for each in known] == ["c.txt", "c.txt", "b.txt", "a.txt"]


def test_bytes_go_with_the_last_chat_that_uses_them(stage: Stage, tmp_path: Path) -> None:
    _attach(stage, _file(tmp_path, "a.txt", "Shared bytes"))
    stage.controller.send("Question")
    stage.engine.finish()
    first = stage.state.current
    assert first is not None
    stage.controller.copies.duplicate([first])
    _settle(stage)
    second = next(each.id for each in stage.state.conversations if each.id != first)
    folder = stage.store_queue.path.with_name("conversations.sqlite.blobs")

    def left() -> int:
        return sum(each.is_file() for each in folder.rglob("*"))

    assert left() == 2  # the bytes, and the text that was extracted
    for chat, expected in ((first, 2), (second, 0)):
        stage.controller.deletions.delete([chat])
        stage.controller.deletions.remove([chat])
        _settle(stage)
        assert left() == expected


def test_a_chat_that_is_removed_while_its_file_is_read_leaves_nothing(
    stage: Stage, tmp_path: Path, extractor: PlainExtractor
) -> None:
    stage.controller.send("Question")
    stage.engine.finish()
    _settle(stage)
    chat = stage.state.current
    assert chat is not None
    extractor.free.clear()
    stage.controller.attachments.attach([_file(tmp_path, "a.txt", "A")])
    until(lambda: extractor.names == ["a.txt"])
    stage.controller.deletions.delete([chat])
    stage.controller.deletions.remove([chat])
    extractor.free.set()
    _settle(stage)
    rows: list[object] = []
    stage.store_queue.read(
        lambda store: store._database.execute("SELECT * FROM draft WHERE text != ''").fetchall(),
        rows.append,
    )
    until(lambda: bool(rows))
    assert rows == [[]]


def test_closing_stops_an_extraction(
    make: Callable[[], Stage], tmp_path: Path, extractor: PlainExtractor
) -> None:
    stage = make()
    extractor.free.clear()
    stage.controller.attachments.attach([_file(tmp_path, "a.txt", "A")])
    until(lambda: extractor.names == ["a.txt"])
    make()
    assert extractor.closed


def test_real_files_are_extracted_in_a_child_process(qtbot: QtBot, tmp_path: Path) -> None:
    """Also one that is damaged: it is named, and the next one is read."""
    stage = Stage(tmp_path, extractor=Extractor())
    try:
        stage.ready(MODEL)
        (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.7\nnothing")
        with zipfile.ZipFile(tmp_path / "good.zip", "w") as archive:
            archive.writestr("inside.txt", "Text")
        _attach(stage, tmp_path / "bad.pdf", tmp_path / "good.zip")
        bad, good = _of(stage)
        assert (bad.phase, good.phase) == (FAILED, READY)
        assert "bad.pdf" in bad.fault
        assert good.part is not None
        assert good.part.kind == "archive"
        assert "inside.txt" in good.part.text
    finally:
        stage.close()


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(6))
def test_no_file_is_lost_in_any_order_of_what_a_user_does(
    make: Callable[[], Stage], tmp_path: Path, seed: int
) -> None:
    """Attach, remove, choose pages, send, edit, change the chat, restart: as a simple model says."""
    rng, stage = random.Random(seed), make()
    paths = [_file(tmp_path, f"{n}.txt", f"One {n}\fTwo {n}\fThree {n}") for n in range(6)]
    wanted: dict[int | None, dict[str, tuple[int, ...]]] = {None: {}}  # names, and chosen pages
    sent: dict[int, list[list[str]]] = {}  # the files of each question

    def check() -> None:
        _settle(stage)
        here = stage.state.current
        assert {each.name: each.part.chosen for each in _of(stage, here) if each.part} == (
            wanted[here]
        )
        questions = [m for m in stage.state.messages if m.role is Role.USER]
        names = [[part.name for part in files(message.parts)] for message in questions]
        assert names == sent.get(here or 0, [])

    for number in range(40):
        here = stage.state.current
        there = _of(stage, here)
        match rng.choice(["attach", "attach", "remove", "pages", "send", "edit", "go", "restart"]):
            case "attach":
                chosen = rng.sample(paths, rng.randint(1, 3))
                stage.controller.attachments.attach(chosen)
                wanted[here] |= {p.name: () for p in chosen if p.name not in wanted[here]}
            case "remove" if there:
                gone = rng.choice(there)
                stage.controller.attachments.remove(gone.id)
                del wanted[here][gone.name]
            case "pages" if there:
                some = rng.choice(there)
                stage.controller.attachments.set_pages(some.id, [1])
                wanted[here][some.name] = (1,)
            case "send":
                _settle(stage)
                if stage.controller.send(f"Question {number}"):
                    stage.engine.finish()
                    now = stage.state.current
                    assert now is not None
                    sent.setdefault(now, []).append(list(wanted[here]))
                    wanted[here] = {}
                    wanted.setdefault(now, {})
            case "edit" if here is not None:
                last = next(m for m in reversed(stage.state.messages) if m.role is Role.USER)
                stage.controller.attachments.begin_edit(last.id)
                for each in _of(stage, Editing(last.id))[:1]:
                    stage.controller.attachments.remove(each.id)
                if stage.controller.edit(last.id, f"Edited {number}"):
                    stage.engine.finish()
                    sent[here][-1] = sent[here][-1][1:]
            case "go":
                place = rng.choice(list(wanted))
                if place is None:
                    stage.controller.new_conversation()
                else:
                    stage.controller.open_conversation(place)
                _settle(stage)
            case "restart":
                _settle(stage)
                stage = make()
                _settle(stage)
            case _:
                continue
        check()


def test_how_much_of_a_file_is_read_is_shown(
    stage: Stage, tmp_path: Path, extractor: PlainExtractor
) -> None:
    extractor.free.clear()
    stage.controller.attachments.attach([_file(tmp_path, "a.txt", "text")])
    until(lambda: any(each.progress == 0.25 for each in _of(stage)))
    assert _of(stage)[0].phase is READING
    extractor.free.set()
    _settle(stage)
    assert [(each.phase, each.progress) for each in _of(stage)] == [(READY, 1.0)]
