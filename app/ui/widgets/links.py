"""Opening the links of answers with the system."""

from __future__ import annotations

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices


def open_link(address: str) -> bool:
    """Open an http, https or mailto link of an answer; returns False for other schemes."""
    url = QUrl(address)
    if url.scheme().lower() not in ("http", "https", "mailto"):
        return False
    return QDesktopServices.openUrl(url)
