"""Thumbnails of pictures: squares with round corners, cut from the middle."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QImage, QPainter, QPainterPath, QPixmap

_RADIUS = 4.0  # pixels


def thumbnail(png: bytes, side: int, ratio: float) -> QPixmap:
    """A square of `side` pixels of a picture, for a screen with so many physical ones in each."""
    return square(QImage.fromData(png), side, ratio)


def square(image: QImage, side: int, ratio: float) -> QPixmap:
    """The same of pixels."""
    whole = round(side * ratio)
    modes = (
        Qt.AspectRatioMode.KeepAspectRatioByExpanding,
        Qt.TransformationMode.SmoothTransformation,
    )
    scaled = image.scaled(QSize(whole, whole), *modes)
    made = QPixmap(whole, whole)
    made.fill(Qt.GlobalColor.transparent)
    painter = QPainter(made)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    path = QPainterPath()
    path.addRoundedRect(QRectF(0, 0, whole, whole), _RADIUS * ratio, _RADIUS * ratio)
    painter.setClipPath(path)
    painter.drawImage((whole - scaled.width()) // 2, (whole - scaled.height()) // 2, scaled)
    painter.end()
    made.setDevicePixelRatio(ratio)
    return made
