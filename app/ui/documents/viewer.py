"""Opens the card of a file, which is created when it is first opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.domain.parts import FilePart
from app.state.attachments import AttachmentsState
from app.system.translation import tr
from app.ui.widgets.popover import Popover

if TYPE_CHECKING:
    from app.ui.documents.card import DocumentCard


class DocumentViewer(QObject):
    """Shows the text of a file over the window."""

    pages_chosen = Signal(int, object)  # id of an attachment, indexes of its pages
    reads_chosen = Signal(int, object)  # id of an attachment, Reads
    folder_requested = Signal(object)  # Path of a file, to be shown in its folder
    insert_requested = Signal(object)  # FilePart of a pasted text, to be put into the field

    def __init__(self, window: QWidget, state: AttachmentsState) -> None:
        super().__init__(window)
        self._window, self._state = window, state
        self.card: DocumentCard | None = None
        self.popover: Popover | None = None
        state.changed.connect(self._follow)

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
        return self.card, self.popover

    def _insert(self, part: FilePart) -> None:
        if self.popover is not None:
            self.popover.close_card()
        self.insert_requested.emit(part)

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
