"""Shown over the window while a model file is dragged onto it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QMimeData, QPoint, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.ui.theme import icons
from app.ui.theme.palette import LIGHT, Palette
from app.ui.theme.theme import RADIUS_CARD, READING, font

_MARGIN = 32  # pixels beside the sentence


class DropArea(QWidget):
    """A sheet with a moss frame and one sentence; lets every event through."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._over = parent
        self._palette = LIGHT
        self._name = ""
        self._face = font(READING, QFont.Weight.Medium)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def show_for(self, path: Path) -> None:
        """Cover the window and say what a drop would do."""
        self._name = path.name
        self.setGeometry(self._over.rect())
        self.show()
        self.raise_()
        self.update()

    def sentence(self) -> str:
        """What a drop would do; the middle of a long name is left out."""
        metrics, words = QFontMetrics(self._face), "Drop to open "
        room = self.width() - 2 * _MARGIN - metrics.horizontalAdvance(words)
        return words + metrics.elidedText(self._name, Qt.TextElideMode.ElideMiddle, room)

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self._palette = palette

    def paintEvent(self, event: QPaintEvent) -> None:
        palette = self._palette
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
        painter.drawPixmap(
            place, icons.pixmap("model", palette.accent, 40, self.devicePixelRatioF())
        )
        painter.end()


def model_in(data: QMimeData) -> Path | None:
    """The model file among what is dragged, if there is one."""
    for url in data.urls():
        path = Path(url.toLocalFile())
        if url.isLocalFile() and path.suffix.lower() == ".gguf":
            return path
    return None
