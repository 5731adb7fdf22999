"""Thumbnails of sent pictures: asked for when they are painted, and kept within a number of bytes."""

from __future__ import annotations

from collections import OrderedDict

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QImage, QPixmap

from app.domain.parts import ImagePart
from app.state.pictures import PictureCopy

PIXELS = 440  # of the longer side of a copy: twice the most that is shown of one
MOST_BYTES = 48_000_000


def image_of(copy: PictureCopy) -> QImage:
    """A copy as Qt paints it; its pixels are not copied, and must live as long."""
    return QImage(copy.pixels, copy.width, copy.height, 3 * copy.width, QImage.Format.Format_RGB888)


class Thumbnails(QObject):
    """The thumbnails that were shown last, by the hashes of their files."""

    wanted = Signal(object, int)  # ImagePart, pixels of the longer side of a copy
    changed = Signal(str)  # SHA-256 of a file whose thumbnail is there now, or why there is none

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._known: OrderedDict[str, QPixmap | str] = OrderedDict()
        self._asked: set[str] = set()
        self._bytes = 0

    def of(self, image: ImagePart) -> QPixmap | str | None:
        """The thumbnail of a picture, or why there is none; None: it is asked for."""
        if (found := self._known.get(image.sha256)) is not None:
            self._known.move_to_end(image.sha256)
            return found
        if image.sha256 not in self._asked:
            self._asked.add(image.sha256)
            self.wanted.emit(image, PIXELS)
        return None

    def show(self, copy: PictureCopy) -> None:
        """Keep a copy that was read, if it is one of a thumbnail; the oldest ones give way."""
        if copy.longest != PIXELS:
            return
        self._asked.discard(copy.sha256)
        self._drop(copy.sha256)
        made: QPixmap | str = copy.fault
        if not copy.fault:
            made = QPixmap.fromImage(image_of(copy), Qt.ImageConversionFlag.NoOpaqueDetection)
        self._known[copy.sha256] = made
        self._bytes += _bytes(made)
        while self._bytes > MOST_BYTES and len(self._known) > 1:
            self._drop(next(iter(self._known)))
        self.changed.emit(copy.sha256)

    def forget_faults(self) -> None:
        """Ask again for those that could not be read: their files may be there now."""
        for sha256 in [each for each, found in self._known.items() if isinstance(found, str)]:
            self._drop(sha256)

    def _drop(self, sha256: str) -> None:
        if (gone := self._known.pop(sha256, None)) is not None:
            self._bytes -= _bytes(gone)


def _bytes(found: QPixmap | str) -> int:
    return 4 * found.width() * found.height() if isinstance(found, QPixmap) else 0
