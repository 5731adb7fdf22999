"""Opens the card of a picture, which is created when the first one is opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from app.domain.marks import WrittenMark, starts_at
from app.domain.parts import ImagePart
from app.state.attachments import AttachmentsState
from app.state.pictures import PictureCopy, PicturesState
from app.system.translation import tr
from app.ui.widgets.popover import Popover

if TYPE_CHECKING:
    from app.ui.pictures.card import PictureCard


class PictureViewer(QObject):
    """Shows a picture over the window."""

    wanted = Signal(object, int)  # ImagePart, pixels of the longer side of a copy
    save_requested = Signal(object, object)  # ImagePart, Path
    marked_save_requested = Signal(object, object)  # function that makes the file's bytes, Path
    detail_chosen = Signal(int, object)  # id of an attachment, Detail or the most tokens
    described = Signal(int, str)  # id of an attachment, its description
    details_wanted = Signal(int)  # id of an attachment: count what each detail costs

    def __init__(self, window: QWidget, state: AttachmentsState, pictures: PicturesState) -> None:
        super().__init__(window)
        self._window, self._state = window, state
        self.card: PictureCard | None = None
        self.popover: Popover | None = None
        self._attachment = 0  # id; 0: the pictures are sent
        state.changed.connect(self._follow)
        state.details_changed.connect(self._follow)
        pictures.read.connect(self._on_read)

    @property
    def popovers(self) -> tuple[Popover, ...]:
        """The card, if it was opened."""
        return (self.popover,) if self.popover is not None else ()

    def show_image(self, image: ImagePart, among: Sequence[ImagePart]) -> None:
        """Show a picture, from which the arrow keys go to the others."""
        card, popover = self._made()
        self._attachment = 0
        images = among if image in among else (image,)
        card.show_images(images, images.index(image), is_sent=True)
        popover.open_centred()

    def show_marks(
        self, images: Sequence[ImagePart], marks: Sequence[WrittenMark], models: Sequence[str]
    ) -> None:
        """Show pictures with what an answer of a model with these names marks on them."""
        if not images:
            return
        card, popover = self._made()
        self._attachment = 0
        at = starts_at(marks, len(images))
        card.show_images(images, at, is_sent=True, marks=marks, models=models)
        popover.open_centred()

    def show_attachment(self, id: int, field: str = "") -> None:
        """Show a picture that is not sent, with the focus in a field: "detail", "words"."""
        found = self._state.find(id)
        if found is None or not isinstance(part := found[1].part, ImagePart):
            return
        card, popover = self._made()
        self._attachment = id
        card.show_images((part,), 0, is_sent=False)
        card.show_part(part, self._state.details(id))
        self.details_wanted.emit(id)
        popover.open_centred()
        fields = {"detail": card.options.number, "words": card.options.words}
        if field in fields:
            fields[field].setFocus(Qt.FocusReason.OtherFocusReason)
            fields[field].selectAll()

    def _made(self) -> tuple[PictureCard, Popover]:
        if self.card is None or self.popover is None:
            from app.ui.pictures.card import CARD_WIDTH, PictureCard

            self.card = card = PictureCard()
            self.popover = Popover(self._window, card, CARD_WIDTH, tr("Picture"))
            self.popover.closed.connect(self._on_closed)
            card.close_button.clicked.connect(self.popover.close_card)
            card.wanted.connect(self.wanted)
            card.save_requested.connect(self.save_requested)
            card.marked_save_requested.connect(self.marked_save_requested)
            card.detail_chosen.connect(self._on_detail)
            card.described.connect(self._on_described)
        return self.card, self.popover

    def _on_read(self, copy: PictureCopy) -> None:
        if self.card is not None and self.popover is not None and not self.popover.isHidden():
            self.card.show_copy(copy)

    def _on_closed(self) -> None:
        if self.card is not None:
            self.card.options.finish()
            self.card.forget()
        self._attachment = 0

    def _on_detail(self, detail: object) -> None:
        if self._attachment:
            self.detail_chosen.emit(self._attachment, detail)

    def _on_described(self, words: str) -> None:
        if self._attachment:
            self.described.emit(self._attachment, words)

    def _follow(self) -> None:
        """Show what is chosen now; close the card when its picture was removed."""
        if self.card is None or self.popover is None or self.popover.isHidden():
            return
        if not self._attachment:
            return
        found = self._state.find(self._attachment)
        if found is None:
            self.popover.close_card()
        elif isinstance(part := found[1].part, ImagePart):
            self.card.show_part(part, self._state.details(self._attachment))
