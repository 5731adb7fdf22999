"""Pasting something that is no text says why it cannot be used; text is pasted as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QUrl
from PySide6.QtGui import QImage

from fakes import MODEL
from stage import Stage


def picture() -> QMimeData:
    data = QMimeData()
    image = QImage(8, 8, QImage.Format.Format_RGB32)
    image.fill(0)
    data.setImageData(image)
    return data


def file(path: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    data.setText(path.as_uri())
    return data


@pytest.mark.parametrize("is_file", [False, True])
def test_pasted_picture_says_why(stage: Stage, tmp_path: Path, is_file: bool) -> None:
    stage.ready(MODEL)
    data = picture()
    if is_file:
        (tmp_path / "photo").write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF")
        data = file(tmp_path / "photo")
    editor = stage.window.composer.editor
    assert editor.canInsertFromMimeData(data)
    editor.insertFromMimeData(data)
    stage.wait_until_idle()
    assert editor.toPlainText() == ""
    assert stage.state.notices["paste"].sentence.startswith("Pictures cannot be used")
    assert stage.states.attachments.of(None) == ()
    stage.window.composer.insert("Then in words")
    stage.window.composer.submitted.emit(stage.window.composer.text())
    assert "paste" not in stage.state.notices


def test_a_pasted_file_is_attached(stage: Stage, tmp_path: Path) -> None:
    stage.ready(MODEL)
    (tmp_path / "notes.txt").write_text("Notes", encoding="utf-8")
    stage.window.composer.editor.insertFromMimeData(file(tmp_path / "notes.txt"))
    stage.wait_until_idle()
    assert stage.window.composer.text() == ""
    assert [each.name for each in stage.states.attachments.of(None)] == ["notes.txt"]


def test_text_with_a_picture_of_it_is_pasted_as_text(stage: Stage) -> None:
    stage.ready(MODEL)
    data = picture()  # as a spreadsheet copies cells
    data.setText("1\t2")
    stage.window.composer.editor.insertFromMimeData(data)
    assert stage.window.composer.text() == "1\t2"
    assert "paste" not in stage.state.notices


def test_pasted_web_address_is_text(stage: Stage) -> None:
    stage.ready(MODEL)
    data = QMimeData()
    data.setUrls([QUrl("https://example.org/a")])
    data.setText("https://example.org/a")
    stage.window.composer.editor.insertFromMimeData(data)
    assert stage.window.composer.text() == "https://example.org/a"
