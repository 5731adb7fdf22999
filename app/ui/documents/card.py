"""Card of a file: the text that the model reads, its pages, and how much of it is read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QFont, QKeyEvent, QKeySequence, QPixmap, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.domain.document_prompt import Piece, file_pieces
from app.domain.documents import MOST_PAGE_PICTURES, DocumentKind, Reads
from app.domain.file_words import (
    chosen_words,
    kind_words,
    length_words,
    reads_words,
    tokens_words,
    warning_words,
)
from app.domain.parts import FilePart
from app.domain.table_marks import has_table
from app.state.attachments import Attachment
from app.state.pictures import EmbeddedPictures
from app.system.byte_size import size
from app.system.translation import number, tr, trn
from app.ui.documents.embedded import EmbeddedGrid
from app.ui.documents.pages import PageList
from app.ui.documents.search import DocumentSearch
from app.ui.documents.text import DocumentText
from app.ui.theme import icons
from app.ui.theme.file_icons import file_icon
from app.ui.theme.palette import Palette, follow_palette, shown_palette
from app.ui.theme.theme import READING, SMALL, font
from app.ui.widgets.controls import ElidedLabel, IconButton, TextButton, label, set_margins

CARD_WIDTH = 980
_PAGES_WIDTH = 190
_WITH_PICTURES = (
    DocumentKind.WORD,
    DocumentKind.SLIDES,
    DocumentKind.SHEETS,
    DocumentKind.EPUB,
    DocumentKind.HTML,
)
_NARROW = 620  # pixels: the list of pages is above the text


class DocumentCard(QWidget):
    """Shows one file; before it is sent, what the model reads of it can be chosen."""

    pages_chosen = Signal(int, object)  # id of the attachment, indexes of its pages
    reads_chosen = Signal(int, object)  # id of the attachment, Reads
    folder_requested = Signal(object)  # Path of the file, to be shown in its folder
    insert_requested = Signal(object)  # FilePart of a pasted text, to be put into the field
    pages_wanted = Signal(int, object, object)  # id of the attachment, its FilePart, and indexes
    # of the pages that are to be attached as pictures
    pictures_listed = Signal(object)  # FilePart whose pictures are to be listed
    pictures_wanted = Signal(object, object, int)  # FilePart, places of its pictures, and pixels
    pictures_chosen = Signal(int, object, object)  # id of the attachment, its FilePart, and places
    # and names of its pictures that are to be attached

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._part = FilePart("")
        self._attachment = 0  # id; 0: the file is sent, and nothing can be chosen
        self.icon = label("")
        self.name = ElidedLabel(
            "", font(READING, QFont.Weight.Medium), Qt.TextElideMode.ElideMiddle
        )
        self.about = ElidedLabel("secondary", font(SMALL))
        self.warning = label("", "warning", SMALL, wraps=True)
        self.picture_button = TextButton("", "link")
        self.embedded_button = TextButton("", "link")
        self.embedded = EmbeddedGrid()
        self.folder_button = TextButton(tr("Show in its folder"), "link")
        self.insert_button = TextButton(tr("Edit in the message field"), "link")
        self.close_button = IconButton("close", tr("Close (Esc)"))
        self.text = DocumentText()
        self.search = DocumentSearch(self.text)
        self.pages = PageList()
        self.pages.setFixedWidth(_PAGES_WIDTH)
        self.tokens = label("", "secondary", SMALL)
        self.choices: dict[Reads, TextButton] = {}
        self._choice = self._make_choice()
        self._lay_out()
        self.setFocusProxy(self.text)
        self.text.page_changed.connect(self.pages.show_page)
        self.pages.opened.connect(self.text.go_to_page)
        self.pages.chosen.connect(self._choose_pages)
        self.picture_button.clicked.connect(self._want_pages)
        self.embedded_button.clicked.connect(partial(self._show_embedded, True))
        self.embedded.left.connect(partial(self._show_embedded, False))
        self.embedded.wanted.connect(self._want_pictures)
        self.embedded.attached.connect(self._choose_pictures)
        self.insert_button.clicked.connect(lambda: self.insert_requested.emit(self._part))
        self.folder_button.clicked.connect(
            lambda: self.folder_requested.emit(Path(self._part.path))
        )
        follow_palette(self._recolor)

    def _make_choice(self) -> QWidget:
        """The ways to read the file, and how many tokens that is."""
        row = QWidget()
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(6)
        for reads, words in (
            (Reads.WHOLE, tr("All of it")),
            (Reads.PAGES, tr("Chosen pages")),
            (Reads.PASSAGES, tr("Passages that fit the question")),
            (Reads.SUMMARY, tr("Part by part")),
            (Reads.TABLES, tr("Tables by query")),
        ):
            button = TextButton(words, "chip")
            button.setFont(font(SMALL))
            button.setCheckable(True)
            button.setAccessibleName(tr("The model reads: {what}", what=words))
            button.clicked.connect(partial(self._choose_reads, reads))
            self.choices[reads] = button
            layout.addWidget(button)
        layout.addStretch(1)
        layout.addWidget(self.tokens)
        return row

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(10)
        names = QVBoxLayout()
        names.setSpacing(0)
        names.addWidget(self.name)
        names.addWidget(self.about)
        head.addWidget(self.icon)
        head.addLayout(names, 1)
        head.addWidget(self.insert_button)
        head.addWidget(self.picture_button)
        head.addWidget(self.embedded_button)
        head.addWidget(self.folder_button)
        head.addWidget(self.close_button)
        line = QFrame()
        line.setFixedHeight(1)
        line.setObjectName("rule")
        line.setProperty("under", True)
        self._body = QWidget()
        body = QHBoxLayout(self._body)
        body.setContentsMargins(0, 0, 0, 0)
        body.setSpacing(16)
        body.addWidget(self.pages)
        body.addWidget(self.text, 1)
        layout = QVBoxLayout(self)
        set_margins(layout, 20, 14, 14, 14)
        layout.setSpacing(10)
        layout.addLayout(head)
        layout.addWidget(self.warning)
        layout.addWidget(self._choice)
        layout.addWidget(self.search)
        layout.addWidget(line)
        layout.addWidget(self._body, 1)
        layout.addWidget(self.embedded, 1)
        self.embedded.hide()

    def sizeHint(self) -> QSize:
        """As high as the window allows."""
        return QSize(CARD_WIDTH, 4096)

    def hasHeightForWidth(self) -> bool:
        """Its height is that of the window, however the warnings wrap."""
        return False

    # --- content --------------------------------------------------------------------------------

    @property
    def attachment(self) -> int:
        """The id of the shown attachment; 0: the file is sent."""
        return self._attachment

    @property
    def part(self) -> FilePart:
        """The shown file."""
        return self._part

    def show_file(
        self,
        part: FilePart,
        attachment: Attachment | None = None,
        *,
        insertable: bool = False,
        note: str = "",
    ) -> None:
        """Show a file; that of an `attachment` is not sent, and what is read can be chosen.

        One that is `insertable` is a pasted text that can be put into the message field. The `note`
        is said above the text.
        """
        is_other = part.text != self._part.text or part.name != self._part.name
        self._part, self._attachment = part, attachment.id if attachment else 0
        self.search.clear()
        if is_other or not self.text.shown_text:
            self.text.show_pieces(_pieces(part))
        self.text.forget_passage()
        labels = [page.label for page in part.pages]
        self.pages.show_pages(part.unit, labels, choosing=attachment is not None)
        self.pages.show_page(self.text.page)
        self.pages.setVisible(bool(part.pages))
        self.icon.setPixmap(self._picture())
        self.name.show_words(part.name or tr("Pasted text"))
        self.folder_button.setVisible(bool(part.path))
        self.insert_button.setVisible(insertable)
        self.picture_button.setText(
            tr("Attach pages as pictures") if attachment else tr("Attach this page as a picture")
        )
        is_painted = part.kind == DocumentKind.PDF and bool(part.pages and part.sha256)
        self.picture_button.setVisible(is_painted)
        self.embedded_button.hide()
        self.embedded.set_names(part.sha256, ())
        self._show_embedded(False)
        if part.kind in _WITH_PICTURES and part.sha256:
            self.pictures_listed.emit(part)
        words = "\n".join(filter(None, (note, *map(warning_words, part.warnings))))
        self.warning.setText(words)
        self.warning.setVisible(bool(words))
        self.choices[Reads.PAGES].setVisible(len(part.pages) > 1)
        self.choices[Reads.TABLES].setVisible(has_table(part))
        self._choice.setVisible(attachment is not None and bool(part.name))
        self._show_reads(part)
        if attachment is not None:
            self.show_attachment(attachment)
        self._fit()

    def show_attachment(self, attachment: Attachment) -> None:
        """Show what of the shown file is read now."""
        part = attachment.file
        if part is None or attachment.id != self._attachment:
            return
        self._part = part
        tokens = attachment.tokens if part.reads.is_counted else None  # not known before
        self.tokens.setText(
            "" if tokens is None else tokens_words(tokens, approximate=attachment.approximate)
        )
        self._show_reads(part)

    def show_pictures(self, found: EmbeddedPictures) -> None:
        """Offer the pictures in the shown file, if these are of it."""
        if found.sha256 == self._part.sha256:
            self.embedded.set_names(found.sha256, found.names)
            count = len(found.names)
            self.embedded_button.setText(trn("{count} picture", "{count} pictures", count))
            self.embedded_button.show()

    def _want_pictures(self, places: Sequence[int], longest: int) -> None:
        self.pictures_wanted.emit(self._part, places, longest)

    def _choose_pictures(self, chosen: Sequence[tuple[int, str]]) -> None:
        self.pictures_chosen.emit(self._attachment, self._part, chosen)

    def _show_embedded(self, shown: bool) -> None:
        """Show the pictures in the file in place of its text."""
        if shown is self.embedded.isVisibleTo(self):
            return
        if shown:
            self.embedded.begin()
        self.embedded.setVisible(shown)
        self.embedded_button.setVisible(not shown and bool(self.embedded.count))
        self.search.setVisible(not shown)
        self._body.setVisible(not shown)
        (self.embedded if shown else self.text).setFocus(Qt.FocusReason.OtherFocusReason)

    def show_passage(self, start: int, end: int) -> None:
        """Mark the characters [start, end) of the file's text."""
        self.text.show_passage(start, end)

    def choose_pages(self) -> None:
        """Begin to choose pages."""
        self.pages.ranges.setFocus(Qt.FocusReason.OtherFocusReason)
        self.pages.ranges.selectAll()

    def _recolor(self, palette: Palette) -> None:
        self.icon.setPixmap(self._picture())

    def _picture(self) -> QPixmap:
        name = file_icon(self._part.name, self._part.kind)
        return icons.pixmap(name, shown_palette().secondary, 24, self.devicePixelRatioF())

    def _show_reads(self, part: FilePart) -> None:
        """Show which pages are read, in the list, in the text and in words."""
        every = range(len(part.pages))
        read = {Reads.PAGES: part.chosen, Reads.PASSAGES: ()}.get(part.reads, every)
        shown = Reads.SUMMARY if part.reads is Reads.REWRITE else part.reads
        self._check(shown)
        self.pages.show_chosen(read)
        is_whole = part.reads is not Reads.PAGES and part.reads is not Reads.PASSAGES
        is_whole = is_whole or len(read) == len(every) > 0
        unread = frozenset(every) - frozenset(read)
        self.text.set_unread(frozenset() if part.reads is Reads.PASSAGES else unread)
        labels = [page.label for page in part.pages]
        about = [kind_words(part.kind), length_words(part)]
        if part.size_bytes:
            about.append(size(part.size_bytes))
        if part.reads is Reads.PASSAGES:
            about.append(tr("read: passages that fit the question"))
        elif part.reads.by_parts or part.reads is Reads.TABLES:
            about.append(tr("read: {what}", what=reads_words(part)))
        elif not is_whole:
            what = chosen_words(part.unit, part.chosen, labels)
            about.append(tr("read: {what}", what=what))
        self.about.show_words(" · ".join(filter(None, about)))

    def _choose_pages(self, chosen: tuple[int, ...]) -> None:
        if len(chosen) == len(self._part.pages):
            self.reads_chosen.emit(self._attachment, Reads.WHOLE)
        else:
            self.pages_chosen.emit(self._attachment, chosen)

    def _want_pages(self) -> None:
        """Ask for pictures of the chosen pages; of the one at the top if none can be chosen."""
        part, pages = self._part, (self.text.page,)
        if self._attachment:
            pages = part.chosen if part.reads is Reads.PAGES else tuple(range(len(part.pages)))
        if len(pages) > MOST_PAGE_PICTURES:
            most = number(MOST_PAGE_PICTURES)
            self.pages.say(tr("Choose up to {most} pages to attach them as pictures.", most=most))
            self.choose_pages()
        else:
            self.pages_wanted.emit(self._attachment, part, pages)

    def _check(self, reads: Reads) -> None:
        """Check one way. In a `QButtonGroup` an arrow key would choose each that it passes."""
        for each, button in self.choices.items():
            button.setChecked(each is reads)

    def _choose_reads(self, reads: Reads) -> None:
        self._check(reads)
        if reads is not Reads.PAGES:
            self.reads_chosen.emit(self._attachment, reads)
            return
        if self._part.reads is not Reads.PAGES:
            chosen = self._part.chosen or tuple(range(len(self._part.pages)))
            self.pages_chosen.emit(self._attachment, chosen)
        self.choose_pages()

    # --- Qt -------------------------------------------------------------------------------------

    def _fit(self) -> None:
        """Hide the list of pages where the text would be too narrow beside it."""
        is_narrow = self.width() < _NARROW and not self._attachment
        self.pages.setVisible(bool(self._part.pages) and not is_narrow)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def event(self, event: QEvent) -> bool:
        is_own = isinstance(event, QKeyEvent) and event.matches(QKeySequence.StandardKey.Find)
        if event.type() is QEvent.Type.ShortcutOverride and is_own:
            event.accept()  # else the window would find in the chat below
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Find):
            self.search.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.search.field.selectAll()
        elif event.matches(QKeySequence.StandardKey.FindNext):
            self.search.step(forward=True)
        elif event.matches(QKeySequence.StandardKey.FindPrevious):
            self.search.step(forward=False)
        else:
            super().keyPressEvent(event)


def _pieces(part: FilePart) -> list[Piece]:
    """A file as the model reads all of it."""
    if not part.name:
        return [Piece(part.text, 0, 0)]
    return file_pieces(part.name, part.text, part.unit, part.pages)
