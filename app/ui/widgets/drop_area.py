"""Overlay that is shown while files are dragged over the window: it says what a drop does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QPoint, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.system.translation import tr, trn
from app.ui.theme import icons
from app.ui.theme.palette import shown_palette
from app.ui.theme.theme import RADIUS_CARD, READING, font

_MARGIN = 32  # pixels left and right of the text
_MODEL = ".gguf"


class DropArea(QWidget):
    """Overlay with a frame and one line of text; transparent for mouse events."""

    def __init__(self, parent: QWidget, *, collects: bool = False) -> None:
        """`collects`: what is dropped becomes a collection."""
        super().__init__(parent)
        self._over, self._collects = parent, collects
        self._models: list[Path] = []
        self._others: list[Path] = []
        self._is_folder = False  # the only other one
        self._face = font(READING, QFont.Weight.Medium)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def show_for(self, paths: Sequence[Path]) -> None:
        """Cover the parent and say what a drop of these files does: a model is opened."""
        models = [path for path in paths if path.suffix.lower() == _MODEL and not self._collects]
        self._show(models, [path for path in paths if path not in models])

    def show_models(self, paths: Sequence[Path]) -> None:
        """The same where files and folders are opened as models."""
        self._show(list(paths), [])

    def _show(self, models: list[Path], others: list[Path]) -> None:
        self._models, self._others = models, others
        self._is_folder = len(self._others) == 1 and self._others[0].is_dir()
        self.setGeometry(self._over.rect())
        self.show()
        self.raise_()
        self.update()

    def sentence(self) -> str:
        """The text of the overlay; a long file name is elided in the middle."""
        named = (self._models or self._others)[0].name
        metrics = QFontMetrics(self._face)
        around = metrics.horizontalAdvance(self._words(""))
        available = self.width() - 2 * _MARGIN - around
        return self._words(metrics.elidedText(named, Qt.TextElideMode.ElideMiddle, available))

    def _words(self, name: str) -> str:
        count = len(self._others)
        if self._collects and count == 1:
            return tr("Drop to make a collection of {name}", name=name)
        if self._collects:
            return trn(
                "Drop to make a collection of {count} file",
                "Drop to make a collection of {count} files",
                count,
            )
        if self._models and self._others:
            return trn(
                "Drop to open {name} and attach {count} file",
                "Drop to open {name} and attach {count} files",
                count,
                name=name,
            )
        if self._models:
            return tr("Drop to open {name}", name=name)
        if self._is_folder:
            return tr("Drop to attach the files in {name}", name=name)
        if count == 1:
            return tr("Drop to attach {name}", name=name)
        return trn("Drop to attach {count} file", "Drop to attach {count} files", count)

    def paintEvent(self, event: QPaintEvent) -> None:
        palette = shown_palette()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(self.rect(), QColor(palette.background))
        painter.setPen(QPen(QColor(palette.accent), 2))
        painter.drawRoundedRect(
            QRectF(self.rect()).adjusted(12, 12, -12, -12), RADIUS_CARD, RADIUS_CARD
        )
        painter.setPen(QColor(palette.text))
        painter.setFont(self._face)
        sentence = self.rect().adjusted(0, 32, 0, 32)
        painter.drawText(sentence, Qt.AlignmentFlag.AlignCenter, self.sentence())
        place = self.rect().center() - QPoint(20, 36)
        name = "model" if self._models else "folder" if self._is_folder else "attach"
        painter.drawPixmap(place, icons.pixmap(name, palette.accent, 40, self.devicePixelRatioF()))
        painter.end()
