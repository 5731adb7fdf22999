"""First paint of the window: what it shows before its controller exists, and the wait for it."""

from __future__ import annotations

from PySide6.QtCore import QEventLoop, QTimer

from app.settings.table import Settings
from app.ui.window import Window

_LONGEST_MILLISECONDS = 5000  # a window that starts minimised is never painted


def apply_settings(window: Window, settings: Settings) -> None:
    """Give the window its text size and place."""
    window.set_zoom(settings.zoom)
    window.placement.restore(settings.window_geometry)
    window.set_sidebar(settings.sidebar_open)


def paint(window: Window) -> None:
    """Show the window, and wait until it was painted; keys and clicks wait for the next loop."""
    loop = QEventLoop()
    window.painted.connect(loop.quit)
    QTimer.singleShot(_LONGEST_MILLISECONDS, loop, loop.quit)
    window.show()
    loop.exec(QEventLoop.ProcessEventsFlag.ExcludeUserInputEvents)
