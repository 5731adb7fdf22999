"""Pictures of the screens as they are now, whether the system allows them, and why there is none."""

from __future__ import annotations

import ctypes
import sys
from enum import Enum
from typing import Any

from PySide6.QtCore import QBuffer, QByteArray, QIODevice
from PySide6.QtGui import QGuiApplication, QImage, QImageWriter, QPixmap, QScreen

_CORE_GRAPHICS = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics"


class PortalFault(Enum):
    """Why the desktop took no screenshot."""

    MISSING = "missing"  # nobody takes screenshots for programs
    REFUSED = "refused"
    SILENT = "silent"  # no answer in time, or the desktop's program ended
    BROKEN = "broken"  # the answer names no file


def is_allowed(library: Any = None) -> bool:
    """Whether the user lets this app see the screen; macOS asks the user if it is not known yet.

    `library` is CoreGraphics, which a test replaces; other systems have none and allow it. Without
    the permission macOS gives pictures of the empty desktop.
    """
    if library is None and sys.platform == "darwin":
        library = ctypes.CDLL(_CORE_GRAPHICS)
    if library is None:
        return True
    for name in ("CGPreflightScreenCaptureAccess", "CGRequestScreenCaptureAccess"):
        ask = getattr(library, name, None)  # macOS 10.15 has none of them
        if ask is None:
            return True
        ask.restype = ctypes.c_bool
        if ask():
            return True
    return False


def grab() -> list[tuple[QScreen, QPixmap]]:
    """Each screen with its picture, in device pixels; those without a picture are left out."""
    found = [(screen, screen.grabWindow(0)) for screen in QGuiApplication.screens()]
    return [(screen, pixmap) for screen, pixmap in found if not pixmap.isNull()]


def png(image: QImage) -> bytes:
    """A picture as a PNG file; any thread may call."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(b"PNG")).write(image)
    return bytes(buffer.data().data())
