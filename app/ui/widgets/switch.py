"""Toggle switch: a QCheckBox painted as a switch, with the accessible role of a check box."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QCheckBox, QWidget

from app.ui.theme.palette import shown_palette

_WIDTH, _HEIGHT = 30.0, 18.0  # pixels of the track
_DISABLED = 0.4  # opacity of one that cannot be switched


class Switch(QCheckBox):
    """Check box painted as a track with a knob, which is at the line's end when checked."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFixedSize(self.sizeHint())

    def sizeHint(self) -> QSize:
        return QSize(36, 28)

    def hitButton(self, pos: QPoint) -> bool:
        return self.rect().contains(pos)

    def paintEvent(self, arg__1: QPaintEvent) -> None:
        palette, on = shown_palette(), self.isChecked()
        track = QRectF(0, 0, _WIDTH, _HEIGHT)
        track.moveCenter(QRectF(self.rect()).center())
        at_right = on is not (self.layoutDirection() is Qt.LayoutDirection.RightToLeft)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if not self.isEnabled():
            painter.setOpacity(_DISABLED)
        painter.setPen(Qt.PenStyle.NoPen if on else QPen(QColor(palette.faint), 1.5))
        painter.setBrush(QColor(palette.accent if on else palette.surface))
        inset = 0.0 if on else 0.75
        painter.drawRoundedRect(
            track.adjusted(inset, inset, -inset, -inset), _HEIGHT / 2, _HEIGHT / 2
        )
        from_edge = _HEIGHT / 2
        x = track.right() - from_edge if at_right else track.left() + from_edge
        size = 6.0 if on else 5.0
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(palette.on_accent if on else palette.faint))
        painter.drawEllipse(QPointF(x, track.center().y()), size, size)
        if self.hasFocus():
            painter.setPen(QPen(QColor(palette.accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            ring = track.adjusted(-3, -3, 3, 3)
            painter.drawRoundedRect(ring, ring.height() / 2, ring.height() / 2)
        painter.end()
