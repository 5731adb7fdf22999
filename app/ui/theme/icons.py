"""Icons: the project's own line drawings, coloured by role when they are drawn.

The files in resources/icons say `currentColor`; the colour is put in before rendering, so one
drawing serves every theme, and each is rendered at the pixels of the screen it is shown on.
"""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QImage, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from app.system import paths

_RATIOS = (1.0, 1.5, 2.0, 3.0)  # device pixels per pixel of the screens there are


@lru_cache(maxsize=512)
def icon(name: str, color: str, size: int = 20) -> QIcon:
    """The icon `name` in `color` (`#RRGGBB`), for drawing at `size` pixels; needs a QApplication.

    Its disabled look is the same drawing at 40 %. Raises FileNotFoundError for a name that is not
    in resources/icons.
    """
    drawing = source(f"icons/{name}.svg").replace("currentColor", color)
    result = QIcon()
    for ratio in _RATIOS:
        plain = render(drawing, size, size, ratio)
        result.addPixmap(plain)
        result.addPixmap(_faded(plain, 0.4), QIcon.Mode.Disabled)
    return result


def pixmap(name: str, color: str, size: int = 20, ratio: float = 1.0) -> QPixmap:
    """The icon as one picture for a painter whose device has `ratio` pixels per pixel."""
    return _pixmap(name, color, size, ratio)


def application_icon() -> QIcon:
    """The bonsai in its alcove, drawn apart for each of the sizes desktops ask for."""
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
    """SVG text as a picture of `width` x `height` pixels at `ratio` device pixels each."""
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
def _pixmap(name: str, color: str, size: int, ratio: float) -> QPixmap:
    drawing = source(f"icons/{name}.svg").replace("currentColor", color)
    return render(drawing, size, size, ratio)


def _faded(picture: QPixmap, opacity: float) -> QPixmap:
    result = QPixmap(picture.size())
    result.setDevicePixelRatio(picture.devicePixelRatio())
    result.fill(QColor(0, 0, 0, 0))
    painter = QPainter(result)
    painter.setOpacity(opacity)
    painter.drawPixmap(0, 0, picture)
    painter.end()
    return result
