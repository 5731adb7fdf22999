"""The offer of a model that finds passages by their meaning: when it is there, and what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.domain.documents import DocumentKind, Reads
from app.domain.parts import FilePart
from app.downloads import catalog
from app.downloads.entry import Download
from app.downloads.queue import Phase
from app.state.attachments import Attachment, AttachmentPhase
from app.state.encoder import EncoderView
from app.state.library import Offer
from app.ui.documents.search_model import SearchModelLine
from app.ui.widgets import accessibility
from fakes import MODEL
from stage import Stage

FIRST = catalog.load_embedders()[0]
OFFER = Offer(FIRST.source, FIRST.name)
PART = FilePart("r.md", "A text", kind=DocumentKind.MARKDOWN, path="/r.md", reads=Reads.PASSAGES)
FILE = Attachment(1, "r.md", "/r.md", AttachmentPhase.READY, PART, 9)
COMING = Download(
    1, "", FIRST.file, Path("/m.gguf"), FIRST.repository, 200, 50, 0.0, None, Phase.RUNNING, "", "",
    "", "",
)  # fmt: skip


def shown(stage: Stage, view: EncoderView, *files: Attachment) -> SearchModelLine:
    stage.states.attachments.set(stage.state.current, files)
    stage.states.encoder.set_view(view)
    return stage.window.chat.search_model_line


def test_it_is_offered_where_passages_are_read_without_a_model(stage: Stage) -> None:
    stage.ready(MODEL)
    view = EncoderView(searched=True, offer=OFFER)
    line = shown(stage, view, FILE)
    assert line.isVisible()
    assert line.get_button.text() == "Get EmbeddingGemma 300M, 334 MB"
    whole = replace(FILE, part=replace(PART, reads=Reads.WHOLE))
    assert not shown(stage, view, whole).isVisible()
    assert not shown(stage, view).isVisible()
    assert not shown(stage, EncoderView(searched=True), FILE).isVisible()


def test_a_click_gets_it_and_the_download_is_shown(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    line = shown(stage, EncoderView(searched=True, offer=OFFER), FILE)
    line.get_requested.disconnect()  # nothing is downloaded
    with qtbot.waitSignal(line.get_requested):
        qtbot.mouseClick(line.get_button, Qt.MouseButton.LeftButton)
    view = EncoderView(searched=True, offer=OFFER, download=COMING)
    shown(stage, view, FILE)
    assert line.words.text() == "EmbeddingGemma 300M is downloading: 25 %."
    assert not line.get_button.isVisible()
    failed = replace(COMING, phase=Phase.FAILED, error="The server is gone.", remedy="Wait.")
    shown(stage, replace(view, download=failed), FILE)
    assert line.words.text() == "The server is gone. Wait."
    assert line.get_button.text() == "Try again"
    shown(stage, replace(view, download=replace(COMING, phase=Phase.PAUSED)), FILE)
    assert line.get_button.text() == "Go on"


def test_it_can_be_put_away(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    line = shown(stage, EncoderView(searched=True, offer=OFFER), FILE)
    qtbot.mouseClick(line.dismiss_button, Qt.MouseButton.LeftButton)
    assert not line.isVisible()
    assert not shown(stage, EncoderView(searched=True, offer=OFFER), FILE).isVisible()


def test_it_is_offered_where_a_collection_is_used(stage: Stage, tmp_path: Path) -> None:
    stage.ready(MODEL)
    (tmp_path / "a.txt").write_text("A text", encoding="utf-8")
    id = stage.controller.collections.add([tmp_path / "a.txt"])
    stage.controller.chat_settings.use_collection(id)
    line = shown(stage, EncoderView(searched=True, offer=OFFER))
    assert line.isVisible()
    stage.controller.collections.delete(id)
    assert not line.isVisible()
    stage.wait_until_idle()


def test_it_is_announced_when_it_comes_and_when_a_download_failed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(accessibility, "announce", lambda _, words: heard.append(words))
    stage.ready(MODEL)
    view = EncoderView(searched=True, offer=OFFER, download=COMING)
    failed = replace(COMING, phase=Phase.FAILED, error="The server is gone.", remedy="Wait.")
    for download in (None, COMING, replace(COMING, done_bytes=100), failed, failed):
        shown(stage, replace(view, download=download), FILE)
    assert heard == [
        "Passages are found by their words. A small model finds them by meaning too.",
        "The server is gone. Wait.",
    ]
