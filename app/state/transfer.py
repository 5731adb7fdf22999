"""Observable state of an import or export: what a file contains, and how far the work is.

Only `app.chat.transfer` changes it; values are immutable, as in `app.state.chat`.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.domain.transfer import ImportPreview, Progress
from app.state.read_only import ReadOnly


class TransferState(QObject):
    """Observable; the signal is sent after the values have changed."""

    changed = Signal()

    preview = ReadOnly[ImportPreview | None]()  # the user is asked about it
    progress = ReadOnly[Progress | None]()  # None: nothing is being done

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._preview: ImportPreview | None = None
        self._progress: Progress | None = None

    # --- changing: app.chat.transfer only -------------------------------------------------------

    def show(self, preview: ImportPreview | None, progress: Progress | None) -> None:
        """Set both."""
        if (preview, progress) != (self._preview, self._progress):
            self._preview, self._progress = preview, progress
            self.changed.emit()
