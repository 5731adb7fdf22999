"""Pages of a PDF file, and pictures in a document, that become pictures of the message."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chat.sending.document_pictures import NOTICE
from app.documents.extract import Extractor
from app.documents.source import ExtractionError, ExtractionFault
from app.domain.documents import MOST_PAGE_PICTURES
from app.domain.parts import FilePart, ImagePart
from app.state.attachments import Attachment, AttachmentPhase
from document_writers import PdfPage, pdf
from fakes import MODEL
from small_documents import docx
from stage import Stage, until

READING, READY, FAILED = AttachmentPhase


class Pages(Extractor):
    """Paints pages unless they are `broken`."""

    broken = False

    def page(self, path: Path, index: int, cancelled: Callable[[], bool] | None = None) -> bytes:
        if self.broken:
            raise ExtractionError(ExtractionFault.MEMORY)
        return super().page(path, index, cancelled)


@pytest.fixture
def extractor() -> Pages:
    return Pages()


@pytest.fixture
def make(qtbot: QtBot, tmp_path: Path, extractor: Pages) -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def start(encoder: Path | None = Path("/models/mmproj.gguf")) -> Stage:
        made.append(Stage(tmp_path, extractor=extractor))
        made[-1].start(MODEL)
        made[-1].engine.finish_load("Small Model", encoder=encoder)
        made[-1].wait_until_idle()
        return made[-1]

    yield start
    made[-1].close()


def _read(stage: Stage, place: int | None = None) -> tuple[Attachment, ...]:
    state = stage.states.attachments
    until(lambda: all(each.phase is not READING for each in state.of(place)))
    stage.wait_until_idle()
    return state.of(place)


def _attach(stage: Stage, tmp_path: Path, *pages: PdfPage, name: str = "report.pdf") -> Attachment:
    path = tmp_path / name
    path.write_bytes(pdf(pages))
    stage.controller.attachments.attach([path])
    stage.wait_until_idle()
    return next(each for each in _read(stage) if each.name == name)


def _scan(count: int) -> list[PdfPage]:
    return [PdfPage(600, 800).picture(0, 0, 600, 800) for _ in range(count)]


def test_chosen_pages_come_after_their_file_and_have_its_name(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = make()
    report = _attach(stage, tmp_path, *(PdfPage().text(72, 72, f"Page {n}") for n in range(1, 5)))
    (tmp_path / "notes.txt").write_text("Notes", encoding="utf-8")
    stage.controller.attachments.attach([tmp_path / "notes.txt"])
    _read(stage)
    part = report.file
    assert part is not None
    assert NOTICE not in stage.state.notices
    stage.window.attaching.viewer.show_attachment(report.id)
    card = stage.window.attaching.viewer.card
    assert card is not None
    stage.controller.attachments.set_pages(report.id, (1, 3))
    card.picture_button.click()
    assert stage.window.attaching.viewer.popover.isHidden()
    files = _read(stage)
    assert [each.name for each in files] == [
        "report.pdf",
        "report.pdf, page 2",
        "report.pdf, page 4",
        "notes.txt",
    ]
    pages = [each.part for each in files[1:3]]
    assert all(
        isinstance(each, ImagePart) and max(each.width, each.height) == 1600 for each in pages
    )
    assert pages[0] != pages[1]
    assert all(each.thumbnail for each in files[1:3])


def test_the_shown_page_of_a_sent_file_is_attached_to_the_next_message(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = make()
    _attach(stage, tmp_path, *(PdfPage().text(72, 72, f"Page {n}") for n in range(1, 4)))
    stage.controller.send("What is it?")
    stage.drain()
    part = stage.state.messages[0].parts[0]
    assert isinstance(part, FilePart)
    viewer = stage.window.attaching.viewer
    viewer.show_document(part)
    assert viewer.card is not None
    assert viewer.card.picture_button.text() == "Attach this page as a picture"
    viewer.card.picture_button.click()
    (picture,) = _read(stage, stage.state.current)
    assert picture.name == "report.pdf, page 1"
    assert isinstance(picture.part, ImagePart)


def test_the_pages_of_a_scan_are_offered_and_take_its_place(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = make()
    _attach(stage, tmp_path, *_scan(2), name="scan.pdf")
    notice = stage.state.notices[NOTICE]
    assert notice.sentence == "scan.pdf has no text that can be read, only pictures."
    assert notice.action == "Attach its pages as pictures"
    stage.controller.act_on_notice(NOTICE)
    assert [each.name for each in _read(stage)] == ["scan.pdf, page 1", "scan.pdf, page 2"]
    assert all(isinstance(each.part, ImagePart) for each in _read(stage))
    assert NOTICE not in stage.state.notices


def test_the_offer_goes_with_the_scan_and_needs_a_model_that_sees(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = make()
    scan = _attach(stage, tmp_path, *_scan(1), name="scan.pdf")
    assert NOTICE in stage.state.notices
    stage.controller.attachments.remove(scan.id)
    assert NOTICE not in stage.state.notices
    stage.controller.document_pictures.use_offered()
    assert not stage.states.attachments.of(None)


def test_a_model_that_does_not_see_is_not_offered_pages(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = make(None)
    _attach(stage, tmp_path, *_scan(1), name="scan.pdf")
    assert NOTICE not in stage.state.notices


def test_too_many_pages_are_refused_in_the_card_and_cut_where_they_are_offered(
    make: Callable[..., Stage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("chat.sending.document_pictures", "ui.documents.card"):
        monkeypatch.setattr(f"app.{module}.MOST_PAGE_PICTURES", 2)
    stage = make()
    scan = _attach(stage, tmp_path, *_scan(3), name="scan.pdf")
    viewer = stage.window.attaching.viewer
    viewer.show_attachment(scan.id)
    assert viewer.card is not None
    viewer.card.picture_button.click()
    note = viewer.card.pages.note
    assert note.text() == "Choose up to 2 pages to attach them as pictures."
    assert len(_read(stage)) == 1
    assert stage.state.notices[NOTICE].remedy == "Your model can look at the first 2 pages."
    stage.controller.act_on_notice(NOTICE)
    assert len(_read(stage)) == 2


def test_a_page_that_cannot_be_painted_is_said_and_can_be_tried_again(
    make: Callable[..., Stage], tmp_path: Path, extractor: Pages
) -> None:
    stage = make()
    report = _attach(stage, tmp_path, PdfPage().text(72, 72, "The harbour"))
    assert report.file is not None
    extractor.broken = True
    pictures = stage.controller.document_pictures
    pictures.attach(report.file, (0, 7, -1), report.id)  # there is one page
    _, failed = _read(stage)
    assert failed.fault == "Reading report.pdf, page 1 needs too much memory."
    extractor.broken = False
    stage.controller.attachments.retry(failed.id)
    assert isinstance(_read(stage)[1].part, ImagePart)
    assert MOST_PAGE_PICTURES == 20


def test_chosen_pictures_of_a_document_come_after_it(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = make()
    path = tmp_path / "letter.docx"
    broken = {"word/media/image3.png": b"\x89PNG no more"}
    colors = {f"word/media/image{n}.png": _png(n) for n in (1, 2, 4)}
    path.write_bytes(docx("<w:p><w:r><w:t>Dear Ada</w:t></w:r></w:p>", **colors, **broken))
    stage.controller.attachments.attach([path])
    stage.wait_until_idle()
    (letter,) = _read(stage)
    viewer = stage.window.attaching.viewer
    viewer.show_attachment(letter.id)
    card = viewer.card
    assert card is not None
    assert card.picture_button.isHidden()  # it has no pages
    until(card.embedded_button.isVisible)
    assert card.embedded_button.text() == "4 pictures"
    card.embedded_button.click()
    grid = card.embedded.grid
    assert grid.isVisible()
    assert not card.text.isVisible()
    until(lambda: "damaged" in grid.item(2).toolTip())
    stage.wait_until_idle()
    selectable = Qt.ItemFlag.ItemIsSelectable
    assert [bool(grid.item(n).flags() & selectable) for n in range(4)] == [True, True, False, True]
    assert not card.embedded.attach_button.isEnabled()
    assert grid.hasFocus()
    QTest.keyClick(grid, Qt.Key.Key_Right)
    QTest.keyClick(grid, Qt.Key.Key_Space)
    grid.item(3).setSelected(True)
    QTest.keyClick(grid, Qt.Key.Key_Return)
    assert viewer.popover is not None
    assert viewer.popover.isHidden()
    files = _read(stage)
    assert [each.name for each in files] == [
        "letter.docx",
        "letter.docx, image2.png",
        "letter.docx, image4.png",
    ]
    assert [each.part.width for each in files[1:] if isinstance(each.part, ImagePart)] == [2, 4]
    viewer.show_attachment(letter.id)  # its text is shown again
    assert card.text.isVisible()


def _png(width: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, 3), "red").save(file, "PNG")
    return file.getvalue()
