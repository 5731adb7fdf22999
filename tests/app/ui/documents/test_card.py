"""The card of a file: the text as the model reads it, its pages, what is found, and a passage."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.domain.documents import Document, DocumentKind, Page, PageUnit, Reads
from app.domain.parts import FilePart, prompt_text
from app.state.attachments import Attachment, AttachmentPhase, AttachmentsState
from app.ui.documents.card import DocumentCard
from app.ui.documents.viewer import DocumentViewer
from sample_files import file_part

PARAGRAPH = "The café 🏮 by the harbour was rebuilt in 1926.\n" * 5


def document(pages: int) -> Document:
    made = (Page(str(n), f"Page {n}\n\n{PARAGRAPH}") for n in range(1, pages + 1))
    return Document(DocumentKind.PDF, tuple(made), PageUnit.PAGE)


REPORT = file_part(document(12), "harbour.pdf", path="/h.pdf")


class Opened:
    """A viewer with one attachment."""

    def __init__(self, window: QWidget) -> None:
        self.state = AttachmentsState()
        self.viewer = DocumentViewer(window, self.state)
        self.viewer.pages_chosen.connect(self._choose)
        self.viewer.reads_chosen.connect(self._read)

    def attach(self, part: FilePart, tokens: int = 4300) -> None:
        made = Attachment(1, part.name, part.path, AttachmentPhase.READY, part, tokens)
        self.state.set(None, [made])

    @property
    def part(self) -> FilePart:
        (made,) = self.state.of(None)
        assert made.part is not None
        return made.part

    @property
    def card(self) -> DocumentCard:
        assert self.viewer.card is not None
        return self.viewer.card

    def _choose(self, _: int, pages: tuple[int, ...]) -> None:
        self.attach(replace(self.part, reads=Reads.PAGES, chosen=pages), 100 * len(pages))

    def _read(self, _: int, reads: Reads) -> None:
        self.attach(replace(self.part, reads=reads))


@pytest.fixture
def opened(qtbot: QtBot) -> Opened:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(1000, 700)
    window.show()
    return Opened(window)


def checked(card: DocumentCard) -> list[int]:
    rows = range(card.pages.list.count())
    box = Qt.CheckState.Checked
    return [row for row in rows if card.pages.list.item(row).checkState() is box]


def marked(card: DocumentCard) -> list[str]:
    """The texts of the marks of the text, without the quiet ones."""
    marks = card.text.extraSelections()
    return [
        each.cursor.selectedText()
        for each in marks
        if each.format.background().style() is not Qt.BrushStyle.NoBrush
    ]


def test_the_text_is_what_the_model_reads(opened: Opened) -> None:
    for part in (REPORT, FilePart("a.txt", "\n\nOne\nTwo\n"), FilePart("", "x\n" * 50)):
        opened.viewer.show_document(part)
        assert opened.card.text.shown_text == prompt_text((part,))
        assert opened.card.text.text() == prompt_text((part,))


def test_pages_are_chosen_by_ranges_and_boxes(opened: Opened, qtbot: QtBot) -> None:
    opened.attach(REPORT)
    opened.viewer.show_attachment(1, choose=True)
    card = opened.card
    assert card.pages.ranges.hasFocus()
    assert (card.pages.ranges.text(), checked(card)) == ("1-12", list(range(12)))
    card.pages.ranges.clear()
    qtbot.keyClicks(card.pages.ranges, "1-3, 7")
    assert opened.part.chosen == (0, 1, 2, 6)
    assert checked(card) == [0, 1, 2, 6]
    assert card.tokens.text() == "400 tokens"
    assert card.choices[Reads.PAGES].isChecked()
    card.pages.list.item(1).setCheckState(Qt.CheckState.Unchecked)
    assert opened.part.chosen == (0, 2, 6)
    assert card.about.text().endswith("read: pages 1, 3, 7")
    card.pages.all_button.click()
    assert opened.part.reads is Reads.WHOLE


def test_a_page_that_is_not_there_is_said_and_changes_nothing(opened: Opened, qtbot: QtBot) -> None:
    opened.attach(replace(REPORT, reads=Reads.PAGES, chosen=(0, 1)))
    opened.viewer.show_attachment(1, choose=True)
    ranges = opened.card.pages.ranges
    ranges.clear()
    qtbot.keyClicks(ranges, "99")
    assert opened.card.pages.note.text() == "There is no such page."
    assert opened.part.chosen == (8,)  # of the first digit
    opened.card.text.setFocus()
    assert ranges.text() == "9"
    assert not opened.card.pages.note.isVisible()


def test_the_last_page_stays_chosen(opened: Opened) -> None:
    opened.attach(replace(REPORT, reads=Reads.PAGES, chosen=(4,)))
    opened.viewer.show_attachment(1)
    opened.card.pages.list.item(4).setCheckState(Qt.CheckState.Unchecked)
    assert checked(opened.card) == [4]
    assert opened.part.chosen == (4,)
    assert "at least one page" in opened.card.pages.note.text()


def test_passages_are_a_choice(opened: Opened) -> None:
    opened.attach(REPORT)
    opened.viewer.show_attachment(1)
    opened.card.choices[Reads.PASSAGES].click()
    assert opened.part.reads is Reads.PASSAGES
    assert opened.card.about.text().endswith("read: passages that fit the question")


def test_keys_choose_a_way_without_those_before_it(opened: Opened, qtbot: QtBot) -> None:
    opened.attach(REPORT)
    opened.viewer.show_attachment(1)
    choices = opened.card.choices
    choices[Reads.WHOLE].setFocus()
    for _ in range(2):
        qtbot.keyClick(opened.card.window().focusWidget() or opened.card, Qt.Key.Key_Tab)
    assert choices[Reads.PASSAGES].hasFocus()
    assert opened.part.reads is Reads.WHOLE  # "Chosen pages" was passed
    for _ in range(2):  # the second changes nothing
        qtbot.keyClick(choices[Reads.PASSAGES], Qt.Key.Key_Space)
        assert opened.part.reads is Reads.PASSAGES
        assert [each for each, button in choices.items() if button.isChecked()] == [Reads.PASSAGES]


def test_a_sent_file_offers_no_choice(opened: Opened) -> None:
    opened.viewer.show_document(replace(REPORT, reads=Reads.PAGES, chosen=(0,)))
    assert not opened.card.choices[Reads.WHOLE].isVisible()
    assert not opened.card.pages.ranges.isVisible()
    assert opened.card.pages.list.isVisible()
    assert opened.card.about.text().endswith("read: page 1")


def test_a_passage_is_marked_and_seen(opened: Opened) -> None:
    start = REPORT.text.index("🏮", REPORT.pages[8].start)
    opened.viewer.show_document(REPORT, start, start + 12)
    card = opened.card
    assert marked(card) == [REPORT.text[start : start + 12]]
    assert card.text.viewport().rect().contains(card.text.cursorRect())
    opened.viewer.show_document(REPORT)
    assert marked(card) == []


def test_a_passage_behind_a_very_long_line(opened: Opened) -> None:
    text = "word " * 5000 + "\n\nThe light burns."
    start = text.index("The light")
    opened.viewer.show_document(FilePart("long.txt", text), start, start + 9)
    assert marked(opened.card) == ["The light"]


def test_one_line_of_a_million_characters_is_searched_in_slices(
    opened: Opened, qtbot: QtBot
) -> None:
    opened.viewer.show_document(FilePart("log.txt", "abc 123 é " * 100_000))
    search = opened.card.search
    search.field.setText("123")
    assert search.searching  # it goes on between other events
    qtbot.waitUntil(lambda: not search.searching, timeout=30_000)
    assert search.count.text() == "1 of 100,000"


def test_search(opened: Opened, qtbot: QtBot) -> None:
    opened.viewer.show_document(REPORT)
    search = opened.card.search
    qtbot.keyClicks(search.field, "CAFE")
    qtbot.waitUntil(lambda: not search.searching)
    assert search.count.text() == "1 of 60"
    assert set(marked(opened.card)) == {"café"}
    qtbot.keyClick(search.field, Qt.Key.Key_Return)
    assert search.count.text() == "2 of 60"
    shift = Qt.KeyboardModifier.ShiftModifier
    for _ in range(2):
        qtbot.keyClick(search.field, Qt.Key.Key_Return, shift)
    assert search.count.text() == "60 of 60"
    assert opened.card.text.viewport().rect().contains(opened.card.text.cursorRect())
    qtbot.keyClicks(search.field, "xyz")
    qtbot.waitUntil(lambda: not search.searching)
    assert search.count.text() == "Not found"


def test_more_matches_leave_the_text_where_it_was_scrolled_to(opened: Opened) -> None:
    opened.viewer.show_document(REPORT)
    text = opened.card.text
    last = text.shown_text.rindex("café")
    matches = [(0, 4), (last, last + 4)]
    text.set_matches(matches, 1)
    assert text.viewport().rect().contains(text.cursorRect())
    text.verticalScrollBar().setValue(0)
    text.set_matches([(0, 4), (8, 9), (last, last + 4)], 2)
    assert text.verticalScrollBar().value() == 0


def test_going_to_a_page(opened: Opened) -> None:
    opened.viewer.show_document(REPORT)
    opened.card.pages.list.setCurrentRow(7)
    assert opened.card.text.cursorRect().top() < 40
    cursor = opened.card.text.textCursor()
    cursor.select(QTextCursor.SelectionType.LineUnderCursor)
    assert cursor.selectedText() == "[page 8]"
    opened.card.text.moveCursor(QTextCursor.MoveOperation.End)
    assert opened.card.pages.list.currentRow() > 7


def test_the_card_closes_when_its_file_is_removed(opened: Opened) -> None:
    opened.attach(REPORT)
    opened.viewer.show_attachment(1)
    (popover,) = opened.viewer.popovers
    assert popover.isVisible()
    opened.state.set(None, ())
    assert not popover.isVisible()


def test_a_thousand_pages_have_marks_of_their_visible_part_only(opened: Opened) -> None:
    large = file_part(document(1000), "harbour.pdf", path="/h.pdf")
    opened.attach(replace(large, reads=Reads.PAGES, chosen=(3,)))
    opened.viewer.show_attachment(1)
    card = opened.card
    assert len(card.text.extraSelections()) < 20  # in place of 1,000 page marks
    card.search.search("1926")
    while card.search.searching:
        card.search._search_some()
    assert card.search.count.text().endswith("of 5,000")
    assert len(card.text.extraSelections()) < 200
