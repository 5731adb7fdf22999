"""Overlay that is shown while a model file is dragged over the window."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QPoint, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.system.translation import tr
from app.ui.theme import icons
from app.ui.theme.palette import LIGHT, Palette
from app.ui.theme.theme import RADIUS_CARD, READING, font

_MARGIN = 32  # pixels left and right of the text


class DropArea(QWidget):
    """Overlay with a frame and one line of text; transparent for mouse events."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._over = parent
        self._palette = LIGHT
        self._name = ""
        self._face = font(READING, QFont.Weight.Medium)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def show_for(self, path: Path) -> None:
        """Cover the parent and name the file that a drop would open."""
        self._name = path.name
        self.setGeometry(self._over.rect())
        self.show()
        self.raise_()
        self.update()

    def sentence(self) -> str:
        """The text of the overlay; a long file name is elided in the middle."""
        metrics = QFontMetrics(self._face)
        around = metrics.horizontalAdvance(tr("Drop to open {name}", name=""))
        available = self.width() - 2 * _MARGIN - around
        name = metrics.elidedText(self._name, Qt.TextElideMode.ElideMiddle, available)
        return tr("Drop to open {name}", name=name)

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
