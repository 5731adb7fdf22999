"""Card of a picture: the picture, its name and size, what can be done with it, and the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QSize, QSizeF, Qt, Signal
from PySide6.QtGui import QFont, QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.domain.file_words import image_name, size_words
from app.domain.marks import WrittenMark
from app.domain.parts import ImagePart
from app.state.attachments import DetailTokens
from app.state.pictures import PictureCopy
from app.system.byte_size import size
from app.system.translation import listed, number, tr
from app.ui.file_dialogs import choose_picture_place
from app.ui.pictures.canvas import PictureCanvas
from app.ui.pictures.mark_bar import MarkBar
from app.ui.pictures.mark_painting import encoded
from app.ui.pictures.options import PictureOptions
from app.ui.pictures.thumbnails import image_of
from app.ui.theme.theme import READING, SMALL, figures, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import ElidedLabel, IconButton, TextButton, label, set_margins

CARD_WIDTH = 1600
MOST_PIXELS = 16_000_000  # of a copy, which has 3 bytes for each


def longest_side(image: ImagePart) -> int:
    """Pixels of the longer side of the copy that is shown: those of the picture, up to the most."""
    width, height = image.width, image.height
    if not width or not height:
        return math.isqrt(MOST_PIXELS)
    share = min(1.0, math.sqrt(MOST_PIXELS / (width * height)))
    return max(1, math.floor(max(width, height) * share))


class PictureCard(QWidget):
    """Shows one of some pictures; of one that is not sent, its detail can be chosen."""

    wanted = Signal(object, int)  # ImagePart, pixels of the longer side of a copy
    save_requested = Signal(object, object)  # ImagePart, Path
    marked_save_requested = Signal(object, object)  # function that makes the file's bytes, Path
    detail_chosen = Signal(object)  # Detail, or the most tokens
    described = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._images: Sequence[ImagePart] = ()
        self._at = 0
        self._copy: PictureCopy | None = None  # whose pixels are shown
        self._folder = Path.home()  # of the last dialog
        self.name = ElidedLabel(
            "", font(READING, QFont.Weight.Medium), Qt.TextElideMode.ElideMiddle
        )
        self.about = ElidedLabel("secondary", figures(SMALL))
        self.canvas = PictureCanvas()
        self.smaller = IconButton("minus", tr("Smaller (-)"))
        self.larger = IconButton("plus", tr("Larger (+)"))
        self.percent = TextButton("", "quiet")
        self.percent.setFont(figures(SMALL))
        self.copy_button = TextButton(tr("Copy"), "link")
        self.save_button = TextButton(tr("Save as…"), "link")
        self.close_button = IconButton("close", tr("Close (Esc)"))
        self.previous = IconButton("previous", tr("Previous picture"))
        self.next = IconButton("next", tr("Next picture"))
        self.description = label("", "secondary", SMALL, wraps=True)
        self.marks = MarkBar()
        self.options = PictureOptions()
        self._lay_out()
        self._connect()
        self.setFocusProxy(self.canvas)

    def _lay_out(self) -> None:
        names = QVBoxLayout()
        names.setSpacing(0)
        names.addWidget(self.name)
        names.addWidget(self.about)
        head = QHBoxLayout()
        head.setSpacing(6)
        head.addLayout(names, 1)
        for each in (self.previous, self.next, self.smaller, self.percent, self.larger):
            head.addWidget(each)
        head.addSpacing(6)
        for each in (self.copy_button, self.save_button, self.close_button):
            head.addWidget(each)
        layout = QVBoxLayout(self)
        set_margins(layout, 20, 14, 14, 14)
        layout.setSpacing(10)
        layout.addLayout(head)
        layout.addWidget(self.canvas, 1)
        layout.addWidget(self.marks)
        layout.addWidget(self.description)
        layout.addWidget(self.options)

    def _connect(self) -> None:
        canvas = self.canvas
        canvas.zoomed.connect(self._show_zoom)
        canvas.moved.connect(self.move_on)
        canvas.copy_requested.connect(self.copy)
        canvas.save_requested.connect(self.save)
        canvas.marks_toggled.connect(self._toggle_marks)
        self.marks.changed.connect(self._show_marks)
        self.marks.copy_requested.connect(self.copy_marked)
        self.marks.save_requested.connect(self.save_marked)
        self.smaller.clicked.connect(lambda: canvas.zoom(-1))
        self.larger.clicked.connect(lambda: canvas.zoom(1))
        self.percent.clicked.connect(self._toggle_full)
        self.copy_button.clicked.connect(self.copy)
        self.save_button.clicked.connect(self.save)
        self.previous.clicked.connect(lambda: self.move_on(-1))
        self.next.clicked.connect(lambda: self.move_on(1))
        self.options.detail_chosen.connect(self.detail_chosen)
        self.options.described.connect(self.described)

    def sizeHint(self) -> QSize:
        """As large as the window allows."""
        return QSize(CARD_WIDTH, 4096)

    def hasHeightForWidth(self) -> bool:
        """Its height is that of the window."""
        return False

    # --- content --------------------------------------------------------------------------------

    @property
    def image(self) -> ImagePart:
        """The shown picture."""
        return self._images[self._at]

    def show_images(
        self,
        images: Sequence[ImagePart],
        at: int,
        *,
        is_sent: bool,
        marks: Sequence[WrittenMark] = (),
        models: Sequence[str] = (),
    ) -> None:
        """Show one of some pictures; of one that is not sent, show what can be chosen.

        `marks` are drawn over it, which a model with the names `models` wrote.
        """
        self._images = images
        self.marks.show_marks(marks, models)
        self._show_marks()
        self.options.setVisible(not is_sent)
        for each in (self.previous, self.next):
            each.setVisible(len(images) > 1)
        self._go_to(at)

    def move_on(self, step: int) -> None:
        """Show the picture so many places on, if there is one."""
        if 0 <= self._at + step < len(self._images):
            self._go_to(self._at + step)
            words = (image_name(self.image), self.about.text(), self.marks.words())
            accessibility.announce(self, listed(words))

    def _go_to(self, at: int) -> None:
        self._at = at
        self._copy = None
        self.canvas.show_none()
        self._place_marks(self.image.width, self.image.height)
        self.previous.setEnabled(at > 0)
        self.next.setEnabled(at < len(self._images) - 1)
        self._show_words()
        self.wanted.emit(self.image, longest_side(self.image))

    def show_part(self, part: ImagePart, tokens: DetailTokens | None) -> None:
        """Show what is chosen now of the picture, which is not sent."""
        self._images = (part,)
        self._at = 0
        self.options.show_part(part, tokens)
        self._show_words()

    def _show_words(self) -> None:
        image = self.image
        self.name.show_words(image.name or tr("Pasted picture"))
        about = [size_words(image), size(image.size_bytes) if image.size_bytes else ""]
        if len(self._images) > 1:
            count, every = number(self._at + 1), number(len(self._images))
            about.append(tr("{count} of {all}", count=count, all=every))
        self.about.show_words(" · ".join(filter(None, about)))
        self.canvas.setAccessibleName(image_name(image))
        self.description.setText(image.description)
        self.description.setVisible(bool(image.description) and self.options.isHidden())

    def show_copy(self, copy: PictureCopy) -> None:
        """Show a copy that was read, if it is that of the shown picture."""
        if not self._images or copy.sha256 != self.image.sha256:
            return
        if copy.longest != longest_side(self.image):
            return
        self._copy = copy
        if copy.fault:
            self.canvas.show_none(copy.fault)
            accessibility.announce(self, copy.fault)
        else:
            full = QSizeF(self.image.width or copy.width, self.image.height or copy.height)
            if not self.image.width or not self.image.height:
                self._place_marks(copy.width, copy.height)
            self.canvas.show_image(image_of(copy), full)
        self._show_zoom()

    def _place_marks(self, width: int, height: int) -> None:
        self.marks.show_picture(width, height, self._at, len(self._images))

    def _toggle_marks(self) -> None:
        self.marks.toggle()
        accessibility.announce(self, self.marks.words())

    def _show_marks(self) -> None:
        self.canvas.show_marks(self.marks.drawn, self.marks.colors)
        self.canvas.setAccessibleDescription(self.marks.words())

    def forget(self) -> None:
        """Let go of the pixels."""
        self._copy = None
        self.canvas.show_none()

    def _show_zoom(self) -> None:
        there = self.canvas.image is not None
        for each in (self.smaller, self.larger, self.percent, self.copy_button):
            each.setEnabled(there)
        self.save_button.setEnabled(there or self._copy is None or not self._copy.fault)
        shown = tr("{percent} %", percent=round(100 * self.canvas.scale)) if there else ""
        self.percent.setText(shown)
        words = tr("Full size (1)") if self.canvas.is_fitted else tr("Whole picture (0)")
        self.percent.setToolTip(words)
        self.percent.setAccessibleName(f"{shown}, {words}")

    def _toggle_full(self) -> None:
        if self.canvas.is_fitted and self.canvas.scale < 1.0:
            self.canvas.set_scale(1.0)
        else:
            self.canvas.fit()

    # --- actions --------------------------------------------------------------------------------

    def copy(self) -> None:
        """Copy the picture to the clipboard."""
        if (image := self.canvas.image) is not None:
            QGuiApplication.clipboard().setImage(image.copy())  # its own pixels
            accessibility.announce(self, tr("Copied"))

    def copy_marked(self) -> None:
        """Copy the picture with its marks to the clipboard."""
        if (image := self.canvas.marked_image()) is not None:
            QGuiApplication.clipboard().setImage(image)
            accessibility.announce(self, tr("Copied"))

    def save_marked(self) -> None:
        """Ask where the picture with its marks is to be saved."""
        if (image := self.canvas.marked_image()) is None:
            return
        name = Path(self.image.name).stem or tr("Pasted picture")

        def chosen(path: Path) -> None:
            self._folder = path.parent
            self.marked_save_requested.emit(partial(encoded, image, path.suffix), path)

        name = tr("{name} with marks", name=name)
        choose_picture_place(self, self._folder / f"{name}.png", chosen)

    def save(self) -> None:
        """Ask where the picture's file is to be saved."""
        image, ending = self.image, self._copy.ending if self._copy else ""
        name = image.name or tr("Pasted picture")
        suffix = Path(name).suffix.lower()
        same = {".jpeg": ".jpg", ".tif": ".tiff"}
        if ending and same.get(suffix, suffix) != ending:
            name += ending

        def chosen(path: Path) -> None:
            self._folder = path.parent
            self.save_requested.emit(image, path)

        choose_picture_place(self, self._folder / name, chosen)
