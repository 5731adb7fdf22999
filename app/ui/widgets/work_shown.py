"""Tells the system of work in progress: its taskbar shows downloads, and it does not fall asleep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.downloads.entry import ACTIVE, Download
from app.state.chat import State as ChatState
from app.state.library import LibraryState
from app.system.awake import Awake


class Button(Protocol):
    """The taskbar button of a window."""

    def show(self, window: int, progress: float | None) -> None:
        """Show progress from 0 to 1; below 0: not known; None: nothing."""


class WorkShown(QObject):
    """Watches downloads and answers."""

    def __init__(
        self,
        chat: ChatState,
        library: LibraryState,
        window: QWidget,
        awake: Awake,
        button: Button | None,
    ) -> None:
        """`button` is None where the desktop shows no progress."""
        super().__init__(window)
        self._chat, self._library, self._window = chat, library, window
        self._awake, self._button = awake, button
        self._shown: float | None = None
        library.downloads_changed.connect(self._update)
        chat.generations_changed.connect(self._update)

    def _update(self) -> None:
        active = [row for row in self._library.downloads if row.phase in ACTIVE]
        self._awake.ask(bool(active or self._chat.generations))
        progress = progress_of(active)
        if progress != self._shown and self._button is not None:
            self._shown = progress
            self._button.show(int(self._window.winId()), progress)


def progress_of(active: Sequence[Download]) -> float | None:
    """Progress of all downloads together, in steps of a hundredth; below 0: a size is unknown."""
    if not active:
        return None
    if not all(row.size_bytes for row in active):
        return -1.0
    done, size = sum(row.done_bytes for row in active), sum(row.size_bytes for row in active)
    return int(100 * min(done / size, 1.0)) / 100
