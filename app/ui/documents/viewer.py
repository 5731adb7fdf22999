"""Opens the card of a file, which is created when it is first opened."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, SignalInstance
from PySide6.QtWidgets import QWidget

from app.domain.parts import FilePart
from app.state.attachments import AttachmentsState
from app.state.pictures import EmbeddedPictures, PictureCopy, PicturesState
from app.system.translation import tr
from app.ui.widgets.popover import Popover

if TYPE_CHECKING:
    from app.ui.documents.card import DocumentCard


class DocumentViewer(QObject):
    """Shows the text of a file over the window."""

    pages_chosen = Signal(int, object)  # id of an attachment, indexes of its pages
    reads_chosen = Signal(int, object)  # id of an attachment, Reads
    page_pictures_requested = Signal(object, object, int)  # FilePart, indexes of its pages, and id
    # of the attachment, or 0
    pictures_listed = Signal(object)  # FilePart whose pictures are to be listed
    pictures_wanted = Signal(object, object, int)  # FilePart, places of its pictures, and pixels
    pictures_attached = Signal(object, object, int)  # FilePart, places and names of its pictures,
    # and id of the attachment, or 0
    folder_requested = Signal(object)  # Path of a file, to be shown in its folder
    insert_requested = Signal(object)  # FilePart of a pasted text, to be put into the field

    def __init__(
        self, window: QWidget, state: AttachmentsState, pictures: PicturesState | None = None
    ) -> None:
        super().__init__(window)
        self._window, self._state = window, state
        self.card: DocumentCard | None = None
        self.popover: Popover | None = None
        state.changed.connect(self._follow)
        if pictures is not None:
            pictures.embedded.connect(self._on_listed)
            pictures.read.connect(self._on_read)

    @property
    def popovers(self) -> tuple[Popover, ...]:
        """The card, if it was opened."""
        return (self.popover,) if self.popover is not None else ()

    def show_document(
        self,
        part: FilePart,
        start: int = 0,
        end: int = 0,
        *,
        insertable: bool = False,
        note: str = "",
    ) -> None:
        """Show a file, with the characters [start, end) of its text marked.

        One that is `insertable` is a pasted text that can be put into the message field. The `note`
        is said above the text.
        """
        card, popover = self._made()
        card.show_file(part, insertable=insertable, note=note)
        popover.open_centred()
        if end > start:
            card.show_passage(start, end)

    def show_attachment(self, attachment: int, *, choose: bool = False) -> None:
        """Show a file that is not sent; with `choose`, begin to choose its pages."""
        found = self._state.find(attachment)
        if found is None or found[1].file is None:
            return
        card, popover = self._made()
        card.show_file(found[1].file, found[1])
        popover.open_centred()
        if choose:
            card.choose_pages()

    def is_shown(self, part: FilePart) -> bool:
        """Whether this file is what is shown now."""
        is_open = self.popover is not None and not self.popover.isHidden()
        return is_open and self.card is not None and self.card.part is part

    def _made(self) -> tuple[DocumentCard, Popover]:
        if self.card is None or self.popover is None:
            from app.ui.documents.card import CARD_WIDTH, DocumentCard

            self.card = card = DocumentCard()
            self.popover = Popover(self._window, card, CARD_WIDTH, tr("File"))
            card.close_button.clicked.connect(self.popover.close_card)
            card.pages_chosen.connect(self.pages_chosen)
            card.reads_chosen.connect(self.reads_chosen)
            card.folder_requested.connect(self.folder_requested)
            card.insert_requested.connect(self._insert)
            card.pages_wanted.connect(partial(self._attach, self.page_pictures_requested))
            card.pictures_chosen.connect(partial(self._attach, self.pictures_attached))
            card.pictures_listed.connect(self.pictures_listed)
            card.pictures_wanted.connect(self.pictures_wanted)
        return self.card, self.popover

    def _insert(self, part: FilePart) -> None:
        if self.popover is not None:
            self.popover.close_card()
        self.insert_requested.emit(part)

    def _attach(
        self, request: SignalInstance, attachment: int, part: FilePart, which: object
    ) -> None:
        if self.popover is not None:
            self.popover.close_card()  # what was attached is below it
        request.emit(part, which, attachment)

    def _on_listed(self, found: EmbeddedPictures) -> None:
        if self.card is not None:
            self.card.show_pictures(found)

    def _on_read(self, copy: PictureCopy) -> None:
        if self.card is not None:
            self.card.embedded.show_copy(copy)

    def _follow(self) -> None:
        """Show what is read of the shown file now; close the card when it was removed."""
        card, popover = self.card, self.popover
        if card is None or popover is None or popover.isHidden() or not card.attachment:
            return
        found = self._state.find(card.attachment)
        if found is None:
            popover.close_card()
        else:
            card.show_attachment(found[1])
