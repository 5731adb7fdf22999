"""Icons: renders the SVG files of resources/icons in a palette colour.

The files use `currentColor`, which is replaced before rendering, so one drawing serves every
theme. Icons are rendered at the device pixel ratio of the screen.
"""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QColor, QGuiApplication, QIcon, QImage, QPainter, QPixmap, QTransform
from PySide6.QtSvg import QSvgRenderer

from app.system import paths

_DIRECTED = ("chevron_right", "continue", "next", "panel", "previous", "sidebar")
_RATIOS = (1.0, 1.5, 2.0, 3.0)  # common device pixel ratios


def icon(name: str, color: str, size: int = 20) -> QIcon:
    """The icon `name` in `color` (`#RRGGBB`), for drawing at `size` pixels; needs a QApplication.

    Its disabled state is the same drawing at 40 % opacity. Raises FileNotFoundError for a name
    that is not in resources/icons.
    """
    return _icon(name, color, size, _is_mirrored(name))


@lru_cache(maxsize=512)
def _icon(name: str, color: str, size: int, mirrored: bool) -> QIcon:
    drawing = source(f"icons/{name}.svg").replace("currentColor", color)
    result = QIcon()
    for ratio in _RATIOS:
        plain = _directed(render(drawing, size, size, ratio), mirrored)
        result.addPixmap(plain)
        result.addPixmap(_faded(plain, 0.4), QIcon.Mode.Disabled)
    return result


def pixmap(name: str, color: str, size: int = 20, ratio: float = 1.0) -> QPixmap:
    """The icon as a pixmap for a paint device with the device pixel ratio `ratio`."""
    return _pixmap(name, color, size, ratio, _is_mirrored(name))


def application_icon() -> QIcon:
    """The application icon, rendered for each size that desktops use."""
    drawing = source("icons/app.svg")
    small = source("icons/app_small.svg")
    result = QIcon()
    for size in (16, 20, 24, 32, 48, 64, 128, 256):
        result.addPixmap(render(small if size <= 24 else drawing, size, size, 1.0))
    return result


@lru_cache(maxsize=64)
def source(name: str) -> str:
    """The text of an SVG file below the resources folder."""
    return (paths.resources() / name).read_text(encoding="utf-8")


def render(drawing: str, width: int, height: int, ratio: float) -> QPixmap:
    """Render SVG text to `width` x `height` logical pixels at the device pixel ratio `ratio`."""
    renderer = QSvgRenderer(QByteArray(drawing.encode()))
    image = QImage(
        round(width * ratio), round(height * ratio), QImage.Format.Format_ARGB32_Premultiplied
    )
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    renderer.render(painter, QRectF(0, 0, image.width(), image.height()))
    painter.end()
    image.setDevicePixelRatio(ratio)
    return QPixmap.fromImage(image)


@lru_cache(maxsize=512)
def _pixmap(name: str, color: str, size: int, ratio: float, mirrored: bool) -> QPixmap:
    drawing = source(f"icons/{name}.svg").replace("currentColor", color)
    return _directed(render(drawing, size, size, ratio), mirrored)


def _is_mirrored(name: str) -> bool:
    """Whether an icon shows a direction, and the window is from right to left."""
    return name in _DIRECTED and QGuiApplication.isRightToLeft()


def _directed(picture: QPixmap, mirrored: bool) -> QPixmap:
    return picture.transformed(QTransform.fromScale(-1, 1)) if mirrored else picture


def _faded(picture: QPixmap, opacity: float) -> QPixmap:
    result = QPixmap(picture.size())
    result.setDevicePixelRatio(picture.devicePixelRatio())
    result.fill(QColor(0, 0, 0, 0))
    painter = QPainter(result)
    painter.setOpacity(opacity)
    painter.drawPixmap(0, 0, picture)
    painter.end()
    return result
