"""Event filter of the focused widget only: one on the application would slow every event."""

from __future__ import annotations

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication, QWidget


class FocusFilter(QObject):
    """Filters the events of the focused widget, if `watches` wants it; override `eventFilter`."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.watched: QWidget | None = None
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        application.focusChanged.connect(self._on_focus)

    def watches(self, widget: QWidget) -> bool:
        """Whether the events of a widget are filtered while it has the focus."""
        raise NotImplementedError

    def _on_focus(self, _old: QWidget | None, focused: QWidget | None) -> None:
        if self.watched is not None:
            self.watched.removeEventFilter(self)
            self.watched.destroyed.disconnect(self._forget)
        self.watched = focused if focused is not None and self.watches(focused) else None
        if self.watched is not None:
            self.watched.installEventFilter(self)
            self.watched.destroyed.connect(self._forget)

    def _forget(self) -> None:
        self.watched = None
