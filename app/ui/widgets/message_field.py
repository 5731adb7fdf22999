"""Text field of a message: text and links are inserted; files and pictures are attached."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QMimeData, Signal
from PySide6.QtGui import (
    QDragEnterEvent,
    QImage,
    QImageWriter,
    QKeyEvent,
    QKeySequence,
    QTextDocumentFragment,
)

from app.ui.widgets.plain_text import PlainTextField


class MessageField(PlainTextField):
    """Plain text field that says what was pasted that is no text."""

    files_pasted = Signal(list)  # their paths
    image_pasted = Signal(object)  # the bytes of a picture's file
    undo_pressed = Signal()  # for its owner, which can undo more than edits of the text

    def keyPressEvent(self, e: QKeyEvent) -> None:
        if e.matches(QKeySequence.StandardKey.Undo):
            self.undo_pressed.emit()
            e.accept()
        else:
            super().keyPressEvent(e)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        # Pictures and files are for the owner of the field.
        return can_be_used(source) or source.hasImage()

    def dragEnterEvent(self, e: QDragEnterEvent) -> None:
        if files_in(e.mimeData()):
            e.ignore()  # the window handles dropped files
        else:
            super().dragEnterEvent(e)

    def insertFromMimeData(self, source: QMimeData) -> None:
        if files := files_in(source):
            self.files_pasted.emit(files)
        elif text := text_in(source):
            self.insert_message_text(text)
        elif content := image_in(source):
            self.image_pasted.emit(content)

    def insert_message_text(self, text: str) -> None:
        """Insert pasted or dropped text."""
        self.insert_text(text)


def files_in(data: QMimeData) -> list[Path]:
    """The local files and folders among the addresses."""
    return [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]


def text_in(data: QMimeData) -> str:
    """The text, or that of a link or of formatted text."""
    if data.hasFormat("text/plain"):
        return data.text()
    if data.hasUrls():
        return "\n".join(bytes(url.toEncoded().data()).decode() for url in data.urls())
    return QTextDocumentFragment.fromHtml(data.html()).toPlainText() if data.hasHtml() else ""


def image_in(data: QMimeData) -> bytes:
    """The bytes of a picture's file, as they are there or as PNG; b"" without a picture."""
    for kind in ("image/png", "image/jpeg"):
        if data.hasFormat(kind) and (content := bytes(data.data(kind).data())):
            return content
    image, buffer = data.imageData() if data.hasImage() else None, QBuffer()
    if not isinstance(image, QImage) or not buffer.open(QIODevice.OpenModeFlag.WriteOnly):
        return b""
    QImageWriter(buffer, QByteArray(b"PNG")).write(image)
    return bytes(buffer.data().data())


def can_be_used(data: QMimeData) -> bool:
    """Whether a drop or paste is text, a link or a file."""
    return data.hasText() or data.hasUrls() or data.hasHtml()
