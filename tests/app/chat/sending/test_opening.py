"""Each file that is opened, dropped or pasted goes to what uses it, by its content."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from app.chat.sending.opening import NOTICE, is_model
from app.state.attachments import AttachmentPhase
from fakes import MODEL
from stage import Stage, until

CHATS = json.dumps(
    [{"uuid": "1", "name": "Chat", "chat_messages": [{"sender": "human", "text": "Hello"}]}]
)


def zipped(name: str) -> bytes:
    """An archive with a file of this name."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, "<document/>")
    return made.getvalue()


def opened(stage: Stage, *paths: Path) -> list[str]:
    """Open files; the names of those that are attached."""
    stage.controller.opening.open(paths)
    for _ in range(2):
        stage.wait_until_idle()
    return [each.name for each in stage.states.attachments.of(None)]


@pytest.fixture
def made(stage: Stage, tmp_path: Path) -> Callable[[str, bytes | str], Path]:
    """Makes files in a folder, with a started stage."""
    stage.ready(MODEL)

    def make(name: str, content: bytes | str) -> Path:
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", "Notes"),
        ("letter.docx", zipped("word/document.xml")),
        ("data.json", '{"a": 1}'),
        ("list.json", "[1, 2]"),
        ("broken.json", '{"a": '),
        ("program", b"\x7fELF\x02"),
        ("BMI.txt", "BMI of 20"),
    ],
)
def test_a_file_that_nothing_else_uses_is_attached(
    stage: Stage, made: Callable[[str, bytes | str], Path], name: str, content: bytes | str
) -> None:
    assert opened(stage, made(name, content)) == [name]
    assert NOTICE not in stage.state.notices


def test_each_kind_of_a_drop_goes_its_way(
    stage: Stage, made: Callable[[str, bytes | str], Path]
) -> None:
    paths = [
        made("notes.txt", "Notes"),
        made("chats.json", CHATS),
        made("model", b"GGUF..."),
        made("photo.jpg", b"\xff\xd8\xff\xe0"),
    ]
    assert opened(stage, *paths) == ["notes.txt", "chats.json", "photo.jpg"]
    assert stage.engine.load.path == paths[2]
    assert NOTICE not in stage.state.notices
    assert stage.states.transfer.preview is None


def test_chats_alone_are_imported_and_chosen_ones_attached(
    stage: Stage, made: Callable[[str, bytes | str], Path]
) -> None:
    path = made("chats.json", CHATS)
    stage.controller.opening.open([path])
    until(lambda: stage.states.transfer.preview is not None)
    stage.controller.transfer.cancel()
    assert stage.states.attachments.of(None) == ()
    stage.controller.attachments.attach([path])
    assert [each.name for each in stage.states.attachments.of(None)] == ["chats.json"]


def test_a_folder_has_chats_or_files(
    stage: Stage, made: Callable[[str, bytes | str], Path]
) -> None:
    made("project/package.json", "{}")
    made("project/main.py", "print()")
    made("project/data.sqlite", b"SQLite format 3\0")
    assert len(opened(stage, made("project/README.md", "# A").parent)) == 4
    folder = made("export/conversations.json", CHATS).parent
    stage.controller.opening.open([folder])
    until(lambda: stage.states.transfer.preview is not None)
    stage.controller.transfer.cancel()


def test_a_file_that_is_not_there_is_no_model(stage: Stage, tmp_path: Path) -> None:
    stage.ready(MODEL)
    missing = tmp_path / "gone.txt"
    assert not is_model(missing)
    assert opened(stage, missing) == ["gone.txt"]
    [failed] = stage.states.attachments.of(None)
    assert failed.phase is AttachmentPhase.FAILED


def test_opening_a_file_at_the_start_stays_in_the_new_chat(stage: Stage, tmp_path: Path) -> None:
    stage.ready(MODEL)
    (tmp_path / "notes.txt").write_text("Notes", encoding="utf-8")
    opened(stage, tmp_path / "notes.txt")
    assert not stage.controller.last_chat.stays_empty
