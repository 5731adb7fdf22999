"""Tells the system of work in progress: its taskbar shows downloads, and it does not fall asleep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.downloads.entry import ACTIVE
from app.downloads.policy import InstallStep
from app.state.chat import State as ChatState
from app.state.gpu import GPUState
from app.state.library import LibraryState
from app.state.updates import GetPhase, UpdateState
from app.system.awake import Awake


class Button(Protocol):
    """The taskbar button of a window."""

    def show(self, window: int, progress: float | None) -> None:
        """Show progress from 0 to 1; below 0: not known; None: nothing."""


class WorkShown(QObject):
    """Watches what is downloaded (models, GPU support, a newer version), and answers."""

    def __init__(
        self,
        chat: ChatState,
        library: LibraryState,
        gpu: GPUState,
        updates: UpdateState,
        window: QWidget,
        awake: Awake,
        button: Button | None,
    ) -> None:
        """`button` is None where the desktop shows no progress."""
        super().__init__(window)
        self._chat, self._library, self._window = chat, library, window
        self._gpu, self._updates = gpu, updates
        self._awake, self._button = awake, button
        self._shown: float | None = None
        library.downloads_changed.connect(self._update)
        for changed in (chat.generations_changed, gpu.changed, updates.changed):
            changed.connect(self._update)

    def _update(self) -> None:
        rows = [row for row in self._library.downloads if row.phase in ACTIVE]
        active = [(row.done_bytes, row.size_bytes) for row in rows]
        install, update = self._gpu.view.progress, self._updates.status
        if install is not None and install.step is not InstallStep.WAITING:
            active.append((install.done_bytes, install.size_bytes))
        if update.phase is GetPhase.GETTING and update.package is not None:
            size = update.package.size_bytes
            active.append((size * update.percent // 100, size))
        self._awake.ask(bool(active or self._chat.generations))
        progress = progress_of(active)
        if progress != self._shown and self._button is not None:
            self._shown = progress
            self._button.show(int(self._window.winId()), progress)


def progress_of(active: Sequence[tuple[int, int]]) -> float | None:
    """Progress of downloads together, each by its done and whole bytes, in steps of a hundredth.

    Below 0: a size is unknown.
    """
    if not active:
        return None
    if not all(size for _, size in active):
        return -1.0
    done, size = map(sum, zip(*active, strict=True))
    return int(100 * min(done / size, 1.0)) / 100
