"""Chips of attached files: what they say, their keys, and that many of them scroll."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QColor
from PySide6.QtWidgets import QPlainTextEdit, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.domain.documents import DocumentWarning, Reads, Warned
from app.domain.parts import FilePart, ImagePart
from app.state.attachments import Attachment, AttachmentPhase
from app.state.pictures import PictureCopy
from app.ui.documents.chip import HEIGHT
from app.ui.documents.chips import Chips
from app.ui.pictures.thumbnails import PIXELS, Thumbnails
from app.ui.widgets import accessibility
from sample_files import REPORT

READY = Attachment(1, "report.pdf", "/r.pdf", AttachmentPhase.READY, REPORT, 4300)
FAILED = Attachment(
    2, "plans.pdf", "/p.pdf", AttachmentPhase.FAILED, fault="plans.pdf has a password."
)
READING = Attachment(3, "a.docx", "/a.docx", progress=0.4)


@pytest.fixture
def chips(qtbot: QtBot) -> Iterator[Chips]:
    window = QWidget()
    made, field = Chips(), QPlainTextEdit()
    layout = QVBoxLayout(window)
    layout.addWidget(made)
    layout.addWidget(field)
    qtbot.addWidget(window)
    window.resize(600, 400)
    window.show()
    made.left.connect(field.setFocus)
    yield made
    window.close()


def said(chips: Chips) -> list[str]:
    return [chip.accessibleName() for chip in chips.chips]


def test_a_chip_says_all_that_is_known(chips: Chips) -> None:
    scanned = Warned(DocumentWarning.SCANNED, ("4", "5"))
    chosen = replace(REPORT, reads=Reads.PAGES, chosen=(0, 1, 2, 6), warnings=(scanned,))
    chips.show_items((READY, replace(READY, id=4, part=chosen, tokens=1240), FAILED, READING))
    assert said(chips) == [
        "report.pdf, PDF, 12 pages, 4,300 tokens",
        "report.pdf, PDF, pages 1-3, 7, 1,240 tokens, 2 pages are pictures without text",
        "plans.pdf, plans.pdf has a password.",
        "a.docx, reading, 40 %",
    ]
    first, second, third, fourth = chips.chips
    assert (first.name.text(), first.about.text()) == ("report.pdf", "12 pages · 4,300 tokens")
    assert second.warning.text() == "2 pages are pictures without text"
    assert (third.again_button.text(), third.again_button.isVisible()) == ("Try again", True)
    assert (fourth.bar.share, fourth.bar.isVisible()) == (0.4, True)
    interface = QAccessible.queryAccessibleInterface(first)
    assert interface.role() is QAccessible.Role.ListItem
    names = [each.accessibleName() for each in (third.again_button, third.remove_button)]
    assert names == ["Try again: plans.pdf", "Remove plans.pdf"]


def test_a_file_that_changed_on_disk_can_be_read_again(chips: Chips, qtbot: QtBot) -> None:
    chips.show_items((replace(READY, changed=True), FAILED))
    with qtbot.waitSignal(chips.reloaded) as reloaded:
        chips.chips[0].again_button.click()
    with qtbot.waitSignal(chips.retried) as retried:
        chips.chips[1].again_button.click()
    assert (reloaded.args, retried.args) == ([1], [2])


def test_a_chip_that_stays_is_the_same_widget(chips: Chips) -> None:
    chips.show_items((READING,))
    before = chips.chips[0]
    ready = replace(READING, phase=AttachmentPhase.READY, part=FilePart("a.docx", "x"), tokens=1)
    chips.show_items((ready,))
    assert chips.chips == [before]
    assert (before.about.text(), before.bar.isVisible()) == ("1 characters · 1 token", False)


def test_keys(chips: Chips, qtbot: QtBot) -> None:
    many = [replace(READY, id=n, name=f"{n}.pdf") for n in range(1, 31)]
    chips.show_items(many)
    chips.removed.connect(
        lambda item: chips.show_items([each for each in chips.items if each != item])
    )
    stops = [chip for chip in chips.chips if chip.focusPolicy() & Qt.FocusPolicy.TabFocus]
    assert stops == [chips.chips[0]]
    stops[0].setFocus()
    for key in (Qt.Key.Key_Right, Qt.Key.Key_Down, Qt.Key.Key_Left):
        qtbot.keyClick(chips.focusWidget(), key)
    assert chips.focusWidget() is chips.chips[1]
    with qtbot.waitSignal(chips.opened) as opened:
        qtbot.keyClick(chips.chips[1], Qt.Key.Key_Return)
    assert opened.args == [many[1]]
    qtbot.keyClick(chips.chips[1], Qt.Key.Key_Delete)
    assert len(chips.items) == 29
    assert chips.focusWidget() is chips.chips[1]
    assert chips.chips[1].item == many[2]


def test_the_focus_leaves_the_last_chip_that_is_removed(chips: Chips, qtbot: QtBot) -> None:
    chips.show_items((READY,))
    chips.removed.connect(lambda _: chips.show_items(()))
    chips.chips[0].setFocus()
    qtbot.keyClick(chips.chips[0], Qt.Key.Key_Backspace)
    assert not chips.isVisible()
    assert isinstance(chips.window().focusWidget(), QPlainTextEdit)


def test_many_files_scroll(chips: Chips, qtbot: QtBot) -> None:
    chips.show_items([replace(READY, id=n) for n in range(1, 31)])
    qtbot.waitUntil(lambda: chips.height() > 2 * HEIGHT)
    assert chips.height() < 4 * HEIGHT
    assert chips.verticalScrollBar().maximum() > HEIGHT
    chips.chips[0].setFocus()
    for _ in range(29):
        qtbot.keyClick(chips.focusWidget(), Qt.Key.Key_Right)
    assert chips.verticalScrollBar().value() == chips.verticalScrollBar().maximum()


def test_a_chip_is_no_wider_than_the_window(chips: Chips, qtbot: QtBot) -> None:
    long = replace(FAILED, fault="This file is protected by a password that nobody knows, " * 3)
    chips.show_items((long,))
    chips.window().resize(260, 400)
    qtbot.waitUntil(lambda: chips.width() < 260)
    qtbot.waitUntil(lambda: chips.chips[0].width() <= chips.viewport().width())
    assert chips.chips[0].remove_button.geometry().right() <= chips.chips[0].width()


def test_a_picture_and_a_pasted_text_are_chips_too(chips: Chips) -> None:
    pasted = Attachment(-1, "", "", AttachmentPhase.READY, FilePart("", "x\n" * 40))
    garden = ImagePart("garden.png", width=640, height=480)
    chips.show_items((pasted, Attachment(-2, garden.name, "", AttachmentPhase.READY, garden)))
    assert said(chips)[0] == "Pasted text, 40 lines"
    assert "640 × 480" in said(chips)[1]
    assert (chips.chips[0].can_open, chips.chips[1].can_open) == (True, True)


def test_a_picture_of_which_only_the_file_is_kept_shows_its_thumbnail(chips: Chips) -> None:
    def color() -> QColor:
        icon = chips.chips[0]._icon.pixmap().toImage()
        return icon.pixelColor(icon.width() // 2, icon.height() // 2)

    def copy(image: ImagePart, pixel: bytes) -> PictureCopy:
        return PictureCopy(image.sha256, PIXELS, 20, 10, pixel * 200)

    thumbnails = Thumbnails(chips)
    wanted: list[ImagePart] = []
    thumbnails.wanted.connect(lambda image, _: wanted.append(image))
    chips.use_thumbnails(thumbnails)
    red, blue = ImagePart("a.png", "a" * 64), ImagePart("b.png", "b" * 64)
    item = Attachment(-1, red.name, "", AttachmentPhase.READY, red)
    chips.show_items((item, READY))
    assert (wanted, chips.chips[0]._icon.width()) == ([red], 20)  # an icon until it is there
    thumbnails.show(copy(blue, b"\0\0\xff"))
    assert chips.chips[0]._icon.width() == 20
    thumbnails.show(copy(red, b"\xff\0\0"))
    assert (color(), chips.chips[0]._icon.width()) == (QColor("#ff0000"), 36)
    chips.show_items((replace(item, part=blue),))
    assert color() == QColor("#0000ff")
    chips.show_items(())
    chips.show_items((item,))
    assert color() == QColor("#ff0000")  # of another chip, at once
    assert wanted == [red]


def test_what_was_read_and_what_is_wrong_is_announced(
    chips: Chips, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(accessibility, "announce", lambda _, words: heard.append(words))
    chips.show_items((READY, FAILED, READING))
    assert heard == []  # those of a chat that was opened
    read = replace(READY, id=3)
    chips.show_items((READY, FAILED, read))
    assert heard == [chips.chips[2].accessibleName()]
    chips.show_items((replace(READY, changed=True), FAILED, read))
    assert heard[1:] == [chips.chips[0].accessibleName()]
    assert "Changed on disk" in heard[1]
    many = [replace(READING, id=id) for id in range(4)]
    chips.show_items(many)
    chips.show_items([replace(FAILED, id=0), *many[1:]])
    assert len(heard) == 2  # the others are still being read
    chips.show_items([replace(FAILED, id=0), *(replace(READY, id=id) for id in range(1, 4))])
    assert heard[2:] == [f"{chips.chips[0].accessibleName()}\n3 files"]
